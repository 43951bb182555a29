package sdk

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

type kind string

const (
	creation       kind = "CreateMachine"
	initialization kind = "InitializeMachine"
	deletion       kind = "DeleteMachine"
)

// The longest that an operation may take; drivers of real clouds wait for 20 minutes, and twice in a deletion. Then its context
// ends. An author's call that does not end with its context is given up a little later, which frees the Machine: nothing in Go
// ends a call, so it may go on beside what follows. Of a creation that was given up this is remembered while it is inside: no
// second one begins, and no deletion says DELETED. Beyond so many an operation holds its Machine until it returns.
const (
	longestWork   = time.Hour
	longestGrace  = time.Minute
	mostAbandoned = 100
)

// operation is the one mutating call of a Machine that is under way. It outlives its callers.
type operation struct {
	kind        kind
	uid, digest string
	cancel      context.CancelFunc
	done, early chan struct{}
	once        sync.Once
	first       any // told before the end
	answer      any
	failed      error
}

type subject struct{ cluster, scope string }

// flights makes sure of one operation at a time for each Machine. It keeps the tombstones, too, under the same lock: no creation
// slips between the look and the start.
type flights struct {
	mu      sync.Mutex
	running map[subject]*operation
	tombs   tombstones
	doubts  map[subject]time.Time // by uid: until when a VM may show itself, of a creation of which nobody knows what came
	hung    map[subject]bool      // by uid: a creation that was given up is still inside
	closed  bool                  // the process stops
	work    sync.WaitGroup

	delay, limit, grace        time.Duration
	abandoned, mostOfAbandoned int
}

func newFlights(delay time.Duration) *flights {
	return &flights{
		running: map[subject]*operation{}, tombs: tombstones{buried: map[subject]time.Time{}}, doubts: map[subject]time.Time{}, hung: map[subject]bool{},
		delay: delay, limit: longestWork, grace: longestGrace, mostOfAbandoned: mostAbandoned,
	}
}

type operationKey struct{}

// Accept answers the callers of an operation while the author goes on with it: a creation that the provider has accepted, or a
// deletion that takes long. Callers that join later get the same answer until the operation ends.
func Accept(ctx context.Context, answer any) {
	if of, ok := ctx.Value(operationKey{}).(*operation); ok {
		of.once.Do(func() { of.first = answer; close(of.early) })
	}
}

// run starts the work or joins the same work that is under way, and waits. The end of ctx ends the waiting only.
func (f *flights) run(ctx context.Context, at subject, of *operation, work func(context.Context) (any, error)) (any, error) {
	joined, refused := f.begin(context.WithoutCancel(ctx), at, of, work)
	if refused != nil {
		return nil, refused
	}
	select {
	case <-joined.done:
	case <-joined.early:
		select {
		case <-joined.done:
		default:
			return joined.first, nil
		}
	case <-ctx.Done():
		return nil, Fail(ProviderUnavailable, "%s goes on: a repeat joins it", joined.kind)
	}
	return joined.answer, joined.failed
}

func (f *flights) begin(ctx context.Context, at subject, of *operation, work func(context.Context) (any, error)) (*operation, *Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	grave := subject{at.cluster, of.uid}
	if of.kind == deletion && of.uid != "" { // also where it is refused below: from the call on the uid never comes back
		f.tombs.bury(grave, time.Now())
	}
	if of.kind == creation && f.tombs.holds(grave, time.Now()) {
		return nil, Fail(MachineDeleted, "DeleteMachine was called for this uid: it never comes back")
	}
	if running := f.running[at]; running != nil {
		return running.join(of)
	}
	if of.kind == creation && f.hung[grave] {
		return nil, Fail(OperationInProgress, "a CreateMachine that was given up has not returned").Retry(time.Minute)
	}
	if f.closed {
		return nil, &Error{Reason: ProviderUnavailable, Message: "the driver is stopping", Outcome: NoEffect}
	}
	of.done, of.early = make(chan struct{}), make(chan struct{})
	ctx, of.cancel = context.WithTimeout(context.WithValue(ctx, operationKey{}, of), f.limit)
	f.running[at] = of
	f.work.Add(1)
	go f.finish(ctx, at, of, work)
	return of, nil
}

func (o *operation) join(by *operation) (*operation, *Error) {
	if o.kind == by.kind && o.uid == by.uid && (o.kind != creation || SameDigest(o.digest, by.digest)) {
		return o, nil
	}
	if o.kind == creation && by.kind == deletion && o.uid == by.uid {
		o.cancel() // DEL-5: the deletion is asked for again, and finds what came of it
		return nil, Fail(OperationInProgress, "CreateMachine is under way and is being cancelled").Retry(time.Second)
	}
	return nil, Fail(OperationInProgress, "%s is under way, %s has to wait", o.kind, by.kind).Retry(time.Second)
}

// result is what an author's call came to.
type result struct {
	answer any
	failed error
}

func (f *flights) finish(ctx context.Context, at subject, of *operation, work func(context.Context) (any, error)) {
	defer f.work.Done()
	defer of.cancel()
	returned, grave := make(chan result, 1), subject{at.cluster, of.uid}
	go func() {
		answer, err := guarded(func() (any, error) { return work(ctx) })
		returned <- result{answer, err}
	}()
	timeout := time.NewTimer(f.limit + f.grace)
	defer timeout.Stop()
	var came result
	select {
	case came = <-returned:
	case <-timeout.C:
		if f.giveUp(of.kind, grave, returned) {
			came.failed = &Error{Reason: ProviderUnavailable, Message: fmt.Sprintf("%s did not end in %s and was given up", of.kind, f.limit), Outcome: Unknown}
		} else {
			came = <-returned
		}
	}
	of.answer, of.failed = came.answer, came.failed
	doubted := of.kind == creation && unsure(of.failed, ctx.Err() != nil)
	f.mu.Lock()
	if doubted {
		f.doubt(grave)
	}
	delete(f.running, at)
	f.mu.Unlock()
	close(of.done)
}

// giveUp leaves an author's call to itself, unless too many are.
func (f *flights) giveUp(of kind, grave subject, returned <-chan result) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.abandoned >= f.mostOfAbandoned {
		return false
	}
	f.abandoned++
	if of == creation {
		f.hung[grave] = true
	}
	slog.Error("a call of the driver does not end with its context and was given up", "call", string(of), "uid", grave.scope, "given up", f.abandoned)
	go func() {
		<-returned
		f.mu.Lock()
		defer f.mu.Unlock()
		f.abandoned--
		if of == creation {
			delete(f.hung, grave)
			f.doubt(grave)
		}
	}()
	return true
}

// doubt notes that a VM of the uid may show itself later. The lock is held.
func (f *flights) doubt(grave subject) {
	now := time.Now()
	for at, until := range f.doubts {
		if until.Before(now) {
			delete(f.doubts, at)
		}
	}
	f.doubts[grave] = now.Add(f.delay)
}

// doubtful is how long "there is none" may be wrong of a uid.
func (f *flights) doubtful(grave subject) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hung[grave] {
		return max(f.delay, 10*time.Second)
	}
	return max(0, time.Until(f.doubts[grave]))
}

// unsure says whether nobody knows what came of a creation: then its VM may show itself later. One that was cancelled and left
// something may have left more.
func unsure(err error, cancelled bool) bool {
	if err == nil {
		return false
	}
	outcome := Unknown
	guarded(func() (any, error) { // an author's error may panic
		failed := errorOf(err)
		outcome = cmp.Or(failed.Outcome, meanings[failed.Reason].outcome, Unknown)
		return nil, nil
	})
	return outcome == Unknown || outcome == Partial && cancelled
}

// close refuses new work, so that what runs can be waited for.
func (f *flights) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// cancelAll ends what waits, when the process has no time left.
func (f *flights) cancelAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.running {
		of.cancel()
	}
}

// guarded makes an error of a panic, so that it costs one call and not the process. The stack goes to the log alone.
func guarded(work func() (any, error)) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			slog.Error("the driver panicked", "cause", causeOf(cause), "stack", string(debug.Stack()))
			answer, err = nil, Fail(DriverFault, "the driver panicked; its log says where")
		}
	}()
	if answer, err = work(); succeeded(err) {
		return answer, nil
	}
	return answer, err
}

// causeOf is a text for the log: of a fault of the runtime what it says, of any other value the type alone, since the value may
// hold a request with its Secret.
func causeOf(cause any) string {
	if fault, ok := cause.(runtime.Error); ok {
		return fault.Error()
	}
	return fmt.Sprintf("a %T", cause)
}

const (
	tombstoneLife = time.Hour // far longer than any cache of a manager is stale
	tombstonesMax = 100_000   // about 15 MB; beyond it the oldest go early
)

// tombstones are the uids that saw DeleteMachine.
type tombstones struct {
	buried map[subject]time.Time
	order  []subject // as they were buried first
}

func (t *tombstones) bury(uid subject, now time.Time) {
	if _, again := t.buried[uid]; !again {
		t.order = append(t.order, uid)
	}
	t.buried[uid] = now
	for len(t.order) > 0 {
		since := now.Sub(t.buried[t.order[0]])
		if len(t.order) <= tombstonesMax && since < tombstoneLife {
			return
		}
		delete(t.buried, t.order[0])
		t.order = t.order[1:]
	}
}

func (t *tombstones) holds(uid subject, now time.Time) bool {
	since, ok := t.buried[uid]
	return ok && now.Sub(since) < tombstoneLife
}
