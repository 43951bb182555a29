package sdk

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// Options says how to serve.
type Options struct {
	Listen       string
	MetricsAddr  string
	DrainTimeout time.Duration
	AllowUIDs    []uint32
	LogFormat    string
	TLS          TLSFiles
}

// Flags adds the flags of a driver to a set of flags.
func Flags(set *flag.FlagSet) *Options {
	o := &Options{}
	set.StringVar(&o.Listen, "listen", os.Getenv("MILLWRIGHT_DRIVER_LISTEN"), "Driver API: where to serve, unix:///PATH or tcp://HOST:PORT; without TLS only loopback (or MILLWRIGHT_DRIVER_LISTEN)")
	set.StringVar(&o.MetricsAddr, "metrics-addr", "", "Driver API: HOST:PORT for /metrics and /healthz over HTTP; without it there are none")
	set.DurationVar(&o.DrainTimeout, "drain-timeout", 25*time.Second, "Driver API: how long calls in flight may take after SIGTERM")
	set.StringVar(&o.LogFormat, "log-format", "text", "Driver API: text or json, on stderr; not where the driver has set its own slog")
	set.StringVar(&o.TLS.Cert, "tls-cert", "", "Driver API: file of the server's certificate, for tcp://")
	set.StringVar(&o.TLS.Key, "tls-key", "", "Driver API: file of its key")
	set.StringVar(&o.TLS.ClientCA, "tls-client-ca", "", "Driver API: file of the authorities that sign clients' certificates")
	set.Func("allow-uid", "Driver API: user id that may connect to the socket beside this process's own and root; may be repeated", func(text string) error {
		uid, err := strconv.ParseUint(text, 10, 32)
		if err == nil {
			o.AllowUIDs = append(o.AllowUIDs, uint32(uid))
		}
		return err
	})
	return o
}

func (o *Options) check() error {
	if o.Listen == "" {
		return fmt.Errorf("--listen is required")
	}
	if o.LogFormat != "" && o.LogFormat != "text" && o.LogFormat != "json" {
		return fmt.Errorf("--log-format is text or json, not %q", o.LogFormat)
	}
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 25*time.Second)
	return nil
}

// The log that this package has set, and not an author.
var ownLog atomic.Pointer[slog.Logger]

// setLog makes slog's default the log of this process, unless the author has set one. What is written by package log stays as it
// is: slog would take it for information.
func (o *Options) setLog() {
	now := slog.Default()
	if now != ownLog.Load() && fmt.Sprintf("%T", now.Handler()) != "*slog.defaultHandler" {
		return
	}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, nil)
	if o.LogFormat == "json" {
		handler = slog.NewJSONHandler(os.Stderr, nil)
	}
	fresh, writer, flags := slog.New(handler), log.Writer(), log.Flags()
	ownLog.Store(fresh)
	slog.SetDefault(fresh)
	log.SetOutput(writer)
	log.SetFlags(flags)
}

func logger() *slog.Logger { return slog.Default() }
