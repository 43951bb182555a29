package sdk

import (
	"google.golang.org/grpc/codes"

	pb "millwright.dev/provider-sdk/driverv1"
)

// Reason is why a call failed.
type Reason = pb.ErrorReason

// The reasons, by short names.
const (
	InvalidField         = pb.ErrorReason_ERROR_REASON_INVALID_FIELD
	CredentialsRejected  = pb.ErrorReason_ERROR_REASON_CREDENTIALS_REJECTED
	CredentialsMissing   = pb.ErrorReason_ERROR_REASON_CREDENTIALS_MISSING
	AccessDenied         = pb.ErrorReason_ERROR_REASON_ACCESS_DENIED
	OperationInProgress  = pb.ErrorReason_ERROR_REASON_OPERATION_IN_PROGRESS
	RateLimited          = pb.ErrorReason_ERROR_REASON_RATE_LIMITED
	ProviderUnavailable  = pb.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE
	StaleLeader          = pb.ErrorReason_ERROR_REASON_STALE_LEADER
	MachineNotFound      = pb.ErrorReason_ERROR_REASON_MACHINE_NOT_FOUND
	NameConflict         = pb.ErrorReason_ERROR_REASON_NAME_CONFLICT
	SpecConflict         = pb.ErrorReason_ERROR_REASON_SPEC_CONFLICT
	CapacityUnavailable  = pb.ErrorReason_ERROR_REASON_CAPACITY_UNAVAILABLE
	QuotaExceeded        = pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED
	DependencyMissing    = pb.ErrorReason_ERROR_REASON_DEPENDENCY_MISSING
	MachineDeleted       = pb.ErrorReason_ERROR_REASON_MACHINE_DELETED
	VMInconsistent       = pb.ErrorReason_ERROR_REASON_VM_INCONSISTENT
	NotOwned             = pb.ErrorReason_ERROR_REASON_NOT_OWNED
	DeleteBlocked        = pb.ErrorReason_ERROR_REASON_DELETE_BLOCKED
	SpecOutOfRange       = pb.ErrorReason_ERROR_REASON_SPEC_OUT_OF_RANGE
	DuplicateVMs         = pb.ErrorReason_ERROR_REASON_DUPLICATE_VMS
	InitializationFailed = pb.ErrorReason_ERROR_REASON_INITIALIZATION_FAILED
	PageTokenExpired     = pb.ErrorReason_ERROR_REASON_PAGE_TOKEN_EXPIRED
	ResumeTokenExpired   = pb.ErrorReason_ERROR_REASON_RESUME_TOKEN_EXPIRED
	DriverFault          = pb.ErrorReason_ERROR_REASON_DRIVER_FAULT
	// Unimplemented is a call that the driver does not have: it has a code and no reason (GEN-20).
	Unimplemented = pb.ErrorReason_ERROR_REASON_UNSPECIFIED
)

// Outcomes of failed calls.
const (
	NoEffect = pb.ErrorDetail_OUTCOME_NO_EFFECT
	Partial  = pb.ErrorDetail_OUTCOME_PARTIAL
	Unknown  = pb.ErrorDetail_OUTCOME_UNKNOWN
)

type meaning struct {
	code    codes.Code
	outcome pb.ErrorDetail_Outcome // where the author says none
}

// The code and the usual outcome of each reason, as driver.proto and the tables of SPEC.md have them.
var meanings = map[Reason]meaning{
	InvalidField:         {codes.InvalidArgument, NoEffect},
	CredentialsRejected:  {codes.Unauthenticated, NoEffect},
	CredentialsMissing:   {codes.FailedPrecondition, NoEffect},
	AccessDenied:         {codes.PermissionDenied, NoEffect},
	OperationInProgress:  {codes.Aborted, Unknown},
	RateLimited:          {codes.Unavailable, NoEffect},
	ProviderUnavailable:  {codes.Unavailable, Unknown},
	StaleLeader:          {codes.FailedPrecondition, NoEffect},
	MachineNotFound:      {codes.NotFound, NoEffect},
	NameConflict:         {codes.AlreadyExists, NoEffect},
	SpecConflict:         {codes.AlreadyExists, Partial},
	CapacityUnavailable:  {codes.ResourceExhausted, NoEffect},
	QuotaExceeded:        {codes.ResourceExhausted, NoEffect},
	DependencyMissing:    {codes.FailedPrecondition, NoEffect},
	MachineDeleted:       {codes.FailedPrecondition, NoEffect},
	VMInconsistent:       {codes.FailedPrecondition, Partial},
	NotOwned:             {codes.FailedPrecondition, NoEffect},
	DeleteBlocked:        {codes.FailedPrecondition, NoEffect},
	SpecOutOfRange:       {codes.OutOfRange, NoEffect},
	DuplicateVMs:         {codes.OutOfRange, Partial},
	InitializationFailed: {codes.Internal, Partial},
	PageTokenExpired:     {codes.Aborted, NoEffect},
	ResumeTokenExpired:   {codes.Aborted, NoEffect},
	DriverFault:          {codes.Internal, Unknown},
	Unimplemented:        {codes.Unimplemented, NoEffect},
}
