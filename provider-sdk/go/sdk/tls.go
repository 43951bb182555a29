package sdk

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLSFiles are the server's certificate and key, and the authorities that sign its clients.
type TLSFiles struct{ Cert, Key, ClientCA string }

func (f TLSFiles) set() bool { return f.Cert != "" || f.Key != "" || f.ClientCA != "" }

// tlsConfig serves with client certificates only. The files are read again when they change, for each new connection, so that
// a renewed certificate needs no restart. Files that are broken at that moment leave what was good before.
func tlsConfig(files TLSFiles) (*tls.Config, error) {
	if files.Cert == "" || files.Key == "" || files.ClientCA == "" {
		return nil, errors.New("--tls-cert, --tls-key and --tls-client-ca go together: without a client's certificate anyone could make VMs")
	}
	current := &reloading{files: files}
	if _, err := current.get(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.get() },
	}, nil
}

type reloading struct {
	files TLSFiles
	mu    sync.Mutex
	stamp string
	good  *tls.Config
}

func (r *reloading) get() (*tls.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp, err := stampOf(r.files.Cert, r.files.Key, r.files.ClientCA)
	if err == nil && stamp == r.stamp {
		return r.good, nil
	}
	var fresh *tls.Config
	if err == nil {
		fresh, err = load(r.files)
	}
	if err != nil {
		if r.good == nil {
			return nil, err
		}
		logger().Error("the TLS files cannot be read; the ones before stay in use", "error", err)
		return r.good, nil
	}
	r.stamp, r.good = stamp, fresh
	return fresh, nil
}

func stampOf(paths ...string) (stamp string, err error) {
	for _, path := range paths {
		found, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		stamp += found.ModTime().Format(time.RFC3339Nano) + fmt.Sprint(found.Size(), ";")
	}
	return stamp, nil
}

func load(files TLSFiles) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(files.ClientCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s holds no certificate", files.ClientCA)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}, nil
}
