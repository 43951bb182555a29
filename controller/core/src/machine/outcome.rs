//! A driver's answer, taken into what is known of a Machine's VM. Decides no step: the next plan does.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::node;
use crate::driver::{Call, Disturbance, Effect, Failure, Initialization, Reason, Vm, VmState};
use crate::ledger::{Answer, Calls, Doubt, Trouble, Unmade};
use crate::sight::later;

/// Pause before a VM that is still changing is asked for again, where the driver advises none (driver.proto).
const POLL: SignedDuration = SignedDuration::from_secs(5);

/// How far two answers are apart that both say that a VM is gone, stopped or failed, before they are believed.
pub const SECOND_LOOK: SignedDuration = SignedDuration::from_secs(10);

/// How far apart they are where they say that a VM is stopped or failed, and its kubelet reports that it is ready: a VM that is resized,
/// or stopped and started by a person, is back before that, with its disk.
const WHILE_READY: SignedDuration = SignedDuration::from_mins(1);

/// How soon after an answer bad news that nobody asked for lead to the next question: a driver may tell the same without end.
const NEWS_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// How many answers against a VM are kept: more than are given within `WHILE_READY`.
const ANSWERS_KEPT: usize = 16;

/// What the shell adds to the pauses between tries.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// The operator's pause after `RESOURCE_EXHAUSTED`.
    pub resource_exhausted: SignedDuration,
    /// A factor around 1, so that what failed together is not repeated together.
    pub jitter: f64,
}

/// Why a VM does not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The provider does not know it any more.
    Gone,
    /// It is powered off.
    Stopped,
    /// It will not become running.
    Failed,
    /// It runs, and the provider is about to take it away or to stop it.
    Ending,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "its VM is gone",
            Self::Stopped => "its VM is powered off",
            Self::Failed => "its VM has failed",
            Self::Ending => "its VM is about to be taken away",
        })
    }
}

/// Bounds of the pause that a driver advises, those of `RetryInfo` (GE-12).
const POLL_BOUNDS: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(1), SignedDuration::from_mins(10));

/// The pause that a driver advises, within reason.
fn poll(advised: Option<SignedDuration>) -> SignedDuration {
    let (least, most) = POLL_BOUNDS;
    advised.map_or(POLL, |advised| advised.clamp(least, most))
}

/// Whether still no VM was made for a Machine, after another answer.
fn still_unmade(answer: &Answer, before: Unmade, now: Timestamp) -> Option<Unmade> {
    match answer {
        Answer::NotAsked(_) | Answer::Vm(Call::Status, Err(_)) => Some(before),
        Answer::Vm(Call::Create, Err(failure)) if failure.effect == Effect::None => Some(Unmade {
            since: now,
            is_locked_out: before.is_locked_out
                && matches!(
                    failure.reason,
                    Some(Reason::CredentialsRejected | Reason::CredentialsMissing)
                ),
        }),
        Answer::Vm(_, _) | Answer::Deletion(_) => None,
    }
}

/// Whether an answer says that the VM does not run, or not for long.
fn speaks_against(answer: &Answer) -> bool {
    match answer {
        Answer::Vm(_, Ok(vm)) => Lost::of(vm.state, vm.disturbance).is_some(),
        Answer::Vm(_, Err(failure)) => failure.is_not_found() && failure.reason.is_some(),
        Answer::Deletion(_) | Answer::NotAsked(_) => false,
    }
}

impl Calls {
    /// Whether the driver's news or answers speak against the VM, believed or not.
    pub fn is_doubted(&self) -> bool {
        self.doubt.is_some() || self.last_word().is_some()
    }

    /// Whether the id that the Machine names is that of another Machine's VM, as of a copied manifest: a deletion was refused for it, and the
    /// driver knows no VM of this Machine. The next deletion names no id.
    pub fn names_foreign_vm(&self) -> bool {
        let refused = self.failed(Call::Delete);
        let is_foreign = refused.is_some_and(|trouble| trouble.failure.reason == Some(Reason::NotOwned));
        is_foreign && self.vm.is_none() && self.not_found_at.is_some()
    }

    /// Notes that a call has begun.
    pub fn begin(&mut self, call: Call) {
        self.running = Some(call);
        self.poll_at = None;
        self.delete_at = None;
    }

    /// Takes the answer to the running call, which was made with `recipe`.
    pub fn absorb(&mut self, answer: Answer, recipe: Option<&str>, pacing: Pacing, now: Timestamp) {
        self.running = None;
        // Bad news that came while the call was under way may be newer than its answer, so this answer does not end the doubt.
        let is_outdated = self
            .doubt
            .as_mut()
            .is_some_and(|doubt| std::mem::take(&mut doubt.during_call));
        if let Answer::Vm(Call::Status, _) | Answer::NotAsked(Call::Status) = &answer {
            // An answer that agrees with the news is as good as one that came after them.
            self.asked_at = Some(now).filter(|_| !is_outdated || speaks_against(&answer));
            self.question_ended = Some(now);
        }
        self.unmade = self.unmade.and_then(|before| still_unmade(&answer, before, now));
        match answer {
            Answer::Vm(call, Ok(vm)) => {
                self.made_at = self.made_at.max((call == Call::Create).then_some(now));
                self.poll_at = self.is_unsettled(call, &vm).then(|| now + poll(vm.poll_after));
                self.delete_at = self.gone_since.map(|_| now + POLL);
                self.not_found_at = None;
                self.trouble = None;
                // What was believed gone was only not visible.
                self.gone_since = None;
                self.keep_crumb(vm.last_known_state.as_ref());
                self.doubt = self
                    .doubt
                    .filter(|_| is_outdated || Lost::of(vm.state, vm.disturbance).is_some());
                let said = Lost::of(vm.state, None);
                self.hear(said, now);
                self.vm = Some(vm);
            }
            // A bare NOT_FOUND may come from a proxy or another service: it proves nothing.
            Answer::Vm(Call::Status, Err(failure)) if failure.is_not_found() && failure.reason.is_some() => {
                self.hear(Some(Lost::Gone), now);
                self.not_found_at = Some(now);
                self.vm = None;
                self.trouble = None;
            }
            Answer::Vm(call, Err(failure)) => self.fail(call, failure, recipe, pacing, now),
            Answer::Deletion(Ok(deletion)) => {
                self.keep_crumb(deletion.last_known_state.as_ref());
                self.trouble = None;
                if deletion.gone {
                    self.end(now);
                } else {
                    self.gone_since = None;
                    self.delete_at = Some(now + poll(deletion.poll_after));
                }
            }
            // "No such VM" is what a deletion is to reach, whoever says it in whichever way.
            Answer::Deletion(Err(failure)) if failure.is_not_found() && failure.reason.is_some() => {
                self.trouble = None;
                self.end(now);
            }
            Answer::Deletion(Err(failure)) => self.fail(Call::Delete, failure, recipe, pacing, now),
            // No failure: nobody was asked. The question for the VM's state is put off; the other calls follow from the next plan.
            Answer::NotAsked(Call::Status) => self.poll_at = Some(now + POLL),
            Answer::NotAsked(Call::Create | Call::Initialize | Call::Delete) => {}
        }
    }

    /// The last call, if it was this one and failed.
    pub fn failed(&self, call: Call) -> Option<&Trouble> {
        self.trouble.as_ref().filter(|trouble| trouble.call == call)
    }

    /// The provider told bad news of the VM unasked: it is asked for again.
    pub fn doubt(&mut self, now: Timestamp) {
        let since = self.doubt.map_or(now, |doubt| doubt.since);
        let during_call = self.running.is_some();
        self.doubt = Some(Doubt { since, during_call });
    }

    /// Since when the VM is doubted, where something else made it doubtful at `since`.
    fn doubted_since(&self, since: Timestamp) -> Timestamp {
        self.doubt.map_or(since, |doubt| doubt.since.min(since))
    }

    /// Why the VM does not run any more and will not by itself, as its driver said since that time. Two answers, `SECOND_LOOK` or
    /// `WHILE_READY` apart, must say so: one answer may be false (MC-15; pains 49), and a VM that is stopped may be about to start. An
    /// announced end is believed at once. `node`: the Machine's Node, where it is seen.
    pub fn lost(&self, since: Timestamp, node: Option<&Node>) -> Option<Lost> {
        let since = self.doubted_since(since);
        self.asked_at.filter(|at| *at >= since)?;
        let lost = self.last_word()?;
        let pause = match lost {
            Lost::Ending => return self.heard_at.filter(|at| *at >= since).map(|_| lost),
            Lost::Stopped | Lost::Failed if node.is_some_and(node::is_ready) => WHILE_READY,
            Lost::Stopped | Lost::Failed | Lost::Gone => SECOND_LOOK,
        };
        let first = self.not_running_at.iter().find(|at| **at >= since)?;
        self.heard_at
            .is_some_and(|at| at >= later(*first, pause))
            .then_some(lost)
    }

    /// Takes what the driver says against the VM. The answers before are evidence beside it where all say that there is none, or all that it is
    /// there and does not run.
    fn hear(&mut self, said: Option<Lost>, now: Timestamp) {
        let is_same = |before: Lost| said.is_some_and(|said| (said == Lost::Gone) == (before == Lost::Gone));
        if !self.last_word().is_some_and(is_same) {
            self.not_running_at.clear();
        }
        // Answers from a time that is still to come were heard before the clock was set back.
        self.not_running_at.retain(|at| *at <= now);
        let is_near = |last: &Timestamp| later(*last, SECOND_LOOK / 2) > now;
        if said.is_some() && !self.not_running_at.last().is_some_and(is_near) {
            self.not_running_at.push(now);
        }
        if self.not_running_at.len() > ANSWERS_KEPT {
            self.not_running_at.remove(0);
        }
        self.heard_at = Some(now);
    }

    /// What the driver last said against the VM, believed or not.
    fn last_word(&self) -> Option<Lost> {
        let described = self.vm.as_ref().and_then(|vm| Lost::of(vm.state, vm.disturbance));
        self.not_found_at.map(|_| Lost::Gone).or(described)
    }

    /// Whether the VM runs, as the driver said since then. `None`: it has said nothing since.
    pub fn runs_since(&self, since: Timestamp) -> Option<bool> {
        self.heard_at.filter(|at| *at >= since)?;
        Some(self.last_word().is_none())
    }

    /// When to ask for the VM's state again, which is in doubt since that time. At once, if the driver was not asked since; after
    /// `SECOND_LOOK`, if its last word is not believed yet, or if the call that was to answer bad news failed; else after `pause`.
    pub fn doubt_again(
        &self,
        since: Timestamp,
        node: Option<&Node>,
        pause: SignedDuration,
        now: Timestamp,
    ) -> Timestamp {
        let since = self.doubted_since(since);
        // Where another clock wrote a time that is still to come, the pause counts all the same.
        let Some(asked) = self.asked_at.filter(|at| *at >= since || since > now) else {
            return match self.doubt {
                Some(_) => self.at_least_paced(now),
                None => now,
            };
        };
        let is_unbelieved = self.last_word().is_some() && self.lost(since, node).is_none();
        let is_unanswered = self.doubt.is_some() && self.trouble.is_some();
        later(
            asked,
            if is_unbelieved || is_unanswered {
                SECOND_LOOK
            } else {
                pause
            },
        )
    }

    /// When the driver may be asked that is due at `due`: not sooner after the last question than bad news without end would have it.
    pub fn at_least_paced(&self, due: Timestamp) -> Timestamp {
        let last = self.question_ended.filter(|at| *at <= due);
        last.map_or(due, |at| later(at, NEWS_AGAIN).max(due))
    }

    /// Whether the driver will say something else soon, or has just contradicted itself: asked again at once it would be
    /// asked without end.
    fn is_unsettled(&self, call: Call, vm: &Vm) -> bool {
        let nameless = vm.provider_id.is_none() || vm.node_name.is_none();
        let changing = matches!(vm.state, VmState::Creating | VmState::Unrecognized);
        let unmoved = call == Call::Initialize && vm.initialization == Initialization::Pending;
        nameless || changing || unmoved || self.gone_since.is_some()
    }

    fn keep_crumb(&mut self, crumb: Option<&String>) {
        if let Some(crumb) = crumb.filter(|crumb| !crumb.is_empty()) {
            self.crumb = Some(crumb.clone());
        }
    }

    fn end(&mut self, now: Timestamp) {
        self.vm = None;
        self.gone_since.get_or_insert(now);
    }

    fn fail(&mut self, call: Call, failure: Failure, recipe: Option<&str>, pacing: Pacing, now: Timestamp) {
        let before = self.trouble.take().filter(|trouble| trouble.call == call);
        let times = before.map_or(0, |trouble| trouble.times).saturating_add(1);
        let pause = failure.pause(times, pacing.resource_exhausted);
        self.keep_crumb(failure.last_known_state.as_ref());
        let retry_at = later(now, SignedDuration::from_secs_f64(pause.as_secs_f64() * pacing.jitter));
        self.trouble = Some(Trouble {
            call,
            failure,
            times,
            retry_at,
            digest: recipe.map(str::to_owned),
            is_false_alarm: false,
        });
    }
}

impl Lost {
    /// Why a VM does not run, or will not for long. Advice is no reason to disturb what runs.
    pub fn of(state: VmState, announced: Option<Disturbance>) -> Option<Self> {
        match (state, announced) {
            (VmState::Stopped, _) => Some(Self::Stopped),
            (VmState::Failed, _) => Some(Self::Failed),
            (VmState::Deleting | VmState::Deleted, _) => Some(Self::Gone),
            (
                VmState::Creating | VmState::Running | VmState::Unrecognized,
                Some(Disturbance::Reclaim | Disturbance::Maintenance),
            ) => Some(Self::Ending),
            (VmState::Creating | VmState::Running | VmState::Unrecognized, Some(Disturbance::Advice) | None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Code;

    const PACING: Pacing = Pacing {
        resource_exhausted: SignedDuration::from_mins(1),
        jitter: 1.0,
    };

    #[test]
    fn a_driver_that_advises_patience_without_end_is_asked_again_all_the_same() {
        let hour = |hours: i64| Some(SignedDuration::from_hours(hours));
        assert_eq!(poll(None), POLL);
        assert_eq!(poll(hour(1000)), SignedDuration::from_mins(10));
        assert_eq!(poll(Some(SignedDuration::ZERO)), SignedDuration::from_secs(1));
    }

    /// Rows: pains 162.
    #[test]
    fn a_bare_not_found_proves_nothing() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let bare = Failure::transport(Code::NotFound, "404 from a proxy");
        let said = Failure {
            reason: Some(Reason::MachineNotFound),
            ..bare.clone()
        };
        for (failure, proves) in [(bare, false), (said, true)] {
            let mut calls = Calls::default();
            calls.absorb(Answer::Vm(Call::Status, Err(failure.clone())), None, PACING, now);
            assert_eq!(calls.not_found_at.is_some(), proves);
            let mut calls = Calls::default();
            calls.absorb(Answer::Deletion(Err(failure)), None, PACING, now);
            assert_eq!(calls.gone_since.is_some(), proves);
        }
    }

    /// Where nothing was made, a changed class is asked at once; where credentials were never accepted, the Machine may end without a
    /// DeleteMachine.
    ///
    /// Rows: D5.
    #[test]
    fn one_creation_that_may_have_done_something_is_not_forgotten() {
        let (began, now): (Timestamp, Timestamp) = (
            "2026-01-01T00:00:00Z".parse().unwrap(),
            "2026-01-01T00:01:00Z".parse().unwrap(),
        );
        let failure = |reason: Option<Reason>, effect: Effect| Failure {
            reason,
            effect,
            ..Failure::transport(Code::Unauthenticated, "no")
        };
        let create = |reason, effect| Answer::Vm(Call::Create, Err(failure(reason, effect)));
        let refused = || create(Some(Reason::CredentialsRejected), Effect::None);
        let unmade = |since, is_locked_out| Some(Unmade { since, is_locked_out });
        let cases: [(Answer, Option<Unmade>); 13] = [
            (refused(), unmade(now, true)),
            (Answer::NotAsked(Call::Create), unmade(began, true)),
            (
                Answer::Vm(
                    Call::Status,
                    Err(failure(Some(Reason::CredentialsRejected), Effect::None)),
                ),
                unmade(began, true),
            ),
            (
                create(Some(Reason::CredentialsMissing), Effect::None),
                unmade(now, true),
            ),
            (create(Some(Reason::CredentialsRejected), Effect::Unknown), None),
            (create(Some(Reason::CredentialsRejected), Effect::Partial), None),
            (create(Some(Reason::StaleLeader), Effect::None), unmade(now, false)),
            (create(Some(Reason::QuotaExceeded), Effect::None), unmade(now, false)),
            (create(None, Effect::None), unmade(now, false)),
            (create(None, Effect::Unknown), None),
            (Answer::Vm(Call::Create, Ok(running())), None),
            (Answer::Vm(Call::Status, Ok(running())), None),
            (Answer::Deletion(Err(failure(None, Effect::Unknown))), None),
        ];
        for (answer, wanted) in cases {
            let told = format!("{answer:?}");
            let mut calls = Calls {
                unmade: unmade(began, true),
                ..Calls::default()
            };
            calls.absorb(answer, None, PACING, now);
            assert_eq!(calls.unmade, wanted, "{told}");
            calls.absorb(refused(), None, PACING, now);
            let is_locked_out = |unmade: Unmade| unmade.is_locked_out;
            assert_eq!(
                calls.unmade.map(is_locked_out),
                wanted.map(is_locked_out),
                "for good after {told}"
            );
        }
    }

    fn running() -> Vm {
        Vm {
            provider_id: crate::ids::ProviderId::non_empty(Some("virtual:///1")),
            node_name: crate::ids::NodeName::non_empty(Some("one")),
            state: VmState::Running,
            state_message: String::new(),
            initialization: Initialization::NotNeeded,
            addresses: Vec::new(),
            last_known_state: None,
            poll_after: None,
            disturbance: None,
            ends_at: None,
            tagged_uid: None,
        }
    }

    #[test]
    fn not_running_at_are_over_when_a_later_question_says_so_and_not_an_earlier_one() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let answer = |vm: Vm| Answer::Vm(Call::Status, Ok(vm));
        let mut calls = Calls::default();
        calls.begin(Call::Status);
        calls.doubt(now);
        calls.absorb(answer(running()), None, PACING, now);
        assert!(calls.doubt.is_some(), "the answer may be older than the news");
        let again = later(now, NEWS_AGAIN);
        assert_eq!(calls.doubt_again(now, None, SignedDuration::from_mins(1), now), again);
        calls.begin(Call::Status);
        calls.absorb(answer(running()), None, PACING, now);
        assert_eq!(calls.doubt, None);
    }

    /// Rows: D6.
    #[test]
    fn a_driver_that_tells_the_same_without_end_is_not_asked_without_end() {
        let mut calls = Calls::default();
        let mut asked = 0;
        for tenth in 0..300 {
            let now = later(Timestamp::UNIX_EPOCH, SignedDuration::from_millis(tenth * 100));
            calls.doubt(now);
            if calls.doubt_again(now, None, SignedDuration::from_mins(1), now) <= now {
                calls.begin(Call::Status);
                calls.doubt(now);
                calls.absorb(Answer::Vm(Call::Status, Ok(running())), None, PACING, now);
                asked += 1;
            }
        }
        assert!((5..=7).contains(&asked), "{asked} questions in 30 s");
    }

    #[test]
    fn news_without_end_do_not_put_off_the_verdict_that_answers_agree_with() {
        let mut calls = Calls::default();
        let (mut believed, mut asked) = (None, 0);
        for second in 0..30 {
            let now = later(Timestamp::UNIX_EPOCH, SignedDuration::from_secs(second));
            calls.doubt(now);
            if calls.doubt_again(now, None, SignedDuration::from_mins(1), now) <= now {
                calls.begin(Call::Status);
                calls.doubt(now);
                let gone = Failure {
                    reason: Some(Reason::MachineNotFound),
                    ..Failure::transport(Code::NotFound, "no such VM")
                };
                calls.absorb(Answer::Vm(Call::Status, Err(gone)), None, PACING, now);
                asked += 1;
            }
            believed = believed.or(calls.lost(Timestamp::UNIX_EPOCH, None).map(|_| second));
        }
        assert_eq!((believed, asked), (Some(10), 2));
    }

    #[test]
    fn a_vm_that_is_about_to_go_is_lost_and_one_that_is_advised_against_is_not() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (disturbance, found) in [
            (Some(Disturbance::Reclaim), Some(Lost::Ending)),
            (Some(Disturbance::Maintenance), Some(Lost::Ending)),
            (Some(Disturbance::Advice), None),
            (None, None),
        ] {
            let mut calls = Calls::default();
            calls.doubt(now);
            let vm = Vm {
                disturbance,
                ..running()
            };
            calls.absorb(Answer::Vm(Call::Status, Ok(vm)), None, PACING, now);
            assert_eq!(calls.lost(now, None), found, "{disturbance:?}");
        }
    }

    /// Rows: L3.
    #[test]
    fn a_vm_that_is_stopped_is_lost_once_that_lasts_and_later_while_its_node_is_ready() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds| later(now, SignedDuration::from_secs(seconds));
        let node = |ready: &str| -> Node {
            let conditions = serde_json::json!([{"type": "Ready", "status": ready}]);
            serde_json::from_value(serde_json::json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap()
        };
        for (node, lasts) in [(Some(node("True")), 60), (Some(node("Unknown")), 10), (None, 10)] {
            for state in [VmState::Stopped, VmState::Failed] {
                let mut calls = Calls::default();
                let mut answered = |state, seconds| {
                    let vm = Vm { state, ..running() };
                    calls.absorb(Answer::Vm(Call::Status, Ok(vm)), None, PACING, at(seconds));
                    calls.lost(now, node.as_ref()).is_some()
                };
                assert!(!answered(state, 0), "one answer");
                assert!(!answered(state, lasts - 1));
                assert!(!answered(VmState::Running, lasts), "it is on again");
                assert!(!answered(state, lasts + 1));
                assert!(answered(state, lasts * 2 + 1), "{state:?} lasts");
            }
        }
    }

    /// Rows: L3.
    #[test]
    fn an_answer_from_before_a_vm_was_doubted_is_not_the_first_of_two() {
        let at = |seconds| later(Timestamp::UNIX_EPOCH, SignedDuration::from_secs(seconds));
        let not_found = Failure {
            reason: Some(Reason::MachineNotFound),
            ..Failure::transport(Code::NotFound, "no such VM")
        };
        let stopped = Vm {
            state: VmState::Stopped,
            ..running()
        };
        for answer in [Err(not_found), Ok(stopped)] {
            let mut calls = Calls::default();
            let mut answered = |seconds| {
                calls.absorb(Answer::Vm(Call::Status, answer.clone()), None, PACING, at(seconds));
                calls.lost(at(100), None).is_some()
            };
            // The Node joined after the first answer, which so was false; its kubelet is silent since 100 s.
            assert!(!answered(1));
            assert!(!answered(112), "the first answer that counts");
            assert!(!answered(121));
            assert!(answered(122));
            assert!((1..200).all(|minute| answered(122 + minute * 60)), "it stays lost");
            assert!(calls.not_running_at.len() <= ANSWERS_KEPT);
        }
    }

    #[test]
    fn a_call_that_came_to_nothing_before_it_was_made_is_no_failure() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for call in [Call::Create, Call::Initialize, Call::Status, Call::Delete] {
            let mut calls = Calls::default();
            calls.begin(call);
            calls.absorb(Answer::NotAsked(call), None, PACING, now);
            assert_eq!(calls.running, None, "{call}");
            assert_eq!(calls.trouble, None, "{call}");
            // A poll that was due is due again; all else follows from what is seen.
            assert_eq!(calls.poll_at.is_some(), call == Call::Status, "{call}");
            assert_eq!(calls.delete_at, None, "{call}: nobody was asked to remove the VM");
        }
    }
}
