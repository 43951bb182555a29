//! The table as Markdown. The same for the same list and marks.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::scan::{Kind, Mark};

/// One weakness that a machine controller can have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// `W13`, `pain 49` or `L4`.
    pub row: String,
    /// In at most 12 words.
    pub short: String,
    /// What no test shows as yet, though it is or should be built.
    open: Option<String>,
    /// Why it is not built, and where it will be.
    later: Option<String>,
    /// Why it cannot be a weakness of this program.
    #[serde(rename = "not ours")]
    not_ours: Option<String>,
}

impl Row {
    /// Why no test shows it, or not all of it: the kind of reason, and the reason.
    pub fn word(&self) -> Option<(&'static str, &str)> {
        self.reasons()
            .into_iter()
            .find_map(|(kind, reason)| Some((kind, reason.as_deref()?)))
    }

    /// How many such reasons it gives.
    pub fn words(&self) -> usize {
        self.reasons().iter().filter(|(_, reason)| reason.is_some()).count()
    }

    fn reasons(&self) -> [(&'static str, &Option<String>); 3] {
        [
            ("open", &self.open),
            ("later", &self.later),
            ("not ours", &self.not_ours),
        ]
    }
}

/// The page.
pub fn page(rows: &[Row], marks: &[Mark]) -> String {
    let mut page = "\
        <!-- Made from rows.yaml and the tests by `UPDATE_EXPECT=1 cargo test -p millwright-oracles --test rows`. -->\n\n\
        Weaknesses that machine controllers have had, and the tests that fail if one of them comes back. W: found in the sources of\n\
        the original; pain: complaints in public threads. The others were found in reviews of this product: R in sets, deployments\n\
        and rollouts, L in the life of a machine, K by trying what people complain of, O around the manager (API server, network,\n\
        credentials, end), D at the drivers. A test is a function, a story (.txt) or a bug of the [zoo](sim/zoo.md), which is put\n\
        back and must be caught.\n\n\
        | row | in short | shown by | what is not shown |\n|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let shown: Vec<String> = marks.iter().filter(|mark| mark.row == row.row).map(link).collect();
        let word = row
            .word()
            .map_or_else(String::new, |(kind, reason)| format!("{kind}: {reason}"));
        writeln!(
            page,
            "| {} | {} | {} | {word} |",
            row.row,
            row.short,
            shown.join("<br>")
        )
        .unwrap();
    }
    let count = |wanted: Option<&str>| {
        rows.iter()
            .filter(|row| row.word().map(|(kind, _)| kind) == wanted)
            .count()
    };
    writeln!(
        page,
        "\n{} rows: {} shown, {} later, {} not ours, {} open.",
        rows.len(),
        count(None),
        count(Some("later")),
        count(Some("not ours")),
        count(Some("open")),
    )
    .unwrap();
    page
}

/// A test's name, with a link to where it stands as seen from `tests/`.
fn link(mark: &Mark) -> String {
    let path = mark
        .file
        .strip_prefix("tests/")
        .map_or_else(|| format!("../{}", mark.file), str::to_owned);
    let bug = if mark.kind == Kind::Bug { "bug " } else { "" };
    format!("{bug}[{}]({path})", mark.name)
}
