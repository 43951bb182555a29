package sdk

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "millwright.dev/provider-sdk/driverv1"
)

// WatchMachines passes the author's events on, with a heartbeat where none came (WAT-5). It ends with OK when the process
// stops (WAT-6).
func (s *service) WatchMachines(r *pb.WatchMachinesRequest, stream grpc.ServerStreamingServer[pb.WatchMachinesResponse]) error {
	author, ok := s.driver.(Watcher)
	if !ok {
		return Fail(Unimplemented, "the driver has no WatchMachines")
	}
	if failed := validate(s.info.Name, r); failed != nil {
		return failed
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	interval := 30 * time.Second
	if r.HeartbeatInterval != nil {
		interval = max(5*time.Second, r.HeartbeatInterval.AsDuration())
	}
	beat := time.NewTicker(interval * 2 / 3)
	defer beat.Stop()
	var mu sync.Mutex // gRPC's Send is for one at a time
	send := func(message *pb.WatchMachinesResponse) error {
		mu.Lock()
		defer mu.Unlock()
		if err := ctx.Err(); err != nil { // the stream may have ended before the author's call
			return err
		}
		return stream.Send(message)
	}
	ended, late := make(chan error, 1), make(chan struct{})
	defer context.AfterFunc(s.stopping, func() { time.AfterFunc(goodbye, func() { close(late) }) })()
	go func() {
		_, err := guarded(func() (any, error) { return nil, author.WatchMachines(ctx, r, send) })
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			if s.stopping.Err() != nil {
				return nil
			}
			return err
		case <-late: // the author's call does not end with its context
			return nil
		case <-beat.C:
			if err := send(&pb.WatchMachinesResponse{Type: pb.WatchMachinesResponse_TYPE_HEARTBEAT}); err != nil {
				cancel()
			}
		}
	}
}
