package sdk

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "millwright.dev/provider-sdk/driverv1"
)

const token = "s3cr3t-folder-token"

func secretOfTests() map[string][]byte { return map[string][]byte{"token": []byte(token)} }

func look1() *pb.GetMachineStatusRequest {
	of := creation1()
	return &pb.GetMachineStatusRequest{Key: of.Key, MachineClass: of.MachineClass}
}

// noError is what an author writes whose helper returns *Error.
func noError() *Error { return nil }

func TestANilErrorOfTheKitsTypeIsASuccess(t *testing.T) {
	driver := &author{create: func(_ context.Context, r *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		return &pb.CreateMachineResponse{Machine: &pb.Machine{Key: r.Key}}, noError()
	}, status: func(_ context.Context, r *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
		return &pb.GetMachineStatusResponse{Machine: &pb.Machine{Key: r.Key}}, noError()
	}}
	client, _, _ := served(t, driver, nil)
	if out, err := client.CreateMachine(context.Background(), creation1()); err != nil || out.Machine.Key.Uid != uid {
		t.Fatal(out, err)
	}
	if out, err := client.GetMachineStatus(context.Background(), look1()); err != nil || out.Machine.Key.Uid != uid {
		t.Fatal(out, err)
	}
}

// broken is an error that panics when it is asked.
type broken struct{}

func (broken) Error() string { return "broken" }
func (broken) As(any) bool   { panic("an error of an author") }

func TestAnErrorThatPanicsWhenItIsReadCostsOneCall(t *testing.T) {
	failing := []error{broken{}, fmt.Errorf("wrapped: %w", noError())}
	driver := &author{create: func(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		next := failing[0]
		failing = failing[1:]
		return nil, next
	}}
	client, _, _ := served(t, driver, nil)
	for range 2 {
		_, err := client.CreateMachine(context.Background(), creation1())
		wants(t, err, codes.Internal, "DRIVER_FAULT")
	}
}

func TestAfterACancelledCreationNothingIsBelievedToBeGoneUntilItsVmWouldShow(t *testing.T) {
	const delay = 700 * time.Millisecond
	driver := &author{info: Info{PropagationDelay: delay}, create: func(ctx context.Context, _ *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	client, _, _ := served(t, driver, nil)
	time.Sleep(delay + 20*time.Millisecond)
	go client.CreateMachine(context.Background(), creation1())
	time.Sleep(100 * time.Millisecond)
	cancelled := time.Now()
	_, err := client.DeleteMachine(context.Background(), deletion1())
	wants(t, err, codes.Aborted, "OPERATION_IN_PROGRESS")
	time.Sleep(100 * time.Millisecond)
	out, err := client.DeleteMachine(context.Background(), deletion1())
	if err != nil || out.State != pb.Machine_STATE_DELETING || out.PollAfter.AsDuration() <= 0 {
		t.Fatal(out, err)
	}
	_, err = client.GetMachineStatus(context.Background(), look1())
	wants(t, err, codes.Unavailable, "PROVIDER_UNAVAILABLE")
	time.Sleep(time.Until(cancelled.Add(delay + 150*time.Millisecond)))
	if out, err := client.DeleteMachine(context.Background(), deletion1()); err != nil || out.State != pb.Machine_STATE_DELETED {
		t.Fatal(out, err)
	}
	_, err = client.GetMachineStatus(context.Background(), look1())
	wants(t, err, codes.NotFound, "MACHINE_NOT_FOUND")
}

func TestACreationAfterAStartOrAnUnknownOutcomeWaitsUntilAVmWouldShow(t *testing.T) {
	const delay = 400 * time.Millisecond
	var begun []time.Time
	driver := &author{info: Info{PropagationDelay: delay}, create: func(_ context.Context, r *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		begun = append(begun, time.Now())
		if len(begun) == 1 {
			return nil, errors.New("the connection was lost")
		}
		return &pb.CreateMachineResponse{Machine: &pb.Machine{Key: r.Key}}, nil
	}}
	client, _, _ := served(t, driver, nil)
	started := time.Now()
	_, err := client.CreateMachine(context.Background(), creation1())
	wants(t, err, codes.Internal, "DRIVER_FAULT")
	if _, err := client.CreateMachine(context.Background(), creation1()); err != nil {
		t.Fatal(err)
	}
	if after, again := begun[0].Sub(started), begun[1].Sub(begun[0]); after < delay-100*time.Millisecond || again < delay {
		t.Fatal("the author looked after", after, "and again after", again)
	}
}

func TestADeletionOrAStopEndsACreationThatWaits(t *testing.T) {
	driver := &author{info: Info{PropagationDelay: time.Minute}, create: func(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		t.Error("it began")
		return nil, nil
	}}
	client, _, stop := served(t, driver, nil)
	ended := make(chan error, 2)
	go func() { _, err := client.CreateMachine(context.Background(), creation1()); ended <- err }()
	time.Sleep(100 * time.Millisecond)
	_, err := client.DeleteMachine(context.Background(), deletion1())
	wants(t, err, codes.Aborted, "OPERATION_IN_PROGRESS")
	err = <-ended
	wants(t, err, codes.Unavailable, "PROVIDER_UNAVAILABLE")
	if detail(err).GetOutcome() != NoEffect {
		t.Fatal(err)
	}
	other := creation1()
	other.Key.Uid = strings.Replace(uid, "1", "2", 1)
	go func() { _, err := client.CreateMachine(context.Background(), other); ended <- err }()
	time.Sleep(100 * time.Millisecond)
	begun := time.Now()
	if err := stop(); err != nil || time.Since(begun) > 5*time.Second {
		t.Fatal(err, time.Since(begun))
	}
	wants(t, <-ended, codes.Unavailable, "PROVIDER_UNAVAILABLE")
}

func TestAWatchThatFailsHidesTheSecretAndSignsTheProvidersOwnErrors(t *testing.T) {
	for _, fails := range []error{
		errors.New("login refused for " + token),
		fmt.Errorf("watch: %w", status.Error(codes.Unavailable, "bad token "+token)),
	} {
		client, _, _ := served(t, &watching{author: &author{}, fails: fails}, nil)
		watch, err := client.WatchMachines(context.Background(), &pb.WatchMachinesRequest{ClusterId: "c", MachineClass: creation1().MachineClass, SecretData: secretOfTests()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = watch.Recv(); err == nil {
			_, err = watch.Recv()
		}
		wants(t, err, codes.Internal, "DRIVER_FAULT")
		if strings.Contains(err.Error(), token) {
			t.Fatal(err)
		}
	}
}

func TestASecretIsHiddenInEveryFormAndFieldOfAnError(t *testing.T) {
	data := map[string][]byte{"user": []byte("deploy"), "password": []byte("deploy-Xy12abc"), "key": []byte("a+b/c \"123"),
		"json": []byte(`{"auth":{"private_key":"first-line-of-key\nsecond-line-of-key"}}`)}
	forms := map[string]string{"url": url.QueryEscape("a+b/c \"123"), "path": url.PathEscape("a+b/c \"123"), "quoted": fmt.Sprintf("%q", "a+b/c \"123"), "bytes": fmt.Sprint([]byte("deploy-Xy12abc")),
		"go": fmt.Sprintf("%#v", []byte("deploy-Xy12abc")), "hex": fmt.Sprintf("%x", "deploy-Xy12abc"), "map": fmt.Sprint(data), "overlap": "deploy-Xy12abc deploy",
		"base64": base64.StdEncoding.EncodeToString([]byte("deploy-Xy12abc")), "raw": base64.RawURLEncoding.EncodeToString([]byte("deploy-Xy12abc")),
		"basic": base64.StdEncoding.EncodeToString([]byte("me:deploy-Xy12abc")), "json": "second-line-of-key"}
	for name, text := range forms {
		for range 20 { // the order of a map is another each time
			hidden := Hide("refused: "+text+" by it", data, nil)
			for _, part := range []string{"Xy12", "Xy12abc", "49 50 97", "0x31, 0x32, 0x61", "58793132", "second-line", "b%2Fc", "c%20", `c \"`, "WHkxM", "kxMmF", "5MTJ"} {
				if strings.Contains(hidden, part) {
					t.Fatal(name, hidden)
				}
			}
			if !strings.HasPrefix(hidden, "refused: ") || !strings.HasSuffix(hidden, " by it") {
				t.Fatal(name, hidden)
			}
		}
	}
	driver := &author{create: func(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		failed := Invalid(token, "is %s", token).With("zone", token)
		failed.ProviderCode, failed.RequestID, failed.LastKnownState = token, token, "state "+token
		return nil, failed
	}}
	client, _, _ := served(t, driver, nil)
	of := creation1()
	of.SecretData = secretOfTests()
	_, err := client.CreateMachine(context.Background(), of)
	wants(t, err, codes.InvalidArgument, "INVALID_FIELD")
	if text := status.Convert(err).Proto().String(); strings.Contains(text, token) {
		t.Fatal(text)
	}
}

func TestCallersWhoShareAnErrorDoNotWriteIntoIt(t *testing.T) {
	made := Invalid("machine_class.provider_spec.size", "%s is no size", token).With("zone", token)
	driver := &author{create: func(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
		time.Sleep(200 * time.Millisecond)
		return nil, made
	}}
	client, _, _ := served(t, driver, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			of := creation1()
			of.SecretData = secretOfTests()
			if _, err := client.CreateMachine(context.Background(), of); reason(err) != "INVALID_FIELD" {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if !strings.Contains(made.Violations[0].Description, token) || made.Metadata["zone"] != token {
		t.Fatal("the author's own error was changed", made)
	}
}

// slowList is a driver whose list takes long.
type slowList struct {
	*author
	begun chan struct{}
}

func (s *slowList) ListMachines(ctx context.Context, _ *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error) {
	close(s.begun)
	select {
	case <-time.After(2500 * time.Millisecond):
		return &pb.ListMachinesResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestReadsInFlightMayEndAfterAStop(t *testing.T) {
	driver := &slowList{&author{}, make(chan struct{})}
	client, _, stop := served(t, driver, nil)
	go func() { <-driver.begun; stop() }()
	if _, err := client.ListMachines(context.Background(), &pb.ListMachinesRequest{ClusterId: "c", MachineClass: creation1().MachineClass}); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestBytesThatAreNoTextAreReplacedInAnswers(t *testing.T) {
	shared := &pb.Machine{StateMessage: "said \xff", Addresses: []*pb.NodeAddress{{Address: "\xfe"}}}
	driver := &author{status: func(context.Context, *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
		return &pb.GetMachineStatusResponse{Machine: shared}, nil
	}}
	driver.info.Manifest = map[string]string{"a\xff": "b\xff"}
	client, _, _ := served(t, &watchingBytes{watching{author: driver}}, nil)
	out, err := client.GetMachineStatus(context.Background(), look1())
	if err != nil || out.Machine.StateMessage != "said ?" || out.Machine.Addresses[0].Address != "?" || shared.StateMessage != "said \xff" {
		t.Fatal(out, err)
	}
	info, err := client.GetDriverInfo(context.Background(), &pb.GetDriverInfoRequest{})
	if err != nil || info.Manifest["a?"] != "b?" {
		t.Fatal(info, err)
	}
	watch, err := client.WatchMachines(context.Background(), &pb.WatchMachinesRequest{ClusterId: "c", MachineClass: creation1().MachineClass})
	if err != nil {
		t.Fatal(err)
	}
	if event, err := watch.Recv(); err != nil || event.Machine.StateMessage != "event ?" {
		t.Fatal(event, err)
	}
}

type watchingBytes struct{ watching }

func (w *watchingBytes) WatchMachines(ctx context.Context, _ *pb.WatchMachinesRequest, send func(*pb.WatchMachinesResponse) error) error {
	if err := send(&pb.WatchMachinesResponse{Type: pb.WatchMachinesResponse_TYPE_UPSERT, Machine: &pb.Machine{StateMessage: "event \xff"}}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestLabelsAndAnnotationsThatKubernetesRefusesAreRefused(t *testing.T) {
	client, _, _ := served(t, &author{}, nil)
	for name, change := range map[string]func(*pb.CreateMachineRequest){
		"key of a label":         func(r *pb.CreateMachineRequest) { r.NodeLabels = map[string]string{"a b": "c"} },
		"prefix of a label":      func(r *pb.CreateMachineRequest) { r.NodeLabels = map[string]string{"A_/b": "c"} },
		"long key":               func(r *pb.CreateMachineRequest) { r.NodeLabels = map[string]string{strings.Repeat("a", 64): "c"} },
		"value of a label":       func(r *pb.CreateMachineRequest) { r.NodeLabels = map[string]string{"a": "c d"} },
		"long value":             func(r *pb.CreateMachineRequest) { r.NodeLabels = map[string]string{"a": strings.Repeat("c", 64)} },
		"key of an annotation":   func(r *pb.CreateMachineRequest) { r.NodeAnnotations = map[string]string{"": "c"} },
		"key of a class's label": func(r *pb.CreateMachineRequest) { r.MachineClass.Labels = map[string]string{"-a": "c"} },
		"its value":              func(r *pb.CreateMachineRequest) { r.MachineClass.Labels = map[string]string{"a": "c/d"} },
		"its template": func(r *pb.CreateMachineRequest) {
			r.MachineClass.NodeTemplate = &pb.NodeTemplate{Labels: map[string]string{"a": "/"}}
		},
	} {
		of := creation1()
		change(of)
		if _, err := client.CreateMachine(context.Background(), of); reason(err) != "INVALID_FIELD" {
			t.Errorf("%s: %v", name, err)
		}
	}
	of := creation1()
	of.NodeLabels = map[string]string{"node.kubernetes.io/pool_a": "", "a": "B-1.c_d"}
	of.NodeAnnotations = map[string]string{"Example.com/a": "any thing\nat all"}
	of.MachineClass.Labels = of.NodeLabels
	if _, err := client.CreateMachine(context.Background(), of); err != nil {
		t.Fatal(err)
	}
}

func TestAnAuthorsLogIsLeftAndTheKitsOwnDoesNotTakeThePackageLog(t *testing.T) {
	before, writer, flags := slog.Default(), log.Writer(), log.Flags()
	defer func() { slog.SetDefault(before); log.SetOutput(writer); log.SetFlags(flags) }()
	var plain, own bytes.Buffer
	log.SetOutput(&plain)
	log.SetFlags(0)
	(&Options{LogFormat: "json"}).setLog()
	log.Print("fatal as it is")
	if _, ok := slog.Default().Handler().(*slog.JSONHandler); !ok || plain.String() != "fatal as it is\n" {
		t.Fatalf("%T %q", slog.Default().Handler(), plain.String())
	}
	(&Options{LogFormat: "text"}).setLog()
	if _, ok := slog.Default().Handler().(*slog.TextHandler); !ok {
		t.Fatalf("the kit's own log cannot be changed by a second start: %T", slog.Default().Handler())
	}
	mine := slog.New(slog.NewTextHandler(&own, nil))
	slog.SetDefault(mine)
	(&Options{LogFormat: "json"}).setLog()
	if slog.Default() != mine {
		t.Fatal("the author's logger was taken away")
	}
}

func TestACallThatADriverDoesNotHaveIsNoWarning(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	out, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(out, nil)))
	service := newService(&author{}, context.Background(), nil)
	_, failed := service.InitializeMachine(context.Background(), &pb.InitializeMachineRequest{})
	told := service.end(context.Background(), "InitializeMachine", &pb.InitializeMachineRequest{}, failed, time.Second)
	if status.Code(told) != codes.Unimplemented {
		t.Fatal(told)
	}
	if text, err := os.ReadFile(out.Name()); err != nil || len(text) > 0 {
		t.Fatal(string(text), err)
	}
}

func TestAnAuthorsCallThatNeverEndsIsGivenUpAndFreesTheMachine(t *testing.T) {
	service := newService(&author{}, context.Background(), nil)
	flights := service.flights
	flights.limit, flights.grace, flights.mostOfAbandoned = 30*time.Millisecond, 30*time.Millisecond, 1
	release := make(chan struct{})
	hangs := func(context.Context) (any, error) { <-release; return nil, nil }
	at := subject{"c", uid}
	_, err := flights.run(context.Background(), at, &operation{kind: creation, uid: uid}, hangs)
	if failed := errorOf(err); failed.Reason != ProviderUnavailable || failed.Outcome != Unknown {
		t.Fatal(err)
	}
	_, err = service.CreateMachine(context.Background(), creation1())
	if errorOf(err).Reason != OperationInProgress {
		t.Fatal("a second creation began beside one that may still make a VM", err)
	}
	if out, err := service.DeleteMachine(context.Background(), deletion1()); err != nil || out.State != pb.Machine_STATE_DELETING {
		t.Fatal("the deletion runs, and does not say DELETED while a VM may be made", out, err)
	}
	other := make(chan error, 1)
	go func() {
		_, err := flights.run(context.Background(), subject{"c", "other"}, &operation{kind: deletion, uid: "other"}, hangs)
		other <- err
	}()
	select {
	case err := <-other:
		t.Fatal("more were given up than may be", err)
	case <-time.After(200 * time.Millisecond):
	}
	flights.mu.Lock()
	held := flights.running[subject{"c", "other"}] != nil
	flights.mu.Unlock()
	if !held {
		t.Fatal("it is not held")
	}
	close(release)
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	for range 100 {
		out, err := service.DeleteMachine(context.Background(), deletion1())
		if err == nil && out.State == pb.Machine_STATE_DELETED {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it is not DELETED after the creation has returned")
}

// unfound is a driver that says MACHINE_NOT_FOUND in mutating calls, too.
type unfound struct{ author }

func (*unfound) InitializeMachine(context.Context, *pb.InitializeMachineRequest) (*pb.InitializeMachineResponse, error) {
	return nil, Fail(MachineNotFound, "none")
}

func TestNoCallSaysNotFoundRightAfterAStart(t *testing.T) {
	driver := &unfound{author{info: Info{PropagationDelay: 300 * time.Millisecond}, delete: func(context.Context, *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
		return nil, Fail(MachineNotFound, "none")
	}}}
	client, _, _ := served(t, driver, nil)
	of := creation1()
	for _, want := range []string{"PROVIDER_UNAVAILABLE", "MACHINE_NOT_FOUND"} {
		if _, err := client.DeleteMachine(context.Background(), deletion1()); reason(err) != want {
			t.Fatal(err)
		}
		if _, err := client.InitializeMachine(context.Background(), &pb.InitializeMachineRequest{Key: of.Key, MachineClass: of.MachineClass}); reason(err) != want {
			t.Fatal(err)
		}
		time.Sleep(350 * time.Millisecond)
	}
}

// deafWatch is a driver whose watch leaves its context out of account.
type deafWatch struct {
	*author
	release chan struct{}
}

func (d *deafWatch) WatchMachines(_ context.Context, _ *pb.WatchMachinesRequest, send func(*pb.WatchMachinesResponse) error) error {
	if err := send(&pb.WatchMachinesResponse{Type: pb.WatchMachinesResponse_TYPE_SYNCED}); err != nil {
		return err
	}
	<-d.release
	return send(&pb.WatchMachinesResponse{Type: pb.WatchMachinesResponse_TYPE_SYNCED})
}

func TestAWatchThatDoesNotEndWithItsContextKeepsNoProcess(t *testing.T) {
	driver := &deafWatch{&author{}, make(chan struct{})}
	defer close(driver.release)
	client, _, stop := served(t, driver, nil)
	watch, err := client.WatchMachines(context.Background(), &pb.WatchMachinesRequest{ClusterId: "c", MachineClass: creation1().MachineClass})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := stop(); err != nil || time.Since(begun) > 5*time.Second {
		t.Fatal(err, time.Since(begun))
	}
	if _, err := watch.Recv(); err != io.EOF {
		t.Fatal("it ends with OK", err)
	}
}
