//! What statuses have in common: which texts they hold, how often they are written, and how they are compared.
//!
//! Decides nothing of what they say.

use jiff::{SignedDuration, Timestamp};

use crate::api::Time;
use crate::sight::later;

/// Changes of the counts within this time become one status write.
pub(crate) const STATUS_PACE: SignedDuration = SignedDuration::from_millis(500);

/// The longest sentence in a status, in bytes. What somebody else's object or a driver tells may be as long as an object.
pub(crate) const LONGEST_TEXT: usize = 4 * 1024;
/// The longest word in a status: an id, a reason, the name of a code.
pub(crate) const LONGEST_WORD: usize = 512;

/// Whether a letter is one that nobody sees, but that changes how the rest of a line is shown: a control character, a separator of lines
/// or paragraphs, a mark without width, or one that turns the direction of writing.
pub fn is_unseen(letter: char) -> bool {
    let is_format = matches!(
        letter,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
    );
    letter.is_control() || is_format
}

/// A text as a status holds it, from where it gets into logs, events and tables: without letters that nobody sees and, if it is too long, without
/// its middle, because the end of a description may be a mark that is read.
pub(crate) fn plain(text: &str, longest: usize) -> String {
    const GAP: &str = " ... ";
    if text.len() <= longest {
        return text.replace(is_unseen, " ");
    }
    let half = longest.saturating_sub(GAP.len()) / 2;
    let head = text.get(..text.floor_char_boundary(half)).unwrap_or_default();
    let tail = text
        .get(text.ceil_char_boundary(text.len() - half)..)
        .unwrap_or_default();
    format!("{head}{GAP}{tail}").replace(is_unseen, " ")
}

/// The write of a status if its turn has come, else when it will. The last one was `written`.
pub(crate) fn paced<C>(
    change: Option<C>,
    written: Option<Timestamp>,
    pace: SignedDuration,
    now: Timestamp,
) -> (Option<C>, Option<Timestamp>) {
    let due = written.map(|at| later(at, pace)).filter(|due| *due > now);
    match (change, due) {
        (None, _) => (None, None),
        (Some(_), Some(due)) => (None, Some(due)),
        (Some(change), None) => (Some(change), None),
    }
}

/// A time as the API server keeps it: in whole seconds.
pub(crate) fn stored_time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// Absent and empty say the same, as Go's writers leave out what is empty.
pub(crate) fn text_is_same(one: Option<&String>, other: Option<&String>) -> bool {
    one.map_or("", String::as_str) == other.map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_loses_its_middle_and_keeps_the_mark_at_its_end() {
        assert_eq!(plain("as it is", 20), "as it is");
        assert_eq!(plain("a\u{1b}[31m\r\nb\u{85}", 20), "a [31m  b ");
        assert_eq!(plain("ä is long. Initiate VM deletion", 21), "ä is lo ... deletion");
        let cut = plain(&"ä".repeat(1000), 100);
        assert!(cut.len() <= 100, "{cut}");
        assert_eq!(plain(&cut, 100), cut, "once is enough");
    }
}
