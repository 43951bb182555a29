//! The oracles see what happens: each property has something to judge, and a manager without mistakes breaks none. Managers
//! with mistakes are in the zoo.

use std::collections::BTreeMap;

use millwright_sim::run::{Faults, Outcome, Plan, by_seed};

/// Runs in which each property must have something to judge.
const SEEDS: u64 = 12;

fn plan(workload: &str) -> Plan {
    Plan {
        workload: Some(workload.to_owned()),
        faults: Faults::None,
        ..Plan::default()
    }
}

#[test]
fn every_property_that_can_be_judged_without_faults_is_judged() {
    let mut hits: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let Outcome {
            violation, antecedents, ..
        } = by_seed(&plan("scale"), seed);
        assert_eq!(violation, None, "seed {seed}");
        for (name, count) in antecedents {
            *hits.entry(name).or_default() += count;
        }
    }
    // L3, L4 and L7 begin or end otherwise than any of these runs.
    for name in [
        "S1", "S2", "S3", "S4", "S8", "S9", "S10", "S11", "S12", "S14", "S15", "L1", "L2",
    ] {
        assert!(hits[name] > 0, "{name} judged nothing: {hits:?}");
    }
}
