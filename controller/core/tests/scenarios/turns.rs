//! Whose turn it is: in the order of the queue, or in any other that several workers and a slow driver may come to.
//!
//! The order of the turns is the only thing that is drawn here, from a seed, so that a story can be played again in it.

use millwright_core::wake::Key;

use crate::stage::Stage;

/// What happens next.
pub enum Turn {
    /// The manager looks at a key.
    Look(Key),
    /// The driver answers the call of that place.
    Answer(usize),
}

/// An order of turns that is drawn from a seed.
#[derive(Debug)]
pub struct Drawn {
    state: u64,
    /// Keys that workers have taken from the queue and not begun with.
    taken: Vec<Key>,
}

impl Drawn {
    pub fn of(seed: u64) -> Self {
        Self {
            state: seed,
            taken: Vec::new(),
        }
    }

    /// A number below `count`: splitmix64, whose next numbers are unlike each other for seeds that are not.
    fn below(&mut self, count: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = (mixed ^ (mixed >> 31)) % u64::try_from(count).expect("a count is no more than 64 bits");
        usize::try_from(drawn).expect("it is below a usize")
    }

    /// The process is gone, and its workers with it.
    pub fn forget(&mut self) {
        self.taken.clear();
    }
}

impl Stage {
    /// The next turn, if anything is due.
    pub fn turn(&mut self) -> Option<Turn> {
        let now = self.uptime;
        let Some(drawn) = &mut self.drawn else {
            let due = self.world.queue.take(now).map(Turn::Look);
            return due.or_else(|| (!self.silent && !self.flights.is_empty()).then_some(Turn::Answer(0)));
        };
        drawn.taken.extend(std::iter::from_fn(|| self.world.queue.take(now)));
        // The calls about one Machine are answered in their order.
        let is_first = |place: &usize| {
            let uid = &self.flights[*place].uid;
            self.flights[..*place].iter().all(|earlier| earlier.uid != *uid)
        };
        let answers: Vec<usize> = match self.silent {
            true => Vec::new(),
            false => (0..self.flights.len()).filter(is_first).collect(),
        };
        let choices = drawn.taken.len() + answers.len();
        if choices == 0 {
            return None;
        }
        let choice = drawn.below(choices);
        Some(match choice.checked_sub(drawn.taken.len()) {
            Some(place) => Turn::Answer(answers[place]),
            None => Turn::Look(drawn.taken.swap_remove(choice)),
        })
    }
}
