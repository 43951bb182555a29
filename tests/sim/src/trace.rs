//! The identity of a run: a rolling digest of all that happened, and on demand the lines themselves.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::event::Event;

/// How many of the last events are kept for whoever wants to know what was going on.
const RECENT: usize = 6;

/// All that happened, digested.
#[derive(Debug, Default)]
pub struct Trace {
    digest: u64,
    recent: VecDeque<String>,
    told: Option<Vec<String>>,
    events: u64,
}

impl Trace {
    /// A trace that keeps its lines, where somebody wants to read them.
    pub fn new(is_told: bool) -> Self {
        Self {
            told: is_told.then(Vec::new),
            ..Self::default()
        }
    }

    /// Takes one event.
    pub fn add(&mut self, event: &Event) {
        // The oldest line's room is used again.
        let mut line = match self.recent.len() < RECENT {
            true => String::new(),
            false => self.recent.pop_front().unwrap_or_default(),
        };
        line.clear();
        write!(line, "{event}").expect("a String takes all that is written");
        self.digest = digest(self.digest, line.as_bytes());
        self.events += 1;
        if let Some(told) = &mut self.told {
            told.push(line.clone());
        }
        self.recent.push_back(line);
    }

    /// The last events.
    pub fn recent(&self) -> String {
        let lines: Vec<&str> = self.recent.iter().map(|line| line.trim()).collect();
        lines.join(" | ")
    }

    /// The digest so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The lines, if they were kept.
    pub fn into_story(self) -> Vec<String> {
        self.told.unwrap_or_default()
    }
}

/// A digest of bytes onto a digest: the same in every process, and made for speed, not against malice.
pub fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let mut digest = seed ^ (bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0_u8; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        digest = (digest.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    digest ^ (digest >> 29)
}
