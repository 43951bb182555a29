package bridge

import (
	"fmt"
	"strings"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

// marks are the two keys by which the original's drivers tell a cluster's VMs: one that names the cluster and one that names a
// role. They look at keys alone, and take any key that contains the prefix.
type marks struct{ cluster, role string }

// marksIn finds the marks of a class: in a map of tags, in a list of them, or among the labels of the class.
func (p profile) marksIn(spec map[string]any, labels map[string]string) (found marks) {
	see := func(key string) {
		if p.cluster != "" && strings.Contains(key, p.cluster) {
			found.cluster = key
		} else if p.role != "" && strings.Contains(key, p.role) {
			found.role = key
		}
	}
	if p.inLabels {
		for key := range labels {
			see(key)
		}
		return found
	}
	switch tags := at(spec, p.tagPath(spec, inTags)).(type) {
	case map[string]any:
		for key := range tags {
			see(key)
		}
	case []any:
		for _, key := range tags {
			see(fmt.Sprint(key))
		}
	}
	return found
}

// blind says why the driver's lists would show nothing of a class, whatever there is.
func (p profile) blind(spec map[string]any, labels map[string]string) string {
	found := p.marksIn(spec, labels)
	if (p.cluster == "" || found.cluster != "") && (p.role == "" || found.role != "") {
		return ""
	}
	where, what := "tags of the spec", fmt.Sprintf("a key %s…", p.cluster)
	if p.inLabels {
		where = "labels of the MachineClass"
	}
	if p.role != "" {
		what += fmt.Sprintf(" and one %s…", p.role)
	}
	return fmt.Sprintf("the %s must have %s: by them the driver finds the VMs of the cluster, and without them it finds none", where, what)
}

// tagPath is where a map or list of tags is: at the top, or below "spec" as in OpenStack's classes.
func (p profile) tagPath(spec map[string]any, field []string) []string {
	if _, nested := spec["spec"].(map[string]any); nested && at(spec, field) == nil {
		return append([]string{"spec"}, field...)
	}
	return field
}

func at(value any, path []string) any {
	for _, field := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = fields[field]
	}
	return value
}

// Roles of our own: one that every VM bears that this bridge made, and one that only one machine's VM bears. Neither is a
// second cluster key.
func (p profile) anyRole() string           { return p.role + "millwright" }
func (p profile) uidRoleOf(u string) string { return p.role + "millwright-uid-" + u }

// withIdentity is the spec with the tags that a VM is made with; what the class says itself stays.
func (p profile) withIdentity(spec map[string]any, r *pb.CreateMachineRequest) map[string]any {
	if p.form == nowhere {
		return spec
	}
	tags := map[string]string{}
	for key, value := range sdk.Tags(r) {
		if p.form == dashed || p.form == narrow {
			key = strings.NewReplacer("/", "-", ".", "-").Replace(key)
		}
		if p.form == narrow {
			value = sdk.Cut(sdk.EncodeTag(value), 63) // a name may be cut: the uid is what identifies
		}
		tags[key] = value
	}
	if p.uidRole {
		tags[p.anyRole()], tags[p.uidRoleOf(r.Key.Uid)] = "1", "1"
	}
	return replaced(spec, p.tagPath(spec, p.identity), func(old any) any { return p.added(old, tags) })
}

func (p profile) added(old any, tags map[string]string) any {
	if p.form == asList {
		list, _ := old.([]any)
		list = append([]any{}, list...)
		for _, key := range sortedKeys(tags) {
			list = append(list, key+"="+tags[key])
		}
		return list
	}
	all := map[string]any{}
	for key, value := range tags {
		all[key] = value
	}
	own, _ := old.(map[string]any)
	for key, value := range own {
		all[key] = value
	}
	return all
}

// askingFor is the spec with which the driver's list shows only VMs of this role.
func (p profile) askingFor(spec map[string]any, found marks, role string) map[string]any {
	return replaced(spec, p.tagPath(spec, inTags), func(old any) any {
		own, _ := old.(map[string]any)
		return map[string]any{found.cluster: own[found.cluster], role: "1"}
	})
}

// older is the spec with an older controller's marks in the place of the class's own, and nil where they are no others, or are
// not what the driver lists by.
func (p profile) older(spec map[string]any, now marks, legacy map[string]string) map[string]any {
	tags, isMap := at(spec, p.tagPath(spec, inTags)).(map[string]any)
	if p.cluster == "" || p.inLabels || !isMap || len(legacy) == 0 {
		return nil
	}
	then := p.marksIn(map[string]any{"tags": anyMap(legacy)}, nil)
	if then.cluster == "" {
		return nil
	}
	then.role = cmpOr(then.role, now.role)
	if then == now {
		return nil
	}
	return replaced(spec, p.tagPath(spec, inTags), func(any) any {
		changed := map[string]any{then.cluster: cmpOr(legacy[then.cluster], "1"), then.role: cmpOr(legacy[then.role], "1")}
		for key, value := range tags {
			if key != now.cluster && key != now.role {
				changed[key] = value
			}
		}
		return changed
	})
}

// replaced copies the maps along a path and changes what is at its end.
func replaced(value any, path []string, change func(any) any) map[string]any {
	old, _ := value.(map[string]any)
	copied := make(map[string]any, len(old)+1)
	for key, value := range old {
		copied[key] = value
	}
	if len(path) == 1 {
		copied[path[0]] = change(old[path[0]])
	} else {
		copied[path[0]] = replaced(old[path[0]], path[1:], change)
	}
	return copied
}
