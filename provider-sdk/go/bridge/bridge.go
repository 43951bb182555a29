// Package bridge serves the Driver API (machine.driver.v1) around a driver that was written for Gardener's
// machine-controller-manager.
package bridge

import (
	"context"
	"runtime/debug"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

// Bridge is an sdk.Driver around a driver of the original.
type Bridge struct {
	name, version  string
	driver         *original
	profileName    string
	profile        profile
	memory         *memory
	lists          *shared
	patience       time.Duration // after it CreateMachine answers with a VM that is seen, though the driver still waits for it
	deletePatience time.Duration // after it a deletion is answered as under way: one driver waits 20 minutes for the VM to be gone
	disagreeFor    time.Duration // for so long witnesses that contradict each other are taken for a provider that settles
	initializes    bool
}

// settings are what flags say.
type settings struct {
	profile         string
	delay, patience time.Duration // zero: the profile's delay, 30 s of patience
}

func newBridge(name string, driver any, of settings) (*Bridge, error) {
	profileName, profile, err := profileOf(name, of.profile)
	if err != nil {
		return nil, err
	}
	wrapped, err := originalOf(driver, profile.serial)
	if err != nil {
		return nil, err
	}
	if of.delay == 0 {
		of.delay = profile.delay
	}
	if of.patience == 0 {
		of.patience = 30 * time.Second
	}
	b := &Bridge{
		name: name, version: buildVersion(), driver: wrapped, profileName: profileName, profile: profile, memory: newMemory(of.delay),
		lists: newShared(), patience: of.patience, deletePatience: 8 * time.Second, disagreeFor: 10 * time.Minute,
	}
	b.probe()
	b.initializes = wrapped.has(callInitialize)
	return b, nil
}

// served is the bridge with the capabilities that the driver has.
func (b *Bridge) served() sdk.Driver {
	if b.initializes {
		return initializing{b}
	}
	return b
}

// probe asks the calls that most drivers do not have, with nothing in the request: no provider can be reached by it. A driver
// that does not end in time is taken to have the call.
func (b *Bridge) probe() {
	for _, name := range []string{callInitialize, callStatus} {
		done := make(chan struct{})
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		go func() {
			defer close(done)
			nothing := requestFor(b.profile, &pb.MachineKey{}, &pb.MachineClass{Provider: b.name}, nil, "")
			b.driver.call(ctx, name, nothing.fields(map[string]any{}, "", nil))
		}()
		select {
		case <-done:
		case <-ctx.Done():
		}
		cancel()
	}
}

// Scope is the machine's place: the original's drivers go by names, so that calls of one name exclude each other.
func (b *Bridge) Scope(key *pb.MachineKey) string { return place(key) }

// Info says who this is, and what a bridge cannot know.
func (b *Bridge) Info() sdk.Info {
	return sdk.Info{
		Name: b.name, Version: b.version, PropagationDelay: b.memory.delay, Settles: true,
		CallAdvice: []*pb.CallAdvice{
			{Method: callCreate, Timeout: durationpb.New(5 * time.Minute)},
			{Method: callList, Timeout: durationpb.New(5 * time.Minute)},
			{Method: callStatus, Timeout: durationpb.New(time.Minute)},
		},
		Manifest: b.manifest(),
	}
}

func (b *Bridge) manifest() map[string]string {
	facts := map[string]string{
		"bridge":           "1",
		"profile":          b.profileName,
		"getMachineStatus": strconv.FormatBool(b.driver.has(callStatus)),
		"ownership":        "by the class's cluster mark as it is, and by the machine's name",
		"namespace":        "not on the VM: machines of two namespaces need other names or other marks; lists leave it empty where they do not know the uid",
		"uid":              "remembered until the process ends; then not readable: the name decides",
		"state":            "RUNNING for every VM that is found, never STOPPED",
		"createTime":       "when this process first saw the VM",
		"unknown":          "zone, region, type, price, interruption, class and digest after a restart; unreachable is never set",
		"validation":       "marks alone; the driver checks the rest at the first create",
		"legacyMarks":      "used where they have the form of the driver's own cluster key",
		"handOver":         "GetMachineStatus answers by provider_id; the uid is empty after a restart",
	}
	if b.profile.uidRole {
		facts["uid"] = "a role key of each VM, asked for by the driver's own filter"
	}
	if b.profile.note != "" {
		facts["driver"] = b.profile.note
	}
	return facts
}

// initializing is a bridge to a driver that has InitializeMachine.
type initializing struct{ *Bridge }

// InitializeMachine passes on, with the id that the list shows: the manager's is a hint only.
func (b initializing) InitializeMachine(ctx context.Context, in *pb.InitializeMachineRequest) (*pb.InitializeMachineResponse, error) {
	r := requestFor(b.profile, in.Key, in.MachineClass, in.SecretData, in.LastKnownState)
	if failed := b.sighted(r); failed != nil {
		return nil, failed
	}
	seen, failed := b.look(ctx, r)
	if failed != nil {
		return nil, failed
	}
	if seen == nil || seen.rest || seen.unlisted {
		return nil, b.none(in.Key)
	}
	whose, failed := b.ownerOf(ctx, r, seen.id)
	if failed != nil {
		return nil, failed
	}
	if whose == other && b.memory.of(in.Key).handedOver != seen.id {
		return nil, b.none(in.Key)
	}
	out, failure := b.driver.call(ctx, callInitialize, r.fields(seen.spec, seen.id, nil))
	if failure != nil {
		why := b.problem(callInitialize, failure, r, nil)
		why.Outcome = sdk.Partial
		return nil, why
	}
	seen.uninitial, seen.nodeName = false, cmpOr(out.nodeName, seen.nodeName)
	if len(out.addresses) > 0 {
		seen.addresses = out.addresses
	}
	return &pb.InitializeMachineResponse{Machine: b.vm(in.Key, seen)}, nil
}

func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Path + " " + info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			version += " " + setting.Value
		}
	}
	return sdk.Cut(version, 256)
}
