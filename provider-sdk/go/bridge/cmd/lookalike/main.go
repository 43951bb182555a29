// Command lookalike is a driver process for tests: the shape of a driver of Gardener's machine-controller-manager, with the
// habits of the real ones by switches, served by the bridge. Its VMs are files in a folder.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"millwright.dev/provider-sdk/bridge"
	"millwright.dev/provider-sdk/bridge/internal/lookalike"
)

func main() {
	if err := run(); err != nil {
		slog.Error("the driver ends", "error", err)
		os.Exit(1)
	}
}

func run() error {
	cloud := flag.String("cloud", os.Getenv("LOOKALIKE_CLOUD"), "folder of the VMs, one JSON file each (or LOOKALIKE_CLOUD)")
	habits := flag.String("habits", os.Getenv("LOOKALIKE_HABITS"), "habits, as in no-status,lag=2s,create-fails=Internal:text (or LOOKALIKE_HABITS)")
	like := flag.String("like", os.Getenv("LOOKALIKE_LIKE"), "habits and profile of a known driver, as aws (or LOOKALIKE_LIKE)")
	flag.Parse()
	if *cloud == "" {
		return fmt.Errorf("--cloud is required")
	}
	if err := os.MkdirAll(*cloud, 0o700); err != nil {
		return err
	}
	known, ok := lookalike.Like[*like]
	if *like != "" && !ok {
		return fmt.Errorf("--like: no driver %q is known", *like)
	}
	parsed, err := lookalike.Parse(known + "," + *habits)
	if err != nil {
		return err
	}
	if profile := flag.Lookup("profile"); profile.Value.String() == "" {
		if err := profile.Value.Set(cmp.Or(*like, "plain,marks=slash,uid-role,delay="+(parsed.Lag+time.Second).String())); err != nil {
			return err
		}
	}
	return bridge.Serve("lookalike", lookalike.New(*cloud, parsed))
}
