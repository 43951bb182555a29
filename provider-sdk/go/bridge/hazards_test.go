package bridge

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"millwright.dev/provider-sdk/bridge/internal/lookalike"
	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

func TestEachOfTheFifteenHasOneVmForAMachineAndLeavesNothing(t *testing.T) {
	for name, habits := range lookalike.Like {
		t.Run(name, func(t *testing.T) {
			w := start(t, t.TempDir(), habits, settings{profile: name, delay: 50 * time.Millisecond})
			w.class = classNamed(t, name)
			w.class.Provider = "lookalike"
			of := key("m-1", 1)
			made := w.made(of)
			if again := w.made(of); again.ProviderId != made.ProviderId {
				t.Fatal(again)
			}
			time.Sleep(60 * time.Millisecond)
			seen, err := w.look(of, "")
			if err != nil || seen.ProviderId != made.ProviderId || seen.State != pb.Machine_STATE_RUNNING || seen.NodeName == "" {
				t.Fatal(seen, err)
			}
			if all, err := w.list(); err != nil || len(all) != 1 || all[0].ProviderId != made.ProviderId || all[0].CreateTime == nil {
				t.Fatal(all, err)
			}
			w.has(1)
			w.gone(of)
			w.has(0)
			if _, err := w.create(of); reasonIn(err) != "MACHINE_DELETED" || outcomeIn(err) != sdk.NoEffect {
				t.Fatal(err)
			}
			if _, err := w.look(of, ""); reasonIn(err) != "MACHINE_NOT_FOUND" {
				t.Fatal(err)
			}
			if w.driver.Crashed.Load() {
				t.Fatal("two calls were inside a driver that does not stand it")
			}
		})
	}
}

func TestAVmOfTheProcessBeforeIsAdoptedThoughItShowsLate(t *testing.T) {
	folder := t.TempDir()
	made := start(t, folder, "no-status,lag=500ms", settings{}).made(key("m-1", 1))
	second := start(t, folder, "no-status,lag=500ms", settings{delay: 1200 * time.Millisecond})
	_, err := second.look(key("m-1", 1), "")
	second.refused(err, "PROVIDER_UNAVAILABLE")
	if state, err := second.remove(key("m-9", 9), ""); err != nil || state != pb.Machine_STATE_DELETING {
		t.Fatal("nothing is believed to be gone before the delay has passed", state, err)
	}
	if again := second.made(key("m-1", 1)); again.ProviderId != made.ProviderId {
		t.Fatal(again)
	}
	second.has(1)
}

func TestAHalfMadeVmIsFinishedOrAdoptedOrGivenUpAsItsDriverCan(t *testing.T) {
	for profile, want := range map[string]string{plain: "", plain + ",resumes": "", plain + ",destroys": "VM_INCONSISTENT"} {
		habits := map[string]string{plain: "", plain + ",resumes": "create-resumes", plain + ",destroys": "create-destroys"}[profile]
		w := start(t, t.TempDir(), habits, settings{profile: profile})
		half := w.older("m-1")
		made, err := w.create(key("m-1", 1))
		w.refused(err, want)
		w.has(1)
		if want == "" && made.ProviderId != half.ID {
			t.Error(profile, made)
		}
		if called := w.driver.Calls(callCreate); (called == 1) != strings.HasSuffix(profile, "resumes") {
			t.Error(profile, called)
		}
	}
}

func TestAServerThatIsCreatedTwiceIsNotDestroyedByTheSecondCreate(t *testing.T) {
	w := start(t, t.TempDir(), "create-destroys,create-fails-after=Internal:timed out", settings{profile: plain + ",destroys"})
	_, err := w.create(key("m-1", 1))
	if outcomeIn(err) != sdk.Partial {
		t.Fatal(err)
	}
	_, err = w.create(key("m-1", 1))
	w.refused(err, "VM_INCONSISTENT")
	w.has(1)
	w.gone(key("m-1", 1))
	w.has(0)
}

func TestAVmThatIsToBeRecreatedIsCreatedAgainAndNotTakenForGone(t *testing.T) {
	w := start(t, t.TempDir(), lookalike.Like["ironcoremetal"], settings{profile: "ironcoremetal"})
	w.driver.Put(&lookalike.VM{Name: "m-1", Half: true, Class: "small"})
	_, err := w.look(key("m-1", 1), "")
	w.refused(err, "PROVIDER_UNAVAILABLE")
	w.bridge.disagreeFor = 0
	_, err = w.look(key("m-1", 1), "")
	w.refused(err, "VM_INCONSISTENT")
	w.made(key("m-1", 1))
	w.has(1)
}

func TestRepeatsJoinAndAnotherUidOfTheNameWaits(t *testing.T) {
	w := start(t, t.TempDir(), "slow=400ms", settings{})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := w.create(key("m-1", 1)); err != nil {
				t.Error(err)
			}
		})
	}
	w.begun(callCreate)
	_, err := w.create(key("m-1", 2))
	w.refused(err, "OPERATION_IN_PROGRESS")
	all.Wait()
	w.has(1)
	if w.driver.Calls(callCreate) != 1 {
		t.Fatal(w.driver.Calls(callCreate))
	}
}

func TestTheEndOfADeadlineDoesNotEndTheCreation(t *testing.T) {
	w := start(t, t.TempDir(), "slow=200ms", settings{})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.CreateMachine(ctx, &pb.CreateMachineRequest{Key: key("m-1", 1), MachineClass: w.class, SecretData: secrets, UserData: []byte("#")}); err == nil {
		t.Fatal("it came in time")
	}
	w.made(key("m-1", 1))
	w.has(1)
	if w.driver.Calls(callCreate) != 1 {
		t.Fatal(w.driver.Calls(callCreate))
	}
}

func TestAVmThatBootsForTenMinutesIsToldWhenItIsSeen(t *testing.T) {
	w := start(t, t.TempDir(), "slow=1s", settings{patience: 100 * time.Millisecond})
	begun := time.Now()
	made := w.made(key("m-1", 1))
	if made.State != pb.Machine_STATE_CREATING || made.ProviderId == "" || time.Since(begun) > 900*time.Millisecond {
		t.Fatal(made, time.Since(begun))
	}
	if again := w.made(key("m-1", 1)); again.State != pb.Machine_STATE_CREATING {
		t.Fatal("a repeat gets the same answer", again)
	}
	if seen, err := w.look(key("m-1", 1), ""); err != nil || seen.State != pb.Machine_STATE_CREATING {
		t.Fatal(seen, err)
	}
	if w.driver.Calls(callCreate) != 1 {
		t.Fatal("it was created twice")
	}
}

func TestACreationThatFailsAfterItWasToldMakesTheVmFailed(t *testing.T) {
	w := start(t, t.TempDir(), "slow=200ms,create-fails-after=Internal:no boot", settings{patience: 50 * time.Millisecond})
	w.made(key("m-1", 1))
	for range 100 {
		seen, err := w.look(key("m-1", 1), "")
		if err == nil && seen.State == pb.Machine_STATE_FAILED && strings.Contains(seen.StateMessage, "no boot") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it is never FAILED")
}

func TestADeletionCancelsACreationAndTakesWhatCameOfIt(t *testing.T) {
	for _, habits := range []string{"slow=10s", "slow=300ms,ignores-context"} {
		w := start(t, t.TempDir(), habits, settings{})
		ended := make(chan error, 1)
		go func() { _, err := w.create(key("m-1", 1)); ended <- err }()
		w.begun(callCreate)
		time.Sleep(20 * time.Millisecond) // until the VM is made
		_, err := w.remove(key("m-1", 1), "")
		w.refused(err, "OPERATION_IN_PROGRESS")
		if err := <-ended; habits == "slow=10s" && outcomeIn(err) != sdk.Partial {
			t.Fatal(err)
		}
		w.gone(key("m-1", 1))
		w.has(0)
	}
}

func TestADeletionThatWaitsIsToldAsUnderWay(t *testing.T) {
	w := start(t, t.TempDir(), "delete-slow=700ms", settings{})
	w.bridge.deletePatience = 30 * time.Millisecond
	w.made(key("m-1", 1))
	begun := time.Now()
	if state, err := w.remove(key("m-1", 1), ""); err != nil || state != pb.Machine_STATE_DELETING || time.Since(begun) > 600*time.Millisecond {
		t.Fatal(state, err, time.Since(begun))
	}
	if seen, err := w.look(key("m-1", 1), ""); err != nil || seen.State != pb.Machine_STATE_DELETING {
		t.Fatal(seen, err)
	}
	w.driver.Change(func(h *lookalike.Habits) { h.DeleteSlow = 0 })
	w.gone(key("m-1", 1))
	w.has(0)
}

func TestDeletedIsSaidWhenTheListShowsTheVmNoMore(t *testing.T) {
	w := start(t, t.TempDir(), "lingers=100ms", settings{})
	w.made(key("m-1", 1))
	begun := time.Now()
	if state, err := w.remove(key("m-1", 1), ""); err != nil || state != pb.Machine_STATE_DELETING {
		t.Fatal(state, err)
	}
	w.gone(key("m-1", 1))
	if took := time.Since(begun); took < 100*time.Millisecond {
		t.Fatal("DELETED was said while the list showed the VM", took)
	}
	w.has(0)
}

func TestAnUntrueNotFoundIsNotBelieved(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	w.made(key("m-1", 1))
	w.driver.Change(func(h *lookalike.Habits) { h.StatusLies = true })
	_, err := w.look(key("m-1", 1), "")
	w.refused(err, "PROVIDER_UNAVAILABLE")
	w.driver.Change(func(h *lookalike.Habits) { h.StatusLies, h.StatusByID, h.ListFails = false, true, "Internal:down" })
	_, err = w.look(key("m-1", 1), "")
	w.refused(err, "PROVIDER_UNAVAILABLE")
	_, err = w.create(key("m-2", 2))
	w.refused(err, "PROVIDER_UNAVAILABLE")
	_, err = w.remove(key("m-1", 1), "")
	w.refused(err, "PROVIDER_UNAVAILABLE")
	w.has(1)
}

func TestAClassWithoutMarksIsRefusedAndNeverTakenForEmpty(t *testing.T) {
	w := start(t, t.TempDir(), "list-blind", settings{})
	w.made(key("m-1", 1))
	delete(w.class.ProviderSpec.Fields, "tags")
	_, err := w.create(key("m-2", 2))
	w.refused(err, "INVALID_FIELD")
	_, err = w.list()
	w.refused(err, "CREDENTIALS_MISSING")
	_, err = w.look(key("m-1", 1), "")
	w.refused(err, "CREDENTIALS_MISSING")
	_, err = w.remove(key("m-1", 1), "")
	w.refused(err, "CREDENTIALS_MISSING")
	out, err := w.ValidateMachineClass(context.Background(), &pb.ValidateMachineClassRequest{MachineClass: w.class})
	if err != nil || len(out.Violations) != 1 || out.Violations[0].Reason != "MARKS_MISSING" {
		t.Fatal(out, err)
	}
	w.has(1)
}

func TestAnIdOfTheManagerIsNeverPassedOn(t *testing.T) {
	w := start(t, t.TempDir(), "deletes-any,initializes", settings{})
	foreign := w.foreign("x")
	neighbour := w.made(key("m-2", 2))
	_, err := w.remove(key("m-1", 1), neighbour.ProviderId)
	w.refused(err, "NOT_OWNED")
	if state, err := w.remove(key("m-1", 1), foreign.ID); err != nil || state != pb.Machine_STATE_DELETED {
		t.Fatal(state, err)
	}
	_, err = w.InitializeMachine(context.Background(), &pb.InitializeMachineRequest{Key: key("m-1", 3), ProviderId: foreign.ID, MachineClass: w.class, SecretData: secrets})
	w.refused(err, "MACHINE_NOT_FOUND")
	w.has(2)
}

func TestAVmOfAnotherClusterWithTheNameIsNeitherAdoptedNorDeleted(t *testing.T) {
	w := start(t, t.TempDir(), "status-any-cluster", settings{})
	foreign := w.foreign("m-1")
	_, err := w.create(key("m-1", 1))
	w.refused(err, "NAME_CONFLICT")
	_, err = w.look(key("m-1", 1), foreign.ID)
	w.refused(err, "PROVIDER_UNAVAILABLE")
	w.gone(key("m-1", 1))
	w.has(1)
	if all, err := w.list(); err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
}

func TestAnotherUidsVmIsANameConflictAsOftenAsItIsAsked(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	made := w.made(key("m-1", 1))
	for range 3 {
		_, err := w.create(key("m-1", 2))
		w.refused(err, "NAME_CONFLICT")
	}
	restored := key("m-1", 3)
	restored.Namespace = "restored"
	seen, err := w.look(restored, made.ProviderId)
	if err != nil || seen.Key.Uid != key("m-1", 1).Uid || seen.Key.Namespace != "default" {
		t.Fatal("a hand-over tells the uid and the namespace that the VM bears", seen, err)
	}
	w.has(1)
}

func TestAnotherUidsVmIsANameConflictAlsoAfterARestart(t *testing.T) {
	folder := t.TempDir()
	first := start(t, folder, "", settings{profile: plain + ",uid-role"})
	made := first.made(key("m-1", 1))
	for _, w := range []*world{first, start(t, folder, "", settings{profile: plain + ",uid-role"})} {
		_, err := w.create(key("m-1", 2))
		w.refused(err, "NAME_CONFLICT")
		_, err = w.look(key("m-1", 2), "")
		w.refused(err, "MACHINE_NOT_FOUND")
		_, err = w.remove(key("m-1", 2), made.ProviderId)
		w.refused(err, "NOT_OWNED")
		w.gone(key("m-1", 2))
		w.has(1)
		if own, err := w.look(key("m-1", 1), ""); err != nil || own.Key.Uid != key("m-1", 1).Uid {
			t.Fatal(own, err)
		}
	}
}

func TestTheFilterIsAskedOnceForTheUidOfAVmOfTheProcessBefore(t *testing.T) {
	folder := t.TempDir()
	start(t, folder, "status-by-id", settings{profile: plain + ",uid-role"}).made(key("m-1", 1))
	w := start(t, folder, "status-by-id", settings{profile: plain + ",uid-role"})
	for _, lists := range []int{2, 3, 4} {
		if _, err := w.look(key("m-1", 1), ""); err != nil || w.driver.Calls(callList) != lists {
			t.Fatal(w.driver.Calls(callList), lists, err)
		}
	}
}

func TestARestoredMachineFindsAndDeletesTheVmOfItsOldUid(t *testing.T) {
	folder := t.TempDir()
	made := start(t, folder, "", settings{profile: plain + ",uid-role"}).made(key("m-1", 1))
	w := start(t, folder, "", settings{profile: plain + ",uid-role"})
	seen, err := w.look(key("m-1", 2), made.ProviderId)
	if err != nil || seen.ProviderId != made.ProviderId || seen.Key.Uid != "" {
		t.Fatal(seen, err)
	}
	if state, err := w.remove(key("m-1", 2), made.ProviderId); err != nil || state != pb.Machine_STATE_DELETING {
		t.Fatal(state, err)
	}
	w.has(0)
}

func TestAnOrphanIsDeletedByItsIdThoughItsUidCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	made := start(t, folder, "", settings{profile: plain + ",uid-role"}).made(key("m-1", 1))
	w := start(t, folder, "", settings{profile: plain + ",uid-role"})
	all, err := w.list()
	if err != nil || len(all) != 1 || all[0].Key.Uid != "" || all[0].Key.Name != "m-1" || all[0].NodeName != "" {
		t.Fatal(all, err)
	}
	if all[0].Key.Namespace != "" {
		t.Fatal("a namespace that is not known was told", all[0].Key)
	}
	byHand := &pb.MachineKey{ClusterId: "c", Namespace: "default", Name: "m-1"}
	if _, err := w.remove(byHand, made.ProviderId); err != nil {
		t.Fatal(err)
	}
	w.has(0)
	if state, err := w.remove(byHand, made.ProviderId); err != nil || state != pb.Machine_STATE_DELETED {
		t.Fatal(state, err)
	}
}

func TestAVmOfAnOlderControllerIsTheMachinesOwn(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{profile: plain + ",uid-role"})
	old := w.older("m-1")
	seen, err := w.look(key("m-1", 1), "")
	if err != nil || seen.ProviderId != old.ID || seen.Key.Uid != "" {
		t.Fatal(seen, err)
	}
	if made := w.made(key("m-1", 1)); made.ProviderId != old.ID {
		t.Fatal(made)
	}
	w.gone(key("m-1", 1))
	w.has(0)
}

// The driver looks by one of the roles in its request: a role that the older VM does not bear would hide it.
func TestADriverThatFinishesFindsTheVmOfAnOlderController(t *testing.T) {
	w := start(t, t.TempDir(), "no-status,create-resumes", settings{profile: plain + ",uid-role,resumes"})
	old := w.older("m-1")
	if made := w.made(key("m-1", 1)); made.ProviderId != old.ID {
		t.Error(made)
	}
	w.has(1)
	foreign := w.foreign("m-2")
	w.class.LegacyMarks = map[string]string{"kubernetes.io/cluster/other": "1"}
	if made := w.made(key("m-2", 2)); made.ProviderId != foreign.ID {
		t.Error(made)
	}
	w.has(2)
}

func TestLegacyMarksShowAndDeleteWhatTheClassesMarksDoNot(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	old := w.foreign("m-1") // its marks are those that legacy_marks will say
	w.class.LegacyMarks = map[string]string{"kubernetes.io/cluster/other": "1"}
	if seen, err := w.look(key("m-1", 1), ""); err != nil || seen.ProviderId != old.ID {
		t.Fatal(seen, err)
	}
	if all, err := w.list(); err != nil || len(all) != 1 || all[0].ProviderId != old.ID {
		t.Fatal(all, err)
	}
	w.gone(key("m-1", 1))
	w.has(0)
}

func TestDuplicatesAreToldWithEveryIdAndAllAreDeleted(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	w.older("m-1")
	w.older("m-1")
	_, err := w.look(key("m-1", 1), "")
	w.refused(err, "DUPLICATE_VMS")
	if ids := detailIn(err).GetProviderIds(); len(ids) != 2 {
		t.Fatal(ids)
	}
	w.gone(key("m-1", 1))
	w.has(0)
}

func TestDisksThatAreLeftAreClearedAwayBeforeDeletedIsSaid(t *testing.T) {
	w := start(t, t.TempDir(), "leaves-disks,status-any-cluster", settings{})
	w.made(key("m-1", 1))
	if state, err := w.remove(key("m-1", 1), ""); err != nil || state != pb.Machine_STATE_DELETING {
		t.Fatal(state, err)
	}
	w.has(1)
	_, err := w.look(key("m-1", 1), "")
	w.refused(err, "PROVIDER_UNAVAILABLE")
	w.gone(key("m-1", 1))
	w.has(0)
}

func TestADeletionWithoutAnIdWhichDoesNothingIsNotTakenForDone(t *testing.T) {
	for _, habits := range []string{"delete-skips,status-by-id", "delete-needs-id,status-by-id"} {
		w := start(t, t.TempDir(), habits, settings{profile: plain + ",needs-id"})
		w.made(key("m-1", 1))
		w.gone(key("m-1", 1))
		w.has(0)
		w.gone(key("m-2", 2)) // one that never was
	}
}

func TestADriverWithAnUnlockedMapIsCalledOnceAtATime(t *testing.T) {
	w := start(t, t.TempDir(), "unlocked-map", settings{profile: plain + ",serial"})
	var all sync.WaitGroup
	for at := range 8 {
		all.Go(func() {
			if _, err := w.create(key("m-"+string(rune('a'+at)), at)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.has(8)
	if w.driver.Crashed.Load() {
		t.Fatal("two calls were inside")
	}
}

func TestAPanicCostsOneCallAndSaysWhatIsLeft(t *testing.T) {
	w := start(t, t.TempDir(), "panics", settings{})
	_, err := w.create(key("m-1", 1))
	w.refused(err, "DRIVER_FAULT")
	if outcomeIn(err) != sdk.Partial {
		t.Fatal(err)
	}
	w.driver.Change(func(h *lookalike.Habits) { h.PanicsOffline = true })
	_, err = w.look(key("m-1", 1), "")
	w.refused(err, "DRIVER_FAULT")
	_, err = w.list()
	w.refused(err, "DRIVER_FAULT")
	w.driver.Change(func(h *lookalike.Habits) { h.PanicsOffline = false })
	w.made(key("m-1", 1))
	w.has(1)
}

func TestAFailureThatCleansUpByTheNameLeavesNothing(t *testing.T) {
	w := start(t, t.TempDir(), "create-cleans-up,create-fails-after=ResourceExhausted:Quota exceeded for cores", settings{})
	_, err := w.create(key("m-1", 1))
	w.refused(err, "QUOTA_EXCEEDED")
	if outcomeIn(err) != sdk.NoEffect {
		t.Fatal(outcomeIn(err))
	}
	w.has(0)
}

func TestInitializationIsPendingUntilItWasDone(t *testing.T) {
	w := start(t, t.TempDir(), "initializes", settings{})
	made := w.made(key("m-1", 1))
	seen, err := w.look(key("m-1", 1), "")
	if err != nil || seen.Initialization != pb.Machine_INITIALIZATION_PENDING || seen.StateMessage == "" {
		t.Fatal(seen, err)
	}
	out, err := w.InitializeMachine(context.Background(), &pb.InitializeMachineRequest{Key: key("m-1", 1), ProviderId: "wrong", MachineClass: w.class, SecretData: secrets})
	if err != nil || out.Machine.ProviderId != made.ProviderId || out.Machine.Initialization != pb.Machine_INITIALIZATION_DONE {
		t.Fatal(out, err)
	}
	if seen, err := w.look(key("m-1", 1), ""); err != nil || seen.Initialization != pb.Machine_INITIALIZATION_DONE {
		t.Fatal(seen, err)
	}
}

func detailIn(err error) *pb.ErrorDetail { return found[*pb.ErrorDetail](err) }
