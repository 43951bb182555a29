package bridge

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"millwright.dev/provider-sdk/bridge/internal/lookalike"
	pb "millwright.dev/provider-sdk/driverv1"
)

// TestMain is the driver's process where a test has started it as one: only a process can be killed.
func TestMain(m *testing.M) {
	cloud := os.Getenv("BRIDGE_TEST_CLOUD")
	if cloud == "" {
		os.Exit(m.Run())
	}
	for name, value := range map[string]string{"listen": os.Getenv("BRIDGE_TEST_LISTEN"), "profile": plain + ",uid-role", "propagation-delay": "60ms"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	habits := lookalike.Habits{NoStatus: true, Slow: 150 * time.Millisecond, Lag: 40 * time.Millisecond}
	if err := Serve("lookalike", lookalike.New(cloud, habits)); err != nil {
		panic(err)
	}
}

func TestAProcessThatIsKilledAtAnyMomentOfACreationLeavesOneVm(t *testing.T) {
	folder, socket := t.TempDir(), "unix://"+filepath.Join(shortDir(t), "s")
	at := &world{t: t, driver: lookalike.New(folder, lookalike.Habits{}), class: classNamed(t, "aws")}
	at.class.Provider = "lookalike"
	for _, life := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 90 * time.Millisecond, 140 * time.Millisecond, 0} {
		process := exec.Command(os.Args[0])
		process.Env = append(os.Environ(), "BRIDGE_TEST_CLOUD="+folder, "BRIDGE_TEST_LISTEN="+socket)
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		connection, err := dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		at.DriverServiceClient = pb.NewDriverServiceClient(connection)
		if _, err := at.GetDriverInfo(context.Background(), &pb.GetDriverInfoRequest{}); err != nil {
			t.Fatal(err)
		}
		if life > 0 {
			killed(at, process, life)
		} else {
			lived(at)
			if err := process.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := process.Wait(); err != nil {
				t.Fatal("it did not end well", err)
			}
		}
		connection.Close()
	}
}

func killed(at *world, process *exec.Cmd, after time.Duration) {
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	go func() {
		_, err := at.CreateMachine(ctx, &pb.CreateMachineRequest{Key: key("m-1", 1), MachineClass: at.class, SecretData: secrets, UserData: []byte("#")})
		ended <- err
	}()
	time.Sleep(after)
	if err := process.Process.Kill(); err != nil {
		at.t.Error(err)
	}
	process.Wait() // "signal: killed"
	at.t.Log("killed after", after, <-ended)
}

func lived(at *world) {
	at.made(key("m-1", 1))
	at.has(1)
	at.gone(key("m-1", 1))
	at.has(0)
}
