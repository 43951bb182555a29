// Package lookalike has a driver whose types have the shape of the original's, for tests that run without its module. It has the
// habits that were found in the real drivers, each by a switch.
package lookalike

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Driver is the driver.
type Driver struct {
	mu     sync.Mutex
	cloud  cloud
	habits Habits
	calls  map[string]int
	last   *CreateMachineRequest // for the golden tests
	inside atomic.Int32
	// Crashed says that two calls were inside at once, where that ends the process of a real driver.
	Crashed atomic.Bool
}

// New is a driver with the cloud of a folder.
func New(folder string, habits Habits) *Driver {
	return &Driver{cloud: cloud{folder}, habits: habits, calls: map[string]int{}}
}

// Change changes the habits while it runs.
func (d *Driver) Change(change func(*Habits)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.habits)
}

// Calls counts the calls of a name.
func (d *Driver) Calls(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[name]
}

// Last is the last request of CreateMachine.
func (d *Driver) Last() *CreateMachineRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// VMs are those of the cloud, left-over disks too.
func (d *Driver) VMs() []*VM {
	all, err := d.cloud.all()
	if err != nil {
		panic(err)
	}
	return all
}

// Put puts a VM into the cloud, as another process would.
func (d *Driver) Put(vm *VM) *VM {
	if err := d.cloud.add(vm); err != nil {
		panic(err)
	}
	return vm
}

// enter begins a call.
func (d *Driver) enter(name string) (habits Habits, leave func()) {
	if d.inside.Add(1) > 1 && d.now().UnlockedMap {
		d.Crashed.Store(true)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[name]++
	if d.habits.UnlockedMap {
		time.Sleep(time.Millisecond) // so that a second one meets it
	}
	if d.habits.PanicsOffline {
		d.inside.Add(-1)
		panic("nil response of a server that cannot be reached")
	}
	return d.habits, func() { d.inside.Add(-1) }
}

func (d *Driver) now() Habits {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.habits
}

// marks are the keys by which lists filter.
func (h Habits) marks(class *MachineClass) (tags map[string]string, cluster, role []string) {
	spec := struct {
		Tags   any
		Labels map[string]string
		Spec   struct{ Tags map[string]string }
	}{}
	if err := json.Unmarshal(class.ProviderSpec.Raw, &spec); err != nil {
		return nil, nil, nil
	}
	tags = spec.Spec.Tags
	switch of := spec.Tags.(type) {
	case map[string]any:
		tags = map[string]string{}
		for key, value := range of {
			tags[key] = fmt.Sprint(value)
		}
	case []any:
		tags = map[string]string{}
		for _, key := range of {
			tags[fmt.Sprint(key)] = "1"
		}
	}
	from := tags
	if h.ListByLabels {
		from, tags = class.Labels, spec.Labels
	}
	for key := range from {
		if strings.Contains(key, "cluster/") || strings.Contains(key, "io-cluster-") || strings.Contains(key, "cluster.") {
			cluster = append(cluster, key)
		} else if strings.Contains(key, "kubernetes.io/role/") || strings.Contains(key, "io-role-") {
			role = append(role, key)
		}
	}
	slices.Sort(cluster)
	slices.Sort(role)
	return tags, cluster, role
}

// find finds by the marks of the class, and by the name unless it is empty.
func (d *Driver) find(h Habits, class *MachineClass, name string) (found []*VM, err error) {
	all, err := d.cloud.all()
	if err != nil {
		return nil, Fail("Internal", err.Error())
	}
	tags, clusters, roles := h.marks(class)
	if len(clusters) == 0 && h.ListBlind {
		return nil, nil
	}
	for _, vm := range all {
		shown := h.ListAll || h.ListByClass || carries(vm.Tags, tags, clusters, h.ListValues) && (len(roles) == 0 || carries(vm.Tags, tags, roles[:1], h.ListValues))
		if h.ListByClass {
			shown = vm.Class == class.Name
		}
		if h.ListFirstRole && count(vm.Tags, "-role-") > 1 {
			shown = false
		}
		if shown && (name == "" || vm.Name == name) && time.Now().After(vm.Shown) {
			found = append(found, vm)
		}
	}
	return found, nil
}

func carries(of, class map[string]string, keys []string, values bool) bool {
	for _, key := range keys {
		if value, ok := of[key]; !ok || values && value != class[key] {
			return false
		}
	}
	return len(keys) > 0 || len(of) == 0
}

func count(tags map[string]string, part string) (sum int) {
	for key := range tags {
		if strings.Contains(key, part) {
			sum++
		}
	}
	return sum
}

// check is what real drivers check in every call.
func check(h Habits, class *MachineClass, secret *Secret) error {
	if string(secret.Data["token"]) != "secret-token" {
		return Fail("Unauthenticated", "the provider does not know the token "+string(secret.Data["token"]))
	}
	if len(secret.Data["userData"]) == 0 {
		return Fail("InvalidArgument", "secretRef.userData: Required value: Mention userData")
	}
	if _, clusters, roles := h.marks(class); h.TwoMarks && len(clusters)+len(roles) != 2 {
		return Fail("InvalidArgument", "tags must have exactly one cluster and one role")
	}
	return nil
}

// CreateMachine makes a VM, and another at each call, unless its habits are others.
func (d *Driver) CreateMachine(ctx context.Context, r *CreateMachineRequest) (*CreateMachineResponse, error) {
	h, leave := d.enter("CreateMachine")
	defer leave()
	d.mu.Lock()
	d.last = r
	d.mu.Unlock()
	if err := check(h, r.MachineClass, r.Secret); err != nil {
		return nil, err
	}
	if h.CreateFails != "" {
		return nil, failure(h.CreateFails)
	}
	vm, err := d.begin(h, r)
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, h); err != nil {
		return nil, d.cleanUp(h, vm, err)
	}
	if h.Panics {
		panic("oh")
	}
	if h.CreateFailsAfter != "" {
		return nil, d.cleanUp(h, vm, failure(h.CreateFailsAfter))
	}
	vm.Half = false
	if err := d.cloud.put(vm); err != nil {
		return nil, Fail("Internal", err.Error())
	}
	return &CreateMachineResponse{ProviderID: vm.ID, NodeName: nodeName(h, vm.Name), Addresses: []NodeAddress{{"InternalIP", "10.0.0.1"}}}, nil
}

// begin finds a VM of the name, or makes one.
func (d *Driver) begin(h Habits, r *CreateMachineRequest) (*VM, error) {
	found, err := d.find(h, r.MachineClass, r.Machine.Name)
	if err != nil {
		return nil, err
	}
	if len(found) == 1 && h.CreateDestroys {
		return nil, d.cleanUp(Habits{CreateCleansUp: true}, found[0], Fail("Internal", "server name is already used (uniqueness_error)"))
	}
	if len(found) == 1 && (h.CreateResumes || h.Recreates) && !found[0].Rest {
		return found[0], nil
	}
	tags, _, _ := h.marks(r.MachineClass)
	vm := &VM{Name: r.Machine.Name, UID: r.Machine.UID, Class: r.MachineClass.Name, Tags: tags, Created: time.Now(), Shown: time.Now().Add(h.Lag), Half: true}
	if err := d.cloud.add(vm); err != nil {
		return nil, Fail("Internal", err.Error())
	}
	return vm, nil
}

func wait(ctx context.Context, h Habits) error {
	if h.IgnoresContext {
		ctx = context.Background()
	}
	select {
	case <-time.After(h.Slow):
		return nil
	case <-ctx.Done():
		return Fail("Internal", ctx.Err().Error())
	}
}

func (d *Driver) cleanUp(h Habits, vm *VM, why error) error {
	if h.CreateCleansUp {
		if err := d.cloud.remove(vm); err != nil {
			return Fail("Internal", err.Error())
		}
	}
	return why
}

// nodeName differs from the machine's name where the driver has a call that says so.
func nodeName(h Habits, name string) string {
	if h.NoStatus {
		return name
	}
	return "node-" + name
}
