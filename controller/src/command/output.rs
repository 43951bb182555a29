//! What the commands print, to whoever still reads it.

use std::io::{ErrorKind, Write as _};

use super::failure::Failure;

/// Prints a text that brings its line ends with it.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::ReaderGone,
        _ => Failure::Output(error),
    })
}

/// Prints one line.
pub fn line(text: &str) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

/// Says something beside the output that is no reason to end.
pub fn note(text: &str) {
    eprintln!("note: {text}");
}
