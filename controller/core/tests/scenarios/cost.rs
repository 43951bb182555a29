//! What one look at a deployment costs: it grows with the deployment's own machines, not with what else is in the namespace.
//!
//! Allocations are counted, which is exact; a walk over all objects without any shows in time, as the best of many looks, which is
//! compared where a walk would take hundreds of times as long.

use std::time::{Duration, Instant};

use millwright_core::deployment::plan;
use millwright_core::ids::Name;

use super::script;
use super::stage::Stage;

/// How many other deployments there are in the large namespace.
const OTHERS: u32 = 200;
const LOOKS: u32 = 200;
/// How much longer the best look may take in the large namespace: deeper trees, colder caches.
const SLOWER: u32 = 12;

/// A namespace with a deployment of three machines in the middle of a rollout, beside others that rest.
fn namespace(others: u32) -> Stage {
    let mut stage = Stage::default();
    script::line(&mut stage, "create class small");
    for number in 0..others {
        script::line(&mut stage, &format!("create deployment other-{number} of 1"));
        script::line(&mut stage, "after 1");
    }
    script::line(&mut stage, "create deployment workers of 3");
    for _ in 0..4 {
        script::line(&mut stage, "after 3");
        script::line(&mut stage, "all nodes join");
    }
    let template = r#"{"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}"#;
    script::line(&mut stage, &format!("edit deployment workers {template}"));
    script::line(&mut stage, "after 1");
    let expected = usize::try_from(others).expect("it is small") + 3;
    assert!(stage.world.machines.iter().count() >= expected, "all are made");
    stage
}

/// One look at the deployment, as a pass takes it.
fn look(stage: &Stage) -> usize {
    let deployment = stage.world.deployments.get(&Name::new("workers")).expect("it is there");
    stage.see_deployment(deployment, |seen| plan(seen, stage.now()).steps.len())
}

#[expect(clippy::disallowed_methods, reason = "time is what is measured here")]
fn best(stage: &Stage) -> Duration {
    let one = |_| {
        let begun = Instant::now();
        std::hint::black_box(look(stage));
        begun.elapsed()
    };
    (0..LOOKS).map(one).min().expect("there are some")
}

#[test]
fn a_pass_costs_what_its_own_deployment_costs_and_not_what_the_namespace_holds() {
    let (alone, among) = (namespace(0), namespace(OTHERS));
    let allocations = |stage: &Stage| {
        allocation_counter::measure(|| {
            std::hint::black_box(look(stage));
        })
    };
    let (few, many) = (allocations(&alone), allocations(&among));
    assert!(few.count_total > 0, "a look allocates");
    assert_eq!(
        few.count_total, many.count_total,
        "allocations, alone and among {OTHERS} others"
    );
    let (quick, slow) = (best(&alone), best(&among));
    assert!(slow < quick * SLOWER, "{quick:?} alone, {slow:?} among {OTHERS} others");
}
