//! The recipe of a machine, and the way from its free-form spec to the author's own struct.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{NodeTemplate, Violation};
use crate::error::DriverError;
use crate::spec_faults;

/// The recipe of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MachineClass {
    /// The MachineClass object's name.
    pub name: String,
    /// The MachineClass object's namespace.
    pub namespace: String,
    /// The driver's name. The SDK has already refused classes of other drivers.
    pub provider: String,
    /// The class's `providerSpec`, an object. Integral numbers are integers again, although the wire has only doubles.
    ///
    /// In calls about a VM that was made before, it may be a part of the spec, or empty beside a `locator`: the class was edited or deleted
    /// since.
    pub provider_spec: Value,
    /// Labels of the MachineClass object.
    pub labels: BTreeMap<String, String>,
    /// What a person says in the MachineClass object that its nodes offer.
    pub node_template: Option<NodeTemplate>,
    /// Where the VMs of the call are: what [`ClassReport::locator`](crate::ClassReport::locator) said. Where it is set, it decides where to
    /// look, and not `provider_spec`.
    pub locator: Option<Map<String, Value>>,
    /// Tags by which an older controller marked the VMs of this cluster. A VM that bears all of them and no uid is the cluster's own, and the
    /// Machine's whose name it has. At most 16. Empty: there are no such VMs.
    pub legacy_marks: BTreeMap<String, String>,
}

impl MachineClass {
    /// The `providerSpec` as the author's own type.
    ///
    /// # Errors
    /// `INVALID_FIELD`, naming the path of every fault, as in `machine_class.provider_spec.disks[0].size`.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, DriverError> {
        self.parse_spec().map_err(DriverError::from)
    }

    /// As [`spec`](Self::spec), with the faults as `validate_machine_class` answers them.
    ///
    /// # Errors
    /// Every fault, with its RFC 6901 pointer into the spec. The spec's values are not repeated; a message of your own `Deserialize` is.
    pub fn parse_spec<T: DeserializeOwned>(&self) -> Result<T, Vec<Violation>> {
        spec_faults::read(&self.provider_spec)
    }

    /// The text of this field of the `locator`, or where there is no locator, of the spec: where to look for the VMs of the call.
    ///
    /// # Errors
    /// `CREDENTIALS_MISSING` if there is no such text, or an empty one.
    pub fn place(&self, field: &str) -> Result<&str, DriverError> {
        let (found, whose) = match &self.locator {
            Some(locator) => (locator.get(field), "locator"),
            None => (self.provider_spec.get(field), "provider_spec"),
        };
        let text = found.and_then(Value::as_str).filter(|text| !text.is_empty());
        text.ok_or_else(|| DriverError::credentials_missing(format!("machine_class.{whose}.{field}")))
    }
}

/// JSON Schema, draft 2020-12, of an author's spec type, for [`ClassSchema`](crate::ClassSchema).
pub fn schema_of<T: JsonSchema>() -> Value {
    SchemaGenerator::default().into_root_schema_for::<T>().to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(serde::Deserialize, JsonSchema, Debug)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the shape matters")]
    struct Spec {
        disks: Vec<Disk>,
    }

    #[derive(serde::Deserialize, JsonSchema, Debug)]
    #[expect(dead_code, reason = "only the shape matters")]
    struct Disk {
        #[serde(rename = "size/GiB")]
        size: u32,
    }

    fn class(provider_spec: Value) -> MachineClass {
        MachineClass {
            provider_spec,
            ..MachineClass::default()
        }
    }

    #[test]
    fn a_fault_in_the_spec_is_named_by_its_pointer_and_not_by_its_value() {
        let faults = class(json!({"disks": [{"size/GiB": 1}, {"size/GiB": -3}]}))
            .parse_spec::<Spec>()
            .unwrap_err();
        assert_eq!(faults[0].field, "/disks/1/size~1GiB");
        assert_eq!(faults[0].description, "must be u32");
    }

    #[test]
    fn every_fault_in_the_spec_is_in_one_invalid_field_error_with_its_path() {
        let error = class(json!({"disks": [{"size/GiB": "x"}, {}]}))
            .spec::<Spec>()
            .unwrap_err();
        let crate::Reason::InvalidField { violations } = error.reason() else {
            panic!("{error:?}")
        };
        let fields: Vec<_> = violations.iter().map(|violation| violation.field.as_str()).collect();
        let [first, second] = [0, 1].map(|n| format!("machine_class.provider_spec.disks[{n}].size/GiB"));
        assert_eq!(fields, [first, second]);
    }

    #[test]
    fn a_place_is_what_the_locator_says_and_without_one_what_the_spec_says() {
        let mut class = class(json!({"region": "mars", "zone": ""}));
        assert_eq!(class.place("region").unwrap(), "mars");
        assert_eq!(
            class.place("zone").unwrap_err().reason().name(),
            Some("CREDENTIALS_MISSING")
        );
        class.locator = json!({"region": "moon"}).as_object().cloned();
        assert_eq!(class.place("region").unwrap(), "moon");
        let error = class.place("account").unwrap_err();
        assert!(error.message().contains("machine_class.locator.account"), "{error}");
    }

    #[test]
    fn the_schema_of_a_spec_is_draft_2020_12() {
        let schema = schema_of::<Spec>();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["additionalProperties"], false);
    }
}
