package bridge

import (
	"sync"
	"time"

	pb "millwright.dev/provider-sdk/driverv1"
)

// record is what this process remembers of a machine. A restart loses it, and no decision needs it.
type record struct {
	digest, nodeName, class    string
	providerID, lastKnownState string
	addresses                  []address
	doing                      pb.Machine_State // CREATING or DELETING while an operation runs
	failed                     string           // why a creation failed that had been told as accepted
	handedOver                 string           // the VM of another uid that the manager has asked for by its id (GET-5)
	disagree                   time.Time        // since when the witnesses contradict each other
}

type memory struct {
	mu      sync.Mutex
	records map[string]*record        // by place and uid
	owners  map[string]*pb.MachineKey // by provider id: for whom a VM was made
	unsure  map[string]time.Time      // by place: until when "there is none" may be wrong
	seen    map[string]time.Time      // by provider id
	started time.Time
	delay   time.Duration // of the provider, from accepted to visible
}

func newMemory(delay time.Duration) *memory {
	return &memory{
		records: map[string]*record{}, owners: map[string]*pb.MachineKey{}, unsure: map[string]time.Time{}, seen: map[string]time.Time{},
		started: time.Now(), delay: delay,
	}
}

// place is the machine's: names are unique among those alive, and what drivers go by.
func place(key *pb.MachineKey) string { return key.ClusterId + "/" + key.Namespace + "/" + key.Name }

func (m *memory) change(key *pb.MachineKey, change func(*record)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := place(key) + "/" + key.Uid
	known := m.records[at]
	if known == nil {
		known = &record{}
		m.records[at] = known
	}
	change(known)
	if known.providerID != "" {
		m.owners[known.providerID] = key
	}
}

// of is what is known of a machine of this uid.
func (m *memory) of(key *pb.MachineKey) record {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.records[place(key)+"/"+key.Uid]; known != nil {
		return *known
	}
	return record{}
}

// owner is the machine that this process has made or adopted a VM for, and nil where it does not know.
func (m *memory) owner(id string) *pb.MachineKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners[id]
}

// own notes whose a VM is, where the driver's filter has told: it need not be asked again.
func (m *memory) own(key *pb.MachineKey, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owners[id] = key
}

func (m *memory) forget(key *pb.MachineKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, own := range m.owners {
		if own.Uid == key.Uid {
			delete(m.owners, id)
		}
	}
	delete(m.records, place(key)+"/"+key.Uid)
	delete(m.unsure, place(key))
}

// doubt notes that a VM of the machine may show itself later.
func (m *memory) doubt(key *pb.MachineKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsure[place(key)] = time.Now().Add(m.delay)
}

// doubtful is how long "there is none" may still be wrong: after a request whose outcome is not known, and after a start, since
// the process before this one may have sent one with its last breath.
func (m *memory) doubtful(key *pb.MachineKey) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	until := m.started.Add(m.delay)
	if own := m.unsure[place(key)]; own.After(until) {
		until = own
	}
	return max(0, time.Until(until))
}

// firstSeen is when this process first saw a VM: never before it was made, so that no VM is taken for older than it is.
func (m *memory) firstSeen(id string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, ok := m.seen[id]
	if !ok {
		since = time.Now()
		m.seen[id] = since
	}
	return since
}

// prune forgets VMs that a list does not show a day after they were seen; another class's list may show them until then.
func (m *memory) prune(listed map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, since := range m.seen {
		if _, ok := listed[id]; !ok && time.Since(since) > 24*time.Hour {
			delete(m.seen, id)
		}
	}
}
