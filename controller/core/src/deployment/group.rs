//! The terms of a rollout, each with one definition: what a deployment's sets have and want.
//!
//! MD-6. Everything is counted from Machines and numbers, never from a set's status, which lags. Decides
//! nothing; `budget` does, from these terms alone.

/// One set of the deployment, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The set has the deployment's template.
    pub is_new: bool,
    /// `spec.replicas`: the decision. Zero for a set that is being deleted.
    pub number: i64,
    /// Machines that stay, and creations that were sent and not answered.
    pub present: i64,
    /// Machines whose end is decided, until they are gone: deleted, or named by the autoscaler.
    pub leaving: i64,
    /// Those of the present ones that are available.
    pub available: i64,
    /// Machines that the autoscaler named and that are there.
    pub named: i64,
}

impl Row {
    /// What the set has, or may have by its number at any moment.
    pub fn claim(&self) -> i64 {
        self.number.max(self.present)
    }

    /// Whether the set has anything that a rollout has to heed.
    pub fn is_in_use(&self) -> bool {
        self.claim() > 0 || self.leaving > 0
    }
}

/// Sets of a deployment in numbers: first the old ones, oldest first, last the one with its template, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The rows.
    pub rows: Vec<Row>,
    /// D: how many Machines are wanted.
    pub wanted: i64,
    /// s: how many more there may be on the way.
    pub surge: i64,
    /// u: how many fewer may be available on the way.
    pub unavailable: i64,
    /// The numbers of sets that are not seen and may be there: their creation was not answered.
    pub unseen: i64,
    /// By how much D fell since the sets were told of it.
    pub fallen: i64,
    /// The deadline of the rollout has passed.
    pub has_timed_out: bool,
    /// Nodes are seen, so that who is counted as available is.
    pub is_in_sight: bool,
}

impl Group {
    /// Σ number.
    pub fn numbers(&self) -> i64 {
        self.rows.iter().map(|row| row.number).sum()
    }

    /// Σ available.
    pub fn available(&self) -> i64 {
        self.rows.iter().map(|row| row.available).sum()
    }

    /// D − u.
    pub fn floor(&self) -> i64 {
        (self.wanted - self.unavailable).max(0)
    }

    /// How far a number may rise: D + s − Σ (max(number, present) + leaving) − what sets may have that are not seen. What leaves holds its quota until its VM is gone.
    pub fn room(&self) -> i64 {
        let held: i64 = self.rows.iter().map(|row| row.claim() + row.leaving).sum();
        self.wanted + self.surge - held - self.unseen
    }

    /// How many available Machines can be spared: Σ available − (D − u). While nobody can see whether they still are, only what is beyond
    /// D + s, because D fell: nobody wants that, whatever becomes of the rest.
    pub fn slack(&self) -> i64 {
        let spare = (self.available() - self.floor()).max(0);
        let present: i64 = self.rows.iter().map(|row| row.present).sum();
        match self.is_in_sight {
            true => spare,
            false => spare.min(present - self.wanted - self.surge).max(0),
        }
    }

    /// Whether fewer Machines are available than have to be.
    pub fn is_short(&self) -> bool {
        self.available() < self.floor()
    }

    /// How far numbers may fall while new Machines are on their way: a new template that does not work must not eat the old Machines.
    pub fn may_fall(&self) -> i64 {
        self.numbers() - self.floor() - self.on_the_way()
    }

    /// How many of the new set's Machines are not available yet, the ones that are still to be made among them.
    pub fn on_the_way(&self) -> i64 {
        self.current().map_or(0, |new| (new.number - new.available).max(0))
    }

    /// The row of the deployment's template.
    pub fn current(&self) -> Option<&Row> {
        self.rows.last().filter(|row| row.is_new)
    }

    /// The rows of other templates, oldest first.
    pub fn old(&self) -> &[Row] {
        match self.rows.split_last() {
            Some((last, old)) if last.is_new => old,
            _ => &self.rows,
        }
    }

    /// Whether a set of another template has anything.
    pub fn has_old(&self) -> bool {
        self.unseen > 0 || self.old().iter().any(Row::is_in_use)
    }
}
