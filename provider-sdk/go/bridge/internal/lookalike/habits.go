package lookalike

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
)

// Habits are what real drivers do. A flag spells them: "no-status,lag=2s,create-fails=Internal:text".
type Habits struct {
	NoStatus         bool          // GetMachineStatus is not implemented (OpenStack)
	StatusByID       bool          // GetMachineStatus without an id is NotFound (Equinix, STACKIT, metal-stack, IONOS)
	StatusLies       bool          // GetMachineStatus says NotFound to any error (Equinix, IONOS, hcloud)
	StatusWrongID    bool          // GetMachineStatus by id answers with another id (hcloud)
	StatusAnyCluster bool          // GetMachineStatus by name checks no tags (Azure, GCP)
	StatusNilNil     bool          // GetMachineStatus answers nothing at all where the VM is there (Yandex)
	Initializes      bool          // InitializeMachine has work to do (AWS)
	Recreates        bool          // a VM that is half-made is NotFound until it is created again (ironcore-metal)
	Lag              time.Duration // lists show a VM so much later (AWS, Azure)
	Lingers          time.Duration // a VM that is deleted is listed so much longer
	ListSlow         time.Duration // a list makes a request for each VM, each so long (IONOS)
	ListBlind        bool          // a list without marks is empty, and no error (GCP, vSphere, Equinix)
	ListByClass      bool          // a list shows the VMs of one class alone (STACKIT)
	ListByLabels     bool          // the marks are labels of the class (Yandex)
	ListAll          bool          // fixed labels: a list shows whatever this driver made (hcloud)
	ListFirstRole    bool          // a second role tag hides the VM (GCP)
	ListValues       bool          // lists compare the values, too (Alicloud)
	TwoMarks         bool          // a class with more than two marks is refused (Azure)
	Slow             time.Duration // CreateMachine waits for the boot (OpenStack, GDC)
	IgnoresContext   bool          // and is not stopped by a cancelled context (GCP)
	CreateResumes    bool          // CreateMachine finds a VM of the name and finishes it (OpenStack, STACKIT)
	CreateDestroys   bool          // CreateMachine deletes a VM of the name and fails (hcloud)
	CreateCleansUp   bool          // a CreateMachine that fails deletes by the name (OpenStack)
	LeavesDisks      bool          // a deletion leaves a disk, which is listed like a VM until a second deletion (Azure)
	DeletesAny       bool          // DeleteMachine by id checks no tags (AWS)
	DeleteSlow       time.Duration // DeleteMachine waits until the VM is gone (OpenStack)
	DeleteNeedsID    bool          // DeleteMachine without an id fails (Equinix, IONOS, hcloud, Yandex)
	DeleteSkips      bool          // DeleteMachine without an id does nothing and is OK (metal-stack)
	UnlockedMap      bool          // two calls at once end the process (metal-stack)
	Panics           bool          // CreateMachine panics when the VM is made
	PanicsOffline    bool          // the network is away, and every call panics (Equinix)
	CreateFails      string        // CODE:TEXT, before a VM is made
	CreateFailsAfter string        // CODE:TEXT, when the VM is made
	ListFails        string        // CODE:TEXT
	DeleteFails      string        // CODE:TEXT
}

// Like are the habits of the fifteen, as the table of hazards has them.
var Like = map[string]string{
	"aws":           "initializes,deletes-any,lag=20ms",
	"openstack":     "no-status,create-resumes,create-cleans-up",
	"azure":         "status-any-cluster,two-marks,leaves-disks,create-resumes",
	"gcp":           "status-any-cluster,list-blind,list-first-role,ignores-context",
	"alicloud":      "list-values",
	"vsphere":       "list-blind",
	"equinix":       "status-by-id,list-blind,delete-needs-id",
	"metal":         "status-by-id,delete-skips,unlocked-map",
	"stackit":       "status-by-id,list-by-class,create-resumes",
	"hcloud":        "status-by-id,status-wrong-id,list-all,create-destroys,delete-needs-id",
	"ionos":         "status-by-id,list-slow=1ms,delete-needs-id,list-all",
	"kubevirt":      "list-all",
	"ironcore":      "list-all",
	"ironcoremetal": "list-all,recreates",
	"yandex":        "status-by-id,status-nil-nil,list-by-labels,delete-needs-id",
}

// Parse reads habits as a flag spells them.
func Parse(text string) (h Habits, err error) {
	for _, word := range strings.Split(text, ",") {
		if word == "" {
			continue
		}
		if err := h.set(word); err != nil {
			return h, err
		}
	}
	return h, nil
}

func (h *Habits) set(word string) error {
	name, value, _ := strings.Cut(word, "=")
	fields := reflect.TypeFor[Habits]()
	for at := range fields.NumField() {
		if kebab(fields.Field(at).Name) != name {
			continue
		}
		switch into := reflect.ValueOf(h).Elem().Field(at).Addr().Interface().(type) {
		case *bool:
			*into = value != "false"
		case *string:
			*into = value
		case *time.Duration:
			length, err := time.ParseDuration(value)
			*into = length
			return err
		}
		return nil
	}
	return fmt.Errorf("no habit %q", name)
}

func kebab(name string) string {
	name = strings.ReplaceAll(name, "ID", "Id")
	var out strings.Builder
	for at, letter := range name {
		if unicode.IsUpper(letter) && at > 0 {
			out.WriteByte('-')
		}
		out.WriteRune(unicode.ToLower(letter))
	}
	return out.String()
}

func failure(spelled string) error {
	code, text, _ := strings.Cut(spelled, ":")
	return Fail(code, text)
}
