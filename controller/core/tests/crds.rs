//! The definitions in `deploy/crds/` are those of the types, and admit what they should. `UPDATE_EXPECT=1` writes them anew.

use expect_test::expect_file;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use millwright_core::api::crds;

fn crd(kind: &str) -> CustomResourceDefinition {
    crds::all()
        .into_iter()
        .find(|crd| crd.spec.names.kind == kind)
        .expect("one of the four kinds")
}

fn schema(kind: &str) -> JSONSchemaProps {
    let crd = crd(kind);
    let version = crd.spec.versions.into_iter().next().expect("one version");
    version
        .schema
        .and_then(|schema| schema.open_api_v3_schema)
        .expect("a schema")
}

fn at<'a>(schema: &'a JSONSchemaProps, path: &str) -> &'a JSONSchemaProps {
    path.split('.').fold(schema, |schema, field| {
        schema
            .properties
            .as_ref()
            .and_then(|fields| fields.get(field))
            .expect("a field of the schema")
    })
}

/// Calls `look` with every schema below `schema` and its path.
fn walk(schema: &JSONSchemaProps, path: &str, look: &mut dyn FnMut(&str, &JSONSchemaProps)) {
    look(path, schema);
    for (field, schema) in schema.properties.iter().flatten() {
        walk(schema, &format!("{path}.{field}"), look);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(entry)) = &schema.items {
        walk(entry, &format!("{path}[]"), look);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
        walk(value, &format!("{path}{{}}"), look);
    }
}

fn every_schema(look: &mut dyn FnMut(&str, &JSONSchemaProps)) {
    for crd in crds::all() {
        let kind = crd.spec.names.kind;
        walk(&schema(&kind), &kind, look);
    }
}

#[test]
fn the_files_are_those_of_the_types() {
    for crd in crds::all() {
        let text = serde_saphyr::to_string(&crd).unwrap();
        let file = format!("../../../deploy/crds/{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        expect_file![file].assert_eq(&text);
    }
}

#[test]
fn the_text_of_a_definition_reads_back_as_the_same_definition() {
    for crd in crds::all() {
        let text = serde_saphyr::to_string(&crd).unwrap();
        let value: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(value, serde_json::to_value(&crd).unwrap());
    }
}

/// Rows: R19.
#[test]
fn every_field_is_described_and_none_as_not_built() {
    let mut bare = Vec::new();
    every_schema(&mut |path, schema| {
        let is_field = !path.ends_with(']') && !path.ends_with('}');
        let said = schema.description.as_deref().unwrap_or_default();
        if (is_field && said.is_empty()) || said.to_lowercase().contains("not built") {
            bare.push(path.to_owned());
        }
    });
    assert!(bare.is_empty(), "without description, or not built: {bare:#?}");
}

#[test]
fn nothing_is_nullable_and_only_replicas_has_a_default() {
    let mut defaults = Vec::new();
    every_schema(&mut |path, schema| {
        assert_eq!(schema.nullable, None, "{path}");
        assert_eq!(schema.enum_, None, "{path}: the original names no enums");
        assert_eq!(
            schema.minimum.or(schema.maximum),
            None,
            "{path}: the original bounds no numbers"
        );
        defaults.extend(schema.default.as_ref().map(|default| format!("{path} = {}", default.0)));
    });
    assert_eq!(
        defaults,
        ["MachineSet.spec.replicas = 0", "MachineDeployment.spec.replicas = 0"]
    );
}

#[test]
fn only_what_the_original_requires_is_required() {
    let mut required = Vec::new();
    every_schema(&mut |path, schema| {
        required.extend(schema.required.iter().flatten().map(|field| format!("{path}.{field}")));
    });
    required.sort();
    let mut wanted = vec![
        "Machine.status.addresses[].address".to_owned(),
        "Machine.status.addresses[].type".to_owned(),
        "Machine.status.conditions[].status".to_owned(),
        "Machine.status.conditions[].type".to_owned(),
        "MachineClass.nodeTemplate.capacity".to_owned(),
        "MachineClass.nodeTemplate.instanceType".to_owned(),
        "MachineClass.nodeTemplate.region".to_owned(),
        "MachineClass.nodeTemplate.zone".to_owned(),
        "MachineClass.providerSpec".to_owned(),
        "MachineClass.status.conditions[].lastTransitionTime".to_owned(),
        "MachineClass.status.conditions[].message".to_owned(),
        "MachineClass.status.conditions[].reason".to_owned(),
        "MachineClass.status.conditions[].status".to_owned(),
        "MachineClass.status.conditions[].type".to_owned(),
        "MachineDeployment.spec.template".to_owned(),
        "MachineDeployment.status.conditions[].status".to_owned(),
        "MachineDeployment.status.conditions[].type".to_owned(),
        "MachineSet.status.machineSetCondition[].status".to_owned(),
        "MachineSet.status.machineSetCondition[].type".to_owned(),
    ];
    for spec in [
        "Machine.spec",
        "MachineSet.spec.template.spec",
        "MachineDeployment.spec.template.spec",
    ] {
        wanted.extend(["effect", "key"].map(|field| format!("{spec}.nodeTemplate.spec.taints[].{field}")));
    }
    for kind in ["MachineSet", "MachineDeployment"] {
        wanted.extend(["key", "operator"].map(|field| format!("{kind}.spec.selector.matchExpressions[].{field}")));
    }
    wanted.sort();
    assert_eq!(required, wanted);
}

/// Rows: O19.
#[test]
fn what_names_something_is_no_longer_than_a_name_and_no_status_is_bounded() {
    let mut limits = Vec::new();
    every_schema(&mut |path, schema| {
        assert_eq!(schema.max_items, None, "{path}: every list may be as long as it is");
        limits.extend(schema.max_length.map(|longest| format!("{path} {longest}")));
    });
    limits.sort();
    let mut wanted = vec![
        "MachineClass.credentialsSecretRef.name 253".to_owned(),
        "MachineClass.credentialsSecretRef.namespace 63".to_owned(),
        "MachineClass.provider 253".to_owned(),
        "MachineClass.secretRef.name 253".to_owned(),
        "MachineClass.secretRef.namespace 63".to_owned(),
    ];
    for spec in [
        "Machine.spec",
        "MachineSet.spec.template.spec",
        "MachineDeployment.spec.template.spec",
    ] {
        wanted.extend(
            [
                "class.apiGroup 253",
                "class.kind 63",
                "class.name 253",
                "providerID 512",
            ]
            .map(|limit| format!("{spec}.{limit}")),
        );
    }
    for kind in ["MachineSet", "MachineDeployment"] {
        wanted.extend(
            ["selector.matchLabels", "template.metadata.labels"].map(|labels| format!("{kind}.spec.{labels}{{}} 63")),
        );
    }
    wanted.sort();
    assert_eq!(limits, wanted);
}

#[test]
fn fields_that_we_do_not_know_survive() {
    for path in [
        "Machine spec",
        "Machine status",
        "Machine spec.nodeTemplate",
        "Machine spec.nodeTemplate.metadata",
        "Machine spec.nodeTemplate.spec",
        "MachineSet spec",
        "MachineSet status",
        "MachineSet spec.template",
        "MachineSet spec.template.metadata",
        "MachineSet spec.template.spec",
        "MachineSet spec.template.spec.nodeTemplate",
        "MachineDeployment spec",
        "MachineDeployment status",
        "MachineDeployment spec.template",
        "MachineDeployment spec.template.metadata",
        "MachineDeployment spec.template.spec",
        "MachineClass nodeTemplate",
        "MachineClass providerSpec",
    ] {
        let (kind, path) = path.split_once(' ').unwrap();
        let schema = schema(kind);
        assert_eq!(
            at(&schema, path).x_kubernetes_preserve_unknown_fields,
            Some(true),
            "{kind}.{path}"
        );
    }
    assert_eq!(schema("MachineClass").x_kubernetes_preserve_unknown_fields, Some(true));
}

#[test]
fn names_and_columns_are_those_that_tools_know() {
    let lines: Vec<String> = crds::all().iter().map(summary).collect();
    let wanted = [
        "machineclasses machineclass MachineClassList [mcc] Provider Ready Reason Age | Message",
        "machines machine MachineList [mc] Status Age Node | ProviderID Class Last-Op State Error",
        "machinesets machineset MachineSetList [mcs,ms] Desired Current Ready Age | Available Class",
        "machinedeployments machinedeployment MachineDeploymentList [mcd] Ready Desired Up-to-date Available Age | Strategy Class",
    ];
    assert_eq!(lines, wanted);
}

fn summary(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let version = crd.spec.versions.first().expect("one version");
    let columns = version.additional_printer_columns.as_deref().unwrap_or_default();
    let wide = columns
        .iter()
        .position(|column| column.priority.is_some())
        .unwrap_or(columns.len());
    let mut titles: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
    if wide < titles.len() {
        titles.insert(wide, "|");
    }
    format!(
        "{} {} {} [{}] {}",
        names.plural,
        names.singular.as_deref().unwrap_or_default(),
        names.list_kind.as_deref().unwrap_or_default(),
        names.short_names.as_deref().unwrap_or_default().join(","),
        titles.join(" "),
    )
}

#[test]
fn scale_knows_replicas_and_selector() {
    for kind in ["MachineSet", "MachineDeployment"] {
        let crd = crd(kind);
        let subresources = crd.spec.versions[0].subresources.as_ref().expect("subresources");
        assert!(subresources.status.is_some(), "{kind}");
        let scale = subresources.scale.as_ref().expect("scale");
        assert_eq!(scale.spec_replicas_path, ".spec.replicas");
        assert_eq!(scale.status_replicas_path, ".status.replicas");
        assert_eq!(scale.label_selector_path.as_deref(), Some(".status.labelSelector"));
    }
    let of_class = crd("MachineClass").spec.versions[0]
        .subresources
        .clone()
        .expect("subresources");
    assert!(of_class.status.is_some() && of_class.scale.is_none());
}
