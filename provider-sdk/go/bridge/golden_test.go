package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

var update = flag.Bool("update", false, "write the golden files again")

// What the bridge hands to the driver of each class, and the locator of it.
func TestEachProvidersClassReachesItsDriverAsItsGoldenFileSays(t *testing.T) {
	paths, err := filepath.Glob("testdata/classes/*.json")
	if err != nil || len(paths) != 15 {
		t.Fatal(len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) { golden(t, name) })
	}
}

func golden(t *testing.T, name string) {
	class := classNamed(t, name)
	w := start(t, t.TempDir(), "list-all", settings{profile: name})
	class.Provider = "lookalike"
	w.class = class
	checked, err := w.ValidateMachineClass(context.Background(), &pb.ValidateMachineClassRequest{MachineClass: class, SecretData: secrets, Live: true})
	if err != nil || len(checked.Violations) != 0 {
		t.Fatal(checked, err)
	}
	_, err = w.CreateMachine(context.Background(), &pb.CreateMachineRequest{Key: key("m-1", 1), MachineClass: class, SecretData: secrets, UserData: []byte("#cloud-config"),
		SpecDigest: strings.Repeat("a", 64), NodeLabels: map[string]string{"pool": "workers"}, NodeAnnotations: map[string]string{"node.machine.sapcloud.io/placement": "spread"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(map[string]any{"create": w.driver.Last(), "locator": checked.Locator.AsMap()}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := "testdata/golden/" + name + ".json"
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s is\n%s", file, got)
	}
}

func TestEachProvidersErrorTextsHaveTheirReasons(t *testing.T) {
	text, err := os.ReadFile("testdata/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct{ Driver, Call, Code, Message, Reason string }
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{}
	for _, row := range rows {
		covered[row.Driver] = true
		b := &Bridge{profileName: row.Driver}
		failed := b.problem(row.Call, &failure{code: code(row.Code), message: row.Message}, &request{}, nil)
		if reason := strings.TrimPrefix(failed.Reason.String(), "ERROR_REASON_"); reason != row.Reason {
			t.Errorf("%s %s %q: %s, not %s", row.Driver, row.Call, row.Message, reason, row.Reason)
		}
	}
	for name := range words {
		if !covered[name] {
			t.Errorf("no text of %s", name)
		}
	}
}

func TestALongClassKeepsItsPlaceAndMarksInALocatorOfFourKiB(t *testing.T) {
	class := classNamed(t, "openstack")
	inner := class.ProviderSpec.Fields["spec"].GetStructValue()
	inner.Fields["adminPassword"] = structpb.NewStringValue("hunter2hunter2")
	inner.Fields["userData"] = structpb.NewStringValue("#cloud-config")
	for at := range 200 {
		inner.Fields["tags"].GetStructValue().Fields[strings.Repeat("x", 20)+string(rune('a'+at%26))+string(rune('a'+at/26))] = structpb.NewStringValue(strings.Repeat("y", 30))
	}
	w := start(t, t.TempDir(), "", settings{profile: "openstack"})
	class.Provider = "lookalike"
	out, err := w.ValidateMachineClass(context.Background(), &pb.ValidateMachineClassRequest{MachineClass: class})
	if err != nil || out.Locator == nil {
		t.Fatal(out, err)
	}
	text, err := json.Marshal(out.Locator.AsMap())
	if err != nil || len(text) > 4096 || strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "cloud-config") {
		t.Fatal(len(text), string(text), err)
	}
	r := requestFor(w.bridge.profile, nil, &pb.MachineClass{Locator: out.Locator}, nil, "")
	kept := overlaid(map[string]any{"userData": "of the class"}, map[string]any{"userData": omitted, "region": "eu"})
	if kept["userData"] != "of the class" || kept["region"] != "eu" {
		t.Fatal("what a locator leaves out stays as the class has it", kept)
	}
	if r.marks.cluster != "kubernetes.io-cluster-shoot--core--demo" || at(r.spec, []string{"spec", "region"}) != "eu-nl-1" {
		t.Fatal(r.marks, r.spec)
	}
}

func TestAVmIsFoundAndDeletedByItsLocatorAfterTheClassWasEdited(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{})
	checked, err := w.ValidateMachineClass(context.Background(), &pb.ValidateMachineClassRequest{MachineClass: w.class})
	if err != nil {
		t.Fatal(err)
	}
	w.made(key("m-1", 1))
	tags := w.class.ProviderSpec.Fields["tags"].GetStructValue()
	delete(tags.Fields, "kubernetes.io/cluster/shoot--core--demo")
	tags.Fields["kubernetes.io/cluster/renamed"] = structpb.NewStringValue("1")
	if all, err := w.list(); err != nil || len(all) != 0 {
		t.Fatal("without the locator the driver looks where the class is now", all, err)
	}
	w.class.Locator = checked.Locator
	if _, err := w.look(key("m-1", 1), ""); err != nil {
		t.Fatal(err)
	}
	w.class.ProviderSpec = nil // the class is gone
	w.gone(key("m-1", 1))
	w.has(0)
}

func TestAnUnknownDriverIsRefusedWithoutAProfile(t *testing.T) {
	if _, err := newBridge("mycloud", struct{}{}, settings{}); err == nil || !strings.Contains(err.Error(), "--profile") {
		t.Fatal(err)
	}
	for _, wrong := range []string{"plain,marks=x", "plain,nonsense", "plain,delay=x", "nobody"} {
		if _, _, err := profileOf("mycloud", wrong); err == nil {
			t.Error(wrong)
		}
	}
	for _, name := range []string{"AWS", "aws", "EquinixMetal", "ironcore-metal", "vSphere", "OpenStack", "Alicloud"} {
		if _, _, err := profileOf(name, ""); err != nil {
			t.Error(err)
		}
	}
}

func TestAValueThatIsNoDriverIsRefusedAtTheStart(t *testing.T) {
	for _, wrong := range []any{nil, struct{}{}, &struct{ CreateMachine func() }{}} {
		if _, err := originalOf(wrong, false); err == nil {
			t.Errorf("%T", wrong)
		}
	}
}

func TestASecretsValueIsInNoMessage(t *testing.T) {
	w := start(t, t.TempDir(), "create-fails=Internal:the token secret-token is odd", settings{})
	_, err := w.create(key("m-1", 1))
	if err == nil || strings.Contains(err.Error(), "secret-token") || !strings.Contains(err.Error(), "[hidden]") {
		t.Fatal(err)
	}
	_, err = w.ListMachines(context.Background(), &pb.ListMachinesRequest{ClusterId: "c", MachineClass: w.class, SecretData: map[string][]byte{"token": []byte("wrong-token-of-ours")}})
	w.refused(err, "CREDENTIALS_REJECTED")
	if strings.Contains(err.Error(), "wrong-token-of-ours") {
		t.Fatal(err)
	}
}

func TestPagesShowEachVmOnceWithItsUid(t *testing.T) {
	w := start(t, t.TempDir(), "list-slow=1ms", settings{})
	for at := range 7 {
		w.made(key("m-"+string(rune('a'+at)), at))
	}
	seen, token := map[string]string{}, ""
	for {
		page, err := w.ListMachines(context.Background(), &pb.ListMachinesRequest{ClusterId: "c", MachineClass: w.class, SecretData: secrets, PageSize: 3, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, vm := range page.Machines {
			seen[vm.Key.Name] = vm.Key.Uid
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if len(seen) != 7 || seen["m-c"] != key("", 2).Uid {
		t.Fatal(seen)
	}
}

func TestWhatABridgeCannotKnowIsInItsManifest(t *testing.T) {
	w := start(t, t.TempDir(), "", settings{profile: "hcloud"})
	out, err := w.GetDriverInfo(context.Background(), &pb.GetDriverInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, fact := range []string{"state", "createTime", "uid", "unknown", "validation", "handOver", "ownership", "driver"} {
		if text := out.Manifest[fact]; text == "" || len(text) > 256 {
			t.Errorf("%s: %q", fact, text)
		}
	}
	for _, capability := range out.Capabilities {
		if capability != pb.Capability_CAPABILITY_VALIDATE_MACHINE_CLASS {
			t.Error(capability)
		}
	}
}

func TestAFailureSaysItsReasonAndWhatItLeft(t *testing.T) {
	for habits, want := range map[string]struct {
		reason  string
		outcome pb.ErrorDetail_Outcome
	}{
		"create-fails=Internal:Quota exceeded for cores":                                    {"QUOTA_EXCEEDED", sdk.NoEffect},
		"create-fails=ResourceExhausted:sold out":                                           {"CAPACITY_UNAVAILABLE", sdk.NoEffect},
		"create-fails=NotFound:Image x":                                                     {"DEPENDENCY_MISSING", sdk.NoEffect},
		"create-fails=Nonsense:odd":                                                         {"PROVIDER_UNAVAILABLE", sdk.Unknown},
		"create-fails-after=Internal:timed out":                                             {"PROVIDER_UNAVAILABLE", sdk.Partial},
		"create-fails-after=Internal:timed out,list-fails=Internal:down":                    {"PROVIDER_UNAVAILABLE", sdk.Unknown},
		"create-fails=InvalidArgument:secretRef.userData: Required value: Mention userData": {"CREDENTIALS_MISSING", sdk.NoEffect},
	} {
		w := start(t, t.TempDir(), habits, settings{})
		_, err := w.create(key("m-1", 1))
		w.refused(err, want.reason)
		if outcomeIn(err) != want.outcome {
			t.Errorf("%s: %s", habits, outcomeIn(err))
		}
	}
}
