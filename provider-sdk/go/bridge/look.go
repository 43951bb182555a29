package bridge

import (
	"context"

	"millwright.dev/provider-sdk/sdk"
)

// sight is what is seen of a machine's VM.
type sight struct {
	id, nodeName string
	addresses    []address
	spec         map[string]any // by which the driver found it
	rest         bool           // something is listed under the name, and the VM is not there
	unlisted     bool           // found by the name, and the cluster's list does not show it: it may be another cluster's
	uninitial    bool           // InitializeMachine has work to do
	message      string         // why
}

// look looks for the VM of a machine. Nothing is nil, and two witnesses stand for it: GetMachineStatus said NotFound (where the
// driver has that call), and a complete list that was begun afterwards does not show the name. One alone is not enough: some
// drivers say NotFound to any error, or where they are given no provider id; some lists leave VMs out. An id is given to the
// driver only if its list shows it under the machine's name: by an id some find VMs that are gone, and of any owner.
func (b *Bridge) look(ctx context.Context, r *request) (*sight, *sdk.Error) {
	first, failed := b.status(ctx, r, listed{spec: r.spec})
	if failed != nil {
		return nil, failed
	}
	found, failed := b.named(ctx, r)
	switch {
	case failed != nil:
		return nil, failed
	case len(found) > 1:
		return nil, duplicates(r, found)
	case len(found) == 0 && first != nil: // the list lags, or the status checks no tags
		first.unlisted = first.id != b.memory.of(r.key).providerID
		return first, nil
	case len(found) == 0:
		return nil, nil
	}
	return b.witness(ctx, r, found[0], first)
}

// witness puts the list's VM and the status of it together.
func (b *Bridge) witness(ctx context.Context, r *request, vm listed, first *sight) (*sight, *sdk.Error) {
	if !b.driver.has(callStatus) {
		return &sight{id: vm.id, spec: vm.spec}, nil
	}
	seen, failed := first, (*sdk.Error)(nil)
	if seen == nil {
		seen, failed = b.status(ctx, r, vm)
	}
	if failed != nil {
		return nil, failed
	}
	if seen == nil { // listed, and not there: on its way out, or a disk or an interface that is left
		return &sight{id: vm.id, spec: vm.spec, rest: true}, nil
	}
	seen.id, seen.spec = vm.id, vm.spec // the list's id is the one that counts: one driver's status tells another
	return seen, nil
}

// named are the VMs that the cluster's lists show under the machine's name.
func (b *Bridge) named(ctx context.Context, r *request) (found []listed, failed *sdk.Error) {
	all, failed := b.all(ctx, r)
	if failed != nil {
		return nil, failed
	}
	for _, vm := range all {
		if vm.name == r.key.Name {
			found = append(found, vm)
		}
	}
	return found, nil
}

func duplicates(r *request, found []listed) *sdk.Error {
	failed := sdk.Fail(sdk.DuplicateVMs, "%d VMs bear the name %s", len(found), r.key.Name)
	for _, vm := range found {
		failed.ProviderIDs = append(failed.ProviderIDs, vm.id)
	}
	return failed
}

// status asks GetMachineStatus; nil is NotFound, or a driver without that call.
func (b *Bridge) status(ctx context.Context, r *request, vm listed) (*sight, *sdk.Error) {
	if !b.driver.has(callStatus) {
		return nil, nil
	}
	out, failed := b.driver.call(ctx, callStatus, r.fields(vm.spec, vm.id, nil))
	seen := &sight{id: out.providerID, nodeName: out.nodeName, addresses: out.addresses, spec: vm.spec}
	there := out.providerID != "" || vm.id != "" // one driver answers nothing at all for a VM that is there
	switch {
	case failed == nil && there:
		return seen, nil
	case failed != nil && failed.code == codeUninitialized && there:
		seen.uninitial, seen.message = true, b.problem(callStatus, failed, r, nil).Message
		return seen, nil
	case failed == nil, failed.code == codeNotFound, failed.code == codeUnimplemented, failed.code == "OutOfRange":
		return nil, nil // of several VMs the list tells the ids
	case vm.id == "" && b.profile.needsID:
		return nil, nil
	}
	return nil, b.problem(callStatus, failed, r, nil)
}

// owner is whose a VM of the machine's name is.
type owner int

const (
	untold owner = iota // the driver's tags cannot be asked: the name decides
	mine                // the machine's uid
	legacy              // no uid: of an older controller, and so the machine's own
	other               // another uid's
)

// ownerOf tells by what this process remembers, else by the roles that only our VMs bear, which the driver's own list filters by.
func (b *Bridge) ownerOf(ctx context.Context, r *request, id string) (owner, *sdk.Error) {
	if own := b.memory.owner(id); own != nil && own.Uid == r.key.Uid {
		return mine, nil
	} else if own != nil {
		return other, nil
	}
	if !b.profile.uidRole || r.marks.cluster == "" {
		return untold, nil
	}
	for _, role := range []struct {
		name string
		of   owner
	}{{b.profile.uidRoleOf(r.key.Uid), mine}, {b.profile.anyRole(), other}} {
		out, failed := b.list(ctx, r, b.profile.askingFor(r.spec, r.marks, role.name))
		if failed != nil {
			return untold, failed
		}
		_, shown := out.machines[id]
		if !shown || r.key.Uid == "" && role.of == mine {
			continue
		}
		if role.of == mine {
			b.memory.own(r.key, id)
		}
		return role.of, nil
	}
	return legacy, nil
}
