package sdk

import (
	"context"
	"strconv"
	"sync"

	"google.golang.org/grpc/metadata"
)

const epochKey = "machine-leader-epoch"

// epochs keeps the highest epoch of each cluster: a manager that has lost its lead must not change anything any more. The
// memory ends with the process; the new leader speaks soon.
type epochs struct {
	mu      sync.Mutex
	highest map[string]uint64
}

// admit refuses a mutating call of an older leader. Reads raise the epoch, too, and are never refused.
func (e *epochs) admit(ctx context.Context, cluster string, mutating bool) *Error {
	values := metadata.ValueFromIncomingContext(ctx, epochKey)
	if len(values) == 0 {
		return nil
	}
	epoch, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil { // taking it for none would let a stale leader through
		return Invalid("metadata."+epochKey, "is not a decimal number")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.highest == nil {
		e.highest = map[string]uint64{}
	}
	highest := max(epoch, e.highest[cluster])
	e.highest[cluster] = highest
	if mutating && epoch < highest {
		return Fail(StaleLeader, "a leader of epoch %d has spoken, this call is of epoch %d", highest, epoch).With("epoch", strconv.FormatUint(highest, 10))
	}
	return nil
}
