package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"millwright.dev/provider-sdk/bridge/internal/lookalike"
	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

const (
	noDelay = time.Millisecond
	plain   = "plain,marks=slash"
)

var secrets = map[string][]byte{"token": []byte("secret-token")}

// world is a bridge that serves a look-alike, with a client.
type world struct {
	pb.DriverServiceClient
	t      *testing.T
	driver *lookalike.Driver
	bridge *Bridge
	class  *pb.MachineClass
}

// start serves a look-alike whose cloud is the folder: a second start with the same folder is the process after a kill -9.
func start(t *testing.T, folder, habits string, of settings) *world {
	t.Helper()
	parsed, err := lookalike.Parse(habits)
	if err != nil {
		t.Fatal(err)
	}
	if of.delay == 0 {
		of.delay = noDelay
	}
	if of.profile == "" {
		of.profile = plain
	}
	w := &world{t: t, driver: lookalike.New(folder, parsed), class: classNamed(t, "aws")}
	w.class.Provider = "lookalike"
	if w.bridge, err = newBridge("lookalike", w.driver, of); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(shortDir(t), "s")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sdk.ServeUntil(ctx, w.bridge.served(), &sdk.Options{Listen: "unix://" + socket}) }()
	connection, err := dial("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		connection.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.DriverServiceClient = pb.NewDriverServiceClient(connection)
	if _, err := w.GetDriverInfo(context.Background(), &pb.GetDriverInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * noDelay)
	return w
}

// dial waits for the server, and tries it often.
func dial(endpoint string) (*grpc.ClientConn, error) {
	often := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}
	return grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(often), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
}

// shortDir is a folder whose path fits into a socket's.
func shortDir(t *testing.T) string {
	folder, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// classNamed is a class of testdata.
func classNamed(t *testing.T, name string) *pb.MachineClass {
	t.Helper()
	text, err := os.ReadFile("testdata/classes/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	of := struct {
		Driver       string
		Labels       map[string]string
		Spec         *structpb.Struct
		NodeTemplate *struct {
			InstanceType, Region, Zone string
			Capacity                   map[string]string
		} `json:"node_template"`
	}{}
	if err := json.Unmarshal(text, &of); err != nil {
		t.Fatal(name, err)
	}
	class := &pb.MachineClass{Name: "small", Namespace: "default", Provider: of.Driver, ProviderSpec: of.Spec, Labels: of.Labels}
	if of.NodeTemplate != nil {
		class.NodeTemplate = &pb.NodeTemplate{InstanceType: of.NodeTemplate.InstanceType, Region: of.NodeTemplate.Region, Zone: of.NodeTemplate.Zone, Capacity: of.NodeTemplate.Capacity}
	}
	return class
}

func key(name string, uid int) *pb.MachineKey {
	return &pb.MachineKey{ClusterId: "c", Namespace: "default", Name: name, Uid: fmt.Sprintf("00000000-0000-4000-8000-%012d", uid)}
}

func (w *world) create(of *pb.MachineKey) (*pb.Machine, error) {
	out, err := w.CreateMachine(context.Background(), &pb.CreateMachineRequest{Key: of, MachineClass: w.class, SecretData: secrets,
		UserData: []byte("#cloud-config"), SpecDigest: strings.Repeat("a", 64)})
	return out.GetMachine(), err
}

func (w *world) made(of *pb.MachineKey) *pb.Machine {
	w.t.Helper()
	made, err := w.create(of)
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

func (w *world) remove(of *pb.MachineKey, id string) (pb.Machine_State, error) {
	out, err := w.DeleteMachine(context.Background(), &pb.DeleteMachineRequest{Key: of, ProviderId: id, MachineClass: w.class, SecretData: secrets})
	return out.GetState(), err
}

func (w *world) look(of *pb.MachineKey, id string) (*pb.Machine, error) {
	out, err := w.GetMachineStatus(context.Background(), &pb.GetMachineStatusRequest{Key: of, ProviderId: id, MachineClass: w.class, SecretData: secrets})
	return out.GetMachine(), err
}

func (w *world) list() ([]*pb.Machine, error) {
	out, err := w.ListMachines(context.Background(), &pb.ListMachinesRequest{ClusterId: "c", MachineClass: w.class, SecretData: secrets})
	return out.GetMachines(), err
}

// gone deletes until it is DELETED.
func (w *world) gone(of *pb.MachineKey) {
	w.t.Helper()
	var last error
	for range 1000 {
		state, err := w.remove(of, "")
		if err == nil && state == pb.Machine_STATE_DELETED {
			return
		}
		last = err
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatal("it is not DELETED", last)
}

// begun waits until the driver was called.
func (w *world) begun(call string) {
	w.t.Helper()
	for range 1000 {
		if w.driver.Calls(call) > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatal(call, "was not called")
}

// has fails unless there are so many VMs.
func (w *world) has(count int) {
	w.t.Helper()
	if all := w.driver.VMs(); len(all) != count {
		w.t.Fatalf("%d VMs are there, not %d: %+v", len(all), count, all)
	}
}

func (w *world) foreign(name string) *lookalike.VM {
	return w.driver.Put(&lookalike.VM{Name: name, Tags: map[string]string{"kubernetes.io/cluster/other": "1", "kubernetes.io/role/node": "1"}})
}

func (w *world) older(name string) *lookalike.VM {
	return w.driver.Put(&lookalike.VM{Name: name, Tags: map[string]string{"kubernetes.io/cluster/shoot--core--demo": "1", "kubernetes.io/role/node": "1"}})
}

func (w *world) refused(err error, reason string) {
	w.t.Helper()
	if reasonIn(err) != reason {
		w.t.Fatalf("%v: %q, not %q", err, reasonIn(err), reason)
	}
}

func reasonIn(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

func outcomeIn(err error) pb.ErrorDetail_Outcome {
	for _, detail := range status.Convert(err).Details() {
		if detail, ok := detail.(*pb.ErrorDetail); ok {
			return detail.Outcome
		}
	}
	return -1
}

// found is the detail of a kind.
func found[Detail any](err error) (none Detail) {
	for _, detail := range status.Convert(err).Details() {
		if of, ok := detail.(Detail); ok {
			return of
		}
	}
	return none
}
