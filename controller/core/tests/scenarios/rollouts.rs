//! Rollouts in a world that moves: templates flip, some of them never work, Machines fail, D changes, the process dies after any
//! step. Both bounds hold at every moment, and the end is the last template.
//!
//! The tape of choices is proptest's, so what fails is shrunk to the fewest of them.

use std::time::Duration;

use millwright_core::api::{Machine, Phase, keys, meta};
use millwright_core::ids::Name;
use millwright_core::wake::Key;
use proptest::prelude::*;
use serde_json::json;

use crate::permuted;
use crate::script;
use crate::stage::Stage;

/// How long the world is looked at between two of its moves.
const TICK: Duration = Duration::from_millis(500);

/// What a person sees of the Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    present: i64,
    available: i64,
}

/// The last spec of a story.
#[derive(Clone, Copy, Debug)]
struct Last {
    wanted: i64,
    surge: i64,
    unavailable: i64,
}

struct World {
    stage: Stage,
    wanted: i64,
    surge: i64,
    unavailable: i64,
    version: String,
    seen: Seen,
    story: Vec<String>,
}

impl World {
    fn begin(surge: i64, unavailable: i64) -> Self {
        let mut stage = Stage::default();
        stage.cloud.honest = true;
        script::line(&mut stage, "create class small");
        let strategy = json!({"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let template = json!({"metadata": {"annotations": {"version": "1"}}});
        let extra = json!({"spec": {"strategy": strategy, "template": template}});
        script::line(&mut stage, &format!("create deployment workers of 3 {extra}"));
        let both_zero = surge == 0 && unavailable == 0;
        let mut world = Self {
            stage,
            wanted: 3,
            surge,
            unavailable: if both_zero { 1 } else { unavailable },
            version: "1".to_owned(),
            seen: Seen {
                present: 0,
                available: 0,
            },
            story: Vec::new(),
        };
        for _ in 0..20 {
            world.tick(0);
        }
        world
    }

    fn edit(&mut self, spec: &serde_json::Value) {
        self.story.push(format!("edit {spec}"));
        let line = format!("edit deployment workers {}", json!({ "spec": spec }));
        script::line(&mut self.stage, &line);
    }

    fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.stage.etcd.machines.values()
    }

    /// Everything that can join, joins; time passes; the bounds are looked at. `lost` Machines were taken by the world.
    fn tick(&mut self, lost: i64) {
        self.stage.join_all();
        let until = self.stage.uptime + TICK;
        while self.stage.settle(until).is_err() {
            self.story.push("it died, and started again".to_owned());
            self.stage.restart();
        }
        self.judge(lost);
    }

    fn judge(&mut self, lost: i64) {
        let staying = || {
            let phase_is = |machine: &&Machine, phase: &Phase| machine.phase() == phase;
            self.machines()
                .filter(move |machine| !meta::is_deleting(&machine.metadata) && !phase_is(machine, &Phase::Terminating))
        };
        let count = |count: usize| i64::try_from(count).expect("it is a small number");
        let now = Seen {
            present: count(staying().count()),
            available: count(staying().filter(|machine| *machine.phase() == Phase::Running).count()),
        };
        let told = || format!("{:#?}\n{}", self.story, self.stage.told.join("\n"));
        let most = (self.wanted + self.surge).max(self.seen.present);
        assert!(
            now.present <= most,
            "{} machines where {most} may be\n{}",
            now.present,
            told()
        );
        let floor = (self.wanted - self.unavailable).max(0);
        let least = (self.seen.available - lost).min(floor);
        assert!(
            now.available >= least,
            "{} available machines where {least} must be\n{}",
            now.available,
            told()
        );
        self.seen = now;
        self.stage.told.clear();
    }

    fn roll(&mut self, version: &str) {
        self.version = version.to_owned();
        self.edit(&json!({"template": {"metadata": {"annotations": {"version": version}}}}));
    }

    /// Lets a Machine fail, if one runs.
    fn fail(&mut self, which: usize) -> i64 {
        let running: Vec<String> = self
            .machines()
            .filter(|machine| *machine.phase() == Phase::Running && !meta::is_deleting(&machine.metadata))
            .map(|machine| meta::name(&machine.metadata).to_owned())
            .collect();
        let Some(name) = running.get(which % running.len().max(1)) else {
            return 0;
        };
        self.story.push(format!("{name} fails"));
        let status = json!({"status": {"currentStatus": {"phase": "Failed", "lastUpdateTime": format!("{:.0}", self.stage.now())}}});
        self.stage.patch::<Machine>(&name.clone(), &status, true);
        1
    }

    fn act(&mut self, choice: u16) {
        let (what, which) = (choice % 16, choice / 16);
        let mut lost = 0;
        match what {
            0..=2 => self.roll(["1", "2", "3", "broken"][usize::from(which % 4)]),
            3 | 4 => {
                self.wanted = i64::from(which % 8);
                self.edit(&json!({ "replicas": self.wanted }));
            }
            5 => lost = self.fail(usize::from(which)),
            6 => self.edit(&json!({ "paused": which % 2 == 0 })),
            7 | 8 => self.stage.fuel = Some(usize::from(which % 12)),
            9 => script::line(&mut self.stage, "target is away"),
            10 => script::line(&mut self.stage, "target is back"),
            11 => self.edit(&json!({ "rollbackTo": {"revision": which % 4} })),
            _ => {}
        }
        self.tick(lost);
    }

    /// Nothing else happens, and the template is one that works: the rollout ends.
    fn end(&mut self) {
        self.calm();
        self.edit(&json!({"paused": false, "rollbackTo": null}));
        self.roll("9");
        self.come_to_an_end();
    }

    /// The last spec is this one, whatever was before.
    fn end_as(&mut self, last: Last) {
        self.calm();
        let bounds = json!({"maxSurge": last.surge, "maxUnavailable": last.unavailable});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": bounds});
        self.edit(&json!({"paused": false, "rollbackTo": null, "replicas": last.wanted, "strategy": strategy}));
        (self.wanted, self.surge, self.unavailable) = (last.wanted, last.surge, last.unavailable);
        self.roll("9");
        self.come_to_an_end();
        // What is told of it may come a little later.
        for _ in 0..10 {
            self.tick(0);
        }
    }

    /// The process lives, and sees everything.
    fn calm(&mut self) {
        self.stage.fuel = None;
        script::line(&mut self.stage, "target is back");
    }

    /// What a person sees, but for the sets that only keep an earlier template.
    fn ending(&self) -> Vec<String> {
        let keeps_history = |line: &String| line.starts_with("set ") && line.contains(" of 0:");
        let lines = permuted::ending(&self.stage).into_iter();
        lines.filter(|line| !keeps_history(line)).collect()
    }

    fn come_to_an_end(&mut self) {
        for _ in 0..600 {
            self.tick(0);
            if self.has_ended() {
                return;
            }
        }
        let sets: Vec<String> = self
            .stage
            .etcd
            .sets
            .iter()
            .map(|(name, set)| format!("{name} of {}", set.spec.replicas))
            .collect();
        panic!("it does not end: D={} {sets:?} {:#?}", self.wanted, self.story);
    }

    fn has_ended(&self) -> bool {
        let machines = || self.machines().filter(|machine| *machine.phase() == Phase::Running);
        let count = i64::try_from(machines().count()).expect("it is a small number");
        let is_new = |machine: &Machine| meta::annotation(&machine.metadata, "version") == Some(self.version.as_str());
        let deployment = self.stage.etcd.deployments.get(&Name::new("workers"));
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        let mut conditions = status.iter().flat_map(|status| &status.conditions);
        let is_told = conditions.any(|condition| condition.reason.as_deref() == Some(keys::REASON_NEW_SET_AVAILABLE));
        self.machines().all(is_new) && count == self.wanted && self.machines().count() == machines().count() && is_told
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bounds_hold_at_every_moment_of_rollouts_in_a_world_that_moves(
        bounds in prop::sample::select(&[(1, 0), (0, 1), (2, 0), (3, 1), (0, 0), (5, 2)][..]),
        choices in prop::collection::vec(any::<u16>(), 0..60),
    ) {
        let mut world = World::begin(bounds.0, bounds.1);
        for choice in choices {
            world.act(choice);
        }
        world.end();
        let _last: Option<Key> = world.stage.world.queue.take(world.stage.uptime);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_end_is_a_function_of_the_last_spec_only(
        bounds in prop::sample::select(&[(1, 0), (0, 1), (3, 1), (5, 2)][..]),
        last in prop::sample::select(&[(3, 1, 0), (0, 1, 0), (5, 0, 2), (2, 2, 1)][..]),
        histories in prop::array::uniform2(prop::collection::vec(any::<u16>(), 0..30)),
    ) {
        let (wanted, surge, unavailable) = last;
        let ends = histories.map(|choices| {
            let mut world = World::begin(bounds.0, bounds.1);
            for choice in choices {
                world.act(choice);
            }
            world.end_as(Last { wanted, surge, unavailable });
            (world.ending(), world.story)
        });
        let [(one, first), (other, second)] = ends;
        prop_assert_eq!(one, other, "{:#?}\n{:#?}", first, second);
    }
}
