//! What can be done with a kind, as OpenAPI tells it: paths, methods, what they take and give.
//!
//! Decides nothing about requests: it repeats what `request` and the rooms of `write` do. kubectl reads two things here: which kind
//! lies behind a path, and whether a write takes `fieldValidation`.

use serde_json::{Map, Value, json};

use super::{name_of, reference};
use crate::kinds::Kind;

const LISTED: [&str; 11] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
const WRITTEN: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const PATCHED: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETED: [&str; 5] = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
/// Built-in kinds whose deletion answers with the object.
const SHOWN_WHEN_DELETED: [&str; 5] = [
    "Pod",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ServiceAccount",
    "VolumeAttachment",
];

/// The paths of a kind.
pub(super) fn of(kind: &Kind) -> Vec<(String, Value)> {
    let base = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    let teller = Teller {
        kind,
        own: name_of(&kind.group, &kind.version, &kind.kind, kind.custom),
    };
    let mut out = Vec::new();
    let root = if kind.namespaced {
        out.push((format!("{base}/{}", kind.plural), teller.everywhere()));
        format!("{base}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("{base}/{}", kind.plural)
    };
    let one = format!("{root}/{{name}}");
    out.push((root, teller.collection()));
    if kind.status {
        out.push((format!("{one}/status"), teller.part("Status", &teller.own)));
    }
    if kind.scale.is_some() {
        out.push((
            format!("{one}/scale"),
            teller.part("Scale", "io.k8s.api.autoscaling.v1.Scale"),
        ));
    }
    if kind.is("Pod") {
        out.push((format!("{one}/eviction"), teller.eviction()));
    }
    out.push((one, teller.object()));
    out
}

/// One operation, before its group and version are told.
struct Operation<'a> {
    action: &'static str,
    /// Read, replace and so on, with which its id begins.
    word: &'static str,
    about: String,
    /// What stands in its id before and after the kind.
    around: (&'static str, &'a str),
    query: &'a [&'static str],
    takes: Option<Value>,
    gives: Vec<(&'static str, &'a str)>,
}

struct Teller<'a> {
    kind: &'a Kind,
    /// The name of the kind's schema.
    own: String,
}

impl Teller<'_> {
    fn everywhere(&self) -> Value {
        let mut query = LISTED.to_vec();
        query.push("pretty");
        query.sort_unstable();
        let list = self.list_name();
        let listing = self.operation(&Operation {
            query: &[],
            around: ("", "ForAllNamespaces"),
            ..self.listing(&list)
        });
        json!({ "get": listing, "parameters": parameters(&query) })
    }

    fn collection(&self) -> Value {
        let list = self.list_name();
        let mut out = Map::new();
        out.insert("get".to_owned(), self.operation(&self.listing(&list)));
        let own = self.own.as_str();
        out.insert(
            "post".to_owned(),
            self.operation(&Operation {
                action: "post",
                word: "create",
                about: format!("create {} {}", article(&self.kind.kind), self.kind.kind),
                around: (self.scope(), ""),
                query: &WRITTEN,
                takes: Some(self.body(own)),
                gives: vec![("200", own), ("201", own), ("202", own)],
            }),
        );
        if !self.kind.is("Namespace") {
            out.insert("delete".to_owned(), self.clearing());
        }
        out.insert("parameters".to_owned(), self.place(false));
        Value::Object(out)
    }

    fn object(&self) -> Value {
        let mut out = self.changes("", &self.own);
        let options = format!("{META}DeleteOptions");
        let status = format!("{META}Status");
        let shown = !self.kind.custom && SHOWN_WHEN_DELETED.contains(&self.kind.kind.as_str());
        let given = if shown { &self.own } else { &status };
        let deletion = self.operation(&Operation {
            action: "delete",
            word: "delete",
            about: format!("delete {} {}", article(&self.kind.kind), self.kind.kind),
            around: (self.scope(), ""),
            query: &DELETED,
            takes: Some(optional(self.body(&options))),
            gives: vec![("200", given), ("202", given)],
        });
        out.insert("delete".to_owned(), deletion);
        Value::Object(out)
    }

    /// A subresource that is read and changed.
    fn part(&self, name: &str, schema: &str) -> Value {
        Value::Object(self.changes(name, schema))
    }

    fn eviction(&self) -> Value {
        let own = "io.k8s.api.policy.v1.Eviction";
        let mut posting = self.operation(&Operation {
            action: "post",
            word: "create",
            about: format!("create eviction of {} {}", article(&self.kind.kind), self.kind.kind),
            around: (self.scope(), "Eviction"),
            query: &[],
            takes: Some(self.body(own)),
            gives: vec![("200", own), ("201", own), ("202", own)],
        });
        if let Some(fields) = posting.as_object_mut() {
            let kind = json!({ "group": "policy", "version": "v1", "kind": "Eviction" });
            fields.insert("x-kubernetes-group-version-kind".to_owned(), kind);
        }
        let mut query = parameters(&WRITTEN);
        let place = self.place(true);
        if let (Some(all), Value::Array(place)) = (query.as_array_mut(), place) {
            all.extend(place);
        }
        json!({ "post": posting, "parameters": query })
    }

    fn listing<'a>(&self, list: &'a str) -> Operation<'a> {
        let verb = if self.kind.custom { "list" } else { "list or watch" };
        Operation {
            action: "list",
            word: "list",
            about: format!("{verb} objects of kind {}", self.kind.kind),
            around: (self.scope(), ""),
            query: &LISTED,
            takes: None,
            gives: vec![("200", list)],
        }
    }

    fn clearing(&self) -> Value {
        let status = format!("{META}Status");
        let options = format!("{META}DeleteOptions");
        let mut query = LISTED.to_vec();
        if !self.kind.custom {
            query.retain(|name| !matches!(*name, "allowWatchBookmarks" | "watch"));
            query.extend(DELETED);
            query.sort_unstable();
        }
        self.operation(&Operation {
            action: "deletecollection",
            word: "delete",
            about: format!("delete collection of {}", self.kind.kind),
            around: if self.kind.namespaced {
                ("CollectionNamespaced", "")
            } else {
                ("Collection", "")
            },
            query: &query,
            takes: (!self.kind.custom).then(|| optional(self.body(&options))),
            gives: vec![("200", &status)],
        })
    }

    /// Reading, replacing and patching an object or a part of it.
    fn changes(&self, part: &str, schema: &str) -> Map<String, Value> {
        let of = match part {
            "" => String::new(),
            part => format!("{} of ", part.to_lowercase()),
        };
        let about = |verb: &str| format!("{verb} {of}the specified {}", self.kind.kind);
        let around = (self.scope(), part);
        let read: &[&str] = if self.kind.custom { &["resourceVersion"] } else { &[] };
        let patched: &[&str] = if self.kind.custom { &["200"] } else { &["200", "201"] };
        let operation = |action, word, verb, query, takes, codes: &[&'static str]| {
            let gives = codes.iter().map(|code| (*code, schema)).collect();
            let about = about(verb);
            self.operation(&Operation {
                action,
                word,
                about,
                around,
                query,
                takes,
                gives,
            })
        };
        let mut out = Map::new();
        let put = Some(self.body(schema));
        for (method, told) in [
            ("get", operation("get", "read", "read", read, None, &["200"])),
            (
                "put",
                operation("put", "replace", "replace", &WRITTEN, put, &["200", "201"]),
            ),
            (
                "patch",
                operation(
                    "patch",
                    "patch",
                    "partially update",
                    &PATCHED,
                    Some(self.patch()),
                    patched,
                ),
            ),
            ("parameters", self.place(true)),
        ] {
            out.insert(method.to_owned(), told);
        }
        out
    }

    fn operation(&self, said: &Operation<'_>) -> Value {
        let kind = self.kind;
        let (before, after) = said.around;
        let mut answers = Map::new();
        for (code, schema) in &said.gives {
            let types = self.types(said.action == "list");
            let word = match *code {
                "201" => "Created",
                "202" => "Accepted",
                _ => "OK",
            };
            answers.insert(
                (*code).to_owned(),
                json!({ "description": word, "content": content(&types, schema) }),
            );
        }
        answers.insert("401".to_owned(), json!({ "description": "Unauthorized" }));
        let (tag, name) = self.group();
        let mut out = json!({
            "tags": [tag], "description": said.about,
            "operationId": format!("{}{name}{before}{}{after}", said.word, kind.kind),
            "responses": answers, "x-kubernetes-action": said.action,
            "x-kubernetes-group-version-kind": { "group": kind.group, "version": kind.version, "kind": kind.kind },
        });
        if let Some(fields) = out.as_object_mut() {
            if !said.query.is_empty() {
                fields.insert("parameters".to_owned(), parameters(said.query));
            }
            if let Some(body) = &said.takes {
                fields.insert("requestBody".to_owned(), body.clone());
            }
        }
        out
    }

    /// The group and version as tags and as ids spell them: `core_v1` and `CoreV1`.
    fn group(&self) -> (String, String) {
        let group = match self.kind.group.as_str() {
            "" => "core",
            group if self.kind.custom => group,
            group => group.trim_end_matches(".k8s.io"),
        };
        let words: String = group.split('.').map(capital).collect();
        let mut letters = words.chars();
        let first = letters.next().map(|letter| letter.to_ascii_lowercase());
        let tag: String = first.into_iter().chain(letters).collect();
        let version = &self.kind.version;
        (format!("{tag}_{version}"), format!("{words}{}", capital(version)))
    }

    fn scope(&self) -> &'static str {
        if self.kind.namespaced { "Namespaced" } else { "" }
    }

    fn list_name(&self) -> String {
        name_of(
            &self.kind.group,
            &self.kind.version,
            &self.kind.list_kind,
            self.kind.custom,
        )
    }

    /// The media types of answers.
    fn types(&self, listed: bool) -> Vec<&'static str> {
        let mut out = vec!["application/json", "application/yaml"];
        if !self.kind.custom {
            out.push("application/vnd.kubernetes.protobuf");
            if listed {
                out.extend([
                    "application/json;stream=watch",
                    "application/vnd.kubernetes.protobuf;stream=watch",
                ]);
            }
        }
        out
    }

    fn body(&self, schema: &str) -> Value {
        let types: &[&str] = if self.kind.custom {
            &["application/json", "application/yaml"]
        } else {
            &["*/*"]
        };
        json!({ "content": content(types, schema), "required": true })
    }

    fn patch(&self) -> Value {
        let mut types = vec![
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if !self.kind.custom {
            types.push("application/strategic-merge-patch+json");
        }
        json!({ "content": content(&types, &format!("{META}Patch")), "required": true })
    }

    /// The parameters that stand in the path.
    fn place(&self, named: bool) -> Value {
        let path = |name: &str, about: String| {
            json!({
                "name": name, "in": "path", "description": about, "required": true,
                "schema": { "type": "string", "uniqueItems": true },
            })
        };
        let mut out = Vec::new();
        if named {
            out.push(path("name", format!("name of the {}", self.kind.kind)));
        }
        if self.kind.namespaced {
            out.push(path("namespace", "namespace of the object".to_owned()));
        }
        out.push(query("pretty"));
        Value::Array(out)
    }
}

fn content(types: &[&str], schema: &str) -> Value {
    let each = types
        .iter()
        .map(|name| ((*name).to_owned(), json!({ "schema": reference(schema) })));
    Value::Object(each.collect())
}

/// A body that need not be sent.
fn optional(mut body: Value) -> Value {
    body.as_object_mut().and_then(|fields| fields.remove("required"));
    body
}

fn parameters(names: &[&str]) -> Value {
    names.iter().map(|name| query(name)).collect()
}

fn query(name: &str) -> Value {
    let kind = match name {
        "allowWatchBookmarks"
        | "sendInitialEvents"
        | "watch"
        | "force"
        | "orphanDependents"
        | "ignoreStoreReadErrorWithClusterBreakingPotential" => "boolean",
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
        _ => "string",
    };
    json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
}

fn article(kind: &str) -> &'static str {
    if kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
        "an"
    } else {
        "a"
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
