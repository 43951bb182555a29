//! `providerSpec` of `provider: virtual`: its shape, its schema and every fault of a given one at once.
//!
//! The schema is derived from [`Spec`]; the reading is by hand, field by field, because a derived reader stops at the
//! first fault and a person who writes a class wants to hear of all of them.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use millwright_provider_sdk::{Violation, parse_duration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{fault::Fault, size::Size};

/// What a VM of the virtual cloud is made of.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Spec {
    /// Size: small, medium or large.
    pub(crate) instance_type: String,
    /// Region, any name.
    pub(crate) region: String,
    /// Zone within the region, any name.
    pub(crate) zone: String,
    /// Delays of VMs of this class where they differ from the provider's flags.
    #[schemars(default)]
    pub(crate) delays: DelayOverrides,
    /// Faults to play, for tests of what depends on a driver.
    #[schemars(default)]
    pub(crate) faults: Vec<Fault>,
}

/// Delays of a class's VMs. What is absent comes from the provider's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelayOverrides {
    /// From accepted to running.
    #[serde(default)]
    pub(crate) create: Option<Span>,
    /// From running to the node's registration.
    #[serde(default)]
    pub(crate) join: Option<Span>,
    /// From the accepted deletion to gone.
    #[serde(default)]
    pub(crate) delete: Option<Span>,
}

/// A duration as people write it: `1s`, `500ms`, `1m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "A duration such as 1s, 500ms or 1m30s.", "minLength": 2 })
    }
}

const FIELDS: [&str; 5] = ["instanceType", "region", "zone", "delays", "faults"];
/// Region and zone become parts of a provider id and of label values.
const PLACE_MAX: usize = 63;

impl Spec {
    /// Reads a spec, or names everything that is wrong with it.
    pub(crate) fn read(value: &Value) -> Result<Self, Vec<Violation>> {
        let Some(fields) = value.as_object() else {
            return Err(vec![fault("", "INVALID_VALUE", "must be an object")]);
        };
        let mut reader = Reader {
            fields,
            faults: Vec::new(),
        };
        reader.refuse_unknown();
        let instance_type = reader.required_text("instanceType");
        let region = reader.place("region");
        let zone = reader.place("zone");
        let delays = reader.optional("delays").unwrap_or_default();
        let faults = reader.scripted_faults();
        match (instance_type, region, zone, reader.faults.is_empty()) {
            (Some(instance_type), Some(region), Some(zone), true) => Ok(Self {
                instance_type,
                region,
                zone,
                delays,
                faults,
            }),
            _ => Err(reader.faults),
        }
    }

    /// The size that the spec asks for.
    pub(crate) fn size(&self) -> Result<&'static Size, Violation> {
        Size::named(&self.instance_type).ok_or_else(|| {
            let text = format!("there is no {:?}; offered are {}", self.instance_type, Size::names());
            fault("/instanceType", "NOT_OFFERED", text)
        })
    }
}

/// Specs that are valid as they are.
pub(crate) fn examples() -> BTreeMap<String, Value> {
    let small = json!({ "instanceType": "small", "region": "moon", "zone": "moon-a" });
    let slow = json!({
        "instanceType": "large",
        "region": "moon",
        "zone": "moon-a",
        "delays": { "create": "30s", "join": "1m", "delete": "10s" },
    });
    let faulty = json!({
        "instanceType": "medium",
        "region": "moon",
        "zone": "moon-b",
        "faults": [
            { "call": "CreateMachine", "nth": 2, "error": "CAPACITY_UNAVAILABLE" },
            { "call": "DeleteMachine", "every": 3, "lateAnswer": "3s" },
        ],
    });
    let named = [("small", small), ("slow", slow), ("faulty", faulty)];
    named.into_iter().map(|(name, spec)| (name.to_owned(), spec)).collect()
}

/// Reads fields and collects what is wrong with them.
struct Reader<'a> {
    fields: &'a Map<String, Value>,
    faults: Vec<Violation>,
}

impl Reader<'_> {
    fn refuse_unknown(&mut self) {
        for name in self.fields.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
            let text = format!("is not a field; known are {}", FIELDS.join(", "));
            self.faults.push(fault(&pointer("", name), "UNKNOWN_FIELD", text));
        }
    }

    fn required_text(&mut self, name: &str) -> Option<String> {
        if !self.fields.contains_key(name) {
            self.faults.push(fault(&pointer("", name), "REQUIRED", "is required"));
            return None;
        }
        let text: String = self.optional(name)?;
        if text.is_empty() {
            self.faults
                .push(fault(&pointer("", name), "REQUIRED", "must not be empty"));
            return None;
        }
        Some(text)
    }

    fn place(&mut self, name: &str) -> Option<String> {
        let text = self.required_text(name)?;
        let is_label = text.len() <= PLACE_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_label {
            let text = format!("must be letters, digits and '-', at most {PLACE_MAX}");
            self.faults.push(fault(&pointer("", name), "INVALID_VALUE", text));
            return None;
        }
        Some(text)
    }

    fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.fields.get(name)?;
        self.parse(&pointer("", name), value)
    }

    fn scripted_faults(&mut self) -> Vec<Fault> {
        let Some(entries) = self.optional::<Vec<Value>>("faults") else {
            return Vec::new();
        };
        let mut faults = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let place = format!("/faults/{at}");
            let Some(scripted) = self.parse::<Fault>(&place, entry) else {
                continue;
            };
            match scripted.check() {
                Ok(()) => faults.push(scripted),
                Err(text) => self.faults.push(fault(&place, "INVALID_VALUE", text)),
            }
        }
        faults
    }

    fn parse<T: DeserializeOwned>(&mut self, place: &str, value: &Value) -> Option<T> {
        match serde_path_to_error::deserialize(value) {
            Ok(read) => Some(read),
            Err(error) => {
                let place = error
                    .path()
                    .iter()
                    .fold(place.to_owned(), |place, segment| match segment {
                        serde_path_to_error::Segment::Seq { index } => format!("{place}/{index}"),
                        serde_path_to_error::Segment::Map { key } => pointer(&place, key),
                        serde_path_to_error::Segment::Enum { variant } => pointer(&place, variant),
                        serde_path_to_error::Segment::Unknown => place,
                    });
                // Without the value that was found: a person may have put a secret there.
                let said = error.inner().to_string();
                let text = match said.rsplit_once(", expected ") {
                    Some((_, expected)) => format!("must be {expected}"),
                    None => said,
                };
                self.faults.push(fault(&place, "INVALID_VALUE", text));
                None
            }
        }
    }
}

/// RFC 6901: `parent` and one more key.
fn pointer(parent: &str, key: &str) -> String {
    format!("{parent}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn fault(field: &str, reason: &str, description: impl Into<String>) -> Violation {
    Violation::error(field, reason, description)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_spec_is_named_at_once_by_its_pointer() {
        let bad = json!({
            "instanceType": 7,
            "region": "moon/a",
            "delays": { "join": "soon" },
            "faults": [{ "call": "CreateMachine", "panic": true }, { "call": "Nonsense", "exit": true }, { "call": "ListMachines" }],
            "si/ze": 1,
        });
        let faults = Spec::read(&bad).expect_err("nothing of it is right");
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        let expected = [
            "/si~1ze",
            "/instanceType",
            "/region",
            "/zone",
            "/delays/join",
            "/faults/1/call",
            "/faults/2",
        ];
        assert_eq!(fields, expected, "{faults:#?}");
    }

    #[test]
    fn every_example_is_valid_and_on_offer() {
        for (name, example) in examples() {
            let spec = Spec::read(&example).unwrap_or_else(|faults| panic!("{name}: {faults:?}"));
            spec.size().expect("the size is offered");
        }
    }

    #[test]
    fn the_schema_names_exactly_the_fields_that_are_read() {
        let schema = millwright_provider_sdk::schema_of::<Spec>();
        let mut named: Vec<_> = schema["properties"]
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        let mut read = FIELDS.to_vec();
        named.sort_unstable();
        read.sort_unstable();
        assert_eq!(named, read);
        assert_eq!(schema["required"], json!(["instanceType", "region", "zone"]));
        assert_eq!(schema["additionalProperties"], json!(false));
    }
}
