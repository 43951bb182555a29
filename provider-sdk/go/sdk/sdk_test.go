package sdk

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	pb "millwright.dev/provider-sdk/driverv1"
)

// author is a driver whose calls a test sets.
type author struct {
	info   Info
	create func(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error)
	delete func(context.Context, *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error)
	status func(context.Context, *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error)
}

func (a *author) Info() Info {
	a.info.Name, a.info.Version = "test", "1"
	return a.info
}

func (a *author) CreateMachine(ctx context.Context, r *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	if a.create != nil {
		return a.create(ctx, r)
	}
	return &pb.CreateMachineResponse{Machine: &pb.Machine{Key: r.Key, ProviderId: "x"}}, nil
}

func (a *author) DeleteMachine(ctx context.Context, r *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	if a.delete != nil {
		return a.delete(ctx, r)
	}
	return &pb.DeleteMachineResponse{State: pb.Machine_STATE_DELETED}, nil
}

func (a *author) GetMachineStatus(ctx context.Context, r *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	if a.status != nil {
		return a.status(ctx, r)
	}
	return nil, Fail(MachineNotFound, "none")
}

func (a *author) ListMachines(_ context.Context, r *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error) {
	return &pb.ListMachinesResponse{Unreachable: []string{strings.Repeat("x", int(r.PageSize%7))}}, nil
}

// served serves until the test ends; stop ends it before and says how it ended.
func served(t *testing.T, driver Driver, change func(*Options)) (client pb.DriverServiceClient, connection *grpc.ClientConn, stop func() error) {
	t.Helper()
	folder, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	options := &Options{Listen: "unix://" + filepath.Join(folder, "s")}
	if change != nil {
		change(options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ServeUntil(ctx, driver, options) }()
	often := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}
	connection, err = grpc.NewClient(options.Listen, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(often), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		connection.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	client = pb.NewDriverServiceClient(connection)
	if _, err := client.GetDriverInfo(context.Background(), &pb.GetDriverInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	return client, connection, stop
}

const uid = "00000000-0000-4000-8000-000000000001"

func creation1() *pb.CreateMachineRequest {
	return &pb.CreateMachineRequest{Key: &pb.MachineKey{ClusterId: "c", Namespace: "n", Name: "m", Uid: uid},
		MachineClass: &pb.MachineClass{Name: "k", Namespace: "n", Provider: "test", ProviderSpec: &structpb.Struct{}}}
}

func deletion1() *pb.DeleteMachineRequest {
	of := creation1()
	return &pb.DeleteMachineRequest{Key: of.Key, MachineClass: of.MachineClass}
}

func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == domain {
			return info.Reason
		}
	}
	return ""
}

func wants(t *testing.T, err error, code codes.Code, want string) {
	t.Helper()
	if status.Code(err) != code || reason(err) != want {
		t.Fatalf("%v: %q, not %s %q", err, reason(err), code, want)
	}
}

func TestEveryReasonHasACodeAndFitsIntoTrailersWhateverAnAuthorWrites(t *testing.T) {
	long := strings.Repeat("ä", 4000)
	for number, name := range pb.ErrorReason_name {
		of := Reason(number)
		if _, ok := meanings[of]; !ok {
			t.Errorf("%s has no code", name)
		}
		failed := Fail(of, "%s", long).Retry(time.Second).With("zone", long).With("b", long).With("c", long)
		failed.LastKnownState, failed.ProviderCode, failed.RequestID = long, long, long
		for range 20 {
			failed.ProviderIDs = append(failed.ProviderIDs, long)
			failed.Violations = append(failed.Violations, Violation{long, long})
		}
		made := failed.status(true)
		if size := proto.Size(made.Proto()) - len(made.Message()); size > detailsMax+100 || len(made.Message()) > messageMax {
			t.Errorf("%s: %d bytes of details, %d of message", name, size, len(made.Message()))
		}
		if of != Unimplemented && (reason(made.Err()) != strings.TrimPrefix(name, "ERROR_REASON_") || detail(made.Err()) == nil) {
			t.Errorf("%s: %v", name, made.Details())
		}
	}
}

func detail(err error) *pb.ErrorDetail {
	for _, of := range status.Convert(err).Details() {
		if found, ok := of.(*pb.ErrorDetail); ok {
			return found
		}
	}
	return nil
}

func TestAPanicCostsOneCallAndAPlainErrorIsAFault(t *testing.T) {
	driver := &author{create: func(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) { panic("oh") }}
	driver.status = func(context.Context, *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
		return nil, errors.New("odd")
	}
	client, _, _ := served(t, driver, nil)
	_, err := client.CreateMachine(context.Background(), creation1())
	wants(t, err, codes.Internal, "DRIVER_FAULT")
	of := creation1()
	_, err = client.GetMachineStatus(context.Background(), &pb.GetMachineStatusRequest{Key: of.Key, MachineClass: of.MachineClass})
	wants(t, err, codes.Internal, "DRIVER_FAULT")
	_, err = client.GetNodeTemplate(context.Background(), &pb.GetNodeTemplateRequest{MachineClass: of.MachineClass})
	wants(t, err, codes.Unimplemented, "")
}

func TestRepeatsJoinOthersWaitAndADeletionCancels(t *testing.T) {
	calls := 0
	driver := &author{create: func(ctx context.Context, r *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		calls++
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	client, _, _ := served(t, driver, nil)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if _, err := client.CreateMachine(context.Background(), creation1()); reason(err) != "PROVIDER_UNAVAILABLE" {
				t.Error(err)
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	conflict := creation1()
	conflict.SpecDigest = "b"
	short, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := client.CreateMachine(short, conflict); status.Code(err) != codes.DeadlineExceeded && reason(err) != "PROVIDER_UNAVAILABLE" { // who is first
		t.Fatal("an unknown digest joins", err)
	}
	_, err := client.DeleteMachine(context.Background(), deletion1())
	wants(t, err, codes.Aborted, "OPERATION_IN_PROGRESS")
	all.Wait()
	if calls != 1 {
		t.Fatal(calls)
	}
	_, err = client.CreateMachine(context.Background(), creation1())
	wants(t, err, codes.FailedPrecondition, "MACHINE_DELETED")
	if out, err := client.DeleteMachine(context.Background(), deletion1()); err != nil || out.State != pb.Machine_STATE_DELETED {
		t.Fatal(out, err)
	}
}

func TestTombstonesAreKeptForAnHourAndBounded(t *testing.T) {
	tombs, now := tombstones{buried: map[subject]time.Time{}}, time.Now()
	tombs.bury(subject{"c", "a"}, now)
	if !tombs.holds(subject{"c", "a"}, now.Add(59*time.Minute)) || tombs.holds(subject{"d", "a"}, now) {
		t.Fatal("a uid of this cluster is remembered for an hour")
	}
	tombs.bury(subject{"c", "b"}, now.Add(2*time.Hour))
	if len(tombs.buried) != 1 || len(tombs.order) != 1 {
		t.Fatal(len(tombs.buried), len(tombs.order))
	}
}

func TestAnOlderLeaderMayLookButNotTouch(t *testing.T) {
	client, _, _ := served(t, &author{}, nil)
	as := func(epoch string) context.Context {
		return metadata.AppendToOutgoingContext(context.Background(), epochKey, epoch)
	}
	of := creation1()
	list := &pb.ListMachinesRequest{ClusterId: "c", MachineClass: of.MachineClass}
	if _, err := client.ListMachines(as("7"), list); err != nil {
		t.Fatal(err)
	}
	_, err := client.CreateMachine(as("6"), of)
	wants(t, err, codes.FailedPrecondition, "STALE_LEADER")
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Metadata["epoch"] != "7" {
			t.Fatal(info)
		}
	}
	if _, err := client.ListMachines(as("6"), list); err != nil {
		t.Fatal(err)
	}
	_, err = client.CreateMachine(as("-1"), of)
	wants(t, err, codes.InvalidArgument, "INVALID_FIELD")
	if _, err := client.CreateMachine(context.Background(), of); err != nil {
		t.Fatal(err)
	}
}

func TestAMalformedRequestNeverReachesTheAuthor(t *testing.T) {
	driver := &author{create: func(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) { panic("it did") }}
	client, _, _ := served(t, driver, nil)
	for name, change := range map[string]func(*pb.CreateMachineRequest){
		"empty":    func(r *pb.CreateMachineRequest) { proto.Reset(r) },
		"uid":      func(r *pb.CreateMachineRequest) { r.Key.Uid = "x" },
		"cluster":  func(r *pb.CreateMachineRequest) { r.Key.ClusterId = "C" },
		"name":     func(r *pb.CreateMachineRequest) { r.Key.Name = "a_b" },
		"provider": func(r *pb.CreateMachineRequest) { r.MachineClass.Provider = "other" },
		"spec":     func(r *pb.CreateMachineRequest) { r.MachineClass.ProviderSpec = nil },
		"class":    func(r *pb.CreateMachineRequest) { r.MachineClass.Name = "" },
		"userdata": func(r *pb.CreateMachineRequest) { r.UserData = make([]byte, 65<<10) },
		"secret":   func(r *pb.CreateMachineRequest) { r.SecretData = map[string][]byte{"k": make([]byte, 129<<10)} },
		"state":    func(r *pb.CreateMachineRequest) { r.LastKnownState = strings.Repeat("x", 4097) },
		"tags":     func(r *pb.CreateMachineRequest) { r.Tags = map[string]string{"A": "b"} },
		"locator": func(r *pb.CreateMachineRequest) {
			r.MachineClass.Locator = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStringValue(strings.Repeat("x", 5000))}}
		},
	} {
		of := creation1()
		change(of)
		_, err := client.CreateMachine(context.Background(), of)
		if status.Code(err) != codes.InvalidArgument || reason(err) != "INVALID_FIELD" || detail(err).GetOutcome() != NoEffect {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, err := client.DeleteMachine(context.Background(), &pb.DeleteMachineRequest{Key: &pb.MachineKey{ClusterId: "c", Namespace: "n", Name: "m"}, ProviderId: "x",
		MachineClass: &pb.MachineClass{Provider: "test", Locator: &structpb.Struct{}}}); err != nil {
		t.Fatal("a VM without a uid is told by its id, a class by its locator", out, err)
	}
}

func TestNothingIsBelievedToBeGoneRightAfterAStart(t *testing.T) {
	client, _, _ := served(t, &author{info: Info{PropagationDelay: 800 * time.Millisecond}}, nil)
	of := creation1()
	look := &pb.GetMachineStatusRequest{Key: of.Key, MachineClass: of.MachineClass}
	_, err := client.GetMachineStatus(context.Background(), look)
	wants(t, err, codes.Unavailable, "PROVIDER_UNAVAILABLE")
	if out, err := client.DeleteMachine(context.Background(), deletion1()); err != nil || out.State != pb.Machine_STATE_DELETING {
		t.Fatal(out, err)
	}
	time.Sleep(820 * time.Millisecond)
	_, err = client.GetMachineStatus(context.Background(), look)
	wants(t, err, codes.NotFound, "MACHINE_NOT_FOUND")
}

func TestAnEndWaitsForWorkSaysNotServingAndRemovesTheSocket(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	driver := &author{create: func(ctx context.Context, r *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		close(begun)
		<-release
		return &pb.CreateMachineResponse{Machine: &pb.Machine{Key: r.Key}}, nil
	}}
	var path string
	client, connection, stop := served(t, driver, func(o *Options) { path = strings.TrimPrefix(o.Listen, "unix://") })
	if found, err := os.Stat(path); err != nil || found.Mode().Perm() != 0o660 {
		t.Fatal(found, err)
	}
	answered := make(chan error, 1)
	go func() { _, err := client.CreateMachine(context.Background(), creation1()); answered <- err }()
	<-begun
	health := healthpb.NewHealthClient(connection)
	watch, err := health.Watch(context.Background(), &healthpb.HealthCheckRequest{Service: pb.DriverService_ServiceDesc.ServiceName})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(first, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	if second, err := watch.Recv(); err != nil || second.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatal(second, err)
	}
	close(release)
	if err := <-answered; err != nil {
		t.Fatal("work that had begun is answered", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the socket is left", err)
	}
}

func TestWorkThatDoesNotEndIsGivenUpAfterTheDrain(t *testing.T) {
	driver := &author{create: func(ctx context.Context, _ *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		time.Sleep(300 * time.Millisecond)
		return nil, ctx.Err()
	}}
	service := newService(driver, context.Background(), nil)
	go service.CreateMachine(context.Background(), creation1())
	time.Sleep(20 * time.Millisecond)
	begun := time.Now()
	if err := service.drain(grpc.NewServer(), 50*time.Millisecond); err == nil || time.Since(begun) > time.Second {
		t.Fatal(err, time.Since(begun))
	}
	late := creation1()
	late.Key.Uid = strings.Replace(uid, "1", "2", 1)
	_, err := service.CreateMachine(context.Background(), late)
	if failed := errorOf(err); failed.Reason != ProviderUnavailable || failed.Outcome != NoEffect {
		t.Fatal("work was begun while the process ends", err)
	}
}

func TestASocketIsTakenFromTheDeadAndNotFromTheLiving(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "s")
	first, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); err == nil {
		t.Fatal("it was taken from the living")
	}
	first.Listener.Close() // as after a kill -9: the file stays, the lock goes
	first.lock.Close()
	second, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second.Listener.Close(), second.remove()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); err == nil {
		t.Fatal("a file was taken for a socket")
	}
}

func TestAUserThatIsNotNamedIsRefusedWithTheReason(t *testing.T) {
	refused := peers{allowed: []uint32{12}}.admit(peerContext(4242))
	if refused == nil || refused.Reason != AccessDenied || refused.Metadata["action"] != "connect" {
		t.Fatal(refused)
	}
	if failed := (peers{allowed: []uint32{4242}}).admit(peerContext(4242)); failed != nil {
		t.Fatal(failed)
	}
}

func TestMetricsCountCallsByCodeAndReason(t *testing.T) {
	var address string
	client, _, _ := served(t, &author{}, func(o *Options) { address = freeAddress(t); o.MetricsAddr = address })
	of := creation1()
	_, err := client.GetMachineStatus(context.Background(), &pb.GetMachineStatusRequest{Key: of.Key, MachineClass: of.MachineClass})
	wants(t, err, codes.NotFound, "MACHINE_NOT_FOUND")
	page := fetch(t, "http://"+address+"/metrics")
	for _, line := range []string{
		`driver_call_seconds_count{method="GetMachineStatus",code="NOT_FOUND",reason="MACHINE_NOT_FOUND"} 1`,
		`driver_calls_in_flight{method="GetMachineStatus"} 0`, `driver_call_seconds_bucket{method="GetDriverInfo",code="OK",reason="",le="+Inf"} 1`,
	} {
		if !strings.Contains(page, line) {
			t.Errorf("%s is not in\n%s", line, page)
		}
	}
	fetch(t, "http://"+address+"/healthz")
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status, err)
	}
	return string(text)
}

func TestTagsAreEncodedWithoutLossAndSayWhoseAVmIs(t *testing.T) {
	of := creation1()
	of.SpecDigest = strings.Repeat("d", 64)
	tags := Tags(of)
	if key := KeyOf(tags); !proto.Equal(key, of.Key) || len(tags[TagDigest]) != 32 || !SameDigest(tags[TagDigest], of.SpecDigest) {
		t.Fatal(tags)
	}
	for _, text := range []string{"millwright/uid", "a_b", "Ünï.code", "", "plain-1"} {
		if back, err := DecodeTag(EncodeTag(text)); err != nil || back != text {
			t.Error(text, back, err)
		}
	}
	for _, broken := range []string{"_", "_1", "_zz"} {
		if _, err := DecodeTag(broken); err == nil {
			t.Error(broken)
		}
	}
	one, other := &pb.MachineKey{Name: strings.Repeat("a", 200) + "1"}, &pb.MachineKey{Name: strings.Repeat("a", 200) + "2"}
	if NodeName(one) == NodeName(other) || len(NodeName(one)) > 63 {
		t.Fatal(NodeName(one), NodeName(other))
	}
}

func TestALongNameIsKnownAgainByItsTag(t *testing.T) {
	long := strings.Repeat("a", 62) + "." + strings.Repeat("b", 20)
	of := creation1()
	of.Key.Name, of.Tags = long, nil
	tag := KeyOf(Tags(of)).Name
	if len(tag) != 62 || !SameName(tag, long) || !SameName(long, tag) || !SameName(long, long) {
		t.Fatal(tag)
	}
	for _, pair := range [][2]string{{long, long + "c"}, {"m", "n"}, {long, "a"}, {"", long}, {tag, strings.Repeat("a", 63)}} {
		if SameName(pair[0], pair[1]) || SameName(pair[1], pair[0]) {
			t.Error(pair)
		}
	}
}

func TestSecretsAreHiddenByValueExceptCommonWords(t *testing.T) {
	data := map[string][]byte{"key": []byte("line-one-of-it\nline-two-of-it"), "json": []byte(`{"private":"inner-secret"}`), "user": []byte("admin"), "zone": []byte("default")}
	text := Hide("line-two-of-it inner-secret admin default user-data bGluZS1vbmUtb2YtaXQKbGluZS10d28tb2YtaXQ=", data, []byte("user-data"))
	if text != "[hidden] [hidden] admin default [hidden] [hidden]" {
		t.Fatal(text)
	}
}
