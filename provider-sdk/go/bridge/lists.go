package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"millwright.dev/provider-sdk/sdk"
)

// listed is one VM of the cluster, and the spec by which the driver found it: the class's, or the one with an older
// controller's marks.
type listed struct {
	id, name string
	spec     map[string]any
}

// all lists the cluster's VMs: by the class's marks and by those of an older controller.
func (b *Bridge) all(ctx context.Context, r *request) (found []listed, failed *sdk.Error) {
	specs := []map[string]any{r.spec}
	if older := b.profile.older(r.spec, r.marks, r.class.LegacyMarks); older != nil {
		specs = append(specs, older)
	}
	seen := map[string]bool{}
	for _, spec := range specs {
		out, failed := b.list(ctx, r, spec)
		if failed != nil {
			return nil, failed
		}
		for _, id := range out.ids() {
			if !seen[id] {
				seen[id] = true
				found = append(found, listed{id, out.machines[id], spec})
			}
		}
	}
	return found, nil
}

// list lists through the driver. A list that fails is no empty list.
func (b *Bridge) list(ctx context.Context, r *request, spec map[string]any) (reply, *sdk.Error) {
	of := *r
	of.key = nil
	in := of.fields(spec, "", nil)
	text, err := json.Marshal([]any{in["MachineClass"], in["Secret"]})
	if err != nil {
		return reply{}, sdk.Invalid("machine_class.provider_spec", "cannot be written as JSON: %v", err)
	}
	return b.lists.share(ctx, sha256.Sum256(text), func(ctx context.Context) (reply, *sdk.Error) {
		out, failed := b.driver.call(ctx, callList, in)
		if failed == nil || failed.code == codeNotFound { // an empty list, in one driver's words
			return out, nil
		}
		return reply{}, b.problem(callList, failed, r, nil)
	})
}

// shared lets callers of one list share an answer that was begun after each of them asked. A list that does not end with its
// context is given up after the limit, and the next one is begun beside it, unless too many were: nothing ends a call in Go. Then
// it holds its own class until it returns.
type shared struct {
	mu             sync.Mutex
	running, next  map[[32]byte]*batch
	limit, grace   time.Duration
	hung, mostHung int
}

type batch struct {
	done   chan struct{}
	out    reply
	failed *sdk.Error
}

func newShared() *shared {
	return &shared{running: map[[32]byte]*batch{}, next: map[[32]byte]*batch{}, limit: 5 * time.Minute, grace: 10 * time.Second, mostHung: 100}
}

func (s *shared) share(ctx context.Context, key [32]byte, ask func(context.Context) (reply, *sdk.Error)) (reply, *sdk.Error) {
	mine := s.enter(key, ask)
	select {
	case <-mine.done:
		return mine.out, mine.failed
	case <-ctx.Done():
		return reply{}, sdk.Fail(sdk.ProviderUnavailable, "the list did not come in time")
	}
}

func (s *shared) enter(key [32]byte, ask func(context.Context) (reply, *sdk.Error)) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine := s.next[key]; mine != nil {
		return mine
	}
	mine := &batch{done: make(chan struct{})}
	if s.running[key] != nil {
		s.next[key] = mine
		return mine
	}
	s.running[key] = mine
	go s.run(key, mine, ask)
	return mine
}

func (s *shared) run(key [32]byte, now *batch, ask func(context.Context) (reply, *sdk.Error)) {
	for now != nil {
		now.out, now.failed = s.once(ask)
		close(now.done)
		s.mu.Lock()
		now = s.next[key]
		delete(s.next, key)
		if now != nil {
			s.running[key] = now
		} else {
			delete(s.running, key)
		}
		s.mu.Unlock()
	}
}

// once asks, and gives up what does not end.
func (s *shared) once(ask func(context.Context) (reply, *sdk.Error)) (reply, *sdk.Error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	var out reply
	var failed *sdk.Error
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		out, failed = ask(ctx)
	}()
	timeout := time.NewTimer(s.limit + s.grace)
	defer timeout.Stop()
	select {
	case <-returned:
		return out, failed
	case <-timeout.C:
	}
	if !s.giveUp(returned) {
		<-returned
		return out, failed
	}
	return reply{}, sdk.Fail(sdk.ProviderUnavailable, "the list did not come in %s and was given up", s.limit)
}

func (s *shared) giveUp(returned <-chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hung >= s.mostHung {
		return false
	}
	s.hung++
	slog.Error("a list of the driver does not end with its context and was given up", "given up", s.hung)
	go func() {
		<-returned
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hung--
	}()
	return true
}
