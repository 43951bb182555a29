package sdk

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	pb "millwright.dev/provider-sdk/driverv1"
)

func peerContext(uid uint32) context.Context {
	return peer.NewContext(context.Background(), &peer.Peer{AuthInfo: peerInfo{uid: uid}})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// authority signs certificates for 127.0.0.1, and writes them into a folder.
type authority struct {
	t      *testing.T
	folder string
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, folder: t.TempDir()}
	a.cert, a.key = a.sign("ca", nil, nil)
	return a
}

func (a *authority) sign(name string, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: parent == nil, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if parent == nil {
		parent, by = of, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, of, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".crt", "CERTIFICATE", raw)
	a.write(name+".key", "EC PRIVATE KEY", secret)
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a *authority) write(name, kind string, raw []byte) {
	if err := os.WriteFile(filepath.Join(a.folder, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.folder, name) }

// dial asks the server once, with the client's certificate or without one, and tells the server's serial number.
func (a *authority) dial(address string, withCertificate bool) (string, error) {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	config := &tls.Config{RootCAs: pool}
	if withCertificate {
		pair, err := tls.LoadX509KeyPair(a.path("client.crt"), a.path("client.key"))
		if err != nil {
			a.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		a.t.Fatal(err)
	}
	defer connection.Close()
	from := &peer.Peer{}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = pb.NewDriverServiceClient(connection).GetDriverInfo(ctx, &pb.GetDriverInfoRequest{}, grpc.Peer(from))
	if err != nil {
		return "", err
	}
	return from.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].SerialNumber.String(), nil
}

func TestMutualTlsRefusesStrangersAndReadsRenewedFiles(t *testing.T) {
	a := newAuthority(t)
	a.sign("server", a.cert, a.key)
	a.sign("client", a.cert, a.key)
	address := freeAddress(t)
	options := &Options{Listen: "tcp://" + address, TLS: TLSFiles{a.path("server.crt"), a.path("server.key"), a.path("ca.crt")}}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ServeUntil(ctx, &author{}, options) }()
	var first string
	var err error
	for range 50 {
		if first, err = a.dial(address, true); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.dial(address, false); err == nil {
		t.Fatal("a client without a certificate was served")
	}
	time.Sleep(10 * time.Millisecond)
	a.sign("server", a.cert, a.key)
	if second, err := a.dial(address, true); err != nil || second == first {
		t.Fatal("the renewed certificate is not served", first, second, err)
	}
	if err := os.WriteFile(a.path("server.crt"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.dial(address, true); err != nil {
		t.Fatal("broken files end what was good", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestEndpointsThatOthersCouldReachNeedTls(t *testing.T) {
	for _, wrong := range []Options{{Listen: "tcp://0.0.0.0:0"}, {Listen: "/x"}, {}, {Listen: "unix://relative"}, {Listen: "tcp://127.0.0.1:0", TLS: TLSFiles{Cert: "x"}}, {Listen: "unix:///tmp/x", LogFormat: "xml"}} {
		if err := ServeUntil(context.Background(), &author{}, &wrong); err == nil {
			t.Errorf("%+v", wrong)
		}
	}
}
