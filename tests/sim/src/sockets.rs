//! A directory with the socket of the driver's process in it, as a manager with `--driver-dir` looks for it. The one thing of a run that
//! lies on a real disk: the manager reads the directory by itself.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Told apart within this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The directory; it goes with its run.
#[derive(Debug)]
pub struct Sockets {
    directory: PathBuf,
}

impl Sockets {
    /// An empty one.
    ///
    /// # Panics
    ///
    /// Where the disk takes no directory.
    pub fn new() -> Self {
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millwright-sim-{}-{nth}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory for sockets can be made");
        Self { directory }
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A text without the directory's name, which is another one in each run.
    pub fn unnamed(&self, text: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(text);
        text.replace(&*self.directory.to_string_lossy(), "/drivers")
            .into_bytes()
    }

    /// The socket appears, or goes.
    ///
    /// # Panics
    ///
    /// Where the disk refuses.
    pub fn show(&self, is_there: bool) {
        let path = self.directory.join("virtual.sock");
        if is_there {
            std::fs::write(&path, "").expect("a file can be made for the socket");
        } else if let Err(error) = std::fs::remove_file(&path) {
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::NotFound,
                "the socket's file stays: {error}"
            );
        }
    }
}

impl Default for Sockets {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // What is left lies among the temporary files.
        std::fs::remove_dir_all(&self.directory).ok();
    }
}
