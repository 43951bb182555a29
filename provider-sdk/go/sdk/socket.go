package sdk

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The kernel keeps 107 bytes of a socket's path, and ".new/s" is bound first.
const socketPathMax = 101

// socket is a unix socket of one owner: taken over from the dead, never from the living, and at no moment open to others.
type socket struct {
	net.Listener
	path string
	lock *os.File
}

func listenUnix(path string) (*socket, error) {
	if len(path) == 0 || path[0] != '/' || len(path) > socketPathMax {
		return nil, fmt.Errorf("the socket's path %q must be absolute and have at most %d bytes", path, socketPathMax)
	}
	lock, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	if err := ensureDead(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	listener, err := bind(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &socket{Listener: listener, path: path, lock: lock}, nil
}

// lockFile settles the race of two starts. It goes with the process, however that ends; the file stays, since removing it
// would let two processes lock two files of one name.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is served by a running process: %w", path, err), file.Close())
	}
	return file, nil
}

// ensureDead refuses what is no socket, and one that a process without our lock serves.
func ensureDead(path string) error {
	found, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if found.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is no socket", path)
	}
	if other, err := net.Dial("unix", path); err == nil {
		return errors.Join(fmt.Errorf("%s is served by a running process", path), other.Close())
	} else if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("cannot find out who serves %s: %w", path, err)
	}
	return nil
}

// bind listens within a folder that only we can enter, opens the socket to the group and moves it to its place in one step. A
// umask would be the whole process's.
func bind(path string) (net.Listener, error) {
	nursery := path + ".new"
	if err := os.RemoveAll(nursery); err != nil { // of a process that was killed on its way; ours, for we have the lock
		return nil, err
	}
	if err := os.Mkdir(nursery, 0o700); err != nil {
		return nil, err
	}
	fresh := nursery + "/s"
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // it would remove the name that it was bound to
	for _, step := range []error{os.Chmod(fresh, 0o660), os.Rename(fresh, path), os.Remove(nursery)} {
		if step != nil {
			return nil, errors.Join(step, listener.Close())
		}
	}
	return listener, nil
}

// remove takes the socket away at the end.
func (s *socket) remove() error {
	return errors.Join(os.Remove(s.path), s.lock.Close())
}
