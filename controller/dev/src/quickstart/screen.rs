//! Where text goes. On a terminal: lines that scroll, and below them the tree as a block that is redrawn in place.
//! Elsewhere: lines only, one for each change. It may not know what the rows mean.
//!
//! The terminal is never put into another mode, so that no end of this process, however sudden, leaves it broken.

use std::io::{self, IsTerminal as _, Write};
use std::time::Instant;

use crossterm::cursor::MoveToPreviousLine;
use crossterm::style::{Color, Stylize as _};
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use crossterm::{queue, terminal};

use super::tree::{HEAD, Mood, Row, Told};

/// Between two columns.
const GAP: &str = "  ";
/// Least widths of the columns: a phase that comes and goes moves nothing.
const LEAST: [usize; HEAD.len()] = [0, "Terminating".len(), 0, "100s".len(), 0];
/// Rows of a terminal that stay free for what was said above the tree.
const ROOM: usize = 4;
/// What a terminal that does not tell its size is taken for.
const SIZE: (u16, u16) = (100, 30);

/// Standard output.
pub struct Screen {
    began: Instant,
    /// The block on a terminal; `None` where there is no terminal.
    block: Option<Block>,
    told: Told,
}

/// What is on the terminal below the lines.
#[derive(Default)]
struct Block {
    rows: Vec<Row>,
    /// The width of each line that is there, for a terminal that has become narrower and wrapped them.
    drawn: Vec<usize>,
}

impl Screen {
    /// Looks whether there is a terminal.
    pub fn open() -> Self {
        let block = io::stdout().is_terminal().then(Block::default);
        Self {
            began: Instant::now(),
            block,
            told: Told::default(),
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// A line that stays, with the time.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        self.print(&[format!("{:>6.1}s  {line}", self.seconds())])
    }

    /// Lines that stay, as they are.
    pub fn print(&mut self, lines: &[String]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match &mut self.block {
            None => lines.iter().try_for_each(|line| writeln!(out, "{line}"))?,
            Some(block) => block.under(&mut out, lines)?,
        }
        out.flush()
    }

    /// The tree as it is now.
    pub fn show(&mut self, rows: Vec<Row>) -> io::Result<()> {
        match &mut self.block {
            Some(block) => {
                block.rows = rows;
                let mut out = io::stdout().lock();
                block.under(&mut out, &[])?;
                out.flush()
            }
            None => {
                let lines = self.told.changes(&rows);
                lines.iter().try_for_each(|line| self.say(line))
            }
        }
    }

    /// Leaves the tree where it is; what is said next goes below it.
    pub fn leave_tree(&mut self) {
        if let Some(block) = &mut self.block {
            *block = Block::default();
        }
    }
}

impl Block {
    /// Writes lines in the place of the block, and the block below them, in one go.
    fn under(&mut self, out: &mut impl Write, lines: &[String]) -> io::Result<()> {
        let (width, height) = terminal::size().unwrap_or(SIZE);
        let (width, height) = (usize::from(width.max(1)), usize::from(height));
        queue!(out, BeginSynchronizedUpdate)?;
        let up: usize = self.drawn.iter().map(|line| line.div_ceil(width).max(1)).sum();
        if let Some(up) = u16::try_from(up).ok().filter(|up| *up > 0) {
            queue!(out, MoveToPreviousLine(up), Clear(ClearType::FromCursorDown))?;
        }
        for line in lines {
            writeln!(out, "{line}")?;
        }
        self.drawn.clear();
        if !self.rows.is_empty() {
            for (text, color) in drawing(&self.rows, width, height.saturating_sub(ROOM).max(1)) {
                self.drawn.push(text.chars().count());
                match color {
                    Some(color) => writeln!(out, "{}", text.with(color))?,
                    None => writeln!(out, "{text}")?,
                }
            }
        }
        queue!(out, EndSynchronizedUpdate)
    }
}

/// Lines of a drawing that are no rows: the empty one, the head, and the one that counts what does not fit.
const FRAME: usize = 3;

/// The block's lines, none longer than `width`, at most `height` of them.
fn drawing(rows: &[Row], width: usize, height: usize) -> Vec<(String, Option<Color>)> {
    let fits = rows.len() + FRAME <= height + 1;
    let room = if fits { rows.len() } else { height.saturating_sub(FRAME) };
    let shown = most_telling(rows, room);
    let mut cells = vec![(HEAD.map(str::to_owned), None)];
    cells.extend(shown.iter().map(|row| {
        let name = format!("{}{}", row.branch, row.name);
        let texts = [
            name,
            row.phase.clone(),
            row.node.clone(),
            row.age.clone(),
            row.reason.clone(),
        ];
        (texts, Some(color(row.mood)))
    }));
    let mut lines = vec![(String::new(), None)];
    lines.extend(table(&cells, width));
    if !fits {
        lines.truncate(height.saturating_sub(1));
        let hidden = rows.len() - shown.len();
        lines.push((cut(&format!("… and {hidden} more"), width), None));
    }
    lines
}

/// As many rows as there is room for, in their order: who is not well is not left out for those who are.
fn most_telling(rows: &[Row], room: usize) -> Vec<&Row> {
    let mut ranked: Vec<(usize, &Row)> = rows.iter().enumerate().collect();
    ranked.sort_by_key(|(at, row)| (rank(row), *at));
    ranked.truncate(room);
    ranked.sort_by_key(|(at, _)| *at);
    ranked.into_iter().map(|(_, row)| row).collect()
}

fn rank(row: &Row) -> u8 {
    match (row.mood, row.name.starts_with("machine/")) {
        (Mood::Bad, _) => 0,
        (Mood::Moving | Mood::Good, false) => 1,
        (Mood::Moving, true) => 2,
        (Mood::Good, true) => 3,
    }
}

type Cells = ([String; HEAD.len()], Option<Color>);

/// Lines of cells in columns. One in which no row has anything is left out, as the nodes' where they are called as their machines.
fn table(cells: &[Cells], width: usize) -> Vec<(String, Option<Color>)> {
    let mut widths = LEAST;
    let mut is_used = [false; HEAD.len()];
    for (at, (texts, _)) in cells.iter().enumerate() {
        for ((width, is_used), text) in widths.iter_mut().zip(&mut is_used).zip(texts) {
            *width = (*width).max(text.chars().count());
            *is_used = *is_used || (at > 0 && !text.is_empty());
        }
    }
    let line = |(texts, color): &Cells| {
        let columns = texts.iter().zip(widths).zip(is_used);
        let columns: Vec<String> = columns
            .filter(|(_, is_used)| *is_used)
            .map(|((text, width), _)| format!("{text:<width$}"))
            .collect();
        (cut(columns.join(GAP).trim_end(), width), *color)
    };
    cells.iter().map(line).collect()
}

fn color(mood: Mood) -> Color {
    match mood {
        Mood::Good => Color::Green,
        Mood::Moving => Color::Yellow,
        Mood::Bad => Color::Red,
    }
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize) -> Vec<Row> {
        let row = |at| Row {
            branch: "└─ ",
            name: format!("machine/m-{at}"),
            phase: "Running".to_owned(),
            node: "a-node-with-a-long-name".to_owned(),
            age: "1s".to_owned(),
            reason: "a reason that is longer than most terminals are wide, as reasons tend to be".to_owned(),
            mood: Mood::Good,
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [1, 2, 20, 60, 200] {
            let wide = drawing(&rows(3), width, 50)
                .into_iter()
                .find(|(line, _)| line.chars().count() > width);
            assert_eq!(wide, None);
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let lines = drawing(&rows(10), 80, 6);
        assert_eq!(lines.len(), 6);
        // An empty line, the head and three rows are there.
        assert_eq!(lines.last().unwrap().0, "… and 7 more");
    }

    #[test]
    fn the_machine_that_is_not_well_is_shown_however_many_are() {
        let mut all = rows(30);
        all[20].mood = Mood::Bad;
        all[0].name = "machinedeployment/w".to_owned();
        all[0].branch = "";
        let shown = |height| -> Vec<String> {
            let lines = drawing(&all, 200, height);
            let lines = lines
                .iter()
                .map(|(line, _)| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
            lines.collect()
        };
        assert_eq!(
            shown(6),
            [
                "",
                "NAME PHASE",
                "machinedeployment/w Running",
                "└─ machine/m-1",
                "└─ machine/m-20",
                "… and"
            ]
        );
        for height in 1..=40 {
            assert!(shown(height).len() <= height, "{height}");
        }
        assert_eq!(shown(32).len(), 32, "all of them fit");
    }

    #[test]
    fn a_column_in_which_nothing_stands_is_left_out() {
        let mut all = rows(2);
        let head = |rows: &[Row]| drawing(rows, 200, 50)[1].0.clone();
        assert!(head(&all).contains("NODE"), "{}", head(&all));
        for row in &mut all {
            row.node = String::new();
        }
        let columns = head(&all);
        let columns: Vec<&str> = columns.split_whitespace().collect();
        assert_eq!(columns, ["NAME", "PHASE", "AGE", "REASON"]);
    }

    #[test]
    fn a_block_that_was_wrapped_by_a_narrower_terminal_is_removed_whole() {
        let (width, _) = terminal::size().unwrap_or(SIZE);
        let mut block = Block {
            rows: Vec::new(),
            drawn: vec![0, usize::from(width) * 2, 3],
        };
        let mut out = Vec::new();
        block.under(&mut out, &[]).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("\u{1b}[4F"));
    }
}
