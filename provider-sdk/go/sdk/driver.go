// Package sdk serves the Driver API (machine.driver.v1) for a driver that is written in Go.
//
// An author implements Driver and calls Serve. Before a call reaches the author the SDK has checked the peer, the request's
// fields and sizes and the leader's epoch; mutating calls of one Machine never run at the same time, repeats join the call
// that runs, and the work goes on when its caller is gone.
package sdk

import (
	"context"
	"time"

	pb "millwright.dev/provider-sdk/driverv1"
)

// Info says who a driver is. It stays the same for the life of the process.
type Info struct {
	// Name is what MachineClass.provider says.
	Name string
	// Version is the driver's own.
	Version string
	// PropagationDelay is how long the provider may not show a VM that it has accepted. After a start the SDK believes no
	// "there is none" before it has passed: the process before this one may have sent a creation with its last breath.
	PropagationDelay time.Duration
	// Settles says that CreateMachine itself allows for PropagationDelay where it finds no VM: after a start, and after a creation
	// of which it does not know what came. Else the SDK waits that long before it calls it, also where a VM is to be seen at once.
	Settles bool
	// Interruptions says that Machine.interruption is filled in.
	Interruptions bool
	CallAdvice    []*pb.CallAdvice
	// Manifest holds facts for people.
	Manifest map[string]string
}

// Driver is what every driver implements. The context of CreateMachine and DeleteMachine outlives the caller; it ends
// when a deletion cancels a creation, when the process stops, or after an hour. Mind it: a call that does not end with it is given up. Return an *Error where something fails.
type Driver interface {
	Info() Info
	// CreateMachine makes sure of one VM: it looks for one of the uid first, and marks a new one with Tags(request).
	CreateMachine(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error)
	// DeleteMachine removes the VM and all that was made for it; no such VM is STATE_DELETED.
	DeleteMachine(context.Context, *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error)
	// GetMachineStatus finds the VM by the uid, or fails with MachineNotFound.
	GetMachineStatus(context.Context, *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error)
	// ListMachines lists all VMs of the cluster. The SDK has set page_size to 1 … 1000.
	ListMachines(context.Context, *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error)
}

// The other calls are optional: a driver that has the method has the capability.
type (
	// Initializer has steps that can only follow the creation.
	Initializer interface {
		InitializeMachine(context.Context, *pb.InitializeMachineRequest) (*pb.InitializeMachineResponse, error)
	}
	// Validator checks classes and says where their VMs are (locator).
	Validator interface {
		ValidateMachineClass(context.Context, *pb.ValidateMachineClassRequest) (*pb.ValidateMachineClassResponse, error)
	}
	// Templater says what a node of a class would offer.
	Templater interface {
		GetNodeTemplate(context.Context, *pb.GetNodeTemplateRequest) (*pb.GetNodeTemplateResponse, error)
	}
	// Schemer has a JSON Schema of the class's spec.
	Schemer interface {
		GetMachineClassSchema(context.Context, *pb.GetMachineClassSchemaRequest) (*pb.GetMachineClassSchemaResponse, error)
	}
	// Watcher sends all VMs, TYPE_SYNCED, then changes, until the context ends. The SDK adds the heartbeats.
	Watcher interface {
		WatchMachines(ctx context.Context, request *pb.WatchMachinesRequest, send func(*pb.WatchMachinesResponse) error) error
	}
	// Scoper widens what runs once at a time: calls of one scope exclude each other, though their uids differ.
	Scoper interface {
		Scope(*pb.MachineKey) string
	}
)

func capabilities(driver Driver, info Info) (all []pb.Capability) {
	add := func(has bool, capability pb.Capability) {
		if has {
			all = append(all, capability)
		}
	}
	_, initializes := driver.(Initializer)
	_, watches := driver.(Watcher)
	_, hasSchema := driver.(Schemer)
	_, validates := driver.(Validator)
	_, hasTemplates := driver.(Templater)
	add(initializes, pb.Capability_CAPABILITY_INITIALIZE_MACHINE)
	add(watches, pb.Capability_CAPABILITY_WATCH_MACHINES)
	add(hasSchema, pb.Capability_CAPABILITY_MACHINE_CLASS_SCHEMA)
	add(validates, pb.Capability_CAPABILITY_VALIDATE_MACHINE_CLASS)
	add(hasTemplates, pb.Capability_CAPABILITY_NODE_TEMPLATE)
	add(info.Interruptions, pb.Capability_CAPABILITY_INTERRUPTIONS)
	return all
}
