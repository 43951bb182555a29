//! Who may lead, decided from the Lease as it was last seen.
//!
//! Pure. `controller/src/kube/lease.rs` reads and writes the Lease and measures the time. A holder's claim runs out by
//! *our* clock since *we* saw it change: times written by other machines are compared with nothing, so clocks that
//! disagree cannot make two leaders. (client-go does the same, for the same reason.)

use std::time::Duration;

use jiff::SignedDuration;

/// What a Lease says about leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it; nobody after a release.
    pub holder: Option<String>,
    /// How long a holder's silence is to be borne.
    pub duration: Duration,
    /// How often leadership changed: the leader's epoch.
    pub transitions: u32,
}

impl LeaseRecord {
    /// Who holds it, if anybody does.
    pub fn held_by(&self) -> Option<&str> {
        self.holder.as_deref().filter(|holder| !holder.is_empty())
    }

    /// Whether its holder gave it back. A release claims one second, as client-go writes it; a Lease whose holder somebody took out by
    /// hand still claims what the holder claimed.
    fn is_released(&self) -> bool {
        self.held_by().is_none() && !self.duration.is_zero() && self.duration <= RELEASED_FOR
    }
}

/// A Lease of other leaders that was not renewed for so long, by the wall clock, was left behind.
const LEFT_BEHIND: SignedDuration = SignedDuration::from_mins(10);

/// Whether the holder of a Lease that is not ours leads: as among ourselves by our own clock, since we saw it as it is now. One whose
/// last renewal lies far back is not waited for.
pub fn is_led(record: &LeaseRecord, unchanged_for: Duration, renewed_ago: Option<SignedDuration>) -> bool {
    let is_alive = renewed_ago.is_some_and(|ago| ago < LEFT_BEHIND);
    record.held_by().is_some() && is_alive && unchanged_for < record.duration
}

/// What a released Lease claims.
const RELEASED_FOR: Duration = Duration::from_secs(1);

/// The last claim that was seen in the Lease.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Who made it.
    pub holder: &'a str,
    /// How long the holder's silence is to be borne.
    pub duration: Duration,
    /// Time since we first saw it.
    pub silent_for: Duration,
}

/// All that the decision looks at.
#[derive(Clone, Debug)]
pub struct Sight<'a> {
    /// The Lease; `None`: there is none.
    pub record: Option<&'a LeaseRecord>,
    /// Time since we first saw it as it is now.
    pub unchanged_for: Duration,
    /// Whether this process leads: it renewed the Lease in time.
    pub leads: bool,
    /// The last claim that was seen, by whomever. It outlives the Lease: a holder whose Lease was deleted or emptied by somebody leads
    /// on until it looks again.
    pub last_claim: Option<Claim<'a>>,
    /// The highest epoch this process ever saw. A Lease that somebody deleted must not take the count back, or drivers
    /// would refuse the new leader as an old one.
    pub highest_epoch: Option<u32>,
    /// The least epoch of a new term: [`epoch_floor`] of the wall clock. It stands in for `highest_epoch` where the Lease
    /// was deleted while no manager ran: a driver that runs on remembers the old epoch, and nobody else does.
    pub epoch_floor: u32,
}

/// The greatest epoch that `Lease.spec.leaseTransitions`, a signed 32-bit number, can hold.
const GREATEST_EPOCH: u32 = i32::MAX.unsigned_abs();

/// 2024-01-01T00:00:00Z, in seconds since the Unix epoch: where the floor of epochs is zero.
const FLOOR_BEGINS: i64 = 1_704_067_200;

/// The floor of new epochs at a time, given as seconds since the Unix epoch: whole seconds since 2024. It grows by itself,
/// faster than leaders can change (a process needs longer to start), is above the minutes since 1970 that earlier
/// versions took, and fits a Lease until the year 2092. A clock that was set back gives a lower floor, and then the
/// highest epoch that was seen counts; so it does where a clock says a time that fits no Lease.
pub fn epoch_floor(unix_seconds: i64) -> u32 {
    let seconds = u32::try_from(unix_seconds.saturating_sub(FLOOR_BEGINS)).unwrap_or(0);
    if seconds > GREATEST_EPOCH { 0 } else { seconds }
}

/// How long things take in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Silence after which another may take the Lease.
    pub duration: Duration,
    /// Time after its last successful renewal at which a leader stops on its own.
    pub renew_deadline: Duration,
    /// Pause between two looks, or two renewals.
    pub retry_period: Duration,
}

impl Default for Terms {
    /// The defaults of the original and of Kubernetes' own controllers. The five seconds between the deadline and the
    /// duration are what a request under way at the deadline has to end.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why an election cannot be held on these terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTerms {
    /// A leader would still act when another may begin.
    #[error("the lease duration must be longer than the renew deadline")]
    DeadlineTooLate,
    /// A leader would stop before it tries to renew.
    #[error("the renew deadline must be longer than the retry period")]
    RetryTooLate,
    /// The Lease is kept in whole seconds.
    #[error("the lease duration must be at least one second")]
    DurationTooShort,
    /// It would try without a pause.
    #[error("the retry period must be positive")]
    NoPause,
}

impl Terms {
    /// Whether two leaders are excluded on these terms.
    pub fn check(&self) -> Result<(), BadTerms> {
        if self.duration < Duration::from_secs(1) {
            return Err(BadTerms::DurationTooShort);
        }
        if self.retry_period.is_zero() {
            return Err(BadTerms::NoPause);
        }
        if self.duration <= self.renew_deadline {
            return Err(BadTerms::DeadlineTooLate);
        }
        if self.renew_deadline <= self.retry_period {
            return Err(BadTerms::RetryTooLate);
        }
        Ok(())
    }
}

/// What to do with the Lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseMove {
    /// There is none: create it, held by us, with this epoch.
    Create {
        /// The epoch of our leadership.
        epoch: u32,
    },
    /// It is nobody's, or its holder is silent: write ourselves in, if it is still as it was seen.
    Take {
        /// The epoch of our leadership.
        epoch: u32,
    },
    /// It is ours and needs a sign of life.
    Renew {
        /// The epoch of our leadership.
        epoch: u32,
    },
    /// It is ours and fresh: look again after the pause.
    Hold {
        /// How long it stays fresh.
        pause: Duration,
    },
    /// It is somebody else's: look again after the pause.
    Wait {
        /// How long.
        pause: Duration,
        /// When it will be ours if its holder stays silent.
        left: Duration,
    },
}

/// Decides the next move of `me`.
pub fn step(sight: &Sight<'_>, me: &str, terms: &Terms) -> LeaseMove {
    let transitions = sight.record.map(|record| record.transitions);
    let epoch = next_epoch(sight.highest_epoch.max(transitions), sight.epoch_floor);
    let Some((record, holder)) = sight.record.and_then(|record| Some((record, record.held_by()?))) else {
        return match (still_led(sight, me, terms), sight.record) {
            (Some(left), _) => wait(left, terms),
            (None, None) => LeaseMove::Create { epoch },
            (None, Some(_)) => LeaseMove::Take { epoch },
        };
    };
    // Ours, and not renewed in time: what was planned then is over, so a new term begins, which drivers can tell from the old one.
    if holder == me && !sight.leads {
        return LeaseMove::Take { epoch };
    }
    if holder == me {
        return match terms.retry_period.checked_sub(sight.unchanged_for) {
            Some(pause) if !pause.is_zero() => LeaseMove::Hold { pause },
            _ => LeaseMove::Renew {
                epoch: record.transitions,
            },
        };
    }
    match time_left(record.duration, sight.unchanged_for, terms) {
        Some(left) => wait(left, terms),
        None => LeaseMove::Take { epoch },
    }
}

/// How much longer another may lead whose Lease was deleted or emptied under it. It takes it again at its next renewal; until then two
/// would lead if we took it now. A candidate that never saw the last claim does not know who led; the Lease
/// still says for how long that may be.
fn still_led(sight: &Sight<'_>, me: &str, terms: &Terms) -> Option<Duration> {
    if sight.record.is_some_and(LeaseRecord::is_released) {
        return None;
    }
    let claim = sight.last_claim;
    let claimed = claim.and_then(|claim| time_left(claim.duration, claim.silent_for, terms));
    let is_ours = claim.is_some_and(|claim| claim.holder == me);
    if is_ours && claimed.is_some() {
        return None;
    }
    let emptied = sight.record;
    let unknown = emptied.and_then(|emptied| time_left(emptied.duration, sight.unchanged_for, terms));
    claimed.max(unknown)
}

/// What is left of the silence that a holder is owed: it may have been started on longer terms than ours.
fn time_left(claimed: Duration, silent_for: Duration, terms: &Terms) -> Option<Duration> {
    let left = claimed.max(terms.duration).checked_sub(silent_for);
    left.filter(|left| !left.is_zero())
}

fn wait(left: Duration, terms: &Terms) -> LeaseMove {
    LeaseMove::Wait {
        pause: left.min(terms.retry_period),
        left,
    }
}

/// Higher than every epoch that is known of, and not below the floor.
fn next_epoch(highest: Option<u32>, floor: u32) -> u32 {
    let next = highest.map_or(0, |epoch| epoch.saturating_add(1));
    next.max(floor).min(GREATEST_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseRecord {
        LeaseRecord {
            holder: Some(holder.to_owned()),
            duration: Duration::from_secs(15),
            transitions: 4,
        }
    }

    fn released() -> LeaseRecord {
        LeaseRecord {
            holder: None,
            duration: Duration::from_secs(1),
            ..held_by("")
        }
    }

    /// The Lease, seen as it is now for so many seconds, and nothing else.
    fn seen(record: Option<&LeaseRecord>, unchanged_for: u64) -> Sight<'_> {
        Sight {
            record,
            unchanged_for: Duration::from_secs(unchanged_for),
            leads: true,
            last_claim: None,
            highest_epoch: None,
            epoch_floor: 0,
        }
    }

    /// What `me` does.
    fn moves(sight: &Sight<'_>) -> LeaseMove {
        step(sight, "me", &Terms::default())
    }

    fn next(record: Option<&LeaseRecord>, unchanged_for: u64) -> LeaseMove {
        moves(&seen(record, unchanged_for))
    }

    fn waits(pause: u64, left: u64) -> LeaseMove {
        let (pause, left) = (Duration::from_secs(pause), Duration::from_secs(left));
        LeaseMove::Wait { pause, left }
    }

    #[test]
    fn another_leader_is_waited_for_by_our_own_clock_and_not_for_ever() {
        let record = |holder: &str| LeaseRecord {
            holder: Some(holder.to_owned()),
            duration: Duration::from_secs(15),
            transitions: 1,
        };
        let led = |holder: &str, unchanged: u64, renewed: Option<i64>| {
            let renewed = renewed.map(SignedDuration::from_secs);
            is_led(&record(holder), Duration::from_secs(unchanged), renewed)
        };
        assert!(led("mcm-0", 14, Some(1)));
        assert!(led("mcm-0", 0, Some(-300)), "its clock is ahead");
        assert!(led("mcm-0", 0, Some(300)), "its clock is behind, or ours is ahead");
        assert!(!led("mcm-0", 15, Some(1)), "it is silent");
        assert!(!led("mcm-0", 0, Some(601)), "it was left behind");
        assert!(!led("", 0, Some(1)) && !led("mcm-0", 0, None));
    }

    #[test]
    fn a_lease_that_vanished_or_was_made_anew_by_another_does_not_take_the_epoch_back() {
        assert_eq!(next(None, 0), LeaseMove::Create { epoch: 0 }, "of the first leader");
        let anew = LeaseRecord {
            transitions: 0,
            ..released()
        };
        for (record, taken) in [
            (None, LeaseMove::Create { epoch: 8 }),
            (Some(&anew), LeaseMove::Take { epoch: 8 }),
        ] {
            let highest_epoch = Some(7);
            assert_eq!(
                moves(&Sight {
                    highest_epoch,
                    ..seen(record, 0)
                }),
                taken
            );
        }
    }

    /// What a candidate does that sees no Lease, or a released one of epoch 4.
    fn takes(is_there: bool, highest_epoch: Option<u32>, epoch_floor: u32) -> u32 {
        let released = released();
        match moves(&Sight {
            highest_epoch,
            epoch_floor,
            ..seen(is_there.then_some(&released), 0)
        }) {
            LeaseMove::Create { epoch } | LeaseMove::Take { epoch } => epoch,
            LeaseMove::Renew { .. } | LeaseMove::Hold { .. } | LeaseMove::Wait { .. } => {
                panic!("nobody holds it: it is ours to take")
            }
        }
    }

    #[test]
    fn an_epoch_is_above_the_highest_that_was_seen_and_not_below_the_time() {
        for is_there in [false, true] {
            assert_eq!(takes(is_there, None, 29_000_000), 29_000_000, "no manager ran");
            let set_back = takes(is_there, Some(29_000_007), 29_000_000);
            assert_eq!(set_back, 29_000_008, "the clock was set back");
        }
    }

    #[test]
    fn an_epoch_always_fits_the_lease() {
        assert_eq!(takes(false, Some(u32::MAX), 0), GREATEST_EPOCH);
        assert_eq!(takes(false, Some(GREATEST_EPOCH), 0), GREATEST_EPOCH);
        assert_eq!(takes(false, None, u32::MAX), GREATEST_EPOCH);
    }

    #[test]
    fn the_floor_of_epochs_is_the_seconds_since_2024_and_never_below_zero() {
        assert_eq!(epoch_floor(FLOOR_BEGINS + 59), 59);
        assert_eq!(epoch_floor(-1), 0);
        assert_eq!(epoch_floor(i64::MIN), 0);
        for no_clock_says_this in [i64::MAX, FLOOR_BEGINS + i64::from(i32::MAX) + 1] {
            assert_eq!(
                epoch_floor(no_clock_says_this),
                0,
                "an epoch taken from it could never be exceeded"
            );
        }
    }

    #[test]
    fn the_floor_of_epochs_is_above_what_earlier_versions_counted() {
        let today = 1_795_000_000;
        assert!(i64::from(epoch_floor(today)) > today / 60);
    }

    /// A driver remembers the last of five leaders that followed one another within as many seconds; the Lease is deleted
    /// before the next one starts (`sim replay 2663689992`).
    #[test]
    fn leaders_that_change_quickly_leave_the_floor_above_them() {
        let start = 1_795_000_000;
        let last = (1..5).fold(epoch_floor(start), |epoch, _| takes(true, Some(epoch), 0));
        assert!(takes(false, None, epoch_floor(start + 5)) > last);
    }

    /// It claims 60 s, longer than our terms are, or 1 s, for which it is still given ours.
    #[test]
    fn a_lease_held_by_another_is_left_alone_while_its_time_runs_and_taken_with_the_next_epoch() {
        for (claimed, is_given) in [(15, 15), (60, 60), (1, 15)] {
            let held = LeaseRecord {
                duration: Duration::from_secs(claimed),
                ..held_by("you")
            };
            assert_eq!(next(Some(&held), 0), waits(2, is_given));
            assert_eq!(next(Some(&held), is_given - 1), waits(1, 1));
            assert_eq!(next(Some(&held), is_given), LeaseMove::Take { epoch: 5 });
        }
    }

    #[test]
    fn a_released_lease_is_taken_at_once_with_the_next_epoch() {
        let with_an_empty_name = LeaseRecord {
            holder: Some(String::new()),
            ..released()
        };
        assert_eq!(next(Some(&released()), 0), LeaseMove::Take { epoch: 5 });
        assert_eq!(next(Some(&with_an_empty_name), 0), LeaseMove::Take { epoch: 5 });
    }

    /// What `me` does `silent_for` seconds after it saw the claim of `holder`, of 15 s, and sees this now.
    fn after_a_claim(holder: &str, silent_for: u64, record: Option<&LeaseRecord>) -> LeaseMove {
        seen_for(holder, silent_for, record, silent_for)
    }

    /// The same, where it has seen the Lease as it is now for so long.
    fn seen_for(holder: &str, silent_for: u64, record: Option<&LeaseRecord>, unchanged_for: u64) -> LeaseMove {
        let claim = Claim {
            holder,
            duration: Duration::from_secs(15),
            silent_for: Duration::from_secs(silent_for),
        };
        moves(&Sight {
            last_claim: Some(claim),
            highest_epoch: Some(4),
            ..seen(record, unchanged_for)
        })
    }

    #[test]
    fn a_lease_deleted_or_emptied_under_its_holder_is_left_to_it_for_its_time() {
        let emptied = held_by("");
        assert_eq!(after_a_claim("you", 1, None), waits(2, 14));
        assert_eq!(after_a_claim("you", 1, Some(&emptied)), waits(2, 14));
        assert_eq!(after_a_claim("you", 15, None), LeaseMove::Create { epoch: 5 });
        assert_eq!(after_a_claim("you", 15, Some(&emptied)), LeaseMove::Take { epoch: 5 });
    }

    /// A second manager that never saw the first one's claim (`sim replay 8007979`).
    #[test]
    fn a_lease_that_is_first_seen_emptied_is_left_for_the_time_that_it_says() {
        let emptied = LeaseRecord {
            duration: Duration::from_secs(20),
            ..held_by("")
        };
        assert_eq!(next(Some(&emptied), 0), waits(2, 20));
        assert_eq!(next(Some(&emptied), 19), waits(1, 1));
        assert_eq!(next(Some(&emptied), 20), LeaseMove::Take { epoch: 5 });
    }

    /// It saw nothing for a minute, in which another may have led, or leads.
    #[test]
    fn a_claim_that_is_long_past_says_nothing_of_who_leads_by_a_lease_that_was_emptied() {
        let emptied = held_by("");
        for holder in ["you", "me"] {
            let after = |seconds| seen_for(holder, 60, Some(&emptied), seconds);
            assert_eq!(after(0), waits(2, 15), "{holder}");
            assert_eq!(after(15), LeaseMove::Take { epoch: 5 }, "{holder}");
        }
    }

    #[test]
    fn a_lease_whose_whole_spec_was_taken_out_is_left_to_the_leader_too() {
        let bare = LeaseRecord {
            holder: None,
            duration: Duration::ZERO,
            transitions: 0,
        };
        let is_waited_for = |found: LeaseMove| matches!(found, LeaseMove::Wait { .. });
        assert!(is_waited_for(after_a_claim("you", 1, Some(&bare))));
        assert!(is_waited_for(next(Some(&bare), 0)));
    }

    #[test]
    fn the_holder_itself_takes_a_lease_that_was_deleted_or_emptied_at_once() {
        let emptied = held_by("");
        assert_eq!(after_a_claim("me", 1, None), LeaseMove::Create { epoch: 5 });
        assert_eq!(after_a_claim("me", 1, Some(&emptied)), LeaseMove::Take { epoch: 5 });
    }

    #[test]
    fn a_lease_that_was_given_back_is_taken_at_once_whoever_held_it() {
        assert_eq!(after_a_claim("you", 1, Some(&released())), LeaseMove::Take { epoch: 5 });
    }

    /// However late that is, since nobody else took it.
    #[test]
    fn our_own_lease_is_renewed_once_a_period_under_its_own_epoch_whatever_the_time_is() {
        let (ours, epoch_floor) = (held_by("me"), 29_000_000);
        let after = |seconds| {
            moves(&Sight {
                epoch_floor,
                ..seen(Some(&ours), seconds)
            })
        };
        let pause = Duration::from_secs(2);
        assert_eq!(after(0), LeaseMove::Hold { pause });
        assert_eq!(after(2), LeaseMove::Renew { epoch: 4 });
        assert_eq!(after(3600), LeaseMove::Renew { epoch: 4 });
    }

    #[test]
    fn our_own_lease_that_was_not_renewed_in_time_is_taken_for_a_new_term() {
        let ours = held_by("me");
        for seconds in [0, 2, 3600] {
            let late = Sight {
                leads: false,
                ..seen(Some(&ours), seconds)
            };
            assert_eq!(moves(&late), LeaseMove::Take { epoch: 5 });
        }
    }

    #[test]
    fn terms_on_which_two_could_lead_are_refused() {
        let terms = |duration, renew_deadline, retry_period| Terms {
            duration: Duration::from_millis(duration),
            renew_deadline: Duration::from_millis(renew_deadline),
            retry_period: Duration::from_millis(retry_period),
        };
        assert_eq!(Terms::default().check(), Ok(()));
        assert_eq!(terms(10_000, 10_000, 2_000).check(), Err(BadTerms::DeadlineTooLate));
        assert_eq!(terms(15_000, 2_000, 2_000).check(), Err(BadTerms::RetryTooLate));
        assert_eq!(terms(900, 500, 100).check(), Err(BadTerms::DurationTooShort));
        assert_eq!(terms(15_000, 10_000, 0).check(), Err(BadTerms::NoPause));
    }
}
