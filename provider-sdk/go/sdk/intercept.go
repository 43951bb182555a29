package sdk

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "millwright.dev/provider-sdk/driverv1"
)

var mutating = map[string]bool{string(creation): true, string(initialization): true, string(deletion): true}

// unary is around every call: who asks, panics, the error on the wire, counts and the log.
func (s *service) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if refused := s.peers.admit(ctx); refused != nil {
		return nil, refused.status(false).Err()
	}
	method, ours := strings.CutPrefix(info.FullMethod, "/"+pb.DriverService_ServiceDesc.ServiceName+"/")
	if !ours {
		return handler(ctx, request)
	}
	begun := time.Now()
	s.metrics.begin(method)
	answer, err := guarded(func() (any, error) {
		answer, err := handler(ctx, request)
		return mended(answer), err
	})
	return answer, s.end(ctx, method, request, err, time.Since(begun))
}

// stream is the same for WatchMachines.
func (s *service) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if refused := s.peers.admit(stream.Context()); refused != nil {
		return refused.status(false).Err()
	}
	method, ours := strings.CutPrefix(info.FullMethod, "/"+pb.DriverService_ServiceDesc.ServiceName+"/")
	if !ours {
		return handler(server, stream)
	}
	begun := time.Now()
	s.metrics.begin(method)
	of := &heard{ServerStream: stream}
	_, err := guarded(func() (any, error) { return nil, handler(server, of) })
	if gone := stream.Context().Err(); err != nil && (gone != nil || of.request == nil) { // gRPC's own: the client has gone, or sent no request
		made := status.Convert(err)
		if gone != nil {
			made = status.FromContextError(gone)
		}
		s.metrics.end(method, made.Code(), "", time.Since(begun))
		return made.Err()
	}
	return s.end(stream.Context(), method, of.request, err, time.Since(begun))
}

// heard keeps the request of a stream, whose Secret must be in no error, and mends what is sent.
type heard struct {
	grpc.ServerStream
	request any
}

func (h *heard) RecvMsg(message any) error {
	err := h.ServerStream.RecvMsg(message)
	if err == nil {
		h.request = message
	}
	return err
}

func (h *heard) SendMsg(message any) error { return h.ServerStream.SendMsg(mended(message)) }

// end counts and logs a call, and makes a status of its error. What it reads was written by an author: a panic here, too, costs
// this call alone.
func (s *service) end(ctx context.Context, method string, request any, err error, took time.Duration) error {
	told, reason := status.New(codes.OK, ""), ""
	_, broken := guarded(func() (any, error) {
		if err != nil {
			told, reason = tell(request, err, mutating[method])
		}
		return nil, nil
	})
	if broken != nil {
		told, reason = tell(nil, broken, mutating[method])
	}
	s.metrics.end(method, told.Code(), reason, took)
	guarded(func() (any, error) {
		switch told.Code() {
		case codes.OK:
			s.log(ctx, method, request, slog.LevelInfo, "answered", "took", took.Round(time.Millisecond))
		case codes.Unimplemented: // many drivers have not all calls
			s.log(ctx, method, request, slog.LevelDebug, "not implemented")
		default:
			s.log(ctx, method, request, slog.LevelWarn, "failed", "reason", reason, "message", told.Message(), "took", took.Round(time.Millisecond))
		}
		return nil, nil
	})
	return told.Err()
}

// tell makes a status of an error, without what the request has of secrets.
func tell(request any, err error, mutating bool) (told *status.Status, reason string) {
	failed := errorOf(err)
	failed.hide(secretsOf(request))
	if failed.Reason != Unimplemented {
		reason = strings.TrimPrefix(failed.Reason.String(), "ERROR_REASON_")
	}
	return failed.status(mutating), reason
}

// log writes one line for each mutating call, and for each failed one. Reads come often and are only counted. No line holds a
// request.
func (s *service) log(ctx context.Context, method string, request any, level slog.Level, message string, more ...any) {
	if !mutating[method] && (level < slog.LevelWarn || method == "GetMachineStatus") {
		level = slog.LevelDebug
	}
	facts := append([]any{"call", method}, more...)
	if of, ok := request.(interface{ GetKey() *pb.MachineKey }); ok && of.GetKey() != nil {
		facts = append(facts, "cluster", of.GetKey().ClusterId, "machine", of.GetKey().Namespace+"/"+of.GetKey().Name, "uid", of.GetKey().Uid)
	}
	if trace := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(trace) > 0 {
		facts = append(facts, "traceparent", Cut(trace[0], 64))
	}
	logger().Log(ctx, level, message, facts...)
}

func secretsOf(request any) (secret map[string][]byte, userData []byte) {
	if of, ok := request.(interface{ GetSecretData() map[string][]byte }); ok {
		secret = of.GetSecretData()
	}
	if of, ok := request.(interface{ GetUserData() []byte }); ok {
		userData = of.GetUserData()
	}
	return secret, userData
}
