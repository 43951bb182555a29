//! A directory that is expensive to make (a build, an installation) and is made once, however many processes want it and
//! whichever of them is killed meanwhile. It may not know what is made.

use std::io;
use std::path::{Path, PathBuf};

use crate::process::{locked, say};

/// Why a directory could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OnceError<E> {
    #[error("cannot {doing}")]
    Io {
        doing: String,
        #[source]
        error: io::Error,
    },
    #[error(transparent)]
    Make(E),
}

/// Calls `make` with an empty directory that becomes `dir`, unless `dir` is there. One process works while others wait;
/// `dir` appears only when all of it is made.
///
/// # Errors
/// `make` failed, or the file system did.
pub fn made_once<E>(dir: &Path, make: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), OnceError<E>> {
    if dir.exists() {
        return Ok(());
    }
    let lock = beside(dir, "lock");
    let name = dir.display();
    let waiting = || say("once", &format!("another process is making {name}; waiting for it"));
    let _lock = locked(&lock, waiting).map_err(|error| io(format!("lock {}", lock.display()), error))?;
    if dir.exists() {
        return Ok(());
    }
    let staging = beside(dir, "making");
    if staging.exists() {
        std::fs::remove_dir_all(&staging).map_err(|error| io(format!("remove {}", staging.display()), error))?;
    }
    std::fs::create_dir_all(&staging).map_err(|error| io(format!("make {}", staging.display()), error))?;
    make(&staging).map_err(OnceError::Make)?;
    std::fs::rename(&staging, dir).map_err(|error| io(format!("rename {} to {name}", staging.display()), error))
}

/// `<path>.<what>`; `with_extension` would cut the last number of a version.
#[must_use]
pub fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

fn io<E>(doing: String, error: io::Error) -> OnceError<E> {
    OnceError::Io { doing, error }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn many_who_want_it_at_once_make_it_once() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("v1.2.3");
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    made_once::<io::Error>(&dir, |staging| {
                        made.fetch_add(1, Ordering::SeqCst);
                        std::fs::write(staging.join("part"), "whole")
                    })
                    .unwrap();
                    assert_eq!(std::fs::read_to_string(dir.join("part")).unwrap(), "whole");
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn what_was_made_halfway_is_made_again_from_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("tool");
        let cut_short = made_once(&dir, |staging| {
            std::fs::write(staging.join("rubbish"), "").unwrap();
            Err(io::Error::other("killed"))
        });
        assert!(cut_short.is_err() && !dir.exists());
        made_once::<io::Error>(&dir, |staging| std::fs::write(staging.join("part"), "")).unwrap();
        assert!(dir.join("part").exists() && !dir.join("rubbish").exists());
    }
}
