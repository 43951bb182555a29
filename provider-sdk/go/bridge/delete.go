package bridge

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

// DeleteMachine lets the driver delete what the cluster's list shows under the machine's name, and looks whether it is gone.
func (b *Bridge) DeleteMachine(ctx context.Context, in *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	r := requestFor(b.profile, in.Key, in.MachineClass, in.SecretData, in.LastKnownState)
	if failed := b.sighted(r); failed != nil {
		return nil, failed
	}
	deleting := &pb.DeleteMachineResponse{State: pb.Machine_STATE_DELETING, PollAfter: durationpb.New(3 * time.Second)}
	early := time.AfterFunc(b.deletePatience, func() { sdk.Accept(ctx, deleting) })
	defer early.Stop()
	gone, failed := b.delete(ctx, r, in.ProviderId)
	if failed != nil {
		return nil, failed
	}
	if !gone {
		return deleting, nil
	}
	return &pb.DeleteMachineResponse{State: pb.Machine_STATE_DELETED}, nil
}

// sighted refuses a class by which the driver would see nothing: "none" would be said of VMs that are there (GEN-30).
func (b *Bridge) sighted(r *request) *sdk.Error {
	if why := b.profile.blind(r.spec, r.labels); why != "" {
		return sdk.Fail(sdk.CredentialsMissing, "%s", why).With("missing", "/tags")
	}
	return nil
}

func (b *Bridge) delete(ctx context.Context, r *request, hint string) (gone bool, failed *sdk.Error) {
	all, failed := b.all(ctx, r)
	if failed != nil {
		return false, failed
	}
	mine, foreign, failed := b.deletable(ctx, r, all, hint)
	if failed != nil {
		return false, failed
	}
	// By a provider id some drivers delete any VM of the account, so only ids that the cluster's list shows under this name are
	// given to them. Without one they look by the name and remove what else they made: ports, disks, addresses.
	byName := len(mine) == 0 && !foreign && !b.profile.needsID && r.key.Uid != ""
	if byName {
		first, failed := b.status(ctx, r, listed{spec: r.spec})
		if failed != nil {
			return false, failed
		}
		// Found by the name and not listed: another cluster's, where the driver checks no tags.
		byName = first == nil || first.id == b.memory.of(r.key).providerID
	}
	if byName {
		mine = []listed{{spec: r.spec}}
	}
	if len(mine) > 0 && r.key.Uid != "" {
		b.memory.change(r.key, func(known *record) { known.doing = pb.Machine_STATE_DELETING })
		defer b.memory.change(r.key, func(known *record) { known.doing = 0 })
	}
	for _, vm := range mine {
		slog.Info("deleting", "machine", place(r.key), "uid", r.key.Uid, "vm", vm.id)
		out, failed := b.driver.call(ctx, callDelete, r.fields(vm.spec, vm.id, nil))
		if failed != nil && failed.code != codeNotFound {
			why := b.problem(callDelete, failed, r, nil)
			why.LastKnownState, why.Outcome = note(r, out.lastKnownState), sdk.Partial
			return false, why
		}
	}
	if len(mine) > 0 && !byName {
		return false, nil // asked again, it looks whether the VM is gone, and clears away the rest by the name
	}
	return b.gone(ctx, r, foreign)
}

// gone looks once more after the rest was cleared away.
func (b *Bridge) gone(ctx context.Context, r *request, foreign bool) (bool, *sdk.Error) {
	found, failed := b.named(ctx, r)
	if failed != nil {
		return false, failed
	}
	if len(found) > 0 && !foreign || b.memory.doubtful(r.key) > 0 {
		return false, nil
	}
	b.memory.forget(r.key)
	return true, nil
}

// deletable are the VMs of the machine's name that are its own. Foreign: there is one of another uid.
func (b *Bridge) deletable(ctx context.Context, r *request, all []listed, hint string) (own []listed, foreign bool, failed *sdk.Error) {
	var refused *sdk.Error // DEL-2: the id decides only where the key finds no VM
	for _, vm := range all {
		if vm.name != r.key.Name {
			if vm.id == hint {
				refused = about(sdk.NotOwned, hint, "the VM is that of machine "+vm.name)
			}
			continue
		}
		if r.key.Uid == "" && vm.id != hint {
			continue // DEL-7: a VM without a uid is told by its id
		}
		whose, failed := b.ownerOf(ctx, r, vm.id)
		if failed != nil {
			return nil, false, failed
		}
		unreadable := r.key.Uid == "" && b.memory.owner(vm.id) == nil // lists show no uid of VMs of an earlier process: the manager names them by the id
		handedOver := hint != "" && hint == vm.id && b.memory.of(r.key).handedOver == vm.id
		if whose != other || unreadable || handedOver {
			own = append(own, vm)
			continue
		}
		if vm.id == hint {
			refused = about(sdk.NotOwned, hint, "the VM is that of another uid")
		}
		foreign = true
	}
	if len(own) == 0 && refused != nil {
		return nil, false, refused
	}
	return own, foreign, nil
}
