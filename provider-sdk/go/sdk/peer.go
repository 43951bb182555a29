package sdk

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// peers reads who has connected from the kernel (SO_PEERCRED). The check itself is done for each call: its refusal can say why
// then (SRV-3).
type peers struct{ allowed []uint32 }

type peerInfo struct {
	credentials.CommonAuthInfo
	uid uint32
}

// AuthType names the kind.
func (peerInfo) AuthType() string { return "unix-peer" }

// ServerHandshake asks the kernel.
func (p peers) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uid, err := peerUID(connection)
	if err != nil {
		return nil, nil, errors.Join(err, connection.Close())
	}
	return connection, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, uid}, nil
}

// ClientHandshake is not this side's.
func (peers) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("for servers only")
}

// Info describes the kind.
func (peers) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

// Clone copies.
func (p peers) Clone() credentials.TransportCredentials { return p }

// OverrideServerName has no meaning here.
func (peers) OverrideServerName(string) error { return nil }

// admit lets this process's user, root and the named users in.
func (p peers) admit(ctx context.Context) *Error {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := from.AuthInfo.(peerInfo)
	if !ok || info.uid == 0 || int(info.uid) == os.Geteuid() || slices.Contains(p.allowed, info.uid) {
		return nil
	}
	return Fail(AccessDenied, "user %d may not connect to this socket: name it by --allow-uid", info.uid).With("action", "connect")
}

func peerUID(connection net.Conn) (uid uint32, err error) {
	of, ok := connection.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return 0, err
	}
	var found *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { found, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return found.Uid, nil
}
