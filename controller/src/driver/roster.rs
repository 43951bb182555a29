//! Who serves which name: a value with rules, no connection in it.
//!
//! Decides the one hard question of several drivers: two of one name. Neither is used, because nothing proves which of them is at the
//! cloud of the name's VMs: who came first proves it for one life of the manager only. A driver that was used keeps its claim to the
//! name while it is away; one that never was loses the claim as soon as it does not answer. Once the socket of one is gone from the
//! directory, the other takes the name.
//!
//! An endpoint whose socket is gone counts as away: its driver may only be restarting, and to conclude anything from what
//! the others say would be wrong. It is forgotten when another takes its name, or, if it never told one, after a while.

use std::collections::BTreeMap;
use std::fmt;

use millwright_core::driver::Drivers;
use millwright_core::ids::DriverName;
use tokio::time::Instant;

use super::endpoint::Endpoint;

const UNASKED: &str = "not asked yet";

/// How it stands with one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Answers, and has its name.
    Ready,
    /// Does not answer. Asked again every second.
    Away {
        /// What the last attempt met.
        why: String,
    },
    /// Something answers that is no usable driver. Asked again now and then.
    Wrong {
        /// What it is instead.
        why: String,
    },
    /// Another endpoint claims its name: neither is used.
    Conflict {
        /// The name that both want.
        name: DriverName,
        /// Who else wants it.
        other: Endpoint,
    },
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Away { why } | Self::Wrong { why } => f.write_str(why),
            Self::Conflict { name, other } => write!(
                f,
                "refused: it calls itself {name}, and so does {other}; of two drivers with one name neither is used"
            ),
        }
    }
}

/// One endpoint, for health and readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointState {
    /// Where.
    pub endpoint: Endpoint,
    /// The name it claims, once heard.
    pub name: Option<DriverName>,
    /// How it stands.
    pub health: Health,
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<D> {
    Nobody {
        unheard: Vec<(Endpoint, Health)>,
        incomplete: Option<String>,
    },
    Away {
        endpoint: Endpoint,
        health: Health,
    },
    Ready(D),
}

/// What a change of the roster means to others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    /// Names whose drivers came, went or changed.
    pub(super) names: Vec<DriverName>,
    /// The endpoint stands otherwise than before: worth one line in the log.
    pub(super) is_new: bool,
}

struct Entry<D> {
    name: Option<DriverName>,
    health: Health,
    /// The driver, once it was used. Kept while away: a driver that comes back unchanged is the same one.
    driver: Option<D>,
    /// Since when it answers without interruption.
    ready_since: Option<Instant>,
    /// Since when its socket is gone from the directory and nobody answers.
    absent_since: Option<Instant>,
}

impl News {
    pub(super) fn nothing() -> Self {
        Self {
            names: Vec::new(),
            is_new: false,
        }
    }
}

/// All endpoints and the names they claim.
pub(super) struct Roster<D> {
    entries: BTreeMap<Endpoint, Entry<D>>,
    /// Why there may be endpoints that are not in it, if there may.
    incomplete: Option<String>,
}

impl<D: Clone + PartialEq> Roster<D> {
    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            incomplete: None,
        }
    }

    /// Says why there may be endpoints that are not known of, or that there are none.
    pub(super) fn set_incomplete(&mut self, why: Option<String>) {
        self.incomplete = why;
    }

    /// The endpoint is known from now on.
    pub(super) fn add(&mut self, endpoint: Endpoint) -> News {
        let health = Health::Away {
            why: UNASKED.to_owned(),
        };
        self.entries.entry(endpoint).or_insert(Entry {
            name: None,
            health,
            driver: None,
            ready_since: None,
            absent_since: None,
        });
        News::nothing()
    }

    /// The endpoint has shown itself as `name`.
    pub(super) fn shown(&mut self, endpoint: &Endpoint, name: DriverName, driver: D, now: Instant) -> News {
        let mut names = self.released_name(endpoint, &name);
        names.extend(self.forget_absent_rivals(endpoint, &name));
        let rivals: Vec<Endpoint> = self.claims(&name).filter(|rival| *rival != endpoint).cloned().collect();
        if let Some(other) = rivals.first().cloned() {
            for rival in &rivals {
                names.extend(self.refuse(rival, &name, endpoint));
            }
            let health = Health::Conflict {
                name: name.clone(),
                other,
            };
            let known = self.driver_of(endpoint).cloned();
            let is_new = self.set(endpoint, Some(name), health, known, now);
            return News { names, is_new };
        }
        let is_same = self.driver_of(endpoint) == Some(&driver);
        let is_new = self.set(endpoint, Some(name.clone()), Health::Ready, Some(driver), now);
        if (is_new || !is_same) && !names.contains(&name) {
            names.push(name);
        }
        News { names, is_new }
    }

    /// Another endpoint has shown itself under the name too. Gives the name if this one was used until now.
    fn refuse(&mut self, endpoint: &Endpoint, name: &DriverName, other: &Endpoint) -> Option<DriverName> {
        let entry = self
            .entries
            .get_mut(endpoint)
            .filter(|entry| entry.health == Health::Ready)?;
        entry.ready_since = None;
        entry.health = Health::Conflict {
            name: name.clone(),
            other: other.clone(),
        };
        Some(name.clone())
    }

    /// The endpoint does not answer, or with something that is no driver. It keeps its claim to its name if it was ever used.
    pub(super) fn lost(&mut self, endpoint: &Endpoint, health: Health) -> News {
        let Some(entry) = self.entries.get_mut(endpoint) else {
            return News::nothing();
        };
        let was_ready = entry.health == Health::Ready;
        let is_new = entry.health != health;
        entry.health = health;
        entry.ready_since = None;
        entry.name = entry.name.take().filter(|_| entry.driver.is_some());
        News {
            names: entry.name.iter().filter(|_| was_ready).cloned().collect(),
            is_new,
        }
    }

    /// The endpoint's socket is gone and nobody answers behind it. It stays, with its name, and counts as away. Returns
    /// whether that is new.
    pub(super) fn absent(&mut self, endpoint: &Endpoint, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(endpoint) else {
            return false;
        };
        let is_new = entry.absent_since.is_none();
        entry.absent_since.get_or_insert(now);
        is_new
    }

    /// The endpoint's socket is there.
    pub(super) fn present(&mut self, endpoint: &Endpoint) {
        if let Some(entry) = self.entries.get_mut(endpoint) {
            entry.absent_since = None;
        }
    }

    /// Whether the endpoint is known.
    pub(super) fn knows(&self, endpoint: &Endpoint) -> bool {
        self.entries.contains_key(endpoint)
    }

    /// Forgets endpoints that have been absent since before `by` and hold no name: nothing is known to depend on them.
    pub(super) fn forget_nameless(&mut self, by: Instant) {
        self.entries
            .retain(|_, entry| entry.name.is_some() || entry.absent_since.is_none_or(|since| since > by));
    }

    /// Whether every endpoint is known, and at least one; the error says what is missing.
    pub(super) fn complete(&self) -> Result<(), String> {
        match &self.incomplete {
            Some(why) => Err(why.clone()),
            None if self.entries.is_empty() => Err("no driver was found".to_owned()),
            None => Ok(()),
        }
    }

    /// Since when the driver of that name answers without interruption.
    pub(super) fn ready_since(&self, name: &DriverName) -> Option<Instant> {
        let mut claims = self.claims(name).filter_map(|endpoint| self.entries.get(endpoint));
        claims.find_map(|entry| entry.ready_since)
    }

    /// All names that are claimed, also by those that are away.
    pub(super) fn known(&self) -> Drivers {
        Drivers {
            names: self.entries.values().filter_map(|entry| entry.name.clone()).collect(),
            is_incomplete: self.entries.values().any(|entry| entry.name.is_none()),
        }
    }

    /// What serves that name.
    pub(super) fn find(&self, name: &DriverName) -> Found<D> {
        let claims = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.name.as_ref() == Some(name));
        // Of those that are not used, the one that was used says more.
        let Some((endpoint, entry)) =
            claims.max_by_key(|(_, entry)| (entry.health == Health::Ready, entry.driver.is_some()))
        else {
            let unheard = self.entries.iter().filter(|(_, entry)| entry.name.is_none());
            return Found::Nobody {
                unheard: unheard
                    .map(|(endpoint, entry)| (endpoint.clone(), entry.health.clone()))
                    .collect(),
                incomplete: self.complete().err(),
            };
        };
        match (&entry.health, &entry.driver) {
            (Health::Ready, Some(driver)) => Found::Ready(driver.clone()),
            (health, _) => Found::Away {
                endpoint: endpoint.clone(),
                health: health.clone(),
            },
        }
    }

    /// The endpoints that claim the name.
    fn claims(&self, name: &DriverName) -> impl Iterator<Item = &Endpoint> {
        let claims = self
            .entries
            .iter()
            .filter(move |(_, entry)| entry.name.as_ref() == Some(name));
        claims.map(|(endpoint, _)| endpoint)
    }

    /// The driver that was last used at the endpoint.
    pub(super) fn driver_of(&self, endpoint: &Endpoint) -> Option<&D> {
        self.entries.get(endpoint)?.driver.as_ref()
    }

    /// Whether the endpoint answers and has its name.
    pub(super) fn is_ready(&self, endpoint: &Endpoint) -> bool {
        self.entries
            .get(endpoint)
            .is_some_and(|entry| entry.health == Health::Ready)
    }

    /// How the endpoint stands.
    pub(super) fn health_of(&self, endpoint: &Endpoint) -> Health {
        let health = self.entries.get(endpoint).map(|entry| entry.health.clone());
        health.unwrap_or_else(|| Health::Away {
            why: UNASKED.to_owned(),
        })
    }

    /// Every endpoint.
    pub(super) fn states(&self) -> Vec<EndpointState> {
        let state = |(endpoint, entry): (&Endpoint, &Entry<D>)| EndpointState {
            endpoint: endpoint.clone(),
            name: entry.name.clone(),
            health: entry.health.clone(),
        };
        self.entries.iter().map(state).collect()
    }

    /// The name that an endpoint gives up which comes back under another.
    fn released_name(&self, endpoint: &Endpoint, name: &DriverName) -> Vec<DriverName> {
        let old = self.entries.get(endpoint).and_then(|entry| entry.name.clone());
        old.filter(|old| old != name).into_iter().collect()
    }

    /// Forgets other endpoints that claim the name and whose sockets are gone: the endpoint takes their place. Gives the name if there were
    /// any.
    fn forget_absent_rivals(&mut self, endpoint: &Endpoint, name: &DriverName) -> Option<DriverName> {
        let before = self.entries.len();
        self.entries.retain(|known, entry| {
            known == endpoint || entry.name.as_ref() != Some(name) || entry.absent_since.is_none()
        });
        (self.entries.len() < before).then(|| name.clone())
    }

    /// Sets an entry, and tells whether its health is another than before.
    fn set(
        &mut self,
        endpoint: &Endpoint,
        name: Option<DriverName>,
        health: Health,
        driver: Option<D>,
        now: Instant,
    ) -> bool {
        let before = self.entries.get(endpoint);
        let is_new = before.is_none_or(|before| before.health != health || before.name != name);
        let is_ready = health == Health::Ready;
        let ready_since = before
            .filter(|before| before.name == name)
            .and_then(|before| before.ready_since);
        let entry = Entry {
            name,
            health,
            driver,
            ready_since: is_ready.then(|| ready_since.unwrap_or(now)),
            absent_since: None,
        };
        self.entries.insert(endpoint.clone(), entry);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> Endpoint {
        Endpoint::Unix(format!("/{name}.sock"))
    }

    fn away(why: &str) -> Health {
        Health::Away { why: why.to_owned() }
    }

    fn roster(endpoints: &[&str]) -> Roster<u32> {
        let mut roster = Roster::new();
        for name in endpoints {
            roster.add(at(name));
        }
        roster
    }

    fn now() -> Instant {
        Instant::now()
    }

    fn x() -> DriverName {
        DriverName::new("x")
    }

    fn refused(other: &str) -> Health {
        Health::Conflict {
            name: x(),
            other: at(other),
        }
    }

    /// Rows: O6.
    #[test]
    fn of_two_of_one_name_neither_is_used_and_the_one_that_was_keeps_its_claim_while_it_is_away() {
        let mut roster = roster(&["a", "b"]);
        let news = |names: &[DriverName], is_new| News {
            names: names.to_vec(),
            is_new,
        };
        assert_eq!(roster.shown(&at("b"), x(), 1, now()), news(&[x()], true));
        assert_eq!(
            roster.shown(&at("a"), x(), 2, now()),
            news(&[x()], true),
            "b is used no more"
        );
        assert_eq!(
            roster.shown(&at("a"), x(), 2, now()),
            news(&[], false),
            "it is said once"
        );
        let health = roster.states().into_iter().map(|state| state.health);
        assert_eq!(health.collect::<Vec<_>>(), [refused("b"), refused("a")]);
        let (endpoint, health) = (at("b"), refused("a"));
        assert_eq!(roster.find(&x()), Found::Away { endpoint, health });
        assert_eq!(roster.ready_since(&x()), None);

        roster.lost(&at("b"), away("refused"));
        assert_eq!(roster.shown(&at("a"), x(), 2, now()), news(&[], false));
        let (endpoint, health) = (at("b"), away("refused"));
        assert_eq!(
            roster.find(&x()),
            Found::Away { endpoint, health },
            "its VMs are at its cloud"
        );
    }

    #[test]
    fn a_driver_that_was_never_used_loses_its_claim_when_it_does_not_answer() {
        let mut roster = roster(&["a", "b"]);
        roster.shown(&at("b"), x(), 1, now());
        roster.shown(&at("a"), x(), 2, now());
        roster.lost(&at("a"), away("killed"));
        assert_eq!(roster.shown(&at("b"), x(), 1, now()).names, [x()]);
        assert_eq!(roster.find(&x()), Found::Ready(1));
    }

    #[test]
    fn the_second_gets_the_name_once_the_firsts_socket_is_gone() {
        let mut roster = roster(&["a", "b"]);
        roster.shown(&at("a"), x(), 1, now());
        roster.shown(&at("b"), x(), 2, now());
        roster.lost(&at("a"), away("gone"));
        assert!(roster.absent(&at("a"), now()));
        assert!(!roster.absent(&at("a"), now()), "it is said once");
        assert!(matches!(roster.find(&x()), Found::Away { .. }), "it may come back");
        assert_eq!(
            roster.shown(&at("b"), x(), 2, now()),
            News {
                names: vec![x()],
                is_new: true
            }
        );
        assert_eq!(roster.find(&x()), Found::Ready(2));
        assert!(!roster.knows(&at("a")), "another has come in its place");
    }

    /// Whoever may be a second driver is one.
    #[test]
    fn the_only_driver_stays_so_while_it_is_away_and_until_another_may_be_there() {
        let mut roster = roster(&["a"]);
        assert_eq!(roster.known().only(), None);
        roster.shown(&at("a"), x(), 1, now());
        roster.lost(&at("a"), away("killed"));
        roster.absent(&at("a"), now());
        assert_eq!(roster.known().only(), Some(&x()));
        roster.add(at("b"));
        assert_eq!(roster.known().only(), None, "it has told no name yet");
        roster.shown(&at("b"), DriverName::new("y"), 2, now());
        assert_eq!(roster.known().only(), None);
        assert_eq!(roster.known().names.len(), 2);
    }

    #[test]
    fn a_socket_that_is_back_keeps_its_name() {
        let mut roster = roster(&["a", "b"]);
        roster.shown(&at("a"), x(), 1, now());
        roster.lost(&at("a"), away("gone"));
        roster.absent(&at("a"), now());
        roster.present(&at("a"));
        roster.shown(&at("b"), x(), 2, now());
        assert!(matches!(roster.find(&x()), Found::Away { .. }));
    }

    #[test]
    fn an_absent_endpoint_that_never_told_a_name_is_forgotten_after_a_while_and_one_that_did_is_not() {
        let mut roster = roster(&["a", "b"]);
        let begun = now();
        let later = begun + std::time::Duration::from_secs(1);
        roster.shown(&at("a"), x(), 1, begun);
        roster.absent(&at("a"), begun);
        roster.absent(&at("b"), later);
        roster.forget_nameless(begun);
        assert!(roster.knows(&at("b")));
        roster.forget_nameless(later);
        assert!(!roster.knows(&at("b")));
        assert!(roster.knows(&at("a")));
    }

    #[test]
    fn readiness_counts_from_the_last_interruption() {
        let mut roster = roster(&["a"]);
        let first = now();
        let at_second = |second| first + std::time::Duration::from_secs(second);
        assert_eq!(roster.ready_since(&x()), None);
        roster.shown(&at("a"), x(), 1, first);
        roster.shown(&at("a"), x(), 2, at_second(5));
        assert_eq!(roster.ready_since(&x()), Some(first), "an upgrade is no interruption");
        roster.lost(&at("a"), away("refused"));
        assert_eq!(roster.ready_since(&x()), None);
        roster.shown(&at("a"), x(), 2, at_second(9));
        assert_eq!(roster.ready_since(&x()), Some(at_second(9)));
    }

    #[test]
    fn the_same_again_is_no_news_and_an_upgrade_is_told_without_a_line() {
        let mut roster = roster(&["a"]);
        roster.shown(&at("a"), x(), 1, now());
        assert_eq!(
            roster.shown(&at("a"), x(), 1, now()),
            News {
                names: vec![],
                is_new: false
            }
        );
        assert_eq!(
            roster.shown(&at("a"), x(), 2, now()),
            News {
                names: vec![x()],
                is_new: false
            }
        );
        assert_eq!(
            roster.lost(&at("a"), away("w")),
            News {
                names: vec![x()],
                is_new: true
            }
        );
        assert_eq!(
            roster.lost(&at("a"), away("w")),
            News {
                names: vec![],
                is_new: false
            }
        );
        assert_eq!(
            roster.lost(&at("a"), away("other")),
            News {
                names: vec![],
                is_new: true
            }
        );
        assert_eq!(
            roster.shown(&at("a"), x(), 2, now()),
            News {
                names: vec![x()],
                is_new: true
            }
        );
    }

    #[test]
    fn a_driver_that_comes_back_under_another_name_gives_the_old_one_up() {
        let mut roster = roster(&["a", "b"]);
        let y = DriverName::new("y");
        roster.shown(&at("a"), x(), 1, now());
        assert_eq!(roster.shown(&at("a"), y.clone(), 2, now()).names, [x(), y.clone()]);
        assert_eq!(roster.shown(&at("b"), x(), 3, now()).names, [x()]);
        assert_eq!(roster.find(&y), Found::Ready(2));
    }

    #[test]
    fn a_name_that_nobody_told_leads_to_those_who_have_told_none() {
        let mut roster = roster(&["a", "b"]);
        roster.shown(&at("a"), x(), 1, now());
        roster.lost(&at("b"), away("refused"));
        let unheard = vec![(at("b"), away("refused"))];
        let incomplete = None;
        assert_eq!(
            roster.find(&DriverName::new("y")),
            Found::Nobody { unheard, incomplete }
        );
    }
}
