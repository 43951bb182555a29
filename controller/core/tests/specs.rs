//! Every spec of `tests/specs.yaml` is found invalid, in the words that stand there; what the original accepts is not.

use millwright_core::api::{Machine, MachineDeployment, MachineSet, validity};
use millwright_core::merge;
use serde::Deserialize;
use serde_json::{Value, from_value, json};

#[derive(Deserialize)]
struct Table {
    valid: std::collections::BTreeMap<String, Value>,
    invalid: Vec<Row>,
    working: Vec<Working>,
}

#[derive(Deserialize)]
struct Row {
    what: String,
    kind: String,
    patch: Value,
    told: String,
}

#[derive(Deserialize)]
struct Working {
    what: String,
    kind: String,
    patch: Value,
}

fn table() -> Table {
    let text = include_str!("../../../tests/specs.yaml").replace("NAME", "workers");
    serde_saphyr::from_str(&text).expect("the table can be read")
}

fn fault(kind: &str, spec: &Value) -> Option<String> {
    let object = json!({"metadata": {"name": "workers"}, "spec": spec});
    let decodes = "whatever is stored decodes";
    match kind {
        "MachineDeployment" => validity::deployment_fault(&from_value::<MachineDeployment>(object).expect(decodes)),
        "MachineSet" => validity::set_fault(&from_value::<MachineSet>(object).expect(decodes)),
        "Machine" => validity::machine_fault(&from_value::<Machine>(object).expect(decodes)),
        other => unreachable!("no functions judge a {other}"),
    }
}

#[test]
fn every_spec_of_the_table_is_found_invalid_in_its_words() {
    let table = table();
    for row in &table.invalid {
        let mut spec = table.valid[&row.kind].clone();
        merge::apply(&mut spec, &row.patch);
        let fault = fault(&row.kind, &spec).unwrap_or_default();
        assert!(
            fault.contains(&row.told),
            "{}: {fault:?} lacks {:?}",
            row.what,
            row.told
        );
    }
}

#[test]
fn the_valid_specs_of_the_table_have_no_fault() {
    for (kind, spec) in table().valid {
        assert_eq!(fault(&kind, &spec), None, "{kind}");
    }
}

#[test]
fn an_object_without_a_spec_has_a_fault() {
    for kind in ["MachineDeployment", "MachineSet", "Machine"] {
        for spec in [json!(null), json!({})] {
            assert!(fault(kind, &spec).is_some(), "{kind} with the spec {spec}");
        }
    }
}

#[test]
fn what_the_original_serves_has_no_fault() {
    let table = table();
    for row in &table.working {
        let mut spec = table.valid[&row.kind].clone();
        merge::apply(&mut spec, &row.patch);
        assert_eq!(fault(&row.kind, &spec), None, "{}", row.what);
    }
}
