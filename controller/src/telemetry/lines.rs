//! Lines of the log on their way to stderr. Whoever reads them slowly, or not at all, holds up nothing: lines wait for a thread of their own,
//! and what does not fit is dropped and counted. And a line is one line, whatever a driver or a user puts into it.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use millwright_core::status::is_unseen;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait at most: some megabytes.
const WAITING: usize = 16_384;

/// Of this process's log, for the metric.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();
/// Those that could not be written, as on a disk that is full.
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Writes to `out` on a thread of its own, as long as the guard lives.
pub fn writer(out: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING);
    let (writer, guard) = builder.thread_name("log").finish(Counted { out, failed: &FAILED });
    DROPPED.get_or_init(|| writer.error_counter());
    (writer, guard)
}

/// Counts the lines that cannot be written: the thread of the log has nobody to tell.
struct Counted<W> {
    out: W,
    failed: &'static AtomicU64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.out.write_all(line).inspect_err(|_| {
            self.failed.fetch_add(1, Ordering::Relaxed);
        })?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// How many lines were dropped.
#[derive(Debug)]
pub struct Dropped;

impl Collector for Dropped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines);
        let dropped = u64::try_from(dropped).unwrap_or(u64::MAX);
        let dropped = dropped.saturating_add(FAILED.load(Ordering::Relaxed));
        let help = "Lines of the log that were dropped because nobody read them, or that could not be written";
        let mut metric = encoder.encode_descriptor("log_lines_dropped_total", help, None, MetricType::Counter)?;
        metric.encode_gauge(&dropped)
    }
}

/// Writes each event as one line without letters that nobody sees. What is written at once is one event.
pub struct OneLine<W> {
    to: W,
    /// The escape character belongs to colours, which a terminal is given.
    has_colours: bool,
}

impl<W: Write> OneLine<W> {
    /// Over a writer.
    pub fn new(to: W, has_colours: bool) -> Self {
        Self { to, has_colours }
    }
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(event));
        let is_plain = |letter: char| !is_unseen(letter) || (self.has_colours && letter == '\x1b');
        let mut line = String::with_capacity(text.len() + 1);
        for letter in text.chars() {
            match is_plain(letter) {
                true => line.push(letter),
                false if matches!(letter, '\n' | '\r' | '\t') => line.extend(letter.escape_default()),
                // As JSON has it, which leaves most of these letters as they are.
                false => line.push_str(&format!("\\u{:04x}", u32::from(letter))),
            }
        }
        line.push('\n');
        self.to.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn written(event: &str, has_colours: bool) -> String {
        let mut out = Vec::new();
        OneLine::new(&mut out, has_colours).write_all(event.as_bytes()).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Rows: O18.
    #[test]
    fn whatever_somebody_puts_into_a_line_it_stays_one() {
        let forged = "INFO failed: no\r\n2026 WARN all is lost\x1b[2J\tü\u{2028}\u{202e}x\n";
        let escaped = "INFO failed: no\\r\\n2026 WARN all is lost\\u001b[2J\\tü\\u2028\\u202ex\n";
        assert_eq!(written(forged, false), escaped);
        assert_eq!(written("\x1b[32mINFO\x1b[0m ü\n", true), "\x1b[32mINFO\x1b[0m ü\n");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        static FAILED: AtomicU64 = AtomicU64::new(0);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut counted = Counted {
            out: full,
            failed: &FAILED,
        };
        for _ in 0..3 {
            counted.write_all(b"a line\n").unwrap_err();
        }
        assert_eq!(FAILED.load(Ordering::Relaxed), 3);
    }

    /// As a pipe that nobody reads.
    struct Stuck;

    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_secs(3600));
            Ok(0)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Rows: O13.
    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up_and_counts_what_it_drops() {
        let (mut writer, guard) = writer(Stuck);
        let dropped = writer.error_counter();
        for _ in 0..=WAITING + 100 {
            writer.write_all(b"a line\n").unwrap();
        }
        assert!(
            (98..=101).contains(&dropped.dropped_lines()),
            "{}",
            dropped.dropped_lines()
        );
        std::mem::forget(guard);
    }
}
