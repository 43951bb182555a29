package bridge

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

// GetMachineStatus looks.
func (b *Bridge) GetMachineStatus(ctx context.Context, in *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	r := requestFor(b.profile, in.Key, in.MachineClass, in.SecretData, "")
	if failed := b.sighted(r); failed != nil {
		return nil, failed
	}
	seen, failed := b.look(ctx, r)
	if failed != nil {
		return nil, failed
	}
	if failed := b.agreeing(r, seen); failed != nil {
		return nil, failed
	}
	creating := b.memory.of(in.Key).doing == pb.Machine_STATE_CREATING
	if seen == nil && creating {
		return &pb.GetMachineStatusResponse{Machine: b.vm(in.Key, &sight{}), PollAfter: durationpb.New(5 * time.Second)}, nil
	}
	if seen == nil {
		return nil, b.none(in.Key)
	}
	whose, failed := b.ownerOf(ctx, r, seen.id)
	if failed != nil {
		return nil, failed
	}
	if whose == other {
		return b.handOver(in, seen)
	}
	out := &pb.GetMachineStatusResponse{Machine: b.vm(in.Key, seen)}
	if whose == legacy {
		out.Machine.Key = uidless(in.Key)
	}
	if creating {
		out.PollAfter = durationpb.New(5 * time.Second)
	}
	return out, nil
}

// handOver answers the VM of another uid where the manager names its id: the Machine was restored from a backup (GET-5). Its uid
// is told where this process knows it; else it is empty, and the deletions that follow are let through.
func (b *Bridge) handOver(in *pb.GetMachineStatusRequest, seen *sight) (*pb.GetMachineStatusResponse, error) {
	if in.ProviderId == "" || in.ProviderId != seen.id {
		return nil, b.none(in.Key)
	}
	own := b.memory.owner(seen.id)
	if own != nil && own.ClusterId != in.Key.ClusterId {
		return nil, b.none(in.Key)
	}
	if own == nil {
		b.memory.change(in.Key, func(known *record) { known.handedOver = seen.id })
		own = uidless(in.Key)
	}
	return &pb.GetMachineStatusResponse{Machine: b.vm(own, seen)}, nil
}

func uidless(key *pb.MachineKey) *pb.MachineKey {
	return &pb.MachineKey{ClusterId: key.ClusterId, Namespace: key.Namespace, Name: key.Name}
}

// none says that there is no VM, where that can be believed.
func (b *Bridge) none(key *pb.MachineKey) *sdk.Error {
	if wait := b.memory.doubtful(key); wait > 0 {
		return sdk.Fail(sdk.ProviderUnavailable, "no VM is seen, and one may still show itself for %s", wait.Round(time.Second)).Retry(wait)
	}
	return sdk.Fail(sdk.MachineNotFound, "no VM of the cluster bears the machine's name")
}

// agreeing refuses an answer while status and list contradict each other about the VM.
func (b *Bridge) agreeing(r *request, seen *sight) *sdk.Error {
	if seen == nil || !seen.rest && !seen.unlisted {
		if !b.memory.of(r.key).disagree.IsZero() {
			b.memory.change(r.key, func(known *record) { known.disagree = time.Time{} })
		}
		return nil
	}
	what := "the driver lists " + seen.id + " under the VM's name and does not find the VM"
	if seen.unlisted {
		what = "the driver finds " + seen.id + " by the VM's name, and the cluster's list does not show it"
	}
	since := time.Now()
	b.memory.change(r.key, func(known *record) {
		if known.disagree.IsZero() {
			known.disagree = since
		}
		since = known.disagree
	})
	if time.Since(since) < b.disagreeFor {
		return sdk.Fail(sdk.ProviderUnavailable, "%s", what).Retry(10 * time.Second)
	}
	return about(sdk.VMInconsistent, seen.id, what+", for "+b.disagreeFor.String()+" now: a person must look at the provider")
}

// ListMachines lists what the driver's filter shows.
func (b *Bridge) ListMachines(ctx context.Context, in *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error) {
	r := requestFor(b.profile, nil, in.MachineClass, in.SecretData, "")
	if failed := b.sighted(r); failed != nil {
		return nil, failed
	}
	all, failed := b.all(ctx, r)
	if failed != nil {
		return nil, failed
	}
	names := map[string]string{}
	for _, vm := range all {
		if own := b.memory.owner(vm.id); own == nil || own.ClusterId == in.ClusterId { // two clusters with one mark
			names[vm.id] = vm.name
		}
	}
	b.memory.prune(names)
	out := &pb.ListMachinesResponse{}
	for _, id := range sortedKeys(names) {
		if id <= in.PageToken {
			continue
		}
		if len(out.Machines) == int(in.PageSize) {
			out.NextPageToken = out.Machines[len(out.Machines)-1].ProviderId
			break
		}
		out.Machines = append(out.Machines, b.listedVM(in, id, names[id]))
	}
	return out, nil
}

// listedVM is a VM of a list. The driver tells an id and a name; uid and namespace are known of machines that this process has
// made. Of others the namespace stays empty, so that no manager takes a VM of another namespace for an orphan of its own (GEN-6).
func (b *Bridge) listedVM(in *pb.ListMachinesRequest, id, name string) *pb.Machine {
	key := &pb.MachineKey{ClusterId: in.ClusterId, Name: name}
	if own := b.memory.owner(id); own != nil {
		key = own
	}
	out := b.vm(key, &sight{id: id})
	if key.Uid == "" {
		out.NodeName = "" // rather empty than guessed
	}
	return out
}

// vm is a VM as it is told.
func (b *Bridge) vm(key *pb.MachineKey, seen *sight) *pb.Machine {
	known := b.memory.of(key)
	out := &pb.Machine{
		Key: key, ProviderId: seen.id, State: pb.Machine_STATE_RUNNING, NodeName: cmpOr(seen.nodeName, known.nodeName),
		MachineClass: known.class, SpecDigest: known.digest, LastKnownState: known.lastKnownState,
	}
	if seen.id != "" {
		out.CreateTime = timestamppb.New(b.memory.firstSeen(seen.id))
	}
	if out.NodeName == "" && !b.driver.has(callStatus) {
		out.NodeName = sdk.NodeName(key) // nodes of drivers without that call have the machine's name
	}
	addresses := seen.addresses
	if len(addresses) == 0 {
		addresses = known.addresses
	}
	for _, at := range addresses {
		if kind, ok := addressTypes[at.Type]; ok {
			out.Addresses = append(out.Addresses, &pb.NodeAddress{Type: kind, Address: at.Address})
		}
	}
	if b.initializes {
		out.Initialization = pb.Machine_INITIALIZATION_DONE
		if seen.uninitial {
			out.Initialization, out.StateMessage = pb.Machine_INITIALIZATION_PENDING, sdk.Cut(seen.message, 1024)
		}
	}
	switch {
	case known.doing != 0:
		out.State = known.doing
	case known.failed != "":
		out.State, out.StateMessage = pb.Machine_STATE_FAILED, sdk.Cut(known.failed, 1024)
	}
	return out
}

var addressTypes = map[string]pb.NodeAddress_Type{
	"Hostname": pb.NodeAddress_TYPE_HOSTNAME, "InternalIP": pb.NodeAddress_TYPE_INTERNAL_IP, "ExternalIP": pb.NodeAddress_TYPE_EXTERNAL_IP,
	"InternalDNS": pb.NodeAddress_TYPE_INTERNAL_DNS, "ExternalDNS": pb.NodeAddress_TYPE_EXTERNAL_DNS,
}
