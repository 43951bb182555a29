package sdk

import (
	"context"
	"net"
	"net/http"
	"time"
)

// pages serves /metrics for a scraper and /healthz for a kubelet, whose gRPC probe cannot reach a socket.
func pages(stopping context.Context, listener net.Listener, counts *metrics) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		if err := counts.write(w); err != nil {
			logger().Warn("the scraper has gone", "error", err)
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if stopping.Err() != nil {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); err != nil && err != http.ErrServerClosed {
			logger().Error("the metrics server failed", "error", err)
		}
	}()
	return server
}
