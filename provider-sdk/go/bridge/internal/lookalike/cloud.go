package lookalike

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// VM is a VM of the cloud: one JSON file in its folder, so that a kill -9 of the driver loses none.
type VM struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	UID     string            `json:"uid"` // of the Machine that it was made for; real clouds do not tell it
	Class   string            `json:"class"`
	Tags    map[string]string `json:"tags"`
	Created time.Time         `json:"created"`
	Shown   time.Time         `json:"shown"` // when lists begin to show it
	Ends    time.Time         `json:"ends"`  // when it is gone, if it is being removed
	Ready   bool              `json:"ready"` // InitializeMachine has been called
	Half    bool              `json:"half"`  // its creation has not come to an end
	Rest    bool              `json:"rest"`  // a disk or an interface that was left, not a VM
}

// cloud is the folder.
type cloud struct{ folder string }

func (c cloud) path(id string) string {
	return filepath.Join(c.folder, strings.TrimPrefix(id, "lookalike:///")+".json")
}

func (c cloud) all() (all []*VM, err error) {
	paths, err := filepath.Glob(filepath.Join(c.folder, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		vm := &VM{}
		if err = errors.Join(err, json.Unmarshal(text, vm)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if !vm.Ends.IsZero() && time.Now().After(vm.Ends) {
			if err := c.remove(vm); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, vm)
	}
	return all, nil
}

// add gives the VM an id and keeps it. The file gets its name when it is whole: a kill leaves it or nothing.
func (c cloud) add(vm *VM) error {
	for at := time.Now().UnixNano(); ; at++ {
		vm.ID = fmt.Sprintf("lookalike:///%d", at)
		if _, err := os.Stat(c.path(vm.ID)); errors.Is(err, os.ErrNotExist) {
			return c.put(vm)
		}
	}
}

func (c cloud) put(vm *VM) error {
	text, err := json.MarshalIndent(vm, "", "  ")
	if err != nil {
		return err
	}
	fresh := c.path(vm.ID) + ".new"
	return errors.Join(os.WriteFile(fresh, text, 0o600), os.Rename(fresh, c.path(vm.ID)))
}

func (c cloud) remove(vm *VM) error {
	if err := os.Remove(c.path(vm.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
