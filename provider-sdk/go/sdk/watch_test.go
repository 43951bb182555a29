package sdk

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"

	pb "millwright.dev/provider-sdk/driverv1"
)

// watching is a driver that can watch.
type watching struct {
	*author
	fails error
}

func (w *watching) WatchMachines(ctx context.Context, r *pb.WatchMachinesRequest, send func(*pb.WatchMachinesResponse) error) error {
	err := send(&pb.WatchMachinesResponse{Type: pb.WatchMachinesResponse_TYPE_SYNCED})
	if w.fails != nil || err != nil {
		return errors.Join(w.fails, err)
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestAWatchPassesEventsOnAndEndsWellWithTheProcess(t *testing.T) {
	driver := &watching{author: &author{}}
	client, _, stop := served(t, driver, nil)
	info, err := client.GetDriverInfo(context.Background(), &pb.GetDriverInfoRequest{})
	if err != nil || len(info.Capabilities) != 1 || info.Capabilities[0] != pb.Capability_CAPABILITY_WATCH_MACHINES {
		t.Fatal(info, err)
	}
	request := &pb.WatchMachinesRequest{ClusterId: "c", MachineClass: creation1().MachineClass}
	watch, err := client.WatchMachines(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	if event, err := watch.Recv(); err != nil || event.Type != pb.WatchMachinesResponse_TYPE_SYNCED {
		t.Fatal(event, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	if _, err := watch.Recv(); err != io.EOF {
		t.Fatal("it ends with OK", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestAWatchThatFailsSaysItsReason(t *testing.T) {
	client, _, _ := served(t, &watching{author: &author{}, fails: Fail(ResumeTokenExpired, "too old")}, nil)
	watch, err := client.WatchMachines(context.Background(), &pb.WatchMachinesRequest{ClusterId: "c", MachineClass: creation1().MachineClass})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	_, err = watch.Recv()
	wants(t, err, codes.Aborted, "RESUME_TOKEN_EXPIRED")
	watch, err = client.WatchMachines(context.Background(), &pb.WatchMachinesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = watch.Recv()
	wants(t, err, codes.InvalidArgument, "INVALID_FIELD")
}
