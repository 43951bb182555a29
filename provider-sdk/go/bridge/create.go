package bridge

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

// CreateMachine looks, and lets the driver create only where there is nothing, or where its second create finishes the first.
func (b *Bridge) CreateMachine(ctx context.Context, in *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	r := requestFor(b.profile, in.Key, in.MachineClass, in.SecretData, in.LastKnownState)
	r.nodeLabels, r.nodeAnnotations = in.NodeLabels, in.NodeAnnotations
	if why := b.profile.blind(in.MachineClass.ProviderSpec.AsMap(), in.MachineClass.Labels); why != "" {
		return nil, sdk.Invalid("machine_class.provider_spec", "is not usable: %s", why)
	}
	b.memory.change(in.Key, func(known *record) { known.doing, known.failed = pb.Machine_STATE_CREATING, "" })
	seen, failed := b.create(ctx, r, in)
	b.memory.change(in.Key, func(known *record) { known.doing = 0 })
	if failed != nil {
		return nil, failed
	}
	return &pb.CreateMachineResponse{Machine: b.vm(in.Key, seen)}, nil
}

func (b *Bridge) create(ctx context.Context, r *request, in *pb.CreateMachineRequest) (*sight, *sdk.Error) {
	seen, failed := b.settled(ctx, r)
	if failed != nil {
		return nil, failed
	}
	if seen == nil || seen.rest { // what is left of an earlier attempt is the driver's to take up
		return b.make(ctx, r, in, b.profile.withIdentity(in.MachineClass.ProviderSpec.AsMap(), in))
	}
	if seen.unlisted {
		return nil, about(sdk.NameConflict, seen.id, "the driver finds a VM of the name that is not the cluster's")
	}
	whose, failed := b.ownerOf(ctx, r, seen.id)
	if failed != nil {
		return nil, failed
	}
	known := b.memory.of(in.Key)
	switch {
	case whose == other:
		return nil, about(sdk.NameConflict, seen.id, "another machine's VM has the name")
	case known.digest != "" && !sdk.SameDigest(known.digest, in.SpecDigest):
		return nil, about(sdk.SpecConflict, seen.id, "the VM was made of another spec")
	case known.providerID != "": // this process saw the driver finish it
		return b.adopt(r, in, seen), nil
	case b.profile.again == resumes:
		slog.Info("resuming", "machine", place(in.Key), "vm", seen.id)
		return b.make(ctx, r, in, b.finishing(r, in, seen, whose))
	case b.profile.again == destroys:
		return nil, about(sdk.VMInconsistent, seen.id, "an earlier process may have left the VM half-made, and the driver cannot go on with it")
	}
	return b.adopt(r, in, seen), nil
}

func about(reason sdk.Reason, id, message string) *sdk.Error {
	failed := sdk.Fail(reason, "%s", message)
	failed.ProviderIDs = []string{id}
	return failed
}

// settled looks until "there is none" can be believed. What is left of a VM is looked at twice, since a list may lag.
func (b *Bridge) settled(ctx context.Context, r *request) (*sight, *sdk.Error) {
	for again := false; ; again = true {
		seen, failed := b.look(ctx, r)
		if failed != nil || (seen != nil && !seen.rest && !seen.unlisted) {
			return seen, failed
		}
		wait := b.memory.doubtful(r.key)
		if wait == 0 && seen != nil && !again {
			wait = min(3*time.Second, b.memory.delay)
		}
		if wait == 0 {
			return seen, nil
		}
		if !sleep(ctx, wait) {
			return nil, &sdk.Error{Reason: sdk.ProviderUnavailable, Message: "cancelled before anything was made", Outcome: sdk.NoEffect}
		}
	}
}

func (b *Bridge) adopt(r *request, in *pb.CreateMachineRequest, seen *sight) *sight {
	slog.Info("adopted", "machine", place(r.key), "vm", seen.id)
	b.memory.change(in.Key, func(known *record) {
		known.providerID, known.class = seen.id, in.MachineClass.Name
		known.nodeName = cmpOr(seen.nodeName, known.nodeName)
	})
	return seen
}

// finishing is the spec by which the driver finds the VM that is there. It looks by a role in its request, whichever it meets
// first: one that the VM does not bear would hide the VM, and the driver would make another.
func (b *Bridge) finishing(r *request, in *pb.CreateMachineRequest, seen *sight, whose owner) map[string]any {
	if whose == legacy || b.profile.marksIn(seen.spec, r.labels) != r.marks {
		return seen.spec
	}
	return b.profile.withIdentity(in.MachineClass.ProviderSpec.AsMap(), in)
}

// make lets the driver create by this spec.
func (b *Bridge) make(ctx context.Context, r *request, in *pb.CreateMachineRequest, spec map[string]any) (*sight, *sdk.Error) {
	slog.Info("creating", "machine", place(in.Key), "uid", in.Key.Uid)
	b.memory.doubt(in.Key)
	told, stop := b.tellEarly(ctx, r)
	out, failed := b.driver.call(ctx, callCreate, r.fields(spec, "", in.UserData))
	stop()
	b.memory.doubt(in.Key)
	if failed == nil && out.providerID == "" {
		failed = &failure{code: codeUnknown, message: "the driver answered without a provider id"}
	}
	if failed == nil {
		b.memory.firstSeen(out.providerID)
		b.memory.change(in.Key, func(known *record) {
			known.digest, known.class, known.nodeName = in.SpecDigest, in.MachineClass.Name, out.nodeName
			known.providerID, known.lastKnownState, known.addresses = out.providerID, note(r, out.lastKnownState), out.addresses
		})
		return &sight{id: out.providerID, nodeName: out.nodeName, addresses: out.addresses, uninitial: b.initializes}, nil
	}
	why := b.problem(callCreate, failed, r, in.UserData)
	why.LastKnownState = note(r, out.lastKnownState)
	b.left(ctx, r, why)
	if told.Load() && why.Outcome != sdk.NoEffect {
		b.memory.change(in.Key, func(known *record) { known.failed = why.Message })
	}
	return nil, why
}

// note is the driver's last known state, unless it holds a secret or is too long: many may read it, and a part of it may mean
// something else to the driver.
func note(r *request, state string) string {
	if len(state) > 4096 || sdk.Hide(state, r.secret, nil) != state {
		return ""
	}
	return state
}

// left finds out what a failed creation left behind. Only a failure that says why is believed to have left nothing at once.
func (b *Bridge) left(ctx context.Context, r *request, why *sdk.Error) {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	switch seen, failed := b.look(after, r); {
	case failed != nil && failed.Reason == sdk.DuplicateVMs:
		why.Outcome, why.ProviderIDs = sdk.Partial, failed.ProviderIDs
	case failed != nil:
		why.Outcome = sdk.Unknown
	case seen != nil && !seen.unlisted:
		why.Outcome, why.ProviderIDs = sdk.Partial, []string{seen.id}
	case seen != nil:
		why.Outcome = sdk.Unknown
	case why.Reason == sdk.ProviderUnavailable || why.Reason == sdk.DriverFault || why.Reason == sdk.OperationInProgress:
		why.Outcome = sdk.Unknown
	default:
		why.Outcome = sdk.NoEffect
	}
}

// tellEarly answers the callers when the VM can be seen, though the driver still waits for its boot.
func (b *Bridge) tellEarly(ctx context.Context, r *request) (told *atomic.Bool, stop context.CancelFunc) {
	told = &atomic.Bool{}
	watching, cancel := context.WithCancel(ctx)
	go func() {
		for sleep(watching, b.patience) {
			seen, failed := b.look(watching, r)
			if failed != nil || seen == nil || seen.rest || seen.unlisted || watching.Err() != nil {
				continue
			}
			told.Store(true)
			sdk.Accept(ctx, &pb.CreateMachineResponse{Machine: b.vm(r.key, seen), PollAfter: durationpb.New(10 * time.Second)})
			return
		}
	}()
	return told, cancel
}

func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
