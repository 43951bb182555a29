//! Lines of the log on their way to stderr. Whoever reads them slowly, or not at all, holds up nothing: lines wait for a thread of their own,
//! and what does not fit is dropped and counted. And a line is one line, whatever a driver or a user puts into it.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait at most: some megabytes.
const WAITING: usize = 16_384;

/// Of this process's log, for the metric.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Writes to `out` on a thread of its own, as long as the guard lives.
pub fn writer(out: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING);
    let (writer, guard) = builder.thread_name("log").finish(out);
    DROPPED.get_or_init(|| writer.error_counter());
    (writer, guard)
}

/// How many lines were dropped.
#[derive(Debug)]
pub struct Dropped;

impl Collector for Dropped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines);
        let help = "Lines of the log that were dropped because nobody read them";
        let mut metric = encoder.encode_descriptor("log_lines_dropped_total", help, None, MetricType::Counter)?;
        metric.encode_gauge(&u64::try_from(dropped).unwrap_or(u64::MAX))
    }
}

/// Writes each event as one line without control characters. What is written at once is one event.
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
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let is_plain = |byte: &u8| !byte.is_ascii_control() || (self.has_colours && *byte == 0x1b);
        if text.iter().all(is_plain) {
            self.to.write_all(event)?;
            return Ok(event.len());
        }
        let mut line = Vec::with_capacity(event.len() + 16);
        for byte in text {
            match is_plain(byte) {
                true => line.push(*byte),
                false => line.extend(byte.escape_ascii()),
            }
        }
        line.push(b'\n');
        self.to.write_all(&line)?;
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
        let forged = "INFO failed: no\r\n2026 WARN all is lost\x1b[2J\tü\n";
        let escaped = "INFO failed: no\\r\\n2026 WARN all is lost\\x1b[2J\\tü\n";
        assert_eq!(written(forged, false), escaped);
        assert_eq!(written("\x1b[32mINFO\x1b[0m ü\n", true), "\x1b[32mINFO\x1b[0m ü\n");
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
