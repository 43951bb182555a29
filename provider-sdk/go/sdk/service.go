package sdk

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "millwright.dev/provider-sdk/driverv1"
)

// service is the Driver API around an author's driver.
type service struct {
	pb.UnimplementedDriverServiceServer
	driver   Driver
	info     Info
	peers    peers
	epochs   epochs
	flights  *flights
	metrics  *metrics
	started  time.Time
	stopping context.Context
}

func newService(driver Driver, stopping context.Context, allowed []uint32) *service {
	info := driver.Info()
	return &service{
		driver: driver, info: info, peers: peers{allowed}, flights: newFlights(info.PropagationDelay), metrics: newMetrics(),
		started: time.Now(), stopping: stopping,
	}
}

// GetDriverInfo says who this is.
func (s *service) GetDriverInfo(context.Context, *pb.GetDriverInfoRequest) (*pb.GetDriverInfoResponse, error) {
	return &pb.GetDriverInfoResponse{
		Name: s.info.Name, VendorVersion: s.info.Version, Capabilities: capabilities(s.driver, s.info), CallAdvice: s.info.CallAdvice,
		PropagationDelay: durationpb.New(s.info.PropagationDelay), Manifest: s.info.Manifest,
	}, nil
}

// mutate checks a mutating call, and runs it once for all that ask for it.
func mutate[Response any](ctx context.Context, s *service, request any, key *pb.MachineKey, providerID string, of *operation, work func(context.Context) (Response, error)) (Response, error) {
	var none Response
	if failed := s.admit(ctx, request, key.GetClusterId(), true); failed != nil {
		return none, failed
	}
	of.uid = key.Uid
	at := subject{key.ClusterId, key.Uid}
	if key.Uid == "" {
		at.scope = "provider:" + providerID
	}
	if scoper, ok := s.driver.(Scoper); ok {
		at.scope = scoper.Scope(key)
	}
	answer, err := s.flights.run(ctx, at, of, func(ctx context.Context) (any, error) { return work(ctx) })
	if err != nil {
		return none, err
	}
	out, ok := answer.(Response)
	if !ok {
		return none, Fail(DriverFault, "the driver accepted %s with a %T", of.kind, answer)
	}
	return out, nil
}

func (s *service) admit(ctx context.Context, request any, cluster string, mutating bool) *Error {
	if failed := validate(s.info.Name, request); failed != nil {
		return failed
	}
	return s.epochs.admit(ctx, cluster, mutating)
}

// CreateMachine makes sure of one VM. The author's look for one comes when it can be believed (CRE-1).
func (s *service) CreateMachine(ctx context.Context, r *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	return mutate(ctx, s, r, r.Key, "", &operation{kind: creation, digest: r.SpecDigest}, func(ctx context.Context) (*pb.CreateMachineResponse, error) {
		if failed := s.settle(ctx, r.Key); failed != nil {
			return nil, failed
		}
		return s.driver.CreateMachine(ctx, r)
	})
}

// InitializeMachine does what can only follow.
func (s *service) InitializeMachine(ctx context.Context, r *pb.InitializeMachineRequest) (*pb.InitializeMachineResponse, error) {
	author, ok := s.driver.(Initializer)
	if !ok {
		return nil, Fail(Unimplemented, "the driver has no InitializeMachine")
	}
	before := s.doubtful(r.Key)
	out, err := mutate(ctx, s, r, r.Key, r.ProviderId, &operation{kind: initialization}, func(ctx context.Context) (*pb.InitializeMachineResponse, error) {
		return author.InitializeMachine(ctx, r)
	})
	return out, s.believed(r.Key, before, err)
}

// settle waits until the author's look can be believed: a VM of the process before, or of a creation of which nobody knows what
// came, may not show yet.
func (s *service) settle(ctx context.Context, key *pb.MachineKey) *Error {
	wait := s.doubtful(key)
	if s.info.Settles || wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	case <-s.stopping.Done():
	}
	return &Error{Reason: ProviderUnavailable, Message: "ended before anything was made", Outcome: NoEffect}
}

// DeleteMachine removes the VM. "Gone" is not believed while one may show itself (GEN-18).
func (s *service) DeleteMachine(ctx context.Context, r *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	before := s.doubtful(r.Key)
	out, err := mutate(ctx, s, r, r.Key, r.ProviderId, &operation{kind: deletion}, func(ctx context.Context) (*pb.DeleteMachineResponse, error) {
		return s.driver.DeleteMachine(ctx, r)
	})
	if err == nil && out.GetState() == pb.Machine_STATE_DELETED && (before > 0 || s.doubtful(r.Key) > 0) {
		return &pb.DeleteMachineResponse{State: pb.Machine_STATE_DELETING, PollAfter: durationpb.New(s.patience(r.Key)), LastKnownState: out.LastKnownState}, nil
	}
	return out, s.believed(r.Key, before, err)
}

// doubtful is how long "there is none" may still be wrong.
func (s *service) doubtful(key *pb.MachineKey) time.Duration {
	started := time.Until(s.started.Add(s.info.PropagationDelay))
	return max(0, started, s.flights.doubtful(subject{key.GetClusterId(), key.GetUid()}))
}

// patience is when to ask again.
func (s *service) patience(key *pb.MachineKey) time.Duration {
	return max(100*time.Millisecond, s.doubtful(key))
}

// GetMachineStatus finds the VM.
func (s *service) GetMachineStatus(ctx context.Context, r *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	if failed := s.admit(ctx, r, r.GetKey().GetClusterId(), false); failed != nil {
		return nil, failed
	}
	before := s.doubtful(r.Key)
	out, err := s.driver.GetMachineStatus(ctx, r)
	if succeeded(err) {
		return out, nil
	}
	return nil, s.believed(r.Key, before, err)
}

// believed is an error of the author, except "there is none" while one may show itself (GEN-18): before or after the look.
func (s *service) believed(key *pb.MachineKey, before time.Duration, err error) error {
	if err == nil || errorOf(err).Reason != MachineNotFound || before == 0 && s.doubtful(key) == 0 {
		return err
	}
	wait := s.patience(key)
	return Fail(ProviderUnavailable, "no VM is seen; one may still show itself for %s", wait.Round(time.Millisecond)).Retry(wait)
}

// ListMachines lists.
func (s *service) ListMachines(ctx context.Context, r *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error) {
	if failed := s.admit(ctx, r, r.ClusterId, false); failed != nil {
		return nil, failed
	}
	if r.PageSize == 0 {
		r.PageSize = 500
	}
	r.PageSize = min(r.PageSize, 1000)
	return s.driver.ListMachines(ctx, r)
}

// ValidateMachineClass checks a class.
func (s *service) ValidateMachineClass(ctx context.Context, r *pb.ValidateMachineClassRequest) (*pb.ValidateMachineClassResponse, error) {
	author, ok := s.driver.(Validator)
	if !ok {
		return nil, Fail(Unimplemented, "the driver has no ValidateMachineClass")
	}
	if failed := validate(s.info.Name, r); failed != nil {
		return nil, failed
	}
	return author.ValidateMachineClass(ctx, r)
}

// GetNodeTemplate says what a node would offer.
func (s *service) GetNodeTemplate(ctx context.Context, r *pb.GetNodeTemplateRequest) (*pb.GetNodeTemplateResponse, error) {
	author, ok := s.driver.(Templater)
	if !ok {
		return nil, Fail(Unimplemented, "the driver has no GetNodeTemplate")
	}
	if failed := validate(s.info.Name, r); failed != nil {
		return nil, failed
	}
	return author.GetNodeTemplate(ctx, r)
}

// GetMachineClassSchema tells the schema.
func (s *service) GetMachineClassSchema(ctx context.Context, r *pb.GetMachineClassSchemaRequest) (*pb.GetMachineClassSchemaResponse, error) {
	author, ok := s.driver.(Schemer)
	if !ok {
		return nil, Fail(Unimplemented, "the driver has no GetMachineClassSchema")
	}
	return author.GetMachineClassSchema(ctx, r)
}
