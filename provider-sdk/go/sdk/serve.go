package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	pb "millwright.dev/provider-sdk/driverv1"
)

const (
	mostBytes = 4 << 20         // the contract's limit for a message
	goodbye   = 1 * time.Second // for idle connections, once all work is done: an open health watch never ends by itself
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)

// Serve serves the driver until SIGTERM or SIGINT, then ends well (SRV-8).
func Serve(driver Driver, options *Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return ServeUntil(ctx, driver, options)
}

// ServeUntil serves until ctx ends. Serve is all that a main needs; this is for tests and for embedding.
func ServeUntil(ctx context.Context, driver Driver, options *Options) (ended error) {
	if err := options.check(); err != nil {
		return err
	}
	options.setLog()
	info := driver.Info()
	if len(info.Name) > 63 || !nameForm.MatchString(info.Name) {
		return fmt.Errorf("the driver's name %q is no DNS label or domain of 1 to 63 bytes", info.Name)
	}
	if info.Version == "" {
		return errors.New("the driver tells no version")
	}
	service := newService(driver, ctx, options.AllowUIDs)
	listener, transport, err := listenAt(options, service)
	if err != nil {
		return err
	}
	if options.MetricsAddr != "" {
		address, err := net.Listen("tcp", options.MetricsAddr)
		if err != nil {
			return errors.Join(err, closeListener(listener))
		}
		server := pages(ctx, address, service.metrics)
		defer func() { ended = errors.Join(ended, server.Close()) }()
	}
	logger().Info("serving", "driver", info.Name, "version", info.Version, "at", options.Listen)
	return service.serve(ctx, listener, transport, options.DrainTimeout)
}

// listenAt takes the endpoint. TCP without TLS is for this host alone: anyone who reaches it could make VMs.
func listenAt(o *Options, s *service) (net.Listener, credentials.TransportCredentials, error) {
	if path, ok := strings.CutPrefix(o.Listen, "unix://"); ok {
		if o.TLS.set() {
			return nil, nil, errors.New("TLS is for tcp://; a socket is guarded by the kernel")
		}
		listener, err := listenUnix(path)
		if err != nil {
			return nil, nil, err
		}
		return listener, s.peers, nil
	}
	address, ok := strings.CutPrefix(o.Listen, "tcp://")
	if !ok {
		return nil, nil, fmt.Errorf("%q is neither unix:///PATH nor tcp://HOST:PORT", o.Listen)
	}
	if o.TLS.set() {
		config, err := tlsConfig(o.TLS)
		if err != nil {
			return nil, nil, err
		}
		listener, err := net.Listen("tcp", address)
		return listener, credentials.NewTLS(config), err
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	if !at.IP.IsLoopback() {
		return nil, nil, fmt.Errorf("%s is not a loopback address: others need --tls-cert, --tls-key and --tls-client-ca", address)
	}
	listener, err := net.ListenTCP("tcp", at)
	return listener, nil, err
}

func (s *service) serve(ctx context.Context, listener net.Listener, transport credentials.TransportCredentials, drain time.Duration) error {
	options := []grpc.ServerOption{grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream), grpc.MaxRecvMsgSize(mostBytes)}
	if transport != nil {
		options = append(options, grpc.Creds(transport))
	}
	server, alive := grpc.NewServer(options...), health.NewServer()
	pb.RegisterDriverServiceServer(server, s)
	healthpb.RegisterHealthServer(server, alive)
	alive.SetServingStatus(pb.DriverService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	reflection.Register(server) // v1 and v1alpha
	drained := make(chan error, 1)
	stopped := context.AfterFunc(ctx, func() {
		logger().Info("stopping")
		alive.Shutdown()
		drained <- s.drain(server, drain)
	})
	err := server.Serve(listener)
	if !stopped() { // it was asked to stop: Serve returns at once, the calls in flight go on
		err = errors.Join(err, <-drained)
	}
	return errors.Join(err, closeListener(listener))
}

// drain lets calls and the work that outlived them end. What is left then is found again by the repeat of the call.
func (s *service) drain(server *grpc.Server, most time.Duration) error {
	s.flights.close()
	calls, work := make(chan struct{}), make(chan struct{})
	go func() { server.GracefulStop(); close(calls) }()
	go func() { s.flights.work.Wait(); close(work) }()
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	defer server.Stop()
	select {
	case <-work:
	case <-timeout.C:
		s.flights.cancelAll()
		return fmt.Errorf("work was not done after %s; its calls will be repeated", most)
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !s.metrics.idle() { // reads, too, have the time that is given
		select {
		case <-look.C:
		case <-timeout.C:
			return nil
		}
	}
	select {
	case <-calls:
	case <-time.After(goodbye):
	case <-timeout.C:
	}
	return nil
}

func closeListener(listener net.Listener) error {
	if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	if of, ok := listener.(*socket); ok {
		return of.remove()
	}
	return nil
}
