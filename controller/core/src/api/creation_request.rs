//! What a VM was asked for with: the record by which it is called for the rest of its life. Decides nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::machine_class::{MachineClass, SecretRef, free_form};
use super::{lenient, meta, previous};
use crate::ids::{DriverName, SecretKey};
use crate::provider_spec;

/// The essentials of a MachineClass at the time when a VM was asked for: where to look for the VM, and with which credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CreationRequest {
    /// Name of the driver.
    #[serde(deserialize_with = "lenient::field")]
    pub provider: String,
    /// The class's providerSpec: region, zone, project and the like. Of one with more than 4 KiB as much as fits, without long texts and
    /// from the outside in.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "free_form")]
    pub provider_spec: Value,
    /// The class's Secrets, in the order in which they are laid over each other. What they hold now is sent with each call.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub secret_refs: Vec<SecretRef>,
    /// What the driver calls the VMs that were reached with this: a VM is missing where a list of these lacks it. Absent: it did not say.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub inventory_key: Option<String>,
    /// What the driver said of where the VMs of the class are. It is sent with each later call. Absent: the driver said nothing.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "free_form")]
    pub locator: Value,
}

impl CreationRequest {
    /// The longest inventory key that is kept.
    const LONGEST_KEY: usize = 256;

    /// The essentials of a class whose driver gave that key.
    pub fn of(class: &MachineClass, inventory_key: Option<&str>) -> Self {
        let own = meta::namespace(&class.metadata);
        let named = |reference: &SecretRef| SecretRef {
            namespace: Some(
                reference
                    .namespace
                    .clone()
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(|| own.to_owned()),
            ),
            ..reference.clone()
        };
        let key = inventory_key.filter(|key| !key.is_empty() && key.len() <= Self::LONGEST_KEY);
        Self {
            provider: class.spec.provider.clone().unwrap_or_default(),
            provider_spec: provider_spec::essentials(&class.spec.provider_spec),
            secret_refs: class.secret_refs().map(named).collect(),
            inventory_key: key.map(str::to_owned),
            locator: Value::Null,
        }
    }

    /// The same, with what the driver said of where the VMs of the class are.
    pub fn at(self, locator: Option<Value>) -> Self {
        Self {
            locator: locator.unwrap_or_default(),
            ..self
        }
    }

    /// The same, asked of that driver: a class may name none.
    pub fn by(self, driver: &DriverName) -> Self {
        Self {
            provider: driver.to_string(),
            ..self
        }
    }

    /// The driver.
    pub fn driver(&self) -> Option<DriverName> {
        DriverName::non_empty(Some(&self.provider))
    }

    /// The class's Secrets.
    pub fn secret_keys(&self) -> Vec<SecretKey> {
        self.secret_refs.iter().filter_map(SecretRef::key).collect()
    }

    /// Whether both ask for the same. What the driver said is not compared, because one of them may lack it. A class that names no driver says
    /// nothing against the one that was asked.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_near = |one: &Self, other: &Self| {
            one.provider_spec == other.provider_spec || previous::is_request_for(one, &other.provider_spec)
        };
        let is_of_driver = other.provider.is_empty() || self.provider == other.provider;
        is_of_driver && self.secret_refs == other.secret_refs && is_near(self, other)
    }

    /// Whether VMs that were asked for with both are in one place, as far as the driver has said.
    pub fn has_same_place(&self, other: &Self) -> bool {
        self.locator.is_null() || other.locator.is_null() || self.locator == other.locator
    }

    /// Names all VMs that are reached with this: the driver's own name for them, or, where it has none, what is sent to reach them.
    pub fn inventory(&self) -> String {
        if let Some(key) = &self.inventory_key {
            return format!("{}/{key}", self.provider);
        }
        let asked = match &self.locator {
            Value::Null => serde_json::json!([self.provider_spec, self.secret_refs]),
            place => serde_json::json!([self.provider_spec, self.secret_refs, place]),
        };
        let digest = provider_spec::hex(&Sha256::digest(provider_spec::canonical(&asked).as_bytes()));
        format!("{}#{}", self.provider, digest.get(..16).unwrap_or(&digest))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(spec: &Value, secret: &str) -> MachineClass {
        let class = json!({
            "metadata": {"name": "small", "namespace": "test"},
            "provider": "virtual", "providerSpec": spec, "secretRef": {"name": secret},
        });
        serde_json::from_value(class).expect("it is a class")
    }

    /// Rows: D2.
    #[test]
    fn what_is_kept_of_a_class_holds_its_nested_fields_and_comes_back_from_the_api_server() {
        let spec = json!({"spec": {"region": "b", "networks": [{"id": "n"}]}, "unset": null});
        let request = CreationRequest::of(&class(&spec, "cred"), Some("account/b")).at(Some(json!({"region": "b"})));
        assert_eq!(
            request.provider_spec,
            json!({"spec": {"region": "b", "networks": [{"id": "n"}]}})
        );
        let stored: CreationRequest = serde_json::from_value(json!(request)).expect("it is one");
        assert_eq!(stored, request);
    }

    #[test]
    fn who_reaches_the_same_vms_has_the_same_inventory() {
        let of = |region: &str, key: Option<&str>| {
            let spec = json!({"region": region});
            CreationRequest::of(&class(&spec, "cred"), key).inventory()
        };
        assert_eq!(
            of("a", Some("one")),
            of("b", Some("one")),
            "the driver gives both one inventory key"
        );
        assert_eq!(of("a", None), of("a", None));
        let at = |place: &str| {
            let request = CreationRequest::of(&class(&json!({}), "cred"), None);
            request.at(Some(json!({ "region": place })))
        };
        assert_ne!(
            at("a").inventory(),
            at("b").inventory(),
            "the driver says that they are elsewhere"
        );
        assert!(at("a").is_same(&at("b")) && !at("a").has_same_place(&at("b")));
        assert_ne!(of("a", None), of("b", None), "no inventory key says that both are one");
    }

    #[test]
    fn what_was_asked_of_a_driver_is_what_a_class_without_one_says() {
        let mut class = class(&json!({"region": "a"}), "cred");
        let named = CreationRequest::of(&class, None);
        class.spec.provider = None;
        let unnamed = CreationRequest::of(&class, None);
        assert!(named.is_same(&unnamed));
        assert!(!unnamed.is_same(&named), "nothing was asked of that driver");
        assert_eq!(unnamed.by(&DriverName::new("virtual")), named);
        class.spec.provider = Some("other".to_owned());
        assert!(!named.is_same(&CreationRequest::of(&class, None)));
    }

    /// The version before kept the plain texts at the top.
    #[test]
    fn what_the_version_before_kept_of_a_class_is_known_again() {
        let spec = json!({"region": "a", "size": 3, "network": {"id": "n"}});
        let now = CreationRequest::of(&class(&spec, "cred"), Some("account/a"));
        let before = CreationRequest {
            provider_spec: json!({"region": "a"}),
            inventory_key: None,
            locator: Value::Null,
            ..now.clone()
        };
        assert!(before.is_same(&now));
        let other = json!({"region": "b", "size": 3, "network": {"id": "n"}});
        assert!(!before.is_same(&CreationRequest::of(&class(&other, "cred"), None)));
        let nested = json!({"region": "a", "size": 3, "network": {"id": "m"}});
        assert!(!now.is_same(&CreationRequest::of(&class(&nested, "cred"), None)));
    }
}
