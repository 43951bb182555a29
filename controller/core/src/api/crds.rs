//! The CustomResourceDefinitions of the four kinds. Decides what the API server admits.
//!
//! The rule: whatever the original's definitions admit, ours admit. What the derive adds on its own account (defaults, `nullable`, a
//! required `spec`) is taken away; what lets fields that we do not know survive is added. A few things are refused that the original
//! stores, because nothing can come of them, and objects that are stored already are left alone: see [`refuse`]. Whatever is stored
//! nevertheless is judged by [`validity`](super::validity), which knows all that can be wrong. (Replicas below 0 or beyond 32 bits
//! are refused by the API server itself wherever there is a scale subresource.)
//!
//! Texts of a spec that name something have a `maxLength`, because whatever stands there gets into events, logs and the labels of metrics.
//! Of the original's objects this refuses those that name a driver, a Secret, a class or a VM, or give Machines a label, by what is too long
//! to be one (no VM was ever made for such an object), and those whose `apiGroup`, which nobody reads, is longer than any. Stored ones
//! stay writable: since Kubernetes 1.30 an API server lets be what an update does not touch, `maxLength` included ("Validation
//! ratcheting" in Kubernetes' page about CustomResourceDefinitions). Statuses have no bounds here, because a controller whose status is
//! refused is stuck, and that controller may be the original again: what this program writes, it bounds itself (`crate::status`).
//!
//! As YAML a definition is `serde_saphyr::to_string` of the typed value with that crate's default options: so it is in `deploy/crds/`
//! (kept by `tests/crds.rs`) and so the command `millwright crds` prints it. The writer is not called from here, as this crate writes no YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

use super::{Machine, MachineClass, MachineDeployment, MachineSet, keys};

/// All four, in the order in which they are installed.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut machine = plain(Machine::crd(), "MachineList", &MACHINE_COLUMNS);
    limit(property(root(&mut machine), "spec"), &NAMES_IN_MACHINES);
    vec![machine_class(), machine, machine_set(), machine_deployment()]
}

/// The longest name of an object and of an API group: a DNS name.
const LONGEST_NAME: i64 = 253;
/// The longest DNS label, as the names of namespaces and kinds are, and the longest value of a label.
const LONGEST_LABEL: i64 = 63;
/// The longest id of a VM (`driver.proto`, "Sizes").
const LONGEST_ID: i64 = 512;

/// Texts in a class that name something, and how long they may be.
const NAMES_IN_CLASSES: [(&[&str], i64); 5] = [
    (&["provider"], LONGEST_NAME),
    (&["secretRef", "name"], LONGEST_NAME),
    (&["secretRef", "namespace"], LONGEST_LABEL),
    (&["credentialsSecretRef", "name"], LONGEST_NAME),
    (&["credentialsSecretRef", "namespace"], LONGEST_LABEL),
];
/// The same in the spec of a Machine, and of a template of Machines.
const NAMES_IN_MACHINES: [(&[&str], i64); 4] = [
    (&["class", "apiGroup"], LONGEST_NAME),
    (&["class", "kind"], LONGEST_LABEL),
    (&["class", "name"], LONGEST_NAME),
    (&["providerID"], LONGEST_ID),
];

/// Spans of time in a template of Machines. A Machine itself is not judged by rules: it tells of a negative one in an event.
const DURATIONS_IN_TEMPLATES: [&str; 5] = [
    "creationTimeout",
    "drainTimeout",
    "healthTimeout",
    "inPlaceUpdateTimeout",
    "machinePreserveTimeout",
];

/// A column of `kubectl get`: title, type, path, whether only `-o wide` shows it, and what it says.
type Column = (&'static str, &'static str, &'static str, bool, &'static str);

// The narrow columns are the original's, in its order. Wide ones after ProviderID are additions, and so are all
// of a class, for which the original declares none.
const AGE: Column = (
    "Age",
    "date",
    ".metadata.creationTimestamp",
    false,
    "Time since the object was created.",
);
#[rustfmt::skip]
const MACHINE_COLUMNS: [Column; 8] = [
    ("Status", "string", ".status.currentStatus.phase", false, "Current phase of the Machine."),
    AGE,
    ("Node", "string", ".metadata.labels.node", false, "Name of the Machine's Node."),
    ("ProviderID", "string", ".spec.providerID", true, "The VM's id at its provider."),
    ("Class", "string", ".spec.class.name", true, "MachineClass of the Machine."),
    ("Last-Op", "string", ".status.lastOperation.type", true, "Type of the last operation."),
    ("State", "string", ".status.lastOperation.state", true, "State of the last operation."),
    ("Error", "string", ".status.lastOperation.errorCode", true, "Driver's code of a failed creation."),
];
#[rustfmt::skip]
const SET_COLUMNS: [Column; 6] = [
    ("Desired", "integer", ".spec.replicas", false, "Number of desired Machines."),
    ("Current", "integer", ".status.replicas", false, "Number of Machines, those that are leaving included."),
    ("Ready", "integer", ".status.readyReplicas", false, "Number of Machines that are Running."),
    AGE,
    ("Available", "integer", ".status.availableReplicas", true, "Number of available Machines."),
    ("Class", "string", ".spec.template.spec.class.name", true, "MachineClass of the Machines."),
];
#[rustfmt::skip]
const DEPLOYMENT_COLUMNS: [Column; 7] = [
    ("Ready", "integer", ".status.readyReplicas", false, "Number of Machines that are Running."),
    ("Desired", "integer", ".spec.replicas", false, "Number of desired Machines."),
    ("Up-to-date", "integer", ".status.updatedReplicas", false, "Number of Machines of the newest template."),
    ("Available", "integer", ".status.availableReplicas", false, "Number of available Machines."),
    AGE,
    ("Strategy", "string", ".spec.strategy.type", true, "How old Machines are replaced."),
    ("Class", "string", ".spec.template.spec.class.name", true, "MachineClass of the Machines."),
];

#[rustfmt::skip]
const CLASS_COLUMNS: [Column; 5] = [
    ("Provider", "string", ".provider", false, "Driver that makes the VMs."),
    ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", false, "Whether Machines can be made of the class."),
    ("Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason", false, "Why, in one word."),
    AGE,
    ("Message", "string", ".status.conditions[?(@.type==\"Ready\")].message", true, "Why, in words."),
];

fn machine_class() -> CustomResourceDefinition {
    let mut crd = plain(MachineClass::crd(), "MachineClassList", &CLASS_COLUMNS);
    let root = root(&mut crd);
    root.x_kubernetes_preserve_unknown_fields = Some(true);
    require(root, &["providerSpec"]);
    limit(root, &NAMES_IN_CLASSES);
    let node_template = property(root, "nodeTemplate");
    node_template.x_kubernetes_preserve_unknown_fields = Some(true);
    require(node_template, &["capacity", "instanceType", "region", "zone"]);
    crd
}

fn machine_set() -> CustomResourceDefinition {
    let mut crd = plain(MachineSet::crd(), "MachineSetList", &SET_COLUMNS);
    // A deployment narrows the selector of a set that it adopted, once.
    let hash = keys::TEMPLATE_HASH;
    let narrowed = format!(
        "has(self.selector.matchLabels) && '{hash}' in self.selector.matchLabels && !('{hash}' in oldSelf.selector.matchLabels)"
    );
    scalable(&mut crd, &keys::WRITTEN_LABELS, &narrowed);
    let policy = property(property(root(&mut crd), "spec"), "deletePolicy");
    refuse(
        policy,
        "self in ['Random', 'Newest', 'Oldest']",
        "must be Random, Newest or Oldest",
    );
    condition_of(&mut crd, "machineSetCondition");
    crd
}

fn machine_deployment() -> CustomResourceDefinition {
    let mut crd = plain(MachineDeployment::crd(), "MachineDeploymentList", &DEPLOYMENT_COLUMNS);
    require(property(root(&mut crd), "spec"), &["template"]);
    scalable(&mut crd, &keys::WRITTEN_LABELS_OF_SETS, "false");
    let spec = property(root(&mut crd), "spec");
    for number in ["revisionHistoryLimit", "progressDeadlineSeconds"] {
        not_negative(property(spec, number));
    }
    not_negative(property(property(spec, "rollbackTo"), "revision"));
    one_that_works(property(spec, "strategy"));
    condition_of(&mut crd, "conditions");
    crd
}

/// Refuses strategies by which nothing could be replaced. That one is given at all is not demanded here.
fn one_that_works(strategy: &mut JSONSchemaProps) {
    refuse(
        property(strategy, "type"),
        "self in ['RollingUpdate', 'Recreate', 'InPlaceUpdate']",
        "must be RollingUpdate, Recreate or InPlaceUpdate",
    );
    for (type_, field) in [("RollingUpdate", "rollingUpdate"), ("InPlaceUpdate", "inPlaceUpdate")] {
        refuse(
            strategy,
            &format!("!has(self.type) || self.type != '{type_}' || has(self.{field})"),
            &format!("{field} is needed where type is {type_}"),
        );
        for bound in ["maxSurge", "maxUnavailable"] {
            // What stood there before is not asked: of a text of unknown length that would cost more than the API server allows.
            let rule = ValidationRule {
                rule: "type(self) == int || self.matches('^[+-]?[0-9]+%$')".to_owned(),
                message: Some("must be a number, or a percentage such as \"25%\"".to_owned()),
                ..ValidationRule::default()
            };
            add(property(property(strategy, field), bound), rule);
        }
    }
    refuse(
        property(property(strategy, "inPlaceUpdate"), "orchestrationType"),
        "self in ['Auto', 'Manual']",
        "must be Auto or Manual",
    );
}

/// The derived definition without the derive's own opinions.
fn plain(mut crd: CustomResourceDefinition, list: &str, columns: &[Column]) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(list.to_owned());
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns.iter().map(column).collect());
    }
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

fn column(&(name, type_, path, wide, description): &Column) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: path.to_owned(),
        priority: wide.then_some(1),
        description: Some(description.to_owned()),
        format: None,
    }
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

/// The parts that sets and deployments share. `written` are labels that no child keeps as a selector asks for them; `changes` is when a
/// selector may change.
fn scalable(crd: &mut CustomResourceDefinition, written: &[&str], changes: &str) {
    let spec = property(root(crd), "spec");
    let template = property(spec, "template");
    limit(property(template, "spec"), &NAMES_IN_MACHINES);
    for field in DURATIONS_IN_TEMPLATES {
        let duration = property(property(template, "spec"), field);
        refuse(duration, "!self.startsWith('-')", "must not be negative");
    }
    values(property(property(template, "metadata"), "labels")).max_length = Some(LONGEST_LABEL);
    // Without the field `/scale` answers 500, and Go writers drop a 0.
    property(spec, "replicas").default = Some(JSON(0.into()));
    refuse(
        spec,
        "has(self.selector)",
        "a selector is needed: without one no object belongs to this one",
    );
    refuse(
        property(spec, "selector"),
        "has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",
        "must not be empty: it would select all machines",
    );
    selecting_its_own(spec);
    selecting_for_good(spec, written, changes);
    not_negative(property(spec, "minReadySeconds"));
}

/// Refuses a selector whose labels the template does not give, unless neither of the two changes. What expressions select is not
/// asked: a list of lists without bounds would cost more than the API server allows.
fn selecting_its_own(spec: &mut JSONSchemaProps) {
    bounded(property(property(spec, "selector"), "matchLabels"));
    refuse_unless(
        spec,
        &format!(
            "!has(self.selector) || !has(self.selector.matchLabels) || size(self.selector.matchLabels) == 0 || {SELECTS_ITS_OWN}"
        ),
        "has(oldSelf.value().selector) && oldSelf.value().selector == self.selector && (has(self.template) ? \
         has(oldSelf.value().template) && oldSelf.value().template == self.template : !has(oldSelf.value().template))",
        "selector must match the labels of template.metadata: else nothing that is made belongs to this object",
    );
}

/// That the template gives all labels that the selector asks for.
const SELECTS_ITS_OWN: &str = "has(self.template) && has(self.template.metadata) && has(self.template.metadata.labels) && \
     self.selector.matchLabels.all(key, key in self.template.metadata.labels && \
     self.template.metadata.labels[key] == self.selector.matchLabels[key])";

/// Refuses a selector that asks for labels which this program writes, and the change of a selector that works: what was selected by it
/// would be left without owner, and made again. A selector with expressions is not judged, for what that would cost.
fn selecting_for_good(spec: &mut JSONSchemaProps, written: &[&str], changes: &str) {
    let has_written: Vec<String> = written.iter().map(|key| format!("'{key}' in self")).collect();
    let has_written = has_written.join(" || ");
    refuse(
        property(property(spec, "selector"), "matchLabels"),
        &format!("!({has_written})"),
        &format!(
            "must not ask for {}: this program writes them itself",
            written.join(" or ")
        ),
    );
    let had_written = has_written.replace("self", "oldSelf.selector.matchLabels");
    let did_work = SELECTS_ITS_OWN.replace("self", "oldSelf");
    let rule = ValidationRule {
        rule: format!(
            "!has(self.selector) || !has(oldSelf.selector) || self.selector == oldSelf.selector || \
             has(oldSelf.selector.matchExpressions) || !has(oldSelf.selector.matchLabels) || \
             size(oldSelf.selector.matchLabels) == 0 || {had_written} || !({did_work}) || {changes}"
        ),
        message: Some(
            "selector must not change: delete this object with --cascade=orphan and create it anew".to_owned(),
        ),
        ..ValidationRule::default()
    };
    add(spec, rule);
}

/// Bounds that the API server needs to tell what a rule costs. No label has a longer value, and in a request, which may have 3 MiB,
/// there is no room for more labels in both selector and template.
fn bounded(labels: &mut JSONSchemaProps) {
    labels.max_properties = Some(200_000);
    values(labels).max_length = Some(LONGEST_LABEL);
}

fn values(labels: &mut JSONSchemaProps) -> &mut JSONSchemaProps {
    match &mut labels.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(value)) => value,
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => unreachable!("labels are texts, kept by the golden files"),
    }
}

/// Refuses longer texts in these fields.
fn limit(schema: &mut JSONSchemaProps, fields: &[(&[&str], i64)]) {
    for (path, longest) in fields {
        path.iter()
            .fold(&mut *schema, |schema, field| property(schema, field))
            .max_length = Some(*longest);
    }
}

fn not_negative(number: &mut JSONSchemaProps) {
    refuse(number, "self >= 0", "must not be negative");
}

/// A condition without type or status says nothing; the original's schema refuses it.
fn condition_of(crd: &mut CustomResourceDefinition, field: &str) {
    match &mut property(property(root(crd), "status"), field).items {
        Some(JSONSchemaPropsOrArray::Schema(condition)) => require(condition, &["type", "status"]),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => unreachable!("a list of one type, kept by the golden files"),
    }
}

/// Refuses a value that can never work, unless the stored one is that way already: then somebody must still be able to change the
/// object. The API server itself lets be only what is exactly as it was (from 1.30 on; before, it has no `oldSelf` of this form either).
fn refuse(schema: &mut JSONSchemaProps, rule: &str, message: &str) {
    let was = rule.replace("self", "oldSelf.value()");
    refuse_unless(schema, rule, &format!("!({was})"), message);
}

/// Refuses a value that can never work, unless there was a value and `unless` holds.
fn refuse_unless(schema: &mut JSONSchemaProps, rule: &str, unless: &str, message: &str) {
    let rule = ValidationRule {
        rule: format!("({rule}) || (oldSelf.hasValue() && {unless})"),
        message: Some(message.to_owned()),
        optional_old_self: Some(true),
        ..ValidationRule::default()
    };
    add(schema, rule);
}

fn add(schema: &mut JSONSchemaProps, rule: ValidationRule) {
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
