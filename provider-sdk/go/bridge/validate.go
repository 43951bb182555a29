package bridge

import (
	"context"

	pb "millwright.dev/provider-sdk/driverv1"
	"millwright.dev/provider-sdk/sdk"
)

// ValidateMachineClass checks the marks, and says what the driver needs of the class to find its VMs. The original has no call
// that checks the rest. With live the driver's list is asked, which needs credentials and changes nothing.
func (b *Bridge) ValidateMachineClass(ctx context.Context, in *pb.ValidateMachineClassRequest) (*pb.ValidateMachineClassResponse, error) {
	class := &pb.MachineClass{Name: in.MachineClass.Name, Namespace: in.MachineClass.Namespace, Provider: in.MachineClass.Provider,
		ProviderSpec: in.MachineClass.ProviderSpec, Labels: in.MachineClass.Labels}
	r := requestFor(b.profile, nil, class, in.SecretData, "")
	out := &pb.ValidateMachineClassResponse{}
	if why := b.profile.blind(r.spec, r.labels); why != "" {
		out.Violations = append(out.Violations, &pb.Violation{
			Field: "/tags", Severity: pb.Violation_SEVERITY_ERROR, Reason: "MARKS_MISSING", Description: why,
		})
		return out, nil
	}
	locator, err := b.profile.locatorOf(r)
	if err != nil {
		return nil, sdk.Invalid("machine_class.provider_spec", "cannot be written as JSON: %v", err)
	}
	out.Locator = locator
	if !in.Live {
		return out, nil
	}
	if _, failed := b.list(ctx, r, r.spec); failed != nil {
		return nil, failed
	}
	return out, nil
}
