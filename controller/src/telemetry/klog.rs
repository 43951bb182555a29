//! Log lines in the form of klog.
//!
//! `Lmmdd hh:mm:ss.uuuuuu threadid file:line] message field=value`, in UTC. Source: <https://pkg.go.dev/k8s.io/klog/v2>.

use std::fmt;

use jiff::tz::TimeZone;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use crate::env::{Outside as _, System};

/// Writes log lines as klog does, for the parsers of those who run the original.
pub(super) struct Klog;

impl<S, N> FormatEvent<S, N> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let time = System
            .now()
            .to_zoned(TimeZone::UTC)
            .strftime("%m%d %H:%M:%S%.6f")
            .to_string();
        let file = metadata
            .file()
            .and_then(|path| path.rsplit('/').next())
            .unwrap_or("unknown");
        let (severity, process) = (severity(*metadata.level()), std::process::id());
        write!(
            writer,
            "{severity}{time} {process:>7} {file}:{}] ",
            metadata.line().unwrap_or(1)
        )?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// klog has no level below info: what is told there is told by `-v`.
fn severity(level: Level) -> char {
    match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_klogs_header_and_then_words_and_fields() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = tracing_subscriber::fmt::layer()
            .event_format(Klog)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::warn!(machine = "m-1", "the VM is gone");
        });
        let line = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let (header, rest) = line.split_once("] ").expect("a header");
        let words: Vec<&str> = header.split_whitespace().collect();
        let [date, time, process, place] = words[..] else {
            panic!("four words: {line}");
        };
        assert!(
            date.len() == 5 && date.starts_with('W') && date[1..].bytes().all(|byte| byte.is_ascii_digit()),
            "{line}"
        );
        assert!(
            time.len() == "10:15:00.123456".len() && time.matches(':').count() == 2,
            "{line}"
        );
        assert_eq!(process, std::process::id().to_string());
        assert!(place.starts_with("klog.rs:"), "{line}");
        assert_eq!(rest, "the VM is gone machine=\"m-1\"\n");
    }
}
