package sdk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	pb "millwright.dev/provider-sdk/driverv1"
)

// Error is a failed call in the words of the Driver API.
type Error struct {
	Reason  Reason
	Message string
	// Outcome is what the call has left behind. Unset: what is usual for the reason.
	Outcome pb.ErrorDetail_Outcome
	// Transient makes InitializationFailed UNAVAILABLE instead of INTERNAL.
	Transient bool
	// ProviderIDs are the VMs that the failure is about.
	ProviderIDs    []string
	LastKnownState string
	// ProviderCode and RequestID are the provider's own.
	ProviderCode, RequestID string
	RetryAfter              time.Duration
	// Metadata of ErrorInfo: "action", "zone", "instanceType", "missing", "epoch".
	Metadata map[string]string
	// Violations are the wrong fields (InvalidField), what is missing (DependencyMissing) or the quotas (QuotaExceeded).
	Violations []Violation
}

// Violation is one fault of a request.
type Violation struct{ Field, Description string }

// Fail is an error with a reason.
func Fail(reason Reason, format string, arguments ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

// Invalid is an error about one field.
func Invalid(field, format string, arguments ...any) *Error {
	description := fmt.Sprintf(format, arguments...)
	return &Error{Reason: InvalidField, Message: field + " " + description, Violations: []Violation{{field, description}}}
}

// Retry says when to call again.
func (e *Error) Retry(after time.Duration) *Error { e.RetryAfter = after; return e }

// With adds to the metadata.
func (e *Error) With(key, value string) *Error {
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	e.Metadata[key] = value
	return e
}

// Error is the message with the reason.
func (e *Error) Error() string { return e.Reason.String() + ": " + e.Message }

// succeeded says that there is no error, also where an author's helper returns a nil *Error, which is not nil as an error.
func succeeded(err error) bool {
	known, ours := err.(*Error)
	return err == nil || ours && known == nil
}

// hide takes the values of a Secret and the user data out of whatever an author wrote.
func (e *Error) hide(secret map[string][]byte, userData []byte) {
	of := valuesOf(secret, userData)
	e.Message, e.ProviderCode, e.RequestID = of.hide(e.Message), of.hide(e.ProviderCode), of.hide(e.RequestID)
	if of.hide(e.LastKnownState) != e.LastKnownState {
		e.LastKnownState = "" // a part of a state may mean something else
	}
	for key, value := range e.Metadata {
		if e.Reason != StaleLeader { // the epoch is ours, and read by machines
			e.Metadata[key] = of.hide(value)
		}
	}
	for at, violation := range e.Violations {
		e.Violations[at] = Violation{of.hide(violation.Field), of.hide(violation.Description)}
	}
}

// errorOf reads what an author returned. An error without a reason is a fault of the driver, except the end of a context: the
// provider was not asked to the end then, and the repeat finds out.
func errorOf(err error) *Error {
	var known *Error
	switch {
	case errors.As(err, &known) && known != nil:
		copied := *known
		copied.Metadata, copied.Violations = maps.Clone(known.Metadata), slices.Clone(known.Violations) // callers share the author's
		return &copied
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Fail(ProviderUnavailable, "the call ended before the provider had answered: %v", err)
	}
	return Fail(DriverFault, "%v", err)
}
