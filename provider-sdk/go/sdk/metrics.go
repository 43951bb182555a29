package sdk

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// From a look into a table to a copy of a disk.
var buckets = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 600}

type histogram struct {
	counts []uint64
	count  uint64
	sum    float64
}

// metrics counts calls: driver_call_seconds{method,code,reason} and driver_calls_in_flight{method}. The labels are few and
// ours, so that the text is written by hand and no client library is needed.
type metrics struct {
	mu       sync.Mutex
	inFlight map[string]int
	seconds  map[[3]string]*histogram
}

func newMetrics() *metrics {
	return &metrics{inFlight: map[string]int{}, seconds: map[[3]string]*histogram{}}
}

func (m *metrics) begin(method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight[method]++
}

func (m *metrics) end(method string, code codes.Code, reason string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight[method]--
	labels := [3]string{method, codeName(code), reason}
	of := m.seconds[labels]
	if of == nil {
		of = &histogram{counts: make([]uint64, len(buckets))}
		m.seconds[labels] = of
	}
	of.count++
	of.sum += took.Seconds()
	for at, bound := range buckets {
		if took.Seconds() <= bound {
			of.counts[at]++
		}
	}
}

// idle says that no call is under way.
func (m *metrics) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, count := range m.inFlight {
		if count > 0 {
			return false
		}
	}
	return true
}

// write writes the page in Prometheus' text format.
func (m *metrics) write(out io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var page strings.Builder
	page.WriteString("# HELP driver_calls_in_flight Calls that are not answered yet\n# TYPE driver_calls_in_flight gauge\n")
	for _, method := range slices.Sorted(maps.Keys(m.inFlight)) {
		fmt.Fprintf(&page, "driver_calls_in_flight{method=%q} %d\n", method, m.inFlight[method])
	}
	page.WriteString("# HELP driver_call_seconds How long calls took, by how they ended\n# TYPE driver_call_seconds histogram\n")
	all := slices.SortedFunc(maps.Keys(m.seconds), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
	for _, labels := range all {
		of, text := m.seconds[labels], fmt.Sprintf("method=%q,code=%q,reason=%q", labels[0], labels[1], labels[2])
		for at, bound := range buckets {
			fmt.Fprintf(&page, "driver_call_seconds_bucket{%s,le=\"%v\"} %d\n", text, bound, of.counts[at])
		}
		fmt.Fprintf(&page, "driver_call_seconds_bucket{%s,le=\"+Inf\"} %d\n", text, of.count)
		fmt.Fprintf(&page, "driver_call_seconds_sum{%s} %v\ndriver_call_seconds_count{%s} %d\n", text, of.sum, text, of.count)
	}
	_, err := io.WriteString(out, page.String())
	return err
}

var codeNames = strings.Fields("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED " +
	"RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED")

func codeName(code codes.Code) string {
	if int(code) < len(codeNames) {
		return codeNames[code]
	}
	return "UNKNOWN"
}
