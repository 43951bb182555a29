//! Names of a set's Machines: the name of number `n` is a function of the set's uid and `n`.
//!
//! A creation that is repeated, also by another process, has the same name and gets AlreadyExists instead of making another Machine
//! (MS-3, S4). Decides names only; the counter lives in the set's status.

use sha2::{Digest as _, Sha256};

use crate::api::{MachineSet, meta};
use crate::ids::Uid;

/// The alphabet of Kubernetes' own random suffixes: no vowels, no look-alikes.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Letters of a suffix, as in the original.
const LENGTH: u32 = 5;
/// How many suffixes there are: 27^5, about 14 million.
const SPACE: u64 = 27u64.pow(LENGTH);
/// The longest base: with "-" and the suffix it has 63 bytes, as names that the API server generates for the original.
const LONGEST_BASE: usize = 57;

/// The names of one set's Machines.
pub struct Names {
    base: String,
    factor: u64,
    offset: u64,
}

impl Names {
    /// The names of that set's Machines.
    pub fn of(set: &MachineSet) -> Self {
        let (name, uid) = meta::identity(&set.metadata);
        Self::new(name.as_str(), &uid)
    }

    /// The names of the Machines of a set of that name and uid.
    pub fn new(set: &str, uid: &Uid) -> Self {
        let seed = Sha256::digest(uid.as_str());
        let word = |at: usize| {
            let bytes = seed.iter().skip(at).take(8);
            bytes.fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        // An affine map over the suffixes. It is a bijection, because 3 is the only prime factor of their number and does not divide the
        // factor.
        let drawn = word(0) % SPACE;
        Self {
            base: cut(set, LONGEST_BASE),
            factor: if drawn.is_multiple_of(3) { drawn + 1 } else { drawn },
            offset: word(8) % SPACE,
        }
    }

    /// The name of machine number `number`. Numbers below 14 million never share a name.
    pub fn name(&self, number: i64) -> String {
        let place = (u64::try_from(number).unwrap_or(0) % SPACE * self.factor + self.offset) % SPACE;
        format!("{}-{}", self.base, suffix(place))
    }
}

/// A name, cut to at most `longest` characters, without a trailing "-" or ".".
pub(crate) fn cut(name: &str, longest: usize) -> String {
    let base: String = name.chars().take(longest).collect();
    base.trim_end_matches(['-', '.']).to_owned()
}

/// The suffix for a place: its number in base 27, in the alphabet of Kubernetes' random suffixes.
pub(crate) fn suffix(mut place: u64) -> String {
    let mut letters = String::new();
    for _ in 0..LENGTH {
        let index = usize::try_from(place % 27).unwrap_or(0);
        letters.push(char::from(ALPHABET.get(index).copied().unwrap_or(b'b')));
        place /= 27;
    }
    letters
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn machine_name(set: &str, uid: &Uid, number: i64) -> String {
        Names::new(set, uid).name(number)
    }

    #[test]
    fn ten_thousand_numbers_of_a_set_have_ten_thousand_names() {
        let uid = Uid::new("20bc03c5-e95b-4df5-9faf-68be38cb8e1b");
        let names: BTreeSet<String> = (0..10_000).map(|n| machine_name("workers-8c99f", &uid, n)).collect();
        assert_eq!(names.len(), 10_000);
    }

    #[test]
    fn every_drawn_factor_gives_a_bijection() {
        // Of 50 uids each: the names of 2,000 numbers, half of them 27^4 further on, differ.
        for n in 0..50 {
            let uid = Uid::new(format!("uid-{n}"));
            let names: BTreeSet<String> = (0..1000)
                .flat_map(|k| [k, k + 27i64.pow(4)])
                .map(|k| machine_name("s", &uid, k))
                .collect();
            assert_eq!(names.len(), 2000, "{uid}");
        }
    }

    #[test]
    fn a_set_made_again_under_the_same_name_names_its_machines_otherwise() {
        assert_ne!(
            machine_name("s", &Uid::new("1"), 0),
            machine_name("s", &Uid::new("2"), 0)
        );
        assert_eq!(
            machine_name("s", &Uid::new("1"), 7),
            machine_name("s", &Uid::new("1"), 7)
        );
    }

    #[test]
    fn a_long_name_is_cut_and_stays_legal() {
        let long = format!("{}-.{}", "a".repeat(56), "b".repeat(100));
        let name = machine_name(&long, &Uid::new("1"), 3);
        assert_eq!(name.len(), 62);
        assert!(!name.contains("--") && !name.contains(".-"), "{name}");
    }
}
