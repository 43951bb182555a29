//! The figures of a benchmark run beside those of the Go original, as a Markdown table. It may not
//! measure anything.

use std::fmt::Write as _;

/// What `measure.py` says about one phase.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Figures {
    pub phase: String,
    pub seconds: f64,
    pub api: u64,
    pub cpu_s: f64,
    pub peak_mb: u64,
}

/// A measurement of the original: phase, machines before it, seconds, API requests, CPU seconds, peak MB.
type Original = (&'static str, u64, f64, u64, f64, u64);

/// Go, v0.63-dev, client limits raised to 2000/3000 a second; same API server, same machine, same simulated VM.
const ORIGINAL: [Original; 6] = [
    ("up=200", 0, 16.1, 3_706, 4.2, 114),
    ("roll", 200, 170.6, 65_496, 24.1, 125),
    ("down", 200, 35.1, 5_319, 3.3, 129),
    ("up=1000", 0, 97.6, 18_065, 34.8, 160),
    ("down", 1000, 49.4, 20_663, 16.6, 172),
    ("idle=30", 1000, 30.0, 83, 0.13, 149),
];

/// One row per phase; the original's figure in brackets where it was measured under the same conditions.
#[must_use]
pub fn table(figures: &[Figures]) -> String {
    let mut rows = String::from(
        "| phase | seconds | API requests | per machine | CPU s | peak RSS MB |\n|---|---|---|---|---|---|\n",
    );
    let mut machines = 0;
    for ours in figures {
        let before = machines;
        machines = machines_after(&ours.phase, before);
        let original = ORIGINAL
            .iter()
            .find(|(phase, from, ..)| *phase == ours.phase && *from == before);
        row(&mut rows, ours, original, before.max(machines));
    }
    rows
}

fn row(rows: &mut String, ours: &Figures, original: Option<&Original>, machines: u64) {
    let beside = |figure: Option<String>| figure.map_or_else(String::new, |figure| format!(" ({figure})"));
    let each = |requests: u64| {
        // Idling asks nothing for a machine in particular.
        let per_machine = !ours.phase.starts_with("idle") && machines > 0;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
        let each = requests as f64 / machines.max(1) as f64;
        per_machine.then(|| format!("{each:.1}"))
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        rows,
        "| {} | {:.1}{} | {}{} | {}{} | {:.2}{} | {}{} |",
        label(&ours.phase, machines),
        ours.seconds,
        beside(original.map(|original| format!("{:.1}", original.2))),
        ours.api,
        beside(original.map(|original| original.3.to_string())),
        each(ours.api).unwrap_or_else(|| "–".to_owned()),
        beside(original.and_then(|original| each(original.3))),
        ours.cpu_s,
        beside(original.map(|original| original.4.to_string())),
        ours.peak_mb,
        beside(original.map(|original| original.5.to_string())),
    );
}

fn machines_after(phase: &str, before: u64) -> u64 {
    match phase.split_once('=') {
        Some(("up", wanted)) => wanted.parse().unwrap_or(before),
        _ if phase == "down" => 0,
        _ => before,
    }
}

fn label(phase: &str, machines: u64) -> String {
    match phase.split_once('=') {
        Some(("up", wanted)) => format!("0 → {wanted}"),
        Some(("idle", seconds)) => format!("idle with {machines}, {seconds} s"),
        _ if phase == "down" => format!("{machines} → 0"),
        _ => format!("{phase} {machines}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(phase: &str, api: u64) -> Figures {
        Figures {
            phase: phase.to_owned(),
            seconds: 2.0,
            api,
            cpu_s: 0.5,
            peak_mb: 20,
        }
    }

    #[test]
    fn a_phase_stands_beside_the_original_only_where_both_had_as_many_machines() {
        let table = table(&[
            measured("up=200", 1000),
            measured("down", 1600),
            measured("up=7", 42),
            measured("down", 42),
        ]);
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows[0],
            "| 0 → 200 | 2.0 (16.1) | 1000 (3706) | 5.0 (18.5) | 0.50 (4.2) | 20 (114) |"
        );
        assert_eq!(
            rows[1],
            "| 200 → 0 | 2.0 (35.1) | 1600 (5319) | 8.0 (26.6) | 0.50 (3.3) | 20 (129) |"
        );
        assert_eq!(rows[2], "| 0 → 7 | 2.0 | 42 | 6.0 | 0.50 | 20 |");
        assert_eq!(rows[3], "| 7 → 0 | 2.0 | 42 | 6.0 | 0.50 | 20 |");
    }

    #[test]
    fn idling_is_not_counted_per_machine() {
        let table = table(&[measured("up=1000", 6000), measured("idle=30", 0)]);
        assert!(
            table.ends_with("| idle with 1000, 30 s | 2.0 (30.0) | 0 (83) | – | 0.50 (0.13) | 20 (149) |\n"),
            "{table}"
        );
    }
}
