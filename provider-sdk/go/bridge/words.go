package bridge

import (
	"regexp"

	"millwright.dev/provider-sdk/sdk"
)

// word is a text by which a provider tells what the machine codes do not.
type word struct {
	pattern *regexp.Regexp
	reason  sdk.Reason
}

func says(pattern string, reason sdk.Reason) word {
	return word{regexp.MustCompile("(?i)" + pattern), reason}
}

// Words of single providers. They come before those of all; the first that fits holds.
var words = map[string][]word{
	"aws": {
		says(`RequestLimitExceeded|Throttling`, sdk.RateLimited),
		says(`Insufficient\w*Capacity|InsufficientFreeAddressesInSubnet|SpotMaxPriceTooLow`, sdk.CapacityUnavailable),
		says(`\w*LimitExceeded|MaxSpotInstanceCountExceeded`, sdk.QuotaExceeded),
		says(`InvalidAMIID|Invalid\w+ID\.NotFound|InvalidKeyPair\.NotFound|InvalidSubnet|InvalidGroup\.NotFound|InvalidKMSKey|Invalid IAM Instance Profile`, sdk.DependencyMissing),
		says(`Invalid value '[^']*' for InstanceType|instance type .* not supported`, sdk.SpecOutOfRange),
		says(`AuthFailure|InvalidClientTokenId|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken`, sdk.CredentialsRejected),
		says(`UnauthorizedOperation|AccessDenied|OptInRequired|error Blocked:`, sdk.AccessDenied),
		says(`OperationNotPermitted.*terminat`, sdk.DeleteBlocked),
		says(`InvalidParameter|MissingParameter|InvalidBlockDeviceMapping|Invalid\w+\.Malformed`, sdk.InvalidField),
	},
	"openstack": {
		says(`no valid host was found|not enough hosts available`, sdk.CapacityUnavailable),
		says(`quota exceeded|exceeded for (cores|instances|ram)|QuotaExceeded|VolumeSizeExceeds`, sdk.QuotaExceeded),
		says(`flavor.*(not found|could not be found|no resource)|unable to find flavor`, sdk.SpecOutOfRange),
		says(`(image|network|subnet|security.?group|key ?pair|server group|volume type).*(not found|could not be found|no resource|does not exist)|unable to find (image|network|subnet|security.?group)`, sdk.DependencyMissing),
		says(`can ?not find requested image|invalid key_name|requested availability zone is not available`, sdk.DependencyMissing),
		says(`requires authentication|authentication failed|invalid user / password`, sdk.CredentialsRejected),
		says(`policy doesn't allow|not authorized`, sdk.AccessDenied),
		says(`no suitable endpoint could be found|"badRequest"`, sdk.InvalidField), // a region that the catalog does not have; a request that no repeat mends
	},
	"azure": {
		says(`SkuNotAvailable|ZonalAllocationFailed|OverconstrainedAllocation|AllocationFailed`, sdk.CapacityUnavailable),
		says(`QuotaExceeded|exceeding approved .* quota`, sdk.QuotaExceeded),
		says(`TooManyRequests|SubscriptionRequestsThrottled`, sdk.RateLimited),
		says(`InvalidAuthenticationToken|AADSTS\d+|invalid_client`, sdk.CredentialsRejected),
		says(`AuthorizationFailed|LinkedAuthorizationFailed`, sdk.AccessDenied),
		says(`ScopeLocked|cannot (perform|be deleted).*lock`, sdk.DeleteBlocked),
		says(`ResourceNotFound|ResourceGroupNotFound|ImageNotFound|PlatformImageNotFound|InvalidResourceReference|SubnetNotFound`, sdk.DependencyMissing),
		says(`vmSize|The value .* provided for the VM size`, sdk.SpecOutOfRange),
	},
	"gcp": {
		says(`ZONE_RESOURCE_POOL_EXHAUSTED|does not have enough resources available`, sdk.CapacityUnavailable),
		says(`QUOTA_EXCEEDED|Quota '[^']*' exceeded`, sdk.QuotaExceeded),
		says(`rateLimitExceeded|userRateLimitExceeded`, sdk.RateLimited),
		says(`Invalid value for field 'resource\.machineType'|machineTypes/\S+' was not found`, sdk.SpecOutOfRange),
		says(`(images|networks|subnetworks|diskTypes)/\S+' was not found`, sdk.DependencyMissing),
		says(`invalid_grant|Invalid Credentials`, sdk.CredentialsRejected),
		says(`Required '[^']*' permission|accessNotConfigured`, sdk.AccessDenied),
		says(`deletionProtection|Resource cannot be deleted if it's protected`, sdk.DeleteBlocked),
	},
	"alicloud": {
		says(`OperationDenied\.NoStock|Zone\.NotOnSale|InvalidResourceType\.NotSupported|NoStock`, sdk.CapacityUnavailable),
		says(`QuotaExceed|InstanceQuota`, sdk.QuotaExceeded),
		says(`Throttling`, sdk.RateLimited),
		says(`InvalidInstanceType`, sdk.SpecOutOfRange),
		says(`InvalidImageId\.NotFound|InvalidVSwitchId\.NotFound|InvalidSecurityGroupId\.NotFound|InvalidKeyPairName\.NotFound`, sdk.DependencyMissing),
		says(`InvalidAccessKeyId|SignatureDoesNotMatch`, sdk.CredentialsRejected),
		says(`Forbidden\.RAM|NoPermission`, sdk.AccessDenied),
		says(`OperationDenied.*protect|DeletionProtection`, sdk.DeleteBlocked),
	},
	"vsphere": {
		says(`Cannot complete login|incorrect user name or password`, sdk.CredentialsRejected),
		says(`Permission to perform this operation was denied`, sdk.AccessDenied),
		says(`(vm|network|datastore|cluster|folder|datacenter|resource pool) '[^']*' not found`, sdk.DependencyMissing),
		says(`insufficient (resources|disk space)`, sdk.CapacityUnavailable),
	},
	"equinix": {
		says(`is not provisionable|no (available|matching).*(server|hardware)|insufficient capacity|not available in`, sdk.CapacityUnavailable),
		says(`maximum number of devices|exceeds? .*limit`, sdk.QuotaExceeded),
		says(`is not a valid plan|Plan .*invalid`, sdk.SpecOutOfRange),
		says(`Invalid authentication token|\b401\b`, sdk.CredentialsRejected),
		says(`\b403\b|You are not authorized`, sdk.AccessDenied),
		says(`is locked|termination (lock|protection)`, sdk.DeleteBlocked),
	},
	"metal": {
		says(`no machine available|not enough .*machines`, sdk.CapacityUnavailable),
		says(`no (size|image|network|partition) with id`, sdk.DependencyMissing),
		says(`\b401\b|invalid signature|hmac`, sdk.CredentialsRejected),
		says(`\b403\b`, sdk.AccessDenied),
	},
	"stackit": {
		says(`no valid host|insufficient capacity`, sdk.CapacityUnavailable),
		says(`quota`, sdk.QuotaExceeded),
		says(`\b401\b|failed to initialize STACKIT client`, sdk.CredentialsRejected),
		says(`\b403\b`, sdk.AccessDenied),
		says(`\b429\b`, sdk.RateLimited),
		says(`machine ?type.*not found`, sdk.SpecOutOfRange),
		says(`(image|network|security group|keypair).*not found`, sdk.DependencyMissing),
	},
	"hcloud": {
		says(`resource_unavailable|placement_error|resources .*unavailable`, sdk.CapacityUnavailable),
		says(`resource_limit_exceeded|server limit`, sdk.QuotaExceeded),
		says(`rate_limit_exceeded`, sdk.RateLimited),
		says(`unauthorized|unable to authenticate`, sdk.CredentialsRejected),
		says(`\(forbidden\)|token_readonly`, sdk.AccessDenied),
		says(`(image|ssh key|network|datacenter).* not found`, sdk.DependencyMissing),
		says(`server type .*not found|unsupported.*server type`, sdk.SpecOutOfRange),
		says(`protected`, sdk.DeleteBlocked),
		says(`already used|uniqueness_error`, sdk.NameConflict),
	},
	"ionos": {
		says(`\b401\b|unauthorized`, sdk.CredentialsRejected),
		says(`\b403\b|access denied`, sdk.AccessDenied),
		says(`\b429\b`, sdk.RateLimited),
		says(`quota|contract limit|VDC-\S+ .*limit`, sdk.QuotaExceeded),
		says(`image.*(not found|does not exist)|imageID given doesn't belong`, sdk.DependencyMissing),
	},
	"kubevirt":      kubernetesWords,
	"ironcore":      kubernetesWords,
	"ironcoremetal": kubernetesWords,
	"yandex": {
		says(`Quota limit .* exceeded|limit exceeded`, sdk.QuotaExceeded),
		says(`not enough resources`, sdk.CapacityUnavailable),
		says(`code = Unauthenticated|token is invalid`, sdk.CredentialsRejected),
		says(`code = PermissionDenied`, sdk.AccessDenied),
		says(`code = ResourceExhausted.*(rate|request)`, sdk.RateLimited),
		says(`(image|subnet|disk type|platform).* not found`, sdk.DependencyMissing),
	},
}

// Of drivers whose provider is a Kubernetes API.
var kubernetesWords = []word{
	says(`exceeded quota`, sdk.QuotaExceeded),
	says(`is forbidden`, sdk.AccessDenied),
	says(`\bUnauthorized\b|provide credentials`, sdk.CredentialsRejected),
	says(`(machineclass|machinepool|network|volumeclass|secret|storageclass|persistentvolumeclaim|namespace)\S* "[^"]*" not found`, sdk.DependencyMissing),
	says(`is invalid`, sdk.InvalidField),
}

// Words of all providers.
var commonWords = []word{
	says(`secretRef\.?\w*: Required|secret .*(is|are) required|secret .*missing|Mention at ?least`, sdk.CredentialsMissing),
	says(`too many requests|rate.?limit|throttl|\b429\b`, sdk.RateLimited),
	says(`quota.*exceeded|exceeded.*quota`, sdk.QuotaExceeded),
	says(`out of (stock|capacity)|not enough capacity|insufficient capacity`, sdk.CapacityUnavailable),
	says(`dial tcp|connection refused|connection reset|i/o timeout|no such host|TLS handshake|unexpected EOF|context deadline exceeded|\b50[234]\b`, sdk.ProviderUnavailable),
	says(`deletion protection|protected from deletion|is locked`, sdk.DeleteBlocked),
}

func wordsOf(profile, message string) (sdk.Reason, bool) {
	for _, list := range [][]word{words[profile], commonWords} {
		for _, word := range list {
			if word.pattern.MatchString(message) {
				return word.reason, true
			}
		}
	}
	return 0, false
}
