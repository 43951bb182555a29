package bridge

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

// Types of the original's shape.
type (
	anObject   struct{ Data map[string][]byte }
	aRequest   struct{ Machine, MachineClass, Secret *anObject }
	aResponse  struct{ ProviderID, NodeName, LastKnownState string }
	aPanicking struct{}
)

func (aPanicking) call(r *aRequest) (*aResponse, error) {
	panic(fmt.Sprintf("no network with %v", r.Secret.Data))
}
func (p aPanicking) CreateMachine(_ context.Context, r *aRequest) (*aResponse, error) {
	return p.call(r)
}
func (p aPanicking) DeleteMachine(_ context.Context, r *aRequest) (*aResponse, error) {
	return p.call(r)
}
func (p aPanicking) GetMachineStatus(_ context.Context, r *aRequest) (*aResponse, error) {
	return p.call(r)
}
func (p aPanicking) ListMachines(_ context.Context, r *aRequest) (*aResponse, error) {
	return p.call(r)
}

func TestTheCauseOfAPanicIsInNoMessage(t *testing.T) {
	driver, err := originalOf(aPanicking{}, false)
	if err != nil {
		t.Fatal(err)
	}
	r := requestFor(profile{}, key("m-1", 1), &pb.MachineClass{}, map[string][]byte{"token": []byte("abc")}, "")
	_, failed := driver.call(context.Background(), callStatus, r.fields(map[string]any{}, "", nil))
	if failed == nil || failed.code != codePanic || strings.Contains(failed.message, "network") || strings.Contains(failed.message, "97 98") {
		t.Fatal(failed)
	}
}

func TestAVmWhoseNamespaceAndUidAreUnknownIsListedWithoutANamespace(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{profile: plain + ",uid-role"})
	w.older("m-1")
	w.made(key("m-2", 2))
	all, err := w.list()
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for _, vm := range all {
		if want := map[string]string{"m-1": "", "m-2": "default"}[vm.Key.Name]; vm.Key.Namespace != want {
			t.Error(vm.Key)
		}
	}
	if seen, err := w.look(key("m-1", 1), ""); err != nil || seen.Key.Namespace != "default" || seen.Key.Uid != "" {
		t.Fatal("a call about one Machine answers with that Machine's namespace", seen, err)
	}
}

func TestAListThatHangsIsGivenUpAndAnotherIsBegun(t *testing.T) {
	lists := newShared()
	lists.limit, lists.grace, lists.mostHung = 50*time.Millisecond, 50*time.Millisecond, 2
	release, begun := make(chan struct{}), make(chan struct{}, 100)
	ask := func(context.Context) (reply, *sdk.Error) { // it leaves its context out of account
		begun <- struct{}{}
		<-release
		return reply{}, nil
	}
	for range 2 {
		if _, failed := lists.share(context.Background(), [32]byte{1}, ask); failed == nil || failed.Reason != sdk.ProviderUnavailable {
			t.Fatal(failed)
		}
	}
	if out, failed := lists.share(context.Background(), [32]byte{1}, func(context.Context) (reply, *sdk.Error) { return reply{providerID: "x"}, nil }); failed != nil || out.providerID != "x" {
		t.Fatal("the provider is well again", out, failed)
	}
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	for range 2 { // as many are given up as may be: the third holds its class, and only that
		lists.share(short, [32]byte{1}, ask)
	}
	if len(begun) != 3 {
		t.Fatal(len(begun), "lists were begun")
	}
	if _, failed := lists.share(context.Background(), [32]byte{2}, func(context.Context) (reply, *sdk.Error) { return reply{}, nil }); failed != nil {
		t.Fatal(failed)
	}
	close(release)
	if _, failed := lists.share(context.Background(), [32]byte{1}, ask); failed != nil {
		t.Fatal(failed)
	}
}

func TestACallThatWaitsForADriverWhichTakesOneAtATimeEndsWithItsContext(t *testing.T) {
	driver, err := originalOf(aPanicking{}, true)
	if err != nil {
		t.Fatal(err)
	}
	driver.serial <- struct{}{}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	r := requestFor(profile{}, key("m-1", 1), &pb.MachineClass{}, nil, "")
	if _, failed := driver.call(ctx, callStatus, r.fields(map[string]any{}, "", nil)); failed == nil || failed.code == codePanic {
		t.Fatal(failed)
	}
}
