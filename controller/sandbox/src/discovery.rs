//! What the API says of itself: which groups, versions and kinds it serves.
//!
//! Decides what stands under `/api`, `/apis` and `/openapi` (whose documents are `openapi`'s), in the plain form and in the aggregated one that kubectl asks for first. Reads
//! the registry of kinds; touches no object.

use serde_json::{Map, Value, json};

use crate::accept::{self, AGGREGATED};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::kinds::{Kind, Kinds};
use crate::openapi;
use crate::request::{Request, Verb};

/// Answers a path that names no object.
pub fn answer(kinds: &Kinds, request: &Request) -> Result<Answer, Failure> {
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    if is_routed(kinds, &parts) && (request.is_head || !matches!(request.verb, Verb::List | Verb::Watch)) {
        return Err(Failure::NoMethod);
    }
    let aggregated_by = is_aggregated(&request.accept) && matches!(parts.as_slice(), ["api" | "apis"]);
    if let (false, ["api" | "apis", rest @ ..]) = (aggregated_by, parts.as_slice()) {
        let routed = !rest.is_empty() && is_routed(kinds, &parts);
        accept::of_discovery(&request.accept, routed)?;
    }
    let body = match parts.as_slice() {
        [] => json!({ "paths": paths(kinds) }),
        ["api"] if aggregated_by => aggregated(kinds, true),
        ["apis"] if aggregated_by => aggregated(kinds, false),
        ["api"] => json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }),
        ["apis"] => all_groups(kinds),
        ["apis", group] => one_group(kinds, group)?,
        ["api", version] => resources(kinds, "", version)?,
        ["apis", group, version] => resources(kinds, group, version)?,
        ["openapi", rest @ ..] => return openapi::answer(kinds, rest, &request.accept),
        _ => return Err(Failure::NoPath),
    };
    Ok(Answer::ok(body))
}

/// Whether the server's router asks before discovery does, which knows no methods: of what its own kinds lie below.
fn is_routed(kinds: &Kinds, parts: &[&str]) -> bool {
    let is_own = |group: &str, version: &str| {
        kinds
            .all()
            .any(|kind| !kind.custom && kind.group == group && kind.version == version)
    };
    match parts {
        ["api"] => true,
        ["api", version] => is_own("", version),
        ["apis", group, version] => is_own(group, version),
        _ => false,
    }
}

/// All paths that name no resource, in their order.
fn paths(kinds: &Kinds) -> Vec<String> {
    let mut out: Vec<String> = [
        "/api",
        "/apis",
        "/apis/",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    for check in ["healthz", "livez", "readyz"] {
        out.extend(["etcd", "log", "ping"].map(|part| format!("/{check}/{part}")));
    }
    out.extend(kinds.versions("").iter().map(|version| format!("/api/{version}")));
    for group in groups(kinds) {
        out.push(format!("/apis/{group}"));
        out.extend(
            kinds
                .versions(group)
                .iter()
                .map(|version| format!("/apis/{group}/{version}")),
        );
    }
    out.sort();
    out
}

/// Whether a caller wants all groups with all their kinds in one answer. The server looks for this form before any other,
/// wherever it stands in the list.
fn is_aggregated(accept: &str) -> bool {
    accept.split(',').any(|clause| {
        let mut asked: Vec<&str> = clause.split(';').map(str::trim).collect();
        asked.retain(|part| !part.starts_with("q="));
        let mut known: Vec<&str> = AGGREGATED.split(';').collect();
        asked.sort_unstable();
        known.sort_unstable();
        asked == known
    })
}

/// The groups of the server's own in the order in which it ranks them; those of definitions come after, by name.
const RANKED: [&str; 7] = [
    "apps",
    "events.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
];

/// The named groups, best first.
fn groups(kinds: &Kinds) -> Vec<&str> {
    let mut names: Vec<&str> = kinds.all().map(|kind| kind.group.as_str()).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    let rank = |name: &&str| RANKED.iter().position(|known| known == name).unwrap_or(RANKED.len());
    names.sort_by_key(rank);
    names
}

fn group(kinds: &Kinds, name: &str) -> Value {
    let shown: Vec<Value> = kinds
        .versions(name)
        .iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "name": name, "preferredVersion": shown.first(), "versions": shown })
}

fn all_groups(kinds: &Kinds) -> Value {
    let groups: Vec<Value> = groups(kinds).into_iter().map(|name| group(kinds, name)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn one_group(kinds: &Kinds, name: &str) -> Result<Value, Failure> {
    if !groups(kinds).contains(&name) {
        return Err(Failure::NoPath);
    }
    let mut out = group(kinds, name);
    if let Some(fields) = out.as_object_mut() {
        fields.insert("kind".to_owned(), json!("APIGroup"));
        fields.insert("apiVersion".to_owned(), json!("v1"));
    }
    Ok(out)
}

fn resources(kinds: &Kinds, group: &str, version: &str) -> Result<Value, Failure> {
    let mut list = Vec::new();
    for kind in kinds.served(group, version) {
        list.push(resource(kind));
        list.extend(parts(kind).iter().map(|part| part.resource(kind)));
    }
    if list.is_empty() {
        // Of a group of definitions, the server knows no version but those served.
        let known = kinds.all().any(|kind| kind.group == group && !kind.custom);
        return Err(if known { Failure::NoResource } else { Failure::NoPath });
    }
    if group.is_empty() {
        // The oldest list of all is the only one that does not say its own version.
        return Ok(json!({ "kind": "APIResourceList", "groupVersion": version, "resources": list }));
    }
    let name = format!("{group}/{version}");
    Ok(json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list }))
}

fn resource(kind: &Kind) -> Value {
    let mut out = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs(kind),
    });
    add_names(kind, &mut out);
    out
}

fn add_names(kind: &Kind, out: &mut Value) {
    let Some(fields) = out.as_object_mut() else { return };
    for (key, names) in [
        ("shortNames", kind.short_names.clone()),
        ("categories", categories(kind)),
    ] {
        if !names.is_empty() {
            fields.insert(key.to_owned(), json!(names));
        }
    }
}

fn categories(kind: &Kind) -> Vec<String> {
    if kind.is("Pod") {
        vec!["all".to_owned()]
    } else if kind.is("CustomResourceDefinition") {
        vec!["api-extensions".to_owned()]
    } else {
        kind.categories.clone()
    }
}

fn verbs(kind: &Kind) -> &'static [&'static str] {
    if kind.custom {
        // The order is the server's.
        &[
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ]
    } else if kind.is("Namespace") {
        &["create", "delete", "get", "list", "patch", "update", "watch"]
    } else {
        &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
    }
}

/// A subresource, with the kind that it speaks: empty texts stand for the kind it belongs to.
struct Part {
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
}

const CHANGED: &[&str] = &["get", "patch", "update"];

/// The subresources that are served, in the server's order.
fn parts(kind: &Kind) -> Vec<Part> {
    let part = |name, group, version, kind, verbs| Part {
        name,
        group,
        version,
        kind,
        verbs,
    };
    let mut out = Vec::new();
    if kind.is("Pod") {
        out.push(part("eviction", "policy", "v1", "Eviction", &["create"]));
    }
    if kind.status {
        out.push(part("status", "", "", "", CHANGED));
    }
    if kind.scale.is_some() {
        out.push(part("scale", "autoscaling", "v1", "Scale", CHANGED));
    }
    out
}

impl Part {
    fn resource(&self, of: &Kind) -> Value {
        let mut out = Map::new();
        out.insert("name".to_owned(), json!(format!("{}/{}", of.plural, self.name)));
        out.insert("singularName".to_owned(), json!(""));
        out.insert("namespaced".to_owned(), json!(of.namespaced));
        out.insert("verbs".to_owned(), json!(self.verbs));
        if self.kind.is_empty() {
            out.insert("kind".to_owned(), json!(of.kind));
        } else {
            out.insert("kind".to_owned(), json!(self.kind));
            out.insert("group".to_owned(), json!(self.group));
            out.insert("version".to_owned(), json!(self.version));
        }
        Value::Object(out)
    }

    fn aggregated(&self, of: &Kind) -> Value {
        let kind = if self.kind.is_empty() {
            spoken(of)
        } else {
            json!({ "group": self.group, "version": self.version, "kind": self.kind })
        };
        json!({ "subresource": self.name, "responseKind": kind, "verbs": self.verbs })
    }
}

/// What a resource answers with. Of its own kinds the server names no group here: they are those of the list around them.
fn spoken(kind: &Kind) -> Value {
    if kind.custom {
        json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
    } else {
        json!({ "group": "", "version": "", "kind": kind.kind })
    }
}

fn aggregated(kinds: &Kinds, core: bool) -> Value {
    let names = if core { vec![""] } else { groups(kinds) };
    let group = |name: &str| {
        let versions: Vec<Value> = kinds
            .versions(name)
            .into_iter()
            .map(|version| {
                let resources: Vec<Value> = kinds.served(name, version).map(aggregated_resource).collect();
                json!({ "version": version, "resources": resources, "freshness": "Current" })
            })
            .collect();
        let metadata = if name.is_empty() {
            json!({})
        } else {
            json!({ "name": name })
        };
        json!({ "metadata": metadata, "versions": versions })
    };
    let items: Vec<Value> = names.into_iter().map(group).collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut out = json!({
        "resource": kind.plural, "responseKind": spoken(kind), "singularResource": kind.singular,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": verbs(kind),
    });
    add_names(kind, &mut out);
    let parts: Vec<Value> = parts(kind).iter().map(|part| part.aggregated(kind)).collect();
    if let (false, Some(fields)) = (parts.is_empty(), out.as_object_mut()) {
        fields.insert("subresources".to_owned(), json!(parts));
    }
    out
}
