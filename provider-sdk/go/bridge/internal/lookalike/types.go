package lookalike

import "fmt"

// Code is a machine code, with the original's numbers.
type Code uint32

var codeNames = map[Code]string{3: "InvalidArgument", 5: "NotFound", 6: "AlreadyExists", 7: "PermissionDenied", 8: "ResourceExhausted", 10: "Aborted",
	11: "OutOfRange", 12: "Unimplemented", 13: "Internal", 14: "Unavailable", 16: "Unauthenticated", 17: "Uninitialized"}

// String is the code's name.
func (c Code) String() string { return codeNames[c] }

// Status is an error with a code.
type Status struct {
	code    Code
	message string
}

// Code is the code.
func (s *Status) Code() Code { return s.code }

// Error has the form that the original parses.
func (s *Status) Error() string {
	return fmt.Sprintf("machine codes error: code = [%s] message = [%s]", s.code, s.message)
}

// Fail is an error with the code of this name.
func Fail(code, message string) error {
	for number, name := range codeNames {
		if name == code {
			return &Status{number, message}
		}
	}
	return fmt.Errorf("no machine code %s: %s", code, message)
}

// The objects, as far as drivers read them, with the names of Kubernetes' JSON.
type (
	// Meta is metadata.
	Meta struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	// Raw is like runtime.RawExtension.
	Raw struct{ Raw []byte }
	// NodeTemplateSpec is what the node will bear.
	NodeTemplateSpec struct {
		Meta `json:"metadata"`
	}
	// Machine is a Machine.
	Machine struct {
		Meta `json:"metadata"`
		Spec struct {
			ProviderID       string           `json:"providerID"`
			NodeTemplateSpec NodeTemplateSpec `json:"nodeTemplate"`
		} `json:"spec"`
		Status struct {
			LastKnownState string `json:"lastKnownState"`
		} `json:"status"`
	}
	// NodeTemplate is what a node of a class offers.
	NodeTemplate struct {
		Capacity     map[string]string `json:"capacity,omitempty"`
		InstanceType string            `json:"instanceType,omitempty"`
		Region       string            `json:"region,omitempty"`
		Zone         string            `json:"zone,omitempty"`
		Architecture *string           `json:"architecture,omitempty"`
	}
	// MachineClass is a MachineClass.
	MachineClass struct {
		Meta         `json:"metadata"`
		NodeTemplate *NodeTemplate `json:"nodeTemplate,omitempty"`
		Provider     string        `json:"provider"`
		ProviderSpec Raw           `json:"providerSpec"`
	}
	// Secret is a Secret.
	Secret struct {
		Meta `json:"metadata"`
		Data map[string][]byte `json:"data"`
	}
	// NodeAddress is an address.
	NodeAddress struct{ Type, Address string }
)

// UnmarshalJSON keeps the text.
func (r *Raw) UnmarshalJSON(text []byte) error { r.Raw = append([]byte(nil), text...); return nil }

// MarshalJSON gives it back.
func (r Raw) MarshalJSON() ([]byte, error) { return r.Raw, nil }

// The requests and responses.
type (
	// CreateMachineRequest is a request.
	CreateMachineRequest struct {
		Machine      *Machine
		MachineClass *MachineClass
		Secret       *Secret
	}
	// InitializeMachineRequest is a request.
	InitializeMachineRequest CreateMachineRequest
	// DeleteMachineRequest is a request.
	DeleteMachineRequest CreateMachineRequest
	// GetMachineStatusRequest is a request.
	GetMachineStatusRequest CreateMachineRequest
	// ListMachinesRequest is a request.
	ListMachinesRequest struct {
		MachineClass *MachineClass
		Secret       *Secret
	}
	// CreateMachineResponse is a response.
	CreateMachineResponse struct {
		ProviderID, NodeName, LastKnownState string
		Addresses                            []NodeAddress
	}
	// InitializeMachineResponse is a response.
	InitializeMachineResponse struct{ ProviderID, NodeName string }
	// DeleteMachineResponse is a response.
	DeleteMachineResponse struct{ LastKnownState string }
	// GetMachineStatusResponse is a response.
	GetMachineStatusResponse struct{ ProviderID, NodeName string }
	// ListMachinesResponse is a response.
	ListMachinesResponse struct{ MachineList map[string]string }
)
