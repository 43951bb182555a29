//! The CustomResourceDefinitions of the four kinds. Decides what the API server admits.
//!
//! The rule: whatever the original's definitions admit, ours admit. What the derive adds on its own account (defaults, `nullable`, a
//! required `spec`) is taken away; what lets fields that we do not know survive is added. Only two things are refused that the
//! original stores, because nothing can come of them, and objects that are stored already are left alone: see [`refuse`].
//!
//! As YAML a definition is `serde_saphyr::to_string` of the typed value with that crate's default options: so it is in `deploy/crds/`
//! (kept by `tests/crds.rs`) and so the command `millwright crds` prints it. The writer is not called from here, as this crate writes no YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

use super::{Machine, MachineClass, MachineDeployment, MachineSet};

/// All four, in the order in which they are installed.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![machine_class(), machine(), machine_set(), machine_deployment()]
}

fn machine_class() -> CustomResourceDefinition {
    let mut crd = plain(MachineClass::crd(), "MachineClassList");
    let root = root(&mut crd);
    root.x_kubernetes_preserve_unknown_fields = Some(true);
    require(root, &["providerSpec"]);
    let node_template = property(root, "nodeTemplate");
    node_template.x_kubernetes_preserve_unknown_fields = Some(true);
    require(node_template, &["capacity", "instanceType", "region", "zone"]);
    crd
}

fn machine() -> CustomResourceDefinition {
    plain(Machine::crd(), "MachineList")
}

fn machine_set() -> CustomResourceDefinition {
    let mut crd = plain(MachineSet::crd(), "MachineSetList");
    scalable(&mut crd);
    condition_of(&mut crd, "machineSetCondition");
    crd
}

fn machine_deployment() -> CustomResourceDefinition {
    let mut crd = plain(MachineDeployment::crd(), "MachineDeploymentList");
    require(property(root(&mut crd), "spec"), &["template"]);
    scalable(&mut crd);
    condition_of(&mut crd, "conditions");
    crd
}

/// The derived definition without the derive's own opinions.
fn plain(mut crd: CustomResourceDefinition, list: &str) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(list.to_owned());
    let root = root(&mut crd);
    admit(root);
    // The original requires neither: an object without a spec is stored.
    root.required = None;
    for part in ["spec", "status"] {
        if let Some(part) = root.properties.as_mut().and_then(|fields| fields.get_mut(part)) {
            part.x_kubernetes_preserve_unknown_fields = Some(true);
        }
    }
    crd
}

/// Takes away, at every depth, what the derive says from Rust's point of view: a default would change stored objects, and `nullable`
/// would store a null that is otherwise dropped.
fn admit(schema: &mut JSONSchemaProps) {
    schema.default = None;
    schema.nullable = None;
    for field in schema.properties.iter_mut().flat_map(|fields| fields.values_mut()) {
        admit(field);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(entry)) => admit(entry),
        Some(JSONSchemaPropsOrArray::Schemas(entries)) => entries.iter_mut().for_each(admit),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        admit(value);
    }
}

/// The parts that sets and deployments share.
fn scalable(crd: &mut CustomResourceDefinition) {
    let spec = property(root(crd), "spec");
    // Without the field `/scale` answers 500, and Go writers drop a 0 (`spec/api.md` §7).
    property(spec, "replicas").default = Some(JSON(0.into()));
    refuse(
        spec,
        "has(self.selector)",
        "!has(oldSelf.value().selector)",
        "a selector is needed: without one no object belongs to this one",
    );
    refuse(
        property(spec, "replicas"),
        "self >= 0",
        "oldSelf.value() < 0",
        "must not be negative",
    );
}

/// A condition without type or status says nothing; the original's schema refuses it.
fn condition_of(crd: &mut CustomResourceDefinition, field: &str) {
    match &mut property(property(root(crd), "status"), field).items {
        Some(JSONSchemaPropsOrArray::Schema(condition)) => require(condition, &["type", "status"]),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => unreachable!("a list of one type, kept by the golden files"),
    }
}

/// Refuses what can never work, unless the stored object is that way already: then somebody must still be able to change it.
fn refuse(schema: &mut JSONSchemaProps, rule: &str, already_broken: &str, message: &str) {
    let rule = ValidationRule {
        rule: format!("{rule} || (oldSelf.hasValue() && {already_broken})"),
        message: Some(message.to_owned()),
        optional_old_self: Some(true),
        ..ValidationRule::default()
    };
    schema.x_kubernetes_validations.get_or_insert_default().push(rule);
}

fn require(schema: &mut JSONSchemaProps, fields: &[&str]) {
    schema.required = Some(fields.iter().map(|&field| field.to_owned()).collect());
}

fn root(crd: &mut CustomResourceDefinition) -> &mut JSONSchemaProps {
    let version = crd
        .spec
        .versions
        .first_mut()
        .and_then(|version| version.schema.as_mut());
    version
        .and_then(|schema| schema.open_api_v3_schema.as_mut())
        .expect("the derive gives every kind one version with a schema")
}

fn property<'a>(schema: &'a mut JSONSchemaProps, field: &str) -> &'a mut JSONSchemaProps {
    let fields = schema.properties.as_mut();
    fields
        .and_then(|fields| fields.get_mut(field))
        .expect("a field of the derived type, kept by the golden files")
}
