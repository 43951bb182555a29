//! The recipe of a machine, and the way from its free-form spec to the author's own struct.

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::{Severity, Violation};
use crate::error::DriverError;

/// The recipe of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineClass {
    /// The MachineClass object's name.
    pub name: String,
    /// The MachineClass object's namespace.
    pub namespace: String,
    /// The driver's name. The SDK has already refused classes of other drivers.
    pub provider: String,
    /// The class's `providerSpec`, an object. Integral numbers are integers again, although the wire has only doubles.
    pub provider_spec: Value,
}

impl MachineClass {
    /// The `providerSpec` as the author's own type.
    ///
    /// # Errors
    /// `INVALID_FIELD`, naming the path of the first fault, as in `machine_class.provider_spec.disks[0].size`.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, DriverError> {
        self.parse_spec().map_err(DriverError::from)
    }

    /// As [`spec`](Self::spec), with the fault as `validate_machine_class` answers it.
    ///
    /// # Errors
    /// The first fault, with its RFC 6901 pointer into the spec.
    pub fn parse_spec<T: DeserializeOwned>(&self) -> Result<T, Violation> {
        serde_path_to_error::deserialize(&self.provider_spec).map_err(|error| Violation {
            field: pointer(error.path()),
            severity: Severity::Error,
            reason: "INVALID_VALUE".to_owned(),
            description: error.inner().to_string(),
        })
    }
}

/// JSON Schema, draft 2020-12, of an author's spec type, for [`ClassSchema`](crate::ClassSchema).
pub fn schema_of<T: JsonSchema>() -> Value {
    SchemaGenerator::default().into_root_schema_for::<T>().to_value()
}

/// RFC 6901 pointer of a path in the spec.
fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        pointer.push('/');
        match segment {
            Segment::Seq { index } => pointer.push_str(&index.to_string()),
            Segment::Map { key } => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => pointer.push_str(variant),
            // The path is lost from here on, as inside an untagged enum: the parent is the best name there is.
            Segment::Unknown => {
                pointer.pop();
                break;
            }
        }
    }
    pointer
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
    fn a_fault_in_the_spec_is_named_by_its_pointer() {
        let fault = class(json!({"disks": [{"size/GiB": 1}, {"size/GiB": -3}]}))
            .parse_spec::<Spec>()
            .unwrap_err();
        assert_eq!(fault.field, "/disks/1/size~1GiB");
        assert!(fault.description.contains("-3"), "{}", fault.description);
    }

    #[test]
    fn a_fault_in_the_spec_is_an_invalid_field_error_with_a_path() {
        let error = class(json!({"disks": [{"size/GiB": "x"}]})).spec::<Spec>().unwrap_err();
        let crate::Reason::InvalidField { violations } = error.reason() else {
            panic!("{error:?}")
        };
        assert_eq!(violations[0].field, "machine_class.provider_spec.disks[0].size/GiB");
    }

    #[test]
    fn the_schema_of_a_spec_is_draft_2020_12() {
        let schema = schema_of::<Spec>();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["additionalProperties"], false);
    }
}
