//! Mistakes of the search for VMs that no Machine owns: each leaves out one of its waits or witnesses.

use jiff::SignedDuration;
use millwright::env::Planners;
use millwright_core::api::lenient::IntOrPercent;
use millwright_core::orphans::{self, Listing, Noted, Observed, Plan, Suspicion};
use millwright_core::settings::Settings;
use millwright_core::sight::Sight;
use millwright_core::world::World;
use millwright_sandbox::request::{Request, Verb};

use super::Mutant;
use crate::event::Truth;
use crate::world::hooks::{self, Hooks};

pub(super) const ALL: [Mutant; 4] = [
    Mutant {
        name: "orphan-by-one-list",
        rows: "33",
        what: "a VM without a Machine is deleted after one listing",
        property: "S3",
        workload: "orphans-late",
        faults: &[],
        rests: false,
        hooks: || deciding(by_one_list),
    },
    Mutant {
        name: "orphan-by-half-a-list",
        rows: "33",
        what: "a listing with a zone that could not be asked counts as complete",
        property: "S3",
        workload: "orphans-late",
        faults: &["F61x3"],
        rests: false,
        hooks: || deciding(by_half_a_list),
    },
    Mutant {
        name: "orphan-at-any-age",
        rows: "19, 20",
        what: "a VM that has just been made is deleted as one of no Machine",
        property: "S3",
        workload: "orphans-few",
        faults: &[],
        rests: false,
        hooks: || deciding(at_any_age),
    },
    Mutant {
        name: "orphan-unread",
        rows: "32, 33",
        what: "an empty view of Machines is believed, and nobody reads the Machine live",
        property: "S3",
        workload: "orphans-few",
        faults: &[],
        rests: true,
        hooks: || Hooks {
            request: reads_nothing,
            ..deciding(by_an_empty_view)
        },
    },
];

fn deciding(orphans: fn(&Observed<'_>) -> Plan) -> Hooks {
    let planners = Planners {
        orphans,
        ..hooks::planners()
    };
    Hooks {
        planners,
        ..Hooks::default()
    }
}

/// Every VM of the listing was seen long ago.
fn by_one_list(seen: &Observed<'_>) -> Plan {
    let mut noted = seen.noted.clone();
    for vm in &seen.listing.vms {
        let suspicion = Suspicion {
            uid: vm.uid.clone(),
            since: seen.listing.begun - SignedDuration::from_hours(1),
        };
        noted.suspects.extend(vm.provider_id.clone().map(|id| (id, suspicion)));
    }
    let (noted, sight): (&Noted, _) = (&noted, Sight::CLEAR);
    orphans::plan(&Observed { noted, sight, ..*seen })
}

fn by_half_a_list(seen: &Observed<'_>) -> Plan {
    let listing = Listing {
        gap: None,
        ..seen.listing.clone()
    };
    orphans::plan(&Observed {
        listing: &listing,
        ..*seen
    })
}

fn at_any_age(seen: &Observed<'_>) -> Plan {
    let settings = Settings {
        orphan_min_age: SignedDuration::ZERO,
        ..seen.settings.clone()
    };
    orphans::plan(&Observed {
        settings: &settings,
        ..*seen
    })
}

fn by_an_empty_view(seen: &Observed<'_>) -> Plan {
    let settings = Settings {
        max_orphans: IntOrPercent::Text("100%".to_owned()),
        ..seen.settings.clone()
    };
    let (world, settings) = (&World::default(), &settings);
    orphans::plan(&Observed {
        world,
        settings,
        ..*seen
    })
}

fn reads_nothing(request: &mut Request, _: &Truth<'_>) {
    if request.verb == Verb::Get && request.target.resource == "machines" {
        request.target.name = "nobody".to_owned();
    }
}
