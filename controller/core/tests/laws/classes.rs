//! Laws of plans about classes and Secrets, whatever is observed of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millwright_core::api::{CreationRequest, MachineClass, keys};
use millwright_core::class::{self, Fault, InUse, Observed, Readiness, Recipe, SecretObserved};
use millwright_core::narrate;
use millwright_laws as laws;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::dice::{Dice, now, tapes};

/// Metadata of an object that may be guarded, by us and by others, and may be leaving.
fn metadata(dice: &mut Dice, finalizer: &str) -> Value {
    let finalizers = dice.pick(&[
        json!([]),
        json!([finalizer]),
        json!(["other"]),
        json!(["other", finalizer]),
    ]);
    json!({
        "name": "small", "namespace": "test", "uid": "uid-c", "resourceVersion": "1",
        "generation": dice.number(3),
        "finalizers": finalizers,
        "deletionTimestamp": if dice.flag() { dice.stamp() } else { Value::Null },
    })
}

fn class(dice: &mut Dice) -> MachineClass {
    let metadata = metadata(dice, keys::FINALIZER);
    let condition = json!([{
        "type": "Ready",
        "status": dice.pick(&["True", "False", "Unknown"]),
        "reason": dice.pick(&["Valid", "NoProvider", "DriverNotConnected"]),
        "message": "words",
        "observedGeneration": dice.number(3),
        "lastTransitionTime": dice.stamp(),
    }]);
    let conditions = if dice.flag() { condition } else { json!([]) };
    let provider = dice.pick(&[json!("virtual"), Value::Null]);
    let body = json!({"metadata": metadata, "provider": provider, "status": {"conditions": conditions}});
    serde_json::from_value(body).expect("it is a class")
}

fn readiness(dice: &mut Dice) -> Readiness {
    let recipe = Recipe {
        digest: "digest".to_owned(),
        needs_token: false,
        essentials: CreationRequest::default(),
    };
    let faults = [
        Fault::NoProvider([].into()),
        Fault::NoDriver,
        Fault::NoUserData(Vec::new()),
    ];
    match dice.number(3) {
        0 => Readiness::Unchecked,
        1 => Readiness::Ready(recipe),
        _ => Readiness::Faulty(dice.pick(&faults)),
    }
}

fn reported(dice: &mut Dice, kind: &'static str) -> Option<InUse> {
    dice.maybe(|dice| InUse {
        kind,
        users: usize::from(dice.number(3)),
        first: "first".to_owned(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_of_a_class_breaks_a_law_whatever_is_observed(tape in tapes()) {
        let mut dice = Dice::new(tape);
        let (class, found, reported) = (class(&mut dice), readiness(&mut dice), reported(&mut dice, "Machine"));
        let machines = usize::from(dice.number(3));
        let seen = Observed {
            class: &class,
            machines,
            first_machine: (machines > 0).then_some("first"),
            readiness: if dice.flag() { &found } else { &Readiness::Unchecked },
            found: &found,
            driver_is_here: dice.flag(),
            circuits: millwright_core::circuit_breaker::Circuits::default(),
            is_being_checked: dice.flag(),
            status_refused: None,
            reported: reported.as_ref(),
            now: now(),
        };
        let plan = class::plan(&seen);
        let broken = laws::class(&seen, &plan);
        prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{seen:#?}", narrate::plan(&plan, now()));
    }

    #[test]
    fn no_plan_of_a_secret_breaks_a_law_whatever_is_observed(tape in tapes()) {
        let mut dice = Dice::new(tape);
        let secret: ObjectMeta = serde_json::from_value(metadata(&mut dice, keys::SECRET_FINALIZER)).expect("metadata");
        let (classes, reported) = (usize::from(dice.number(3)), reported(&mut dice, "MachineClass"));
        let seen = SecretObserved {
            secret: &secret,
            classes,
            first_class: (classes > 0).then_some("first"),
            first_machine: dice.maybe(|_| "m"),
            reported: reported.as_ref(),
            now: now(),
        };
        let plan = class::plan_secret(&seen);
        let broken = laws::secret(&seen, &plan);
        prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{seen:#?}", narrate::plan(&plan, now()));
    }
}
