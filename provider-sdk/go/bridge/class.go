package bridge

import (
	"maps"
	"slices"

	pb "millwright.dev/provider-sdk/driverv1"
)

// request is what every call about a class's VMs has. Where the class has a locator, it says where to look.
type request struct {
	key       *pb.MachineKey
	class     *pb.MachineClass
	spec      map[string]any // where to look
	labels    map[string]string
	className string // some drivers list by it
	marks     marks
	secret    map[string][]byte
	state     string // last known state
	// Of the node, in a creation.
	nodeLabels, nodeAnnotations map[string]string
}

func requestFor(p profile, key *pb.MachineKey, class *pb.MachineClass, secret map[string][]byte, state string) *request {
	r := &request{key: key, class: class, secret: secret, state: state, spec: class.ProviderSpec.AsMap(), labels: class.Labels, className: class.Name}
	if class.Locator != nil {
		r.locate(class.Locator.AsMap())
	}
	r.marks = p.marksIn(r.spec, r.labels)
	return r
}

// fields are those of the driver's request.
func (r *request) fields(spec map[string]any, providerID string, userData []byte) fields {
	out := fields{"MachineClass": r.classJSON(spec), "Secret": r.secretJSON(userData)}
	if r.key != nil {
		out["Machine"] = r.machineJSON(providerID)
	}
	return out
}

// classJSON is a MachineClass as the driver's type reads it from JSON.
func (r *request) classJSON(spec map[string]any) map[string]any {
	metadata := map[string]any{"name": r.className, "namespace": r.class.Namespace}
	if len(r.labels) > 0 {
		metadata["labels"] = r.labels
	}
	out := map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": metadata,
		"provider": r.class.Provider, "providerSpec": spec, "secretRef": map[string]any{"name": r.className, "namespace": r.class.Namespace},
	}
	if node := r.class.NodeTemplate; node != nil {
		template := map[string]any{"instanceType": node.InstanceType, "region": node.Region, "zone": node.Zone}
		if len(node.Capacity) > 0 {
			template["capacity"] = node.Capacity
		}
		if node.Architecture != "" {
			template["architecture"] = node.Architecture
		}
		out["nodeTemplate"] = template
	}
	return out
}

// machineJSON is a Machine as the driver's type reads it from JSON.
func (r *request) machineJSON(providerID string) map[string]any {
	spec := map[string]any{"class": map[string]any{"kind": "MachineClass", "name": r.className}, "providerID": providerID}
	if len(r.nodeLabels)+len(r.nodeAnnotations) > 0 {
		spec["nodeTemplate"] = map[string]any{"metadata": map[string]any{"labels": r.nodeLabels, "annotations": r.nodeAnnotations}}
	}
	return map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
		"metadata": map[string]any{"name": r.key.Name, "namespace": r.key.Namespace, "uid": r.key.Uid},
		"spec":     spec, "status": map[string]any{"lastKnownState": r.state},
	}
}

// secretJSON is a Secret as the driver's type reads it from JSON. Drivers check that it has user data in every call, also where
// they read none.
func (r *request) secretJSON(userData []byte) map[string]any {
	all := map[string][]byte{"userData": []byte("#")}
	maps.Copy(all, r.secret)
	if len(userData) > 0 {
		all["userData"] = userData
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": r.className, "namespace": r.class.Namespace}, "data": all,
	}
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

func anyMap(of map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range of {
		out[key] = value
	}
	return out
}
