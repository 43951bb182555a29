//! Every decision of the simulator: drawn from a seed or read from a tape, and always recorded.
//!
//! Zero is the tame choice everywhere (no fault, no delay), so that a tape shrinks by zeros and by being cut off: what lies
//! beyond its end is zero.

use std::collections::BTreeMap;

/// How often a point was reached, and how often it did not choose the tame way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Decisions asked for.
    pub asked: u64,
    /// Decisions that were not zero.
    pub taken: u64,
}

/// Where decisions come from.
#[derive(Debug, Clone)]
enum Source {
    Seed(u64),
    Tape { tape: Vec<u32>, at: usize },
}

/// The decisions of one run.
#[derive(Debug, Clone)]
pub struct Choices {
    source: Source,
    tape: Vec<u32>,
    points: BTreeMap<&'static str, Count>,
}

impl Choices {
    /// Drawn from a seed.
    pub fn drawn(seed: u64) -> Self {
        // Neighbouring seeds are far apart from the first draw on.
        Self::of(Source::Seed(mix(seed)))
    }

    /// Read from a tape.
    pub fn read(tape: Vec<u32>) -> Self {
        Self::of(Source::Tape { tape, at: 0 })
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            tape: Vec::new(),
            points: BTreeMap::new(),
        }
    }

    /// One of `0..n`, each as likely as the others.
    pub fn choose(&mut self, point: &'static str, n: u32) -> u32 {
        let chosen = match self.told() {
            Some(told) => told.min(n.saturating_sub(1)),
            None => below(self.draw(), n),
        };
        self.note(point, chosen)
    }

    /// Whether what has this chance in a thousand happens.
    pub fn happens(&mut self, point: &'static str, per_mille: u32) -> bool {
        let chosen = match self.told() {
            Some(told) => told.min(1),
            None => u32::from(below(self.draw(), 1000) < per_mille),
        };
        self.note(point, chosen) == 1
    }

    /// What was chosen so far.
    pub fn tape(&self) -> &[u32] {
        &self.tape
    }

    /// What was chosen, without the tame end.
    pub fn into_tape(mut self) -> Vec<u32> {
        while self.tape.last() == Some(&0) {
            self.tape.pop();
        }
        self.tape
    }

    /// How often each point was reached.
    pub fn points(&self) -> &BTreeMap<&'static str, Count> {
        &self.points
    }

    fn told(&mut self) -> Option<u32> {
        match &mut self.source {
            Source::Seed(_) => None,
            Source::Tape { tape, at } => {
                *at += 1;
                Some(tape.get(*at - 1).copied().unwrap_or(0))
            }
        }
    }

    fn draw(&mut self) -> u64 {
        match &mut self.source {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                mix(*state)
            }
            Source::Tape { .. } => 0,
        }
    }

    fn note(&mut self, point: &'static str, chosen: u32) -> u32 {
        let count = self.points.entry(point).or_default();
        count.asked += 1;
        count.taken += u64::from(chosen != 0);
        self.tape.push(chosen);
        chosen
    }
}

/// A number below `n`; of a draw's upper half, without division.
fn below(draw: u64, n: u32) -> u32 {
    u32::try_from(((draw >> 32) * u64::from(n)) >> 32).unwrap_or(0)
}

/// The finaliser of SplitMix64: each bit of the result depends on each of `z`.
pub fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_seed_drew_is_read_back_from_its_tape() {
        let mut drawn = Choices::drawn(7);
        let first: Vec<u32> = (1..50).map(|n| drawn.choose("a", n)).collect();
        let flips: Vec<bool> = (0..50).map(|_| drawn.happens("b", 500)).collect();
        let mut read = Choices::read(drawn.tape().to_vec());
        assert_eq!(first, (1..50).map(|n| read.choose("a", n)).collect::<Vec<u32>>());
        assert_eq!(flips, (0..50).map(|_| read.happens("b", 1)).collect::<Vec<bool>>());
        assert_eq!(drawn.points(), read.points());
        assert!(flips.contains(&true) && flips.contains(&false));
    }

    #[test]
    fn beyond_the_end_of_a_tape_everything_is_tame_and_what_does_not_fit_is_cut_down() {
        let mut read = Choices::read(vec![9]);
        assert_eq!(read.choose("a", 4), 3);
        assert_eq!(read.choose("a", 4), 0);
        assert!(!read.happens("b", 1000));
        assert_eq!(read.into_tape(), [3]);
    }

    #[test]
    fn every_choice_is_drawn_sooner_or_later() {
        let mut drawn = Choices::drawn(1);
        let mut seen = [0_u32; 5];
        (0..5000).for_each(|_| seen[drawn.choose("a", 5) as usize] += 1);
        assert!(seen.iter().all(|count| (900..1100).contains(count)), "{seen:?}");
    }
}
