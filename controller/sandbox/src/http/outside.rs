//! Where time and fresh ids come from.
//!
//! The value never asks for them itself; a test or simulator puts its own [`Outside`] here.

use jiff::Timestamp;
use uuid::Uuid;

use crate::moment::Moment;

/// Lends each request its moment.
pub trait Outside: Send + Sync + 'static {
    /// Now, with ids that were never given before.
    fn moment(&self) -> Moment;
}

/// The system's clock and random ids.
#[derive(Debug, Clone, Copy)]
pub struct System;

/// Without vowels and what looks like them, so that no suffix is a word.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Outside for System {
    fn moment(&self) -> Moment {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place at which the sandbox reads a clock"
        )]
        let now = Timestamp::now();
        Moment {
            now,
            uid: Uuid::new_v4().to_string(),
            suffix: suffix(&Uuid::new_v4()),
        }
    }
}

/// Five letters, as the server puts behind `generateName`.
fn suffix(random: &Uuid) -> String {
    let bytes = random.as_bytes().iter().take(5);
    let letters = bytes.filter_map(|byte| LETTERS.get(usize::from(*byte) % LETTERS.len()));
    letters.map(|letter| char::from(*letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_has_five_letters_that_a_name_may_have() {
        let suffix = suffix(&Uuid::from_u128(u128::MAX));
        assert_eq!(suffix, "jjjjj".replace('j', &char::from(LETTERS[255 % 27]).to_string()));
        assert_eq!(suffix.len(), 5);
    }

    #[test]
    fn two_moments_share_no_id() {
        let (one, other) = (System.moment(), System.moment());
        assert_ne!(one.uid, other.uid);
    }
}
