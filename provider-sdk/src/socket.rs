//! A unix socket of one owner: taken over from the dead, never from the living, and at no moment open to others.
//!
//! A lock file beside the socket says who owns it. It settles the race of two starts and goes with the process, however
//! that ends; the file itself stays, since removing it would let two processes lock two files of one name.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tokio::net::{UnixListener, UnixStream};

/// Read and write for the owner and the group, nothing for others: connecting needs the right to write.
const MODE: u32 = 0o660;
/// The lock is the owner's alone.
const LOCK_MODE: u32 = 0o600;

/// Why a socket cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another process holds it.
    #[error("{} is served by a running process", path.display())]
    Occupied {
        /// The socket.
        path: PathBuf,
    },
    /// Something else has the name; it is left alone.
    #[error("{} exists and is no socket", path.display())]
    NotASocket {
        /// What has the name.
        path: PathBuf,
    },
    /// The file system or the kernel refuses.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What came back.
        source: io::Error,
    },
}

/// The right to a socket's path. The socket is removed when this is dropped.
pub(crate) struct Claim {
    path: PathBuf,
    _lock: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket could not be removed");
        }
    }
}

/// Takes the path and listens there.
pub(crate) async fn listen(path: &Path) -> Result<(UnixListener, Claim), SocketError> {
    let lock = lock(path)?;
    ensure_dead(path).await?;

    // Bound within a directory that only we can enter, opened to the group, then moved to its place in one step: at no
    // moment can anyone else connect, and no caller finds a socket that does not listen yet. (A umask would do the same
    // for the socket but is the whole process's: a directory that another thread makes meanwhile could not be entered.)
    let nursery = with_suffix(path, ".new");
    remove_leftover(&nursery)?;
    let fresh = nursery.join("s");
    try_io("make", &nursery, DirBuilder::new().mode(0o700).create(&nursery))?;
    let listener = try_io("listen at", &fresh, UnixListener::bind(&fresh))?;
    try_io(
        "set the mode of",
        &fresh,
        std::fs::set_permissions(&fresh, Permissions::from_mode(MODE)),
    )?;
    try_io("move the new socket to", path, std::fs::rename(&fresh, path))?;
    let claim = Claim {
        path: path.to_owned(),
        _lock: lock,
    };
    try_io("remove", &nursery, std::fs::remove_dir(&nursery))?;
    Ok((listener, claim))
}

fn try_io<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, SocketError> {
    result.map_err(|source| SocketError::Io {
        action,
        path: path.to_owned(),
        source,
    })
}

fn lock(path: &Path) -> Result<File, SocketError> {
    let lock_path = with_suffix(path, ".lock");
    let failed = |source| SocketError::Io {
        action: "lock",
        path: lock_path.clone(),
        source,
    };
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(LOCK_MODE)
        .open(&lock_path)
        .map_err(failed)?;
    // Whoever can open the file can lock it, and keep the driver from starting. An earlier version left it open to all.
    file.set_permissions(Permissions::from_mode(LOCK_MODE))
        .map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SocketError::Occupied { path: path.to_owned() }),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// A socket that nobody listens at is left over from a process that was killed. One that answers belongs to a server
/// that does not use our lock.
async fn ensure_dead(path: &Path) -> Result<(), SocketError> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(SocketError::Io {
                action: "look at",
                path: path.to_owned(),
                source,
            });
        }
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(SocketError::Occupied { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(source) => Err(SocketError::Io {
            action: "find out who serves",
            path: path.to_owned(),
            source,
        }),
    }
}

/// A process killed on its way leaves its directory behind. Ours to remove: we hold the lock.
fn remove_leftover(nursery: &Path) -> Result<(), SocketError> {
    match std::fs::remove_dir_all(nursery) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => try_io("remove", nursery, Err(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a listener leaves its file behind");

        let (_listener, claim) = listen(&path).await.unwrap();
        UnixStream::connect(&path).await.unwrap();
        assert!(matches!(listen(&path).await, Err(SocketError::Occupied { .. })));
        drop(claim);
        assert!(!path.exists());
        drop(listen(&path).await.unwrap());
    }

    #[tokio::test]
    async fn a_live_server_without_our_lock_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.sock");
        let _foreign = UnixListener::bind(&path).unwrap();
        assert!(matches!(listen(&path).await, Err(SocketError::Occupied { .. })));
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&path).await, Err(SocketError::NotASocket { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn others_have_no_access() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.sock");
        let (_listener, _claim) = listen(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
    }

    #[tokio::test]
    async fn nobody_else_can_lock_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("d.sock.lock");
        std::fs::write(&lock, "").unwrap();
        std::fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        let (_listener, _claim) = listen(&dir.path().join("d.sock")).await.unwrap();
        assert_eq!(std::fs::metadata(&lock).unwrap().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn what_a_killed_start_left_behind_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.sock");
        let nursery = dir.path().join("d.sock.new");
        std::fs::create_dir(&nursery).unwrap();
        drop(std::os::unix::net::UnixListener::bind(nursery.join("s")).unwrap());
        let (_listener, _claim) = listen(&path).await.unwrap();
        UnixStream::connect(&path).await.unwrap();
        assert!(!nursery.exists());
    }

    #[tokio::test]
    async fn a_missing_directory_is_named() {
        let error = listen(Path::new("/nonexistent/d.sock")).await.err().unwrap();
        assert!(error.to_string().contains("/nonexistent/d.sock"), "{error}");
    }
}
