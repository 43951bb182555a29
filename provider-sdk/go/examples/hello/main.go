// Command hello is a driver in memory: the least that a driver of a real cloud has to have.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

func main() {
	options := sdk.Flags(flag.CommandLine)
	flag.Parse()
	if err := sdk.Serve(&hello{vms: map[string]*pb.Machine{}}, options); err != nil {
		slog.Error("the driver ends", "error", err)
		os.Exit(1)
	}
}

// hello is the driver, and its own cloud: VMs by cluster and uid.
type hello struct {
	mu  sync.Mutex
	vms map[string]*pb.Machine
}

// Info says who this is.
func (h *hello) Info() sdk.Info { return sdk.Info{Name: "hello", Version: "1"} }

func id(key *pb.MachineKey) string { return key.ClusterId + "/" + key.Uid }

// named is the VM of the cluster with the machine's name, whatever uid it bears.
func (h *hello) named(key *pb.MachineKey) *pb.Machine {
	for _, vm := range h.vms {
		if vm.Key.ClusterId == key.ClusterId && vm.Key.Namespace == key.Namespace && sdk.SameName(vm.Key.Name, key.Name) {
			return vm
		}
	}
	return nil
}

// CreateMachine looks first, and makes a VM where there is none.
func (h *hello) CreateMachine(_ context.Context, r *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if vm := h.vms[id(r.Key)]; vm != nil {
		if !sdk.SameDigest(vm.SpecDigest, r.SpecDigest) {
			return nil, sdk.Fail(sdk.SpecConflict, "the VM was made of another spec")
		}
		return &pb.CreateMachineResponse{Machine: vm}, nil
	}
	if h.named(r.Key) != nil {
		return nil, sdk.Fail(sdk.NameConflict, "another machine's VM has the name %s", r.Key.Name)
	}
	vm := &pb.Machine{
		Key: r.Key, ProviderId: fmt.Sprintf("hello:///%s", r.Key.Uid), NodeName: sdk.NodeName(r.Key), State: pb.Machine_STATE_RUNNING,
		MachineClass: r.MachineClass.Name, SpecDigest: r.SpecDigest, CreateTime: timestamppb.Now(),
	}
	h.vms[id(r.Key)] = vm
	return &pb.CreateMachineResponse{Machine: vm}, nil
}

// DeleteMachine removes the VM of the uid; none is DELETED, too.
func (h *hello) DeleteMachine(_ context.Context, r *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, found := h.vms[id(r.Key)]; found {
		delete(h.vms, id(r.Key))
		return &pb.DeleteMachineResponse{State: pb.Machine_STATE_DELETED}, nil
	}
	for _, vm := range h.vms {
		if vm.ProviderId == r.ProviderId {
			return nil, sdk.Fail(sdk.NotOwned, "the VM is that of another machine")
		}
	}
	return &pb.DeleteMachineResponse{State: pb.Machine_STATE_DELETED}, nil
}

// GetMachineStatus finds the VM of the uid, or the one that a restored machine names (GET-5).
func (h *hello) GetMachineStatus(_ context.Context, r *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	vm := h.vms[id(r.Key)]
	for _, other := range h.vms {
		isRestored := other.Key.ClusterId == r.Key.ClusterId && sdk.SameName(other.Key.Name, r.Key.Name)
		if vm == nil && other.ProviderId == r.ProviderId && isRestored {
			vm = other
		}
	}
	if vm == nil {
		return nil, sdk.Fail(sdk.MachineNotFound, "there is no VM of this uid")
	}
	return &pb.GetMachineStatusResponse{Machine: vm}, nil
}

// ListMachines lists the VMs of the cluster, in one page.
func (h *hello) ListMachines(_ context.Context, r *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := &pb.ListMachinesResponse{}
	for _, vm := range h.vms {
		if vm.Key.ClusterId == r.ClusterId {
			out.Machines = append(out.Machines, vm)
		}
	}
	return out, nil
}
