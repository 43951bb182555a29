//! Every decision of the simulator: drawn from a seed or told by name, and recorded where it is not the default.
//!
//! Zero, the default choice, is the default everywhere (no fault, no delay). Only the others are told, each by its point and its number there,
//! so that a run shrinks by leaving some out, and a new point elsewhere moves none of them.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// How often a point was reached, and how often it did not choose the default way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Decisions asked for.
    pub asked: u64,
    /// Decisions that were not zero.
    pub taken: u64,
}

/// A decision that was not the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// Where.
    pub point: Cow<'static, str>,
    /// The index of this decision at its choice point, from zero.
    pub nth: u64,
    /// Which.
    pub value: u32,
}

/// Where decisions come from.
#[derive(Debug, Clone)]
enum Source {
    Seed(u64),
    Names(BTreeMap<Cow<'static, str>, BTreeMap<u64, u32>>),
}

/// The decisions of one run.
#[derive(Debug, Clone)]
pub struct Choices {
    source: Source,
    deviations: Vec<Deviation>,
    points: BTreeMap<&'static str, Count>,
}

impl Choices {
    /// Drawn from a seed.
    pub fn drawn(seed: u64) -> Self {
        // Neighbouring seeds are far apart from the first draw on.
        Self::of(Source::Seed(mix(seed)))
    }

    /// These, and the default one everywhere else.
    pub fn told(deviations: &[Deviation]) -> Self {
        let mut names: BTreeMap<_, BTreeMap<u64, u32>> = BTreeMap::new();
        for Deviation { point, nth, value } in deviations {
            names.entry(point.clone()).or_default().insert(*nth, *value);
        }
        Self::of(Source::Names(names))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            deviations: Vec::new(),
            points: BTreeMap::new(),
        }
    }

    /// One of `0..n`, each as likely as the others.
    pub fn choose(&mut self, point: &'static str, n: u32) -> u32 {
        let chosen = match self.given(point) {
            Some(told) => told.min(n.saturating_sub(1)),
            None => below(self.draw(), n),
        };
        self.note(point, chosen)
    }

    /// Whether what has this chance in a thousand happens.
    pub fn happens(&mut self, point: &'static str, per_mille: u32) -> bool {
        let chosen = match self.given(point) {
            Some(told) => told.min(1),
            None => u32::from(below(self.draw(), 1000) < per_mille),
        };
        self.note(point, chosen) == 1
    }

    /// What was not the default, in the order in which it was chosen.
    pub fn into_deviations(self) -> Vec<Deviation> {
        self.deviations
    }

    /// How often each point was reached.
    pub fn points(&self) -> &BTreeMap<&'static str, Count> {
        &self.points
    }

    /// What is chosen here, unless it is drawn.
    fn given(&self, point: &'static str) -> Option<u32> {
        let Source::Names(names) = &self.source else {
            return None;
        };
        let nth = self.points.get(point).map_or(0, |count| count.asked);
        let told = names.get(point).and_then(|of_it| of_it.get(&nth));
        Some(told.copied().unwrap_or(0))
    }

    fn draw(&mut self) -> u64 {
        match &mut self.source {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                mix(*state)
            }
            Source::Names(_) => 0,
        }
    }

    fn note(&mut self, point: &'static str, chosen: u32) -> u32 {
        let count = self.points.entry(point).or_default();
        if chosen != 0 {
            self.deviations.push(Deviation {
                point: Cow::Borrowed(point),
                nth: count.asked,
                value: chosen,
            });
            count.taken += 1;
        }
        count.asked += 1;
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
    fn what_a_seed_drew_is_had_again_by_its_names() {
        let mut drawn = Choices::drawn(7);
        let first: Vec<u32> = (1..50).map(|n| drawn.choose("a", n)).collect();
        let flips: Vec<bool> = (0..50).map(|_| drawn.happens("b", 500)).collect();
        let mut told = Choices::told(&drawn.clone().into_deviations());
        assert_eq!(first, (1..50).map(|n| told.choose("a", n)).collect::<Vec<u32>>());
        assert_eq!(flips, (0..50).map(|_| told.happens("b", 1)).collect::<Vec<bool>>());
        assert_eq!(drawn.points(), told.points());
        assert_eq!(drawn.into_deviations(), told.into_deviations());
        assert!(flips.contains(&true) && flips.contains(&false));
    }

    #[test]
    fn what_is_not_told_is_tame_and_what_does_not_fit_is_cut_down() {
        let deviations = |value| Deviation {
            point: "a".into(),
            nth: 1,
            value,
        };
        let mut told = Choices::told(&[deviations(9)]);
        assert_eq!(
            [told.choose("a", 4), told.choose("a", 4), told.choose("a", 4)],
            [0, 3, 0]
        );
        assert!(!told.happens("b", 1000));
        assert_eq!(told.into_deviations(), [deviations(3)]);
    }

    #[test]
    fn choices_told_by_name_stay_where_they_are_when_a_new_point_comes_before_them() {
        let mut drawn = Choices::drawn(3);
        let first: Vec<u32> = (0..40).map(|_| drawn.choose("a", 3)).collect();
        let flips: Vec<bool> = (0..40).map(|_| drawn.happens("b", 200)).collect();
        let deviations = drawn.into_deviations();
        assert!(deviations.iter().all(|deviations| deviations.value != 0));
        let mut told = Choices::told(&deviations);
        for nth in 0..40 {
            assert_eq!(told.choose("new", 9), 0);
            assert_eq!(told.choose("a", 3), first[nth]);
            assert_eq!(told.happens("b", 1), flips[nth]);
        }
        let by_point = |deviations: Vec<Deviation>, point| {
            deviations
                .into_iter()
                .filter(move |deviations| deviations.point == point)
        };
        let again = told.into_deviations();
        for point in ["a", "b"] {
            assert!(by_point(again.clone(), point).eq(by_point(deviations.clone(), point)));
        }
        assert_eq!(again.len(), deviations.len());
    }

    #[test]
    fn every_choice_is_drawn_sooner_or_later() {
        let mut drawn = Choices::drawn(1);
        let mut seen = [0_u32; 5];
        (0..5000).for_each(|_| seen[drawn.choose("a", 5) as usize] += 1);
        assert!(seen.iter().all(|count| (900..1100).contains(count)), "{seen:?}");
    }
}
