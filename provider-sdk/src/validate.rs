//! What every request must be before the author's code sees it: required fields and sizes of `driver.proto`.
//!
//! Decides nothing about a provider. Finds all faults of a request at once and names each by its path, as in `key.uid`.
//! Never repeats a value: it may be a secret.

use std::collections::BTreeMap;

use millwright_proto::v1;
use prost_types::Struct;
use serde_json::Value;

use crate::error::DriverError;
use crate::reason::FieldViolation;
use crate::translate;

const STRING_MAX: usize = 256;
const MAP_MAX: usize = 64;
/// A DNS-1123 subdomain's length.
const NAME_MAX: usize = 253;
const UID_LEN: usize = 36;
const DIGEST_LEN: usize = 64;
const CLUSTER_ID_MAX: usize = 63;
const PROVIDER_ID_MAX: usize = 512;
const PROVIDER_SPEC_MAX: usize = 256 * 1024;
const SECRET_DATA_MAX: usize = 128 * 1024;
const USER_DATA_MAX: usize = 64 * 1024;
pub(crate) const LAST_KNOWN_STATE_MAX: usize = 4 * 1024;
pub(crate) const TOKEN_MAX: usize = 4 * 1024;
const TAGS_MAX: usize = 16;
const TAG_KEY_MAX: usize = 63;
const TAG_VALUE_MAX: usize = 63;
const LEGACY_MARKS_MAX: usize = 16;
/// Labels and annotations of an object, together.
const METADATA_MAX: usize = 256 * 1024;
pub(crate) const LOCATOR_MAX: usize = 4 * 1024;
/// The longest prefix of a label's key, and the longest name after it or value.
const LABEL_PREFIX_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Checks requests for a driver of this name.
pub(crate) struct Validator<'a> {
    driver: &'a str,
    faults: Vec<FieldViolation>,
}

impl<'a> Validator<'a> {
    /// For the driver of this name.
    pub(crate) fn new(driver: &'a str) -> Self {
        Self {
            driver,
            faults: Vec::new(),
        }
    }

    pub(crate) fn create_machine(mut self, request: &v1::CreateMachineRequest) -> Result<(), DriverError> {
        self.key(request.key.as_ref(), true);
        self.class(request.machine_class.as_ref());
        // Only what is made is made of a class; elsewhere its name says nothing.
        if let Some(class) = &request.machine_class {
            self.required("machine_class.name", &class.name, STRING_MAX);
            self.required("machine_class.namespace", &class.namespace, STRING_MAX);
        }
        self.secrets(&request.secret_data);
        self.size("user_data", request.user_data.len(), USER_DATA_MAX);
        self.tags(&request.tags);
        self.node_metadata(&request.node_labels, &request.node_annotations);
        self.digest(&request.spec_digest);
        self.size("last_known_state", request.last_known_state.len(), LAST_KNOWN_STATE_MAX);
        self.verdict()
    }

    pub(crate) fn initialize_machine(mut self, request: &v1::InitializeMachineRequest) -> Result<(), DriverError> {
        self.key(request.key.as_ref(), true);
        self.size("provider_id", request.provider_id.len(), PROVIDER_ID_MAX);
        self.class(request.machine_class.as_ref());
        self.secrets(&request.secret_data);
        self.size("last_known_state", request.last_known_state.len(), LAST_KNOWN_STATE_MAX);
        self.verdict()
    }

    pub(crate) fn delete_machine(mut self, request: &v1::DeleteMachineRequest) -> Result<(), DriverError> {
        // A VM of an older controller bears no uid; then only its id names it.
        self.key(request.key.as_ref(), request.provider_id.is_empty());
        self.size("provider_id", request.provider_id.len(), PROVIDER_ID_MAX);
        self.class(request.machine_class.as_ref());
        self.secrets(&request.secret_data);
        self.size("last_known_state", request.last_known_state.len(), LAST_KNOWN_STATE_MAX);
        self.verdict()
    }

    pub(crate) fn get_machine_status(mut self, request: &v1::GetMachineStatusRequest) -> Result<(), DriverError> {
        self.key(request.key.as_ref(), true);
        self.size("provider_id", request.provider_id.len(), PROVIDER_ID_MAX);
        self.class(request.machine_class.as_ref());
        self.secrets(&request.secret_data);
        self.verdict()
    }

    pub(crate) fn list_machines(mut self, request: &v1::ListMachinesRequest) -> Result<(), DriverError> {
        self.cluster_id("cluster_id", &request.cluster_id);
        self.class(request.machine_class.as_ref());
        self.secrets(&request.secret_data);
        if request.page_size < 0 {
            self.fault("page_size", "is negative");
        }
        self.size("page_token", request.page_token.len(), TOKEN_MAX);
        self.verdict()
    }

    pub(crate) fn watch_machines(mut self, request: &v1::WatchMachinesRequest) -> Result<(), DriverError> {
        self.cluster_id("cluster_id", &request.cluster_id);
        self.class(request.machine_class.as_ref());
        self.secrets(&request.secret_data);
        self.size("resume_token", request.resume_token.len(), TOKEN_MAX);
        self.verdict()
    }

    pub(crate) fn validate_machine_class(
        mut self,
        request: &v1::ValidateMachineClassRequest,
    ) -> Result<(), DriverError> {
        self.class(request.machine_class.as_ref());
        self.secrets(&request.secret_data);
        self.verdict()
    }

    pub(crate) fn get_node_template(mut self, request: &v1::GetNodeTemplateRequest) -> Result<(), DriverError> {
        self.class(request.machine_class.as_ref());
        self.secrets(&request.secret_data);
        self.verdict()
    }

    fn key(&mut self, key: Option<&v1::MachineKey>, uid_required: bool) {
        let Some(key) = key else {
            return self.fault("key", "is required");
        };
        self.cluster_id("key.cluster_id", &key.cluster_id);
        self.required("key.namespace", &key.namespace, NAME_MAX);
        self.required("key.name", &key.name, NAME_MAX);
        if key.name.len() <= NAME_MAX && !key.name.is_empty() && !is_dns_subdomain(&key.name) {
            self.fault("key.name", "is not a DNS-1123 subdomain");
        }
        if key.uid.is_empty() {
            if uid_required {
                self.fault("key.uid", "is required");
            }
        } else if !is_uuid(&key.uid) {
            self.fault("key.uid", "is not a UUID of 36 characters");
        }
    }

    fn cluster_id(&mut self, field: &str, id: &str) {
        self.required(field, id, CLUSTER_ID_MAX);
        if !id.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
            self.fault(field, "has characters outside [a-z0-9-]");
        }
    }

    fn class(&mut self, class: Option<&v1::MachineClass>) {
        let Some(class) = class else {
            return self.fault("machine_class", "is required");
        };
        self.size("machine_class.name", class.name.len(), STRING_MAX);
        self.size("machine_class.namespace", class.namespace.len(), STRING_MAX);
        self.required("machine_class.provider", &class.provider, STRING_MAX);
        if !class.provider.is_empty() && class.provider != self.driver {
            self.fault(
                "machine_class.provider",
                format!("is of another driver: this one is {:?}", self.driver),
            );
        }
        match (&class.provider_spec, &class.locator) {
            // A VM whose class is gone is found by the locator alone.
            (None, Some(_)) => {}
            (None, None) => self.fault("machine_class.provider_spec", "is required"),
            (Some(spec), _) => self.json("machine_class.provider_spec", spec, PROVIDER_SPEC_MAX),
        }
        if let Some(locator) = &class.locator {
            self.json("machine_class.locator", locator, LOCATOR_MAX);
        }
        self.labels("machine_class.labels", &class.labels);
        self.size("machine_class.labels", bytes_of(&class.labels), METADATA_MAX);
        if let Some(template) = &class.node_template {
            self.node_template(template);
        }
        self.strings("machine_class.legacy_marks", &class.legacy_marks, LEGACY_MARKS_MAX);
        if class.legacy_marks.contains_key("") {
            self.fault("machine_class.legacy_marks", "has an empty key");
        }
    }

    fn json(&mut self, field: &str, object: &Struct, max: usize) {
        let Some(json) = translate::json_object(object) else {
            return self.fault(field, "holds a number that is not finite");
        };
        self.size(field, Value::Object(json).to_string().len(), max);
    }

    fn node_template(&mut self, template: &v1::NodeTemplate) {
        let field = |name: &str| format!("machine_class.node_template.{name}");
        self.strings(&field("capacity"), &template.capacity, MAP_MAX);
        self.strings(&field("allocatable"), &template.allocatable, MAP_MAX);
        self.labels(&field("labels"), &template.labels);
        self.size(&field("labels"), bytes_of(&template.labels), METADATA_MAX);
        let texts = [
            ("instance_type", &template.instance_type),
            ("region", &template.region),
            ("zone", &template.zone),
            ("architecture", &template.architecture),
            ("operating_system", &template.operating_system),
        ];
        for (name, text) in texts {
            self.size(&field(name), text.len(), STRING_MAX);
        }
        if let Some(price) = &template.hourly_price {
            self.size(
                &field("hourly_price.currency_code"),
                price.currency_code.len(),
                STRING_MAX,
            );
        }
    }

    /// Labels and annotations of the node to be, of which only their sum is bounded.
    fn node_metadata(&mut self, labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) {
        self.labels("node_labels", labels);
        // Kubernetes tells annotations apart as they are written, and checks their keys in lower case.
        if annotations.keys().any(|key| !is_label_key(&key.to_lowercase())) {
            self.fault("node_annotations", "has a key that Kubernetes does not allow");
        }
        let size = bytes_of(labels) + bytes_of(annotations);
        if size > METADATA_MAX {
            let text = format!("are {size} bytes long with node_labels, at most {METADATA_MAX} are allowed");
            self.fault("node_annotations", text);
        }
    }

    fn labels(&mut self, field: &str, labels: &BTreeMap<String, String>) {
        if labels.keys().any(|key| !is_label_key(key)) {
            self.fault(field, "has a key that Kubernetes does not allow");
        }
        if labels.values().any(|value| !is_label_value(value)) {
            self.fault(field, "has a value that Kubernetes does not allow");
        }
    }

    fn strings(&mut self, field: &str, map: &BTreeMap<String, String>, max: usize) {
        self.entries(field, map.len(), max);
        let is_long = |text: &String| text.len() > STRING_MAX;
        if map.iter().any(|(key, value)| is_long(key) || is_long(value)) {
            self.fault(field, format!("has a key or value of more than {STRING_MAX} bytes"));
        }
    }

    fn secrets(&mut self, secrets: &BTreeMap<String, Vec<u8>>) {
        self.entries("secret_data", secrets.len(), MAP_MAX);
        if secrets.keys().any(|key| key.len() > STRING_MAX) {
            self.fault("secret_data", format!("has a key of more than {STRING_MAX} bytes"));
        }
        let size = secrets.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.size("secret_data", size, SECRET_DATA_MAX);
    }

    fn tags(&mut self, tags: &BTreeMap<String, String>) {
        self.entries("tags", tags.len(), TAGS_MAX);
        for (key, value) in tags.iter().take(TAGS_MAX) {
            let field = format!("tags.{key}");
            let legal = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'/');
            if key.is_empty() || key.len() > TAG_KEY_MAX || !key.bytes().all(legal) {
                self.fault(
                    &field,
                    format!("has a key that is not 1 to {TAG_KEY_MAX} characters of [a-z0-9-./]"),
                );
            }
            self.size(&field, value.len(), TAG_VALUE_MAX);
        }
    }

    fn digest(&mut self, digest: &str) {
        let is_hex = digest.len() == DIGEST_LEN && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !digest.is_empty() && !is_hex {
            self.fault("spec_digest", "is no SHA-256 in 64 lower-case hex digits");
        }
    }

    fn required(&mut self, field: &str, value: &str, max: usize) {
        if value.is_empty() {
            return self.fault(field, "is required");
        }
        self.size(field, value.len(), max);
    }

    fn size(&mut self, field: &str, size: usize, max: usize) {
        if size > max {
            self.fault(field, format!("is {size} bytes long, at most {max} are allowed"));
        }
    }

    fn entries(&mut self, field: &str, count: usize, max: usize) {
        if count > max {
            self.fault(field, format!("has {count} entries, at most {max} are allowed"));
        }
    }

    fn fault(&mut self, field: &str, description: impl Into<String>) {
        self.faults.push(FieldViolation::new(field, description));
    }

    fn verdict(self) -> Result<(), DriverError> {
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(DriverError::invalid_fields(self.faults))
        }
    }
}

fn bytes_of(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// A name of at most 63 characters, after a DNS subdomain and `/` if it has a prefix.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_prefix = |prefix: &str| prefix.len() <= LABEL_PREFIX_MAX && is_dns_subdomain(prefix);
    prefix.is_none_or(is_prefix) && !name.is_empty() && is_label_value(name)
}

/// Up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_label_value(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    value.len() <= LABEL_MAX
        && value.bytes().all(inner)
        && outer(value.bytes().next())
        && outer(value.bytes().next_back())
}

pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.split('.').all(|label| {
        label.bytes().all(|byte| inner(byte) || byte == b'-')
            && label.bytes().next().is_some_and(inner)
            && label.bytes().next_back().is_some_and(inner)
    })
}

fn is_uuid(uid: &str) -> bool {
    uid.len() == UID_LEN
        && uid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
#[path = "validate_test.rs"]
mod tests;
