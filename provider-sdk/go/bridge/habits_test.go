package bridge

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"millwright.dev/provider-sdk/bridge/internal/lookalike"
	pb "millwright.dev/provider-sdk/driverv1"
)

func TestAStatusThatTellsAnotherIdDoesNotChangeTheVmsId(t *testing.T) {
	w := start(t, t.TempDir(), "status-by-id,status-wrong-id", settings{})
	made := w.made(key("m-1", 1))
	if seen, err := w.look(key("m-1", 1), made.ProviderId); err != nil || seen.ProviderId != made.ProviderId {
		t.Fatal(seen, err)
	}
}

func TestAStatusThatAnswersNothingIsAVmThatTheListShows(t *testing.T) {
	w := start(t, t.TempDir(), "status-by-id,status-nil-nil", settings{})
	made := w.made(key("m-1", 1))
	if seen, err := w.look(key("m-1", 1), ""); err != nil || seen.ProviderId != made.ProviderId || seen.NodeName != "node-m-1" {
		t.Fatal(seen, err)
	}
	_, err := w.look(key("m-2", 2), "")
	w.refused(err, "MACHINE_NOT_FOUND")
}

func TestADriverThatListsByLabelsOfTheClassGetsThemOrRefusesTheClass(t *testing.T) {
	w := start(t, t.TempDir(), lookalike.Like["yandex"], settings{profile: "yandex"})
	w.class = classNamed(t, "yandex")
	w.class.Provider = "lookalike"
	w.made(key("m-1", 1))
	checked, err := w.ValidateMachineClass(context.Background(), &pb.ValidateMachineClassRequest{MachineClass: w.class})
	if err != nil {
		t.Fatal(err)
	}
	w.class.Labels = nil
	_, err = w.look(key("m-1", 1), "")
	w.refused(err, "CREDENTIALS_MISSING")
	w.class.Locator = checked.Locator // it has the labels that the class had
	w.gone(key("m-1", 1))
	w.has(0)
}

func TestAListOfOneClassFindsTheVmByTheClassOfItsLocator(t *testing.T) {
	w := start(t, t.TempDir(), lookalike.Like["stackit"], settings{profile: "stackit"})
	w.class = classNamed(t, "stackit")
	w.class.Provider = "lookalike"
	w.made(key("m-1", 1))
	checked, err := w.ValidateMachineClass(context.Background(), &pb.ValidateMachineClassRequest{MachineClass: w.class})
	if err != nil {
		t.Fatal(err)
	}
	w.class.Name = "small-next"
	if all, err := w.list(); err != nil || len(all) != 0 {
		t.Fatal("VMs of other classes are not seen", all, err)
	}
	w.class.Locator = checked.Locator
	w.gone(key("m-1", 1))
	w.has(0)
}

func TestNoSecondRoleIsAddedWhereItHidesTheVmOrIsRefused(t *testing.T) {
	for _, name := range []string{"gcp", "azure", "alicloud", "vsphere"} {
		w := start(t, t.TempDir(), "list-first-role,two-marks,list-values", settings{profile: name})
		w.class = classNamed(t, name)
		w.class.Provider = "lookalike"
		made := w.made(key("m-1", 1))
		if seen, err := w.look(key("m-1", 1), ""); err != nil || seen.ProviderId != made.ProviderId {
			t.Error(name, seen, err)
		}
		if name != "gcp" && count(w.driver.VMs()[0].Tags, "millwright") != 6 {
			t.Error(name, "bears no identity tags", w.driver.VMs()[0].Tags)
		}
	}
}

func count(tags map[string]string, part string) (sum int) {
	for key := range tags {
		if len(key) >= len(part) && key[:len(part)] == part {
			sum++
		}
	}
	return sum
}

func TestManyCallersShareASlowList(t *testing.T) {
	w := start(t, t.TempDir(), "status-by-id,list-slow=20ms", settings{})
	w.made(key("m-1", 1))
	before := w.driver.Calls(callList)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := w.look(key("m-1", 1), ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made := w.driver.Calls(callList) - before; made > 5 {
		t.Fatal(made, "lists were made for 20 callers")
	}
}

func TestADeletionThatIsBlockedIsNamedAndLeavesTheVm(t *testing.T) {
	w := start(t, t.TempDir(), "delete-fails=Internal:OperationNotPermitted: The instance may not be terminated", settings{profile: "aws"})
	w.made(key("m-1", 1))
	_, err := w.remove(key("m-1", 1), "")
	w.refused(err, "DELETE_BLOCKED")
	w.has(1)
}

func TestAClassWithoutACredentialIsRefusedByItsDriverWithTheReason(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	_, err := w.ListMachines(context.Background(), &pb.ListMachinesRequest{ClusterId: "c", MachineClass: w.class})
	w.refused(err, "CREDENTIALS_REJECTED")
}

func TestAClassOfAnotherDriverIsRefused(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	w.class.Provider = "other"
	_, err := w.create(key("m-1", 1))
	w.refused(err, "INVALID_FIELD")
	w.has(0)
}

func TestALastKnownStateWithASecretIsNotToldOn(t *testing.T) {
	r := &request{secret: secrets}
	if note(r, "x secret-token") != "" || note(r, "step 3") != "step 3" {
		t.Fatal("a note holds a secret, or none is kept")
	}
}

func TestNumbersOfAClassReachTheDriverAsTheyAre(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	w.class.ProviderSpec.Fields["size"] = structpb.NewNumberValue(53687091200)
	w.made(key("m-1", 1))
	if spec := string(w.driver.Last().MachineClass.ProviderSpec.Raw); !strings.Contains(spec, `"size":53687091200`) {
		t.Fatal(spec)
	}
}

func TestTwoClustersWithOneMarkDoNotSeeEachOthersVms(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	made := w.made(key("m-1", 1))
	other := key("m-1", 2)
	other.ClusterId = "d"
	_, err := w.create(other)
	w.refused(err, "NAME_CONFLICT")
	_, err = w.look(other, made.ProviderId)
	w.refused(err, "MACHINE_NOT_FOUND")
	_, err = w.remove(other, made.ProviderId)
	w.refused(err, "NOT_OWNED")
	out, err := w.ListMachines(context.Background(), &pb.ListMachinesRequest{ClusterId: "d", MachineClass: w.class, SecretData: secrets})
	if err != nil || len(out.Machines) != 0 {
		t.Fatal(out, err)
	}
	w.has(1)
}

func TestAVmThatShowsWhileTheRestIsClearedAwayIsNotTakenForGone(t *testing.T) {
	w := start(t, t.TempDir(), "delete-slow=300ms", settings{})
	w.driver.Put(&lookalike.VM{Name: "m-1", Shown: time.Now().Add(150 * time.Millisecond), Tags: map[string]string{"kubernetes.io/cluster/shoot--core--demo": "1", "kubernetes.io/role/node": "1"}})
	if state, err := w.remove(key("m-1", 1), ""); err != nil || state != pb.Machine_STATE_DELETING {
		t.Fatal(state, err)
	}
	w.gone(key("m-1", 1))
	w.has(0)
}
