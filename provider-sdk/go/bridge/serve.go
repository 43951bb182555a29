package bridge

import (
	"errors"
	"flag"
	"time"

	"millwright.dev/provider-sdk/sdk"
)

// The flags join those of the driver's own main: it takes Go's command line into its flag set before it parses.
var (
	options  = sdk.Flags(flag.CommandLine)
	named    = flag.String("driver-name", "", "Driver API: name of this driver, letter by letter as MachineClass.provider says it")
	known    = flag.String("profile", "", "Driver API: what is known of this driver: the name of a known one, or plain[,marks=slash|dot|dash][,uid-role][,needs-id][,resumes|destroys][,serial][,delay=DURATION]; without it by --driver-name")
	delay    = flag.Duration("propagation-delay", 0, "Driver API: how long a VM that was accepted may stay invisible; without it the profile's")
	patience = flag.Duration("create-patience", 30*time.Second, "Driver API: how long CreateMachine waits for the driver once the VM can be seen")
)

// Serve serves until SIGTERM. The name is what MachineClass.provider says; --driver-name wins over it.
func Serve(name string, driver any) error {
	name = cmpOr(*named, name)
	if name == "" {
		return errors.New("--driver-name is required")
	}
	bridge, err := newBridge(name, driver, settings{profile: *known, delay: *delay, patience: *patience})
	if err != nil {
		return err
	}
	return sdk.Serve(bridge.served(), options)
}
