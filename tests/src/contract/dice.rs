//! Chance that is the same everywhere for ever: a seed means the same sequence on every machine and after every update.

/// Splitmix64.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// True in so many of a hundred.
    pub fn percent(&mut self, of: usize) -> bool {
        self.below(100) < of
    }

    /// One of these.
    ///
    /// # Panics
    /// There is none.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// One of these, by weight.
    ///
    /// # Panics
    /// All weigh nothing.
    pub fn weighed<T: Copy>(&mut self, all: &[(usize, T)]) -> T {
        let mut at = self.below(all.iter().map(|(weight, _)| weight).sum());
        for (weight, thing) in all {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *thing,
            }
        }
        panic!("nothing to choose from")
    }
}
