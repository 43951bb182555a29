//! All faults of a spec at once, although serde stops at its first.
//!
//! Each fault is named and then mended by a value that goes through, so that the next one is met. What is mended is read no further: below it
//! nothing is a fault of the author of the class. The values of the spec are not repeated, for a person may have put a secret there.

use std::collections::VecDeque;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::types::{Severity, Violation};

/// Bound on the work for one spec. More faults than a person mends at once.
const TRIES_MAX: usize = 256;
/// The contract's limit.
const FAULTS_MAX: usize = 64;

/// The spec as the author's type, or what is wrong with it, at least one fault.
pub(crate) fn read<T: DeserializeOwned>(spec: &Value) -> Result<T, Vec<Violation>> {
    let first = match attempt::<T>(spec) {
        Ok(read) => return Ok(read),
        Err(first) => first,
    };
    let (mut mended, mut faults, mut quiet) = (spec.clone(), Vec::new(), Vec::new());
    let mut next = Some(first);
    for _ in 0..TRIES_MAX {
        let Some(fault) = next.take().filter(|_| faults.len() < FAULTS_MAX) else {
            break;
        };
        let is_known = quiet.iter().any(|known: &Vec<String>| fault.place.starts_with(known));
        if !is_known {
            faults.push(fault.told());
            quiet.push(fault.place.clone());
        }
        next = mend::<T>(&mut mended, &fault);
    }
    Err(faults)
}

/// One fault as serde tells it.
struct Fault {
    /// Keys and indexes from the root.
    place: Vec<String>,
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Missing,
    Unknown,
    Wrong,
}

impl Fault {
    fn told(&self) -> Violation {
        let reason = match self.kind {
            Kind::Missing => "REQUIRED",
            Kind::Unknown => "UNKNOWN_FIELD",
            Kind::Wrong => "INVALID_VALUE",
        };
        let pointer = |place: &String| format!("/{}", place.replace('~', "~0").replace('/', "~1"));
        Violation {
            field: self.place.iter().map(pointer).collect(),
            severity: Severity::Error,
            reason: reason.to_owned(),
            description: self.text.clone(),
        }
    }
}

fn attempt<T: DeserializeOwned>(spec: &Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(spec).map_err(|error| {
        let mut place = place_of(error.path());
        let said = error.inner().to_string();
        let field_after = |prefix: &str| Some(said.strip_prefix(prefix)?.split_once('`')?.0.to_owned());
        if let Some(field) = field_after("missing field `") {
            place.push(field);
            let text = "is required".to_owned();
            return Fault {
                place,
                kind: Kind::Missing,
                text,
            };
        }
        if let Some(field) = field_after("unknown field `") {
            // serde names the field in the text, and the path may end with it or above it.
            if place.last() != Some(&field) {
                place.push(field);
            }
            let text = format!("is no field; known is {}", expected(&said).unwrap_or("none"));
            return Fault {
                place,
                kind: Kind::Unknown,
                text,
            };
        }
        let text = expected(&said).map(|expected| format!("must be {expected}"));
        let text = text.unwrap_or(said);
        Fault {
            place,
            kind: Kind::Wrong,
            text,
        }
    })
}

/// What serde expected, without what it found.
fn expected(said: &str) -> Option<&str> {
    let told = [
        "invalid type: ",
        "invalid value: ",
        "invalid length ",
        "unknown variant ",
        "unknown field ",
    ];
    if !told.iter().any(|prefix| said.starts_with(prefix)) {
        return None;
    }
    let (_, expected) = said.rsplit_once(", expected ")?;
    Some(expected)
}

fn place_of(path: &Path) -> Vec<String> {
    // The path is lost from an unknown segment on, as inside an untagged enum: the parent is the best name there is.
    let known = path.iter().map_while(|segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Unknown => None,
    });
    known.collect()
}

/// Puts a value where the fault is that goes through, and gives the fault that is met then. `None`: there is no such value, or no fault.
fn mend<T: DeserializeOwned>(spec: &mut Value, fault: &Fault) -> Option<Fault> {
    let (last, parents) = fault.place.split_last()?;
    let pointer: String = parents
        .iter()
        .map(|place| format!("/{}", place.replace('~', "~0").replace('/', "~1")))
        .collect();
    let parent = spec.pointer_mut(&pointer)?;
    if fault.kind == Kind::Unknown {
        parent.as_object_mut()?.remove(last);
        return attempt::<T>(spec).err();
    }
    let mut values: VecDeque<Value> = named(&fault.text)
        .into_iter()
        .chain(PLAIN.iter().map(|plain| plain()))
        .collect();
    let mut is_named = false;
    while let Some(value) = values.pop_front() {
        let parent = spec.pointer_mut(&pointer)?;
        match parent {
            Value::Object(fields) => drop(fields.insert(last.clone(), value)),
            Value::Array(items) => *items.get_mut(last.parse::<usize>().ok()?)? = value,
            _ => return None,
        }
        match attempt::<T>(spec) {
            Ok(_) => return None,
            Err(next) if next.place != fault.place => return Some(next),
            // An enum tells its values only when it is given one that is not its.
            Err(next) if !is_named => {
                let value = named(&next.text);
                is_named = value.is_some();
                values.extend(value);
            }
            Err(_) => {}
        }
    }
    None
}

/// Values of every kind.
const PLAIN: [fn() -> Value; 8] = [
    || Value::Null,
    || Value::from(""),
    || Value::from(1),
    || Value::from(false),
    || Value::Array(Vec::new()),
    || Value::Object(serde_json::Map::new()),
    || Value::from("1s"),
    || Value::from(0.5),
];

/// The first value that serde itself names, as of an enum.
fn named(text: &str) -> Option<Value> {
    text.split('`').nth(1).map(Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(serde::Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the shape matters")]
    struct Spec {
        size: Size,
        region: String,
        count: u32,
        disks: Vec<Disk>,
        #[serde(default)]
        note: Option<String>,
    }

    #[derive(serde::Deserialize, Debug)]
    #[serde(rename_all = "lowercase")]
    enum Size {
        Small,
        Large,
    }

    #[derive(serde::Deserialize, Debug)]
    #[expect(dead_code, reason = "only the shape matters")]
    struct Disk {
        #[serde(rename = "size/GiB")]
        size: u32,
        kind: Nested,
    }

    #[derive(serde::Deserialize, Debug)]
    #[expect(dead_code, reason = "only the shape matters")]
    struct Nested {
        name: String,
        pace: u64,
    }

    fn faults(spec: &Value) -> Vec<(String, String)> {
        let faults = read::<Spec>(spec).expect_err("it has faults");
        faults.into_iter().map(|fault| (fault.field, fault.reason)).collect()
    }

    fn told(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(field, reason)| ((*field).to_owned(), (*reason).to_owned()))
            .collect()
    }

    #[test]
    fn an_empty_spec_lacks_every_required_field() {
        let mut found = faults(&json!({}));
        found.sort();
        let lacking = told(&[
            ("/count", "REQUIRED"),
            ("/disks", "REQUIRED"),
            ("/region", "REQUIRED"),
            ("/size", "REQUIRED"),
        ]);
        assert_eq!(found, lacking);
    }

    #[test]
    fn every_fault_is_named_once_by_its_pointer() {
        let spec = json!({
            "size": "huge",
            "region": 7,
            "count": -3,
            "disks": [{ "size/GiB": "x", "kind": { "name": 1, "pace": 1 } }, {}, { "size/GiB": 1, "kind": 5 }],
            "note": [],
            "more": 1,
        });
        let mut found = faults(&spec);
        found.sort();
        let mut all = told(&[
            ("/size", "INVALID_VALUE"),
            ("/region", "INVALID_VALUE"),
            ("/count", "INVALID_VALUE"),
            ("/disks/0/size~1GiB", "INVALID_VALUE"),
            ("/disks/0/kind/name", "INVALID_VALUE"),
            ("/disks/1/size~1GiB", "REQUIRED"),
            ("/disks/1/kind", "REQUIRED"),
            ("/disks/2/kind", "INVALID_VALUE"),
            ("/note", "INVALID_VALUE"),
            ("/more", "UNKNOWN_FIELD"),
        ]);
        all.sort();
        assert_eq!(found, all);
    }

    #[test]
    fn no_value_of_the_spec_is_repeated() {
        let spec = json!({ "size": "canary", "region": ["canary"], "count": "canary", "disks": "canary" });
        let faults = read::<Spec>(&spec).expect_err("it has faults");
        assert_eq!(faults.len(), 4, "{faults:?}");
        assert!(!format!("{faults:?}").contains("canary"), "{faults:?}");
    }

    #[test]
    fn a_spec_that_is_no_object_has_one_fault() {
        for spec in [json!("x"), json!(null)] {
            assert_eq!(faults(&spec), told(&[("", "INVALID_VALUE")]));
        }
    }

    #[test]
    fn a_good_spec_is_read() {
        let spec = json!({ "size": "small", "region": "moon", "count": 1, "disks": [] });
        read::<Spec>(&spec).expect("it is good");
    }
}
