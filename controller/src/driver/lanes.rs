//! The calls of a driver, how long each may take and how many may be under way.
//!
//! Decides the deadline: the operator's flag, else the driver's advice, else the contract's default. Each call has a
//! lane of its own, so that creations that hang keep no deletion from being sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millwright_proto::v1;
use tokio::sync::Semaphore;

/// Most calls of one kind under way at one driver, where it advises nothing.
const DEFAULT_PLACES: usize = 500;

/// Advice beyond these is a mistake of the driver's: a deadline of nothing fails every call, one of days hides a hang.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3600);

/// A call that the manager makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the contract's")]
pub enum Method {
    CreateMachine,
    InitializeMachine,
    DeleteMachine,
    GetMachineStatus,
    ListMachines,
    WatchMachines,
    ValidateMachineClass,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::CreateMachine,
        Self::InitializeMachine,
        Self::DeleteMachine,
        Self::GetMachineStatus,
        Self::ListMachines,
        Self::WatchMachines,
        Self::ValidateMachineClass,
    ];

    /// The name in the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateMachine => "CreateMachine",
            Self::InitializeMachine => "InitializeMachine",
            Self::DeleteMachine => "DeleteMachine",
            Self::GetMachineStatus => "GetMachineStatus",
            Self::ListMachines => "ListMachines",
            Self::WatchMachines => "WatchMachines",
            Self::ValidateMachineClass => "ValidateMachineClass",
        }
    }

    /// Whether it changes something at the provider, which only the leader may do.
    pub(super) fn changes(self) -> bool {
        match self {
            Self::CreateMachine | Self::InitializeMachine | Self::DeleteMachine => true,
            Self::GetMachineStatus | Self::ListMachines | Self::WatchMachines | Self::ValidateMachineClass => false,
        }
    }

    /// The contract's default (`CallAdvice.timeout`).
    fn default_timeout(self) -> Duration {
        match self {
            Self::CreateMachine | Self::DeleteMachine => Duration::from_secs(120),
            Self::ListMachines | Self::WatchMachines | Self::InitializeMachine => Duration::from_secs(60),
            Self::GetMachineStatus | Self::ValidateMachineClass => Duration::from_secs(15),
        }
    }
}

/// Deadlines that the operator has set; they win over a driver's advice.
pub type Deadlines = BTreeMap<Method, Duration>;

/// What a driver advises for one call, in the form that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    timeout: Duration,
    places: usize,
}

impl Advice {
    /// Reads the advice for one call.
    fn read(method: Method, told: &[v1::CallAdvice], flags: &Deadlines) -> Self {
        let told = told.iter().find(|advice| advice.method == method.name());
        let timeout = told
            .and_then(|advice| advice.timeout)
            .and_then(|timeout| Duration::try_from(timeout).ok());
        let timeout = timeout
            .filter(|timeout| !timeout.is_zero())
            .map(|timeout| timeout.clamp(SHORTEST, LONGEST));
        let places = told
            .and_then(|advice| advice.max_in_flight)
            .and_then(|places| usize::try_from(places).ok());
        Self {
            timeout: flags
                .get(&method)
                .copied()
                .or(timeout)
                .unwrap_or(method.default_timeout()),
            // Zero would stop the driver for ever.
            places: places.filter(|places| *places > 0).unwrap_or(DEFAULT_PLACES),
        }
    }
}

/// The way of one kind of call to one driver.
#[derive(Debug)]
pub(super) struct Lane {
    advice: Advice,
    places: Arc<Semaphore>,
}

impl Lane {
    /// How long one call may take, and how long it may wait for its place before that.
    pub(super) fn timeout(&self) -> Duration {
        self.advice.timeout
    }

    /// How many calls may be under way.
    pub(super) fn size(&self) -> usize {
        self.advice.places
    }

    /// The places.
    pub(super) fn places(&self) -> &Semaphore {
        &self.places
    }
}

/// All lanes to one driver.
#[derive(Debug)]
pub(super) struct Lanes(BTreeMap<Method, Lane>);

impl Lanes {
    /// Lanes by the driver's advice. Places that an earlier handshake made are kept while their number is the same:
    /// calls of before an upgrade still count.
    pub(super) fn new(told: &[v1::CallAdvice], flags: &Deadlines, before: Option<&Self>) -> Self {
        let lane = |method: Method| {
            let advice = Advice::read(method, told, flags);
            let kept = before
                .map(|before| before.lane(method))
                .filter(|before| before.advice.places == advice.places);
            let places = kept.map_or_else(
                || Arc::new(Semaphore::new(advice.places)),
                |before| Arc::clone(&before.places),
            );
            (method, Lane { advice, places })
        };
        Self(Method::ALL.into_iter().map(lane).collect())
    }

    /// The lane of one kind of call.
    pub(super) fn lane(&self, method: Method) -> &Lane {
        self.0
            .get(&method)
            .expect("`new` makes a lane of every method of `Method::ALL`")
    }

    /// Whether both follow the same advice.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        Method::ALL
            .into_iter()
            .all(|method| self.lane(method).advice == other.lane(method).advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seconds: i64, max_in_flight: Option<i32>) -> Vec<v1::CallAdvice> {
        let timeout = Some(prost_types::Duration { seconds, nanos: 0 });
        vec![v1::CallAdvice {
            method: "DeleteMachine".into(),
            timeout,
            max_in_flight,
            ..Default::default()
        }]
    }

    #[test]
    fn advice_wins_over_the_default_and_the_operator_over_both() {
        let flags = Deadlines::from([(Method::DeleteMachine, Duration::from_secs(7))]);
        let timeout = |told: &[_], flags: &Deadlines| {
            Lanes::new(told, flags, None)
                .lane(Method::DeleteMachine)
                .timeout()
                .as_secs()
        };
        assert_eq!(timeout(&[], &Deadlines::new()), 120);
        assert_eq!(timeout(&told(30, None), &Deadlines::new()), 30);
        assert_eq!(timeout(&told(30, None), &flags), 7);
        assert_eq!(
            Lanes::new(&told(30, None), &flags, None)
                .lane(Method::CreateMachine)
                .timeout()
                .as_secs(),
            120
        );
    }

    #[test]
    fn advice_that_would_stop_the_driver_is_not_taken() {
        let lanes = |told: &[_]| Lanes::new(told, &Deadlines::new(), None);
        for (told, seconds, places) in [
            (told(0, Some(0)), 120, 500),
            (told(-5, Some(-1)), 120, 500),
            (told(86_400, Some(3)), 3600, 3),
        ] {
            let lanes = lanes(&told);
            let lane = lanes.lane(Method::DeleteMachine);
            assert_eq!((lane.timeout().as_secs(), lane.size()), (seconds, places), "{told:?}");
        }
    }

    #[test]
    fn places_taken_before_an_upgrade_stay_taken() {
        let before = Lanes::new(&told(30, Some(2)), &Deadlines::new(), None);
        let taken = before
            .lane(Method::DeleteMachine)
            .places()
            .try_acquire()
            .expect("one of two places");
        let after = Lanes::new(&told(40, Some(2)), &Deadlines::new(), Some(&before));
        assert_eq!(after.lane(Method::DeleteMachine).places().available_permits(), 1);
        assert!(!after.same_as(&before));
        drop(taken);
        assert_eq!(after.lane(Method::DeleteMachine).places().available_permits(), 2);
    }

    /// A method without a lane would be a panic at its first call.
    #[test]
    fn every_method_has_a_lane() {
        let lanes = Lanes::new(&[], &Deadlines::new(), None);
        for method in Method::ALL {
            assert_eq!(lanes.lane(method).size(), DEFAULT_PLACES);
        }
    }
}
