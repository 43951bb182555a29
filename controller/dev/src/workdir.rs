//! The directory of one run, and the removal of those that killed processes left behind. It may not touch a
//! directory whose owner lives.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

/// Short, because sockets of providers are put into it and their paths may not be longer than 107 bytes.
const PREFIX: &str = "millwright-";
/// Locked by the owner for as long as it lives; the kernel takes the lock away from the dead.
const MARK: &str = "in-use";
/// Younger directories are left alone: their owner may be about to lock its mark.
const AGE: Duration = Duration::from_secs(60);

/// A directory that goes when this is dropped, or by the next [`WorkDir::make`] after its owner was killed.
#[derive(Debug)]
pub struct WorkDir {
    dir: TempDir,
    _mark: Mark,
}

impl WorkDir {
    /// Makes one.
    ///
    /// # Errors
    /// The system's directory for such things cannot be written.
    pub fn make() -> io::Result<Self> {
        sweep(&std::env::temp_dir());
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let mark = mark(dir.path())?;
        Ok(Self { dir, _mark: mark })
    }

    /// Its path, short enough for unix sockets.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes what the dead left. What cannot be removed belongs to somebody else or is gone already: not our concern.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for dir in entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
    {
        let old = dir
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > AGE));
        if old && is_abandoned(&dir.path()) {
            let _ = std::fs::remove_dir_all(dir.path());
        }
    }
}

fn is_abandoned(dir: &Path) -> bool {
    let Ok(mark) = File::open(dir.join(MARK)) else {
        return false;
    };
    let is_free = mark.try_lock().is_ok();
    if is_free {
        drop(Mark(mark));
    }
    is_free
}

/// The lock of a directory. Its end unlocks the file and does not only close it: a process that is being started has a copy of each open file
/// until it executes its program, and would keep the lock for that long.
#[derive(Debug)]
pub struct Mark(File);

impl Drop for Mark {
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked by the last one who closes it.
        let _ = self.0.unlock();
    }
}

/// Marks a directory as in use, for as long as the mark lives.
///
/// # Errors
/// The mark cannot be made or locked.
pub fn mark(dir: &Path) -> io::Result<Mark> {
    let mark = File::create(dir.join(MARK))?;
    mark.lock()?;
    Ok(Mark(mark))
}

/// Whether a directory bears the mark of somebody who lives.
#[must_use]
pub fn is_in_use(dir: &Path) -> bool {
    dir.join(MARK).exists() && !is_abandoned(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aged(dir: &Path) {
        let past = std::time::SystemTime::now() - 2 * AGE;
        File::open(dir).unwrap().set_modified(past).unwrap();
    }

    #[test]
    fn a_mark_ends_although_a_process_that_begins_has_a_copy_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let mark = mark(dir.path()).unwrap();
        let copy = mark.0.try_clone().unwrap();
        assert!(is_in_use(dir.path()));
        drop(mark);
        assert!(!is_in_use(dir.path()));
        drop(copy);
    }

    #[test]
    fn a_directory_is_swept_only_after_its_owner_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = parent.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            let mark = File::create(dir.join(MARK)).unwrap();
            mark.lock().unwrap();
            aged(&dir);
            (dir, mark)
        };
        let (owned, _mark) = make("millwright-owned");
        let (left, mark) = make("millwright-left");
        drop(mark);
        let (stranger, mark) = make("somebody-else");
        drop(mark);
        sweep(parent.path());
        assert!(owned.exists() && stranger.exists());
        assert!(!left.exists());
    }
}
