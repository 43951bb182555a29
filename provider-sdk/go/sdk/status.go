package sdk

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "millwright.dev/provider-sdk/driverv1"
)

// The contract's limits for a status: it travels in HTTP/2 trailers, and a client may drop the whole one with longer ones.
const (
	domain      = "machine.driver.v1"
	messageMax  = 1024
	detailsMax  = 4096
	idsMax      = 8
	stateMax    = 4096
	shortState  = 1024
	descMax     = 200
	violations  = 8
	defaultWait = 5 * time.Second
)

// status is the error on the wire; mutating calls tell what is left, too.
func (e *Error) status(mutating bool) *status.Status {
	means, ok := meanings[e.Reason]
	if !ok {
		means = meanings[DriverFault]
	}
	code := means.code
	if e.Reason == InitializationFailed && e.Transient {
		code = codes.Unavailable
	}
	base := status.New(code, Cut(e.Message, messageMax))
	if e.Reason == Unimplemented {
		return base
	}
	details := []proto.Message{e.info()}
	if mutating || e.Reason == DuplicateVMs {
		details = append(details, e.detail(means.outcome))
	}
	if wait := e.wait(); wait > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	if extra := e.extra(); extra != nil {
		details = append(details, extra)
	}
	full, err := base.WithDetails(fitting(details)...)
	if err != nil { // a detail that cannot be encoded, as with broken UTF-8
		return status.New(codes.Internal, "the driver's error cannot be encoded")
	}
	return full
}

func (e *Error) info() *errdetails.ErrorInfo {
	info := &errdetails.ErrorInfo{Domain: domain, Reason: strings.TrimPrefix(e.Reason.String(), "ERROR_REASON_")}
	for key, value := range e.Metadata {
		if info.Metadata == nil {
			info.Metadata = map[string]string{}
		}
		info.Metadata[key] = Cut(value, descMax)
	}
	return info
}

func (e *Error) detail(usual pb.ErrorDetail_Outcome) *pb.ErrorDetail {
	detail := &pb.ErrorDetail{
		Outcome: cmp.Or(e.Outcome, usual), LastKnownState: Cut(e.LastKnownState, shortState),
		ProviderCode: Cut(e.ProviderCode, descMax), ProviderRequestId: Cut(e.RequestID, descMax),
	}
	for _, id := range e.ProviderIDs[:min(idsMax, len(e.ProviderIDs))] {
		detail.ProviderIds = append(detail.ProviderIds, Cut(id, 512))
	}
	return detail
}

// wait is RetryInfo, which two reasons must have (GEN-26).
func (e *Error) wait() time.Duration {
	if e.RetryAfter == 0 && (e.Reason == RateLimited || e.Reason == OperationInProgress) {
		return defaultWait
	}
	return e.RetryAfter
}

// extra is the detail that goes with some reasons (GEN-26).
func (e *Error) extra() proto.Message {
	faults := e.Violations[:min(violations, len(e.Violations))]
	if len(faults) == 0 {
		faults = []Violation{{Description: e.Message}}
	}
	switch e.Reason {
	case InvalidField:
		out := &errdetails.BadRequest{}
		for _, fault := range faults {
			out.FieldViolations = append(out.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: Cut(fault.Field, descMax), Description: Cut(fault.Description, descMax)})
		}
		return out
	case QuotaExceeded:
		out := &errdetails.QuotaFailure{}
		for _, fault := range faults {
			out.Violations = append(out.Violations, &errdetails.QuotaFailure_Violation{Subject: Cut(fault.Field, descMax), Description: Cut(fault.Description, descMax)})
		}
		return out
	case DependencyMissing:
		out := &errdetails.PreconditionFailure{}
		for _, fault := range faults {
			out.Violations = append(out.Violations, &errdetails.PreconditionFailure_Violation{Type: "DEPENDENCY", Subject: Cut(fault.Field, descMax), Description: Cut(fault.Description, descMax)})
		}
		return out
	}
	return nil
}

// fitting drops what does not fit: first the provider's long texts and most ids, then the details at the end. ErrorInfo and
// ErrorDetail come first and so stay.
func fitting(details []proto.Message) (kept []protoadapt.MessageV1) {
	const each = 64 // the name of the type and the lengths, around each detail
	size := func() (sum int) {
		for _, detail := range details {
			sum += proto.Size(detail) + each
		}
		return sum
	}
	for _, detail := range details {
		if of, ok := detail.(*pb.ErrorDetail); ok && size() > detailsMax {
			of.LastKnownState = "" // a part of a state may mean something else
			of.ProviderIds = of.ProviderIds[:min(4, len(of.ProviderIds))]
		}
	}
	for len(details) > 2 && size() > detailsMax {
		details = details[:len(details)-1]
	}
	for _, detail := range details {
		kept = append(kept, protoadapt.MessageV1Of(detail))
	}
	return kept
}

// Cut shortens a text to so many bytes, at a letter's edge, and mends broken UTF-8.
func Cut(text string, longest int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= longest {
		return text
	}
	for longest > 0 && !utf8.RuneStart(text[longest]) {
		longest--
	}
	return text[:longest]
}
