//! What the cluster's CRDs lack of ours: those of the original, or of an earlier version. The manager works with them; what it cannot store
//! there is said, and how to install ours.
//!
//! Reads what every account may read: the discovery of the group, and its OpenAPI document. Decides nothing about objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use millwright_core::api::crds;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::error::plain;

/// Where the group is discovered.
const DISCOVERY: &str = "/apis/machine.sapcloud.io/v1alpha1";
/// Where its schemas are.
const SCHEMAS: &str = "/openapi/v3/apis/machine.sapcloud.io/v1alpha1";
/// How long after a CRD was replaced what the API server tells of it is up to date, amply.
const SETTLED: Duration = Duration::from_secs(5);
/// The longest pause after looks that failed: the document of a group that was just installed comes a moment later.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// What one CRD lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lack {
    definition: String,
    subresources: Vec<String>,
    fields: Vec<String>,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [("subresource", &self.subresources), ("field", &self.fields)];
        let lists = lists.iter().filter(|(_, items)| !items.is_empty());
        let lists = lists.map(|(what, items)| match items.len() {
            1 => format!("{what} {}", items.concat()),
            _ => format!("{what}s {}", items.join(", ")),
        });
        write!(f, "{}", lists.collect::<Vec<_>>().join(" and "))
    }
}

/// Looks at the cluster's CRDs, again whenever `relisted` is rung: the API server ends the watches of objects whose CRD is replaced. Says
/// what they lack, and calls `replaced` when CRDs that lacked something were replaced.
pub async fn watch_over<F: Future<Output = ()>>(client: Client, relisted: &Notify, replaced: impl Fn() -> F) {
    let (mut before, mut pause): (Option<Vec<Lack>>, _) = (None, SETTLED);
    loop {
        match look(&client).await {
            Ok(lacks) if before.as_ref() == Some(&lacks) => {}
            Ok(lacks) => {
                let lacked = before.replace(lacks.clone());
                tell(&lacks, lacked.is_none());
                if lacked.is_some_and(|lacked| !lacked.is_empty()) {
                    replaced().await;
                }
            }
            // The watches tell of an API server that does not answer, or of CRDs that are not there.
            Err(error) => {
                tracing::debug!("the CRDs of the cluster cannot be looked at: {}", plain(&error));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
        }
        pause = SETTLED;
        relisted.notified().await;
        tokio::time::sleep(SETTLED).await;
    }
}

fn tell(lacks: &[Lack], is_first: bool) {
    for lack in lacks {
        tracing::warn!(
            crd = lack.definition,
            "the CRD lacks the {lack}: what would be stored there is known to this process alone. To install ours: \
             millwright crds | kubectl apply --server-side --force-conflicts -f -"
        );
    }
    if lacks.is_empty() && !is_first {
        tracing::info!("the CRDs of the cluster have all that this manager stores");
    }
}

/// A schema, as far as fields are concerned. Descriptions are most of a document, and nobody here reads them.
#[derive(Deserialize)]
struct Schema {
    #[serde(default)]
    properties: BTreeMap<String, Schema>,
    items: Option<Box<Schema>>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields", default)]
    keeps_all: bool,
    #[serde(rename = "x-kubernetes-group-version-kind", default)]
    stands_for: Vec<StandsFor>,
}

#[derive(Deserialize)]
struct StandsFor {
    kind: String,
}

/// The OpenAPI document of a group.
#[derive(Deserialize)]
struct Document {
    components: Components,
}

#[derive(Deserialize)]
struct Components {
    #[serde(default)]
    schemas: BTreeMap<String, Schema>,
}

/// One of our CRDs.
struct Ours {
    definition: String,
    plural: String,
    kind: String,
    subresources: Vec<String>,
    schema: Schema,
}

/// Generated from the types.
static OURS: LazyLock<Vec<Ours>> = LazyLock::new(|| crds::all().into_iter().map(ours).collect());

fn ours(crd: CustomResourceDefinition) -> Ours {
    let version = json!(crd.spec.versions.first());
    let names = version.get("subresources").and_then(Value::as_object);
    let schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
    Ours {
        definition: crd.metadata.name.unwrap_or_default(),
        plural: crd.spec.names.plural,
        kind: crd.spec.names.kind,
        subresources: names.into_iter().flat_map(|names| names.keys().cloned()).collect(),
        schema: serde_json::from_value(schema).expect("our CRDs have schemas; a unit test reads them"),
    }
}

async fn look(client: &Client) -> Result<Vec<Lack>, kube::Error> {
    let get = |path: &str| Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
    let served: APIResourceList = client.request(get(DISCOVERY)?).await?;
    let schemas: Document = client.request(get(SCHEMAS)?).await?;
    Ok(lacks(&served, &schemas))
}

/// What the cluster lacks of our CRDs. A CRD that is not there at all is left to the watch of its objects.
fn lacks(served: &APIResourceList, document: &Document) -> Vec<Lack> {
    let served: BTreeSet<&str> = served.resources.iter().map(|resource| resource.name.as_str()).collect();
    let theirs: BTreeMap<&str, &Schema> = document
        .components
        .schemas
        .values()
        .filter_map(|schema| Some((schema.stands_for.first()?.kind.as_str(), schema)))
        .collect();
    let one = |ours: &Ours| {
        let is_missing = |name: &&String| !served.contains(format!("{}/{name}", ours.plural).as_str());
        let subresources: Vec<String> = ours.subresources.iter().filter(is_missing).cloned().collect();
        let mut fields = Vec::new();
        if let Some(theirs) = theirs.get(ours.kind.as_str()) {
            missing_fields(&ours.schema, theirs, "", &mut fields);
        }
        let is_there = served.contains(ours.plural.as_str());
        let lack = Lack {
            definition: ours.definition.clone(),
            subresources,
            fields,
        };
        (is_there && !(lack.subresources.is_empty() && lack.fields.is_empty())).then_some(lack)
    };
    OURS.iter().filter_map(one).collect()
}

/// The fields of our schema that theirs would drop, the outermost only.
fn missing_fields(ours: &Schema, theirs: &Schema, path: &str, missing: &mut Vec<String>) {
    for (name, schema) in &ours.properties {
        let is_every_objects = path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
        if is_every_objects {
            continue;
        }
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match theirs.properties.get(name) {
            Some(known) => missing_fields(schema, known, &path, missing),
            None if theirs.keeps_all => {}
            None => missing.push(path),
        }
    }
    if let (Some(ours), Some(theirs)) = (&ours.items, &theirs.items) {
        missing_fields(ours, theirs, path, missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> Value {
        json!({ "name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": [] })
    }

    /// The cluster with our own CRDs, as it tells of them.
    fn cluster() -> (Value, Value) {
        let mut names: Vec<Value> = Vec::new();
        let mut schemas = json!({});
        for definition in crds::all().into_iter().map(|crd| json!(crd)) {
            let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
            names.push(resource(plural));
            let version = &definition["spec"]["versions"][0];
            for name in version["subresources"].as_object().unwrap().keys() {
                names.push(resource(&format!("{plural}/{name}")));
            }
            let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            schema["x-kubernetes-group-version-kind"] = json!([{ "kind": kind }]);
            schemas[kind] = schema;
        }
        (
            json!({ "groupVersion": "machine.sapcloud.io/v1alpha1", "resources": names }),
            json!({ "components": { "schemas": schemas } }),
        )
    }

    fn lacking(served: &Value, schemas: &Value) -> Vec<Lack> {
        let served = APIResourceList::deserialize(served).unwrap();
        lacks(&served, &Document::deserialize(schemas).unwrap())
    }

    fn remove(schemas: &mut Value, kind: &str, within: &str, field: &str) {
        let place = format!("/components/schemas/{kind}{within}/properties");
        let fields = schemas.pointer_mut(&place).and_then(Value::as_object_mut).unwrap();
        assert!(fields.remove(field).is_some(), "{place}/{field}");
        let place = schemas.pointer_mut(place.trim_end_matches("/properties")).unwrap();
        place["x-kubernetes-preserve-unknown-fields"] = json!(false);
    }

    #[test]
    fn our_own_crds_lack_nothing_and_those_of_the_original_are_told_by_what_they_lack() {
        let (mut served, mut schemas) = cluster();
        assert_eq!(lacking(&served, &schemas), []);

        let names = served["resources"].as_array_mut().unwrap();
        names.retain(|resource| resource["name"] != "machineclasses/status");
        remove(&mut schemas, "MachineClass", "", "status");
        remove(&mut schemas, "Machine", "/properties/status", "creationRequest");
        remove(
            &mut schemas,
            "Machine",
            "/properties/status/properties/lastOperation",
            "reason",
        );
        let told: Vec<(String, String)> = lacking(&served, &schemas)
            .iter()
            .map(|lack| (lack.definition.clone(), lack.to_string()))
            .collect();
        let told: Vec<(&str, &str)> = told.iter().map(|(crd, lack)| (crd.as_str(), lack.as_str())).collect();
        assert_eq!(
            told,
            [
                (
                    "machineclasses.machine.sapcloud.io",
                    "subresource status and field status"
                ),
                (
                    "machines.machine.sapcloud.io",
                    "fields status.creationRequest, status.lastOperation.reason"
                ),
            ]
        );
    }
}
