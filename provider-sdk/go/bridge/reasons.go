package bridge

import (
	"time"

	"millwright.dev/provider-sdk/sdk"
)

// problem says an original driver's failure in the words of the Driver API. What was left behind is for the caller to find out.
func (b *Bridge) problem(call string, f *failure, r *request, userData []byte) *sdk.Error {
	message := sdk.Hide(f.message, r.secret, userData)
	out := &sdk.Error{Reason: b.reasonOf(call, f), Message: message, ProviderCode: string(f.code), Outcome: sdk.Unknown}
	switch out.Reason {
	case sdk.InvalidField:
		out.Violations = []sdk.Violation{{Field: "machine_class.provider_spec", Description: message}}
	case sdk.OperationInProgress:
		out.RetryAfter = 5 * time.Second
	case sdk.AccessDenied:
		out = out.With("action", call)
	case sdk.CredentialsMissing:
		out = out.With("missing", "secret_data")
	}
	return out
}

// reasonOf goes by the code where the code is exact, else by the provider's words, else by the code again: the codes are coarse,
// and most drivers say Internal to nearly all.
func (b *Bridge) reasonOf(call string, f *failure) sdk.Reason {
	switch f.code {
	case codeUnimplemented:
		return sdk.Unimplemented
	case codePanic:
		return sdk.DriverFault
	case codeUninitialized:
		return sdk.InitializationFailed
	case codeNotFound:
		if call != callCreate {
			return sdk.MachineNotFound
		}
	}
	if reason, ok := wordsOf(b.profileName, f.message); ok {
		return reason
	}
	switch f.code {
	case codeInvalidArgument:
		return sdk.InvalidField
	case "Unauthenticated":
		return sdk.CredentialsRejected
	case "PermissionDenied":
		return sdk.AccessDenied
	case "ResourceExhausted":
		return sdk.CapacityUnavailable
	case "AlreadyExists":
		return sdk.NameConflict
	case "Aborted":
		return sdk.OperationInProgress
	case codeNotFound:
		return sdk.DependencyMissing
	case "FailedPrecondition":
		return sdk.VMInconsistent
	case "OutOfRange":
		return sdk.DuplicateVMs
	}
	return sdk.ProviderUnavailable
}
