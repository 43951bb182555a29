//! A driver's answers as tables for people, and as JSON and YAML in the spelling of protobuf. Decides nothing.

use std::sync::LazyLock;

use millwright_core::status::is_unseen;
use millwright_proto::{FILE_DESCRIPTOR_SET, v1};
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Value;

use crate::command::failure::Failure;
use crate::command::table;

/// The contract's messages by name.
static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("our own descriptors; a unit test reads them"));

fn value<M: prost::Message>(type_name: &str, message: &M) -> Result<Value, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| Failure::Manifest(format!("the answer cannot be shown: {error}"));
    let name = format!("machine.driver.v1.{type_name}");
    let known = POOL.get_message_by_name(&name);
    let known = known.ok_or_else(|| unreadable(&format!("{name} is no message of the contract")))?;
    let message = DynamicMessage::decode(known, message.encode_to_vec().as_slice());
    let message = message.map_err(|error| unreadable(&error))?;
    serde_json::to_value(&message).map_err(|error| unreadable(&error))
}

/// An answer as JSON on one line.
pub fn json<M: prost::Message>(type_name: &str, message: &M) -> Result<String, Failure> {
    Ok(value(type_name, message)?.to_string())
}

/// An answer as YAML.
pub fn yaml<M: prost::Message>(type_name: &str, message: &M) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(&value(type_name, message)?);
    text.map_err(|error| Failure::Yaml(error.to_string()))
}

/// A driver's text in a cell.
pub fn cell(text: &str) -> String {
    let text = table::one_line(&text.replace(is_unseen, " "));
    match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    }
}

/// A name of the contract without what all of its kind begin with.
fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_owned()
}

/// Who the driver is.
pub fn info(info: &v1::GetDriverInfoResponse) -> String {
    let capabilities = info
        .capabilities()
        .map(|known| word(known.as_str_name(), "CAPABILITY_"));
    let capabilities = capabilities.collect::<Vec<_>>().join(", ");
    let delay = info
        .propagation_delay
        .as_ref()
        .map_or_else(|| "0s".to_owned(), ToString::to_string);
    let mut rows = vec![
        ["Name:".to_owned(), cell(&info.name)],
        ["Version:".to_owned(), cell(&info.vendor_version)],
        ["Capabilities:".to_owned(), cell(&capabilities)],
        ["Propagation delay:".to_owned(), delay],
    ];
    let mut facts: Vec<_> = info.manifest.iter().collect();
    facts.sort();
    rows.extend(
        facts
            .into_iter()
            .map(|(name, fact)| [format!("{}:", cell(name)), cell(fact)]),
    );
    headless(&rows)
}

/// Lines of names and values.
fn headless(rows: &[[String; 2]]) -> String {
    let text = table::lines(["", ""], rows);
    text.split_once('\n')
        .map(|(_, rows)| rows.to_owned())
        .unwrap_or_default()
}

/// What a node would offer.
pub fn template(template: &v1::NodeTemplate) -> String {
    let mut rows = vec![
        ["Instance type:".to_owned(), cell(&template.instance_type)],
        ["Region:".to_owned(), cell(&template.region)],
        ["Zone:".to_owned(), cell(&template.zone)],
        ["Architecture:".to_owned(), cell(&template.architecture)],
    ];
    for (title, named) in [("Capacity", &template.capacity), ("Label", &template.labels)] {
        let mut named: Vec<_> = named.iter().collect();
        named.sort();
        let named = named.into_iter();
        rows.extend(named.map(|(name, value)| [format!("{title} {}:", cell(name)), cell(value)]));
    }
    headless(&rows)
}

/// VMs, a line each. A list has the VMs of all namespaces, so the namespace comes first, as with `kubectl get --all-namespaces`.
pub fn machines(machines: &[v1::Machine]) -> String {
    let rows: Vec<_> = machines.iter().map(row).collect();
    table::lines(
        [
            "NAMESPACE",
            "NAME",
            "STATE",
            "PROVIDER-ID",
            "NODE",
            "ZONE",
            "TYPE",
            "CREATED",
        ],
        &rows,
    )
}

fn row(machine: &v1::Machine) -> [String; 8] {
    let key = machine.key.clone().unwrap_or_default();
    let created = machine.create_time.as_ref().map(ToString::to_string);
    let state = word(machine.state().as_str_name(), "STATE_");
    let said = match machine.state_message.is_empty() {
        true => state,
        false => format!("{state} ({})", cell(&machine.state_message)),
    };
    [
        cell(&key.namespace),
        cell(&key.name),
        said,
        cell(&machine.provider_id),
        cell(&machine.node_name),
        cell(&machine.zone),
        cell(&machine.instance_type),
        cell(&created.unwrap_or_default()),
    ]
}

/// A watch's message, on one line.
pub fn event(event: &v1::WatchMachinesResponse) -> String {
    let kind = word(event.r#type().as_str_name(), "TYPE_");
    match &event.machine {
        Some(machine) => format!("{kind}   {}\n", row(machine).join("   ")),
        None => format!("{kind}\n"),
    }
}

/// How many of the faults keep machines from being made.
pub fn errors(answer: &v1::ValidateMachineClassResponse) -> usize {
    let is_error = |violation: &&v1::Violation| violation.severity() != v1::violation::Severity::Warning;
    answer.violations.iter().filter(is_error).count()
}

/// The faults of a class.
pub fn violations(class: &str, answer: &v1::ValidateMachineClassResponse) -> String {
    if answer.violations.is_empty() {
        return format!("MachineClass {class} is good\n");
    }
    let rows: Vec<_> = answer.violations.iter().map(violation).collect();
    table::lines(["FIELD", "SEVERITY", "REASON", "DESCRIPTION"], &rows)
}

fn violation(violation: &v1::Violation) -> [String; 4] {
    [
        cell(&violation.field),
        word(violation.severity().as_str_name(), "SEVERITY_"),
        cell(&violation.reason),
        cell(&violation.description),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_is_a_line_for_people_and_the_contracts_spelling_for_programs() {
        let machine = v1::Machine {
            key: Some(v1::MachineKey {
                namespace: "shop".to_owned(),
                name: "one".to_owned(),
                ..v1::MachineKey::default()
            }),
            provider_id: "virtual:///1".to_owned(),
            state: v1::machine::State::Failed.into(),
            state_message: "no\nboot\u{202e}".to_owned(),
            ..v1::Machine::default()
        };
        let table = machines(std::slice::from_ref(&machine));
        assert!(
            table.starts_with("NAMESPACE   NAME   STATE ")
                && table.contains("shop        one    FAILED (no boot)   virtual:///1   -      -      -      -"),
            "{table}"
        );
        let told = json("Machine", &machine).unwrap();
        assert!(
            told.contains(r#""providerId":"virtual:///1""#) && told.contains(r#""state":"STATE_FAILED""#),
            "{told}"
        );
        assert!(yaml("Machine", &machine).unwrap().contains("providerId: virtual:///1"));
    }
}
