package sdk

import (
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	pb "millwright.dev/provider-sdk/driverv1"
)

var (
	clusterForm = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
	labelForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	uidForm     = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)
	partForm    = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	tagKeyForm  = regexp.MustCompile(`^[a-z0-9-./]{1,63}$`)
)

// check collects the faults of a request, all at once.
type check struct {
	driver string
	faults []Violation
}

func (c *check) fault(field, format string, arguments ...any) {
	c.faults = append(c.faults, Violation{field, fmt.Sprintf(format, arguments...)})
}

func (c *check) size(field string, size, most int) {
	if size > most {
		c.fault(field, "is %d bytes long, at most %d are allowed", size, most)
	}
}

func (c *check) cluster(field, id string) {
	if !clusterForm.MatchString(id) {
		c.fault(field, "must be 1 to 63 characters of [a-z0-9-]")
	}
}

func (c *check) key(key *pb.MachineKey, uidless bool) {
	if key == nil {
		c.fault("key", "is required")
		return
	}
	c.cluster("key.cluster_id", key.ClusterId)
	if key.Namespace == "" || len(key.Namespace) > 253 {
		c.fault("key.namespace", "must have 1 to 253 bytes")
	}
	if len(key.Name) > 253 || !labelForm.MatchString(key.Name) {
		c.fault("key.name", "must be a DNS-1123 subdomain of 1 to 253 bytes")
	}
	if !uidForm.MatchString(key.Uid) && !(uidless && key.Uid == "") {
		c.fault("key.uid", "must be a UUID of 36 characters")
	}
}

func (c *check) class(class *pb.MachineClass, whole bool) {
	if class == nil {
		c.fault("machine_class", "is required")
		return
	}
	c.size("machine_class.name", len(class.Name), 256)
	c.size("machine_class.namespace", len(class.Namespace), 256)
	if class.Provider != c.driver {
		c.fault("machine_class.provider", "must be %q, this driver's name, not %q", c.driver, Cut(class.Provider, 64))
	}
	if class.ProviderSpec == nil && (whole || class.Locator == nil) {
		c.fault("machine_class.provider_spec", "is required")
	}
	c.structure("machine_class.provider_spec", class.ProviderSpec, 256<<10)
	c.structure("machine_class.locator", class.Locator, 4<<10)
	if len(class.LegacyMarks) > 16 {
		c.fault("machine_class.legacy_marks", "has %d entries, at most 16 are allowed", len(class.LegacyMarks))
	}
	sum := 0
	for key, value := range class.Labels {
		sum += len(key) + len(value)
	}
	c.size("machine_class.labels", sum, 256<<10)
	if whole {
		c.labels("machine_class.labels", class.Labels)
		c.labels("machine_class.node_template.labels", class.NodeTemplate.GetLabels())
	}
}

// labels checks what Kubernetes would refuse on an object (GEN-43).
func (c *check) labels(field string, of map[string]string) {
	for key, value := range of {
		c.qualified(field, key)
		if value != "" && (len(value) > 63 || !partForm.MatchString(value)) {
			c.fault(field, "has a value that Kubernetes does not allow: at most 63 of [A-Za-z0-9-_.], at the ends a letter or digit")
		}
	}
}

// qualified checks the key of a label or an annotation.
func (c *check) qualified(field, key string) {
	prefix, name, has := strings.Cut(key, "/")
	if !has {
		prefix, name = "", key
	}
	if len(name) > 63 || !partForm.MatchString(name) || has && (len(prefix) > 253 || !labelForm.MatchString(prefix)) {
		c.fault(field, "has a key that Kubernetes does not allow: %q", Cut(key, 64))
	}
}

func (c *check) structure(field string, of *structpb.Struct, most int) {
	if of == nil {
		return
	}
	text, err := protojson.Marshal(of)
	if err != nil {
		c.fault(field, "holds a number that is not finite")
		return
	}
	c.size(field, len(text), most)
}

func (c *check) secret(data map[string][]byte) {
	sum := 0
	for key, value := range data {
		sum += len(key) + len(value)
		c.size("secret_data", len(key), 256)
	}
	if len(data) > 64 {
		c.fault("secret_data", "has %d entries, at most 64 are allowed", len(data))
	}
	c.size("secret_data", sum, 128<<10)
}

func (c *check) create(r *pb.CreateMachineRequest) {
	c.key(r.Key, false)
	c.class(r.MachineClass, true)
	c.secret(r.SecretData)
	c.size("user_data", len(r.UserData), 64<<10)
	c.size("spec_digest", len(r.SpecDigest), 256)
	c.size("last_known_state", len(r.LastKnownState), stateMax)
	if len(r.Tags) > 16 {
		c.fault("tags", "has %d entries, at most 16 are allowed", len(r.Tags))
	}
	for key, value := range r.Tags {
		if !tagKeyForm.MatchString(key) {
			c.fault("tags", "has a key that is not 1 to 63 characters of [a-z0-9-./]")
		}
		c.size("tags."+key, len(value), 63)
	}
	if r.MachineClass.GetName() == "" || r.MachineClass.GetNamespace() == "" {
		c.fault("machine_class", "needs a name and a namespace")
	}
	sum := 0
	for _, of := range []map[string]string{r.NodeLabels, r.NodeAnnotations} {
		for key, value := range of {
			sum += len(key) + len(value)
		}
	}
	c.size("node_labels", sum, 256<<10)
	c.labels("node_labels", r.NodeLabels)
	for key := range r.NodeAnnotations {
		c.qualified("node_annotations", strings.ToLower(key)) // as Kubernetes does
	}
}

// validate checks a request before the author sees it (GEN-37 to GEN-43).
func validate(driver string, request any) *Error {
	c := &check{driver: driver}
	switch r := request.(type) {
	case *pb.CreateMachineRequest:
		c.create(r)
	case *pb.DeleteMachineRequest:
		c.key(r.Key, r.ProviderId != "")
		c.about(r.ProviderId, r.MachineClass, r.SecretData, r.LastKnownState)
	case *pb.InitializeMachineRequest:
		c.key(r.Key, false)
		c.about(r.ProviderId, r.MachineClass, r.SecretData, r.LastKnownState)
	case *pb.GetMachineStatusRequest:
		c.key(r.Key, false)
		c.about(r.ProviderId, r.MachineClass, r.SecretData, "")
	case *pb.ListMachinesRequest:
		c.cluster("cluster_id", r.ClusterId)
		c.about("", r.MachineClass, r.SecretData, r.PageToken)
		if r.PageSize < 0 {
			c.fault("page_size", "is negative")
		}
	case *pb.WatchMachinesRequest:
		c.cluster("cluster_id", r.ClusterId)
		c.about("", r.MachineClass, r.SecretData, r.ResumeToken)
	case *pb.ValidateMachineClassRequest:
		c.class(r.MachineClass, true)
		c.secret(r.SecretData)
	case *pb.GetNodeTemplateRequest:
		c.class(r.MachineClass, true)
		c.secret(r.SecretData)
	}
	if len(c.faults) == 0 {
		return nil
	}
	first := c.faults[0]
	return &Error{Reason: InvalidField, Message: first.Field + " " + first.Description, Violations: c.faults}
}

func (c *check) about(providerID string, class *pb.MachineClass, secret map[string][]byte, note string) {
	c.size("provider_id", len(providerID), 512)
	c.class(class, false)
	c.secret(secret)
	c.size("last_known_state, page_token or resume_token", len(note), stateMax)
}
