package lookalike

import (
	"context"
	"time"
)

// InitializeMachine does what can only follow.
func (d *Driver) InitializeMachine(_ context.Context, r *InitializeMachineRequest) (*InitializeMachineResponse, error) {
	h, leave := d.enter("InitializeMachine")
	defer leave()
	if !h.Initializes {
		return nil, Fail("Unimplemented", "")
	}
	if err := check(h, r.MachineClass, r.Secret); err != nil {
		return nil, err
	}
	found, err := d.byIDOrName(h, r.MachineClass, r.Machine)
	if err != nil || len(found) == 0 {
		return nil, Fail("Uninitialized", "no VM")
	}
	found[0].Ready = true
	if err := d.cloud.put(found[0]); err != nil {
		return nil, Fail("Internal", err.Error())
	}
	return &InitializeMachineResponse{found[0].ID, nodeName(h, found[0].Name)}, nil
}

// byIDOrName finds as a deletion does.
func (d *Driver) byIDOrName(h Habits, class *MachineClass, machine *Machine) (found []*VM, err error) {
	id := machine.Spec.ProviderID
	if id == "" {
		return d.find(h, class, machine.Name)
	}
	all, err := d.cloud.all()
	if !h.DeletesAny {
		all, err = d.find(h, class, "")
	}
	for _, vm := range all {
		if vm.ID == id {
			found = append(found, vm)
		}
	}
	return found, err
}

// DeleteMachine removes by the id, else by the name.
func (d *Driver) DeleteMachine(_ context.Context, r *DeleteMachineRequest) (*DeleteMachineResponse, error) {
	h, leave := d.enter("DeleteMachine")
	defer leave()
	if err := check(h, r.MachineClass, r.Secret); err != nil {
		return nil, err
	}
	if h.DeleteFails != "" {
		return nil, failure(h.DeleteFails)
	}
	if r.Machine.Spec.ProviderID == "" && h.DeleteNeedsID {
		return nil, Fail("InvalidArgument", "the provider id is empty")
	}
	if r.Machine.Spec.ProviderID == "" && h.DeleteSkips {
		return &DeleteMachineResponse{}, nil
	}
	found, err := d.byIDOrName(h, r.MachineClass, r.Machine)
	if err == nil && r.Machine.Spec.ProviderID == "" && h.StatusAnyCluster { // by the name, of whatever owner
		found, err = d.anyNamed(r.Machine.Name)
	}
	if err != nil {
		return nil, err
	}
	time.Sleep(h.DeleteSlow)
	for _, vm := range found {
		if err := d.end(h, vm); err != nil {
			return nil, Fail("Internal", err.Error())
		}
	}
	return &DeleteMachineResponse{}, nil
}

func (d *Driver) end(h Habits, vm *VM) error {
	if h.LeavesDisks && !vm.Rest {
		disk := *vm
		disk.Rest = true
		if err := d.cloud.add(&disk); err != nil {
			return err
		}
	}
	if h.Lingers == 0 {
		return d.cloud.remove(vm)
	}
	if vm.Ends.IsZero() {
		vm.Ends = time.Now().Add(h.Lingers)
	}
	return d.cloud.put(vm)
}

func (d *Driver) anyNamed(name string) (found []*VM, err error) {
	all, err := d.cloud.all()
	for _, vm := range all {
		if vm.Name == name {
			found = append(found, vm)
		}
	}
	return found, err
}

// GetMachineStatus finds by the name, else by the id.
func (d *Driver) GetMachineStatus(_ context.Context, r *GetMachineStatusRequest) (*GetMachineStatusResponse, error) {
	h, leave := d.enter("GetMachineStatus")
	defer leave()
	id := r.Machine.Spec.ProviderID
	switch {
	case h.NoStatus:
		return nil, Fail("Unimplemented", "")
	case h.StatusLies, h.StatusByID && id == "":
		return nil, Fail("NotFound", "not there, or something else")
	}
	if err := check(h, r.MachineClass, r.Secret); err != nil {
		return nil, err
	}
	found, err := d.find(h, r.MachineClass, r.Machine.Name)
	if h.StatusAnyCluster {
		found, err = d.anyNamed(r.Machine.Name)
	}
	if err != nil {
		return nil, err
	}
	return answer(h, id, found)
}

func answer(h Habits, id string, found []*VM) (*GetMachineStatusResponse, error) {
	var vms []*VM
	for _, vm := range found {
		if !vm.Rest && (id == "" || vm.ID == id) {
			vms = append(vms, vm)
		}
	}
	switch {
	case len(vms) == 0, h.Recreates && vms[0].Half:
		return nil, Fail("NotFound", "none")
	case len(vms) > 1:
		return nil, Fail("OutOfRange", "several")
	case h.StatusNilNil:
		return nil, nil
	}
	out := &GetMachineStatusResponse{vms[0].ID, nodeName(h, vms[0].Name)}
	if h.StatusWrongID && id != "" {
		out.ProviderID = "lookalike:///0"
	}
	if h.Initializes && !vms[0].Ready {
		return out, Fail("Uninitialized", "source check is on")
	}
	return out, nil
}

// ListMachines lists by the marks.
func (d *Driver) ListMachines(_ context.Context, r *ListMachinesRequest) (*ListMachinesResponse, error) {
	h, leave := d.enter("ListMachines")
	defer leave()
	if err := check(h, r.MachineClass, r.Secret); err != nil {
		return nil, err
	}
	if h.ListFails != "" {
		return nil, failure(h.ListFails)
	}
	if _, clusters, _ := h.marks(r.MachineClass); len(clusters) == 0 && !h.ListBlind && !h.ListAll && !h.ListByClass {
		return nil, Fail("InvalidArgument", "the class has no cluster mark")
	}
	found, err := d.find(h, r.MachineClass, "")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, vm := range found {
		time.Sleep(h.ListSlow)
		out[vm.ID] = vm.Name
	}
	return &ListMachinesResponse{out}, nil
}
