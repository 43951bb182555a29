//! Who may do what: roles and their bindings, as objects of the store, decide about each request.
//!
//! Decides about one user and one deed at a time. Pure; which user shows which token is the HTTP server's affair, and what a
//! deed then leads to is the API's. `tests/rbac/decisions.cases` holds what the real server answered.

#![allow(clippy::indexing_slicing, reason = "a Value read by a key gives null")]

mod deed;
pub mod defaults;
mod impersonate;
mod review;
mod rules;

use std::sync::Arc;

use serde_json::Value;

use crate::answer::Answer;
use crate::api::Api;
use crate::failure::{Failure, Subject};
use crate::moment::Moment;
use crate::request::{Http, Request, Verb};
use crate::store::{Place, Store};
use crate::write::key_of;

pub use deed::{Deed, Thing};
pub use impersonate::Guise;

/// The group whose members may do everything, whatever the roles say.
const MASTERS: &str = "system:masters";
/// The group that everybody is in who is known at all.
const AUTHENTICATED: &str = "system:authenticated";
const GROUP: &str = "rbac.authorization.k8s.io";

/// Somebody who is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// Beside `system:authenticated`, in which everybody is.
    pub groups: Vec<String>,
}

impl User {
    /// A user of no group.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            groups: Vec::new(),
        }
    }

    /// One who may do everything.
    pub fn administrator(name: &str) -> Self {
        Self::new(name).with_group(MASTERS)
    }

    /// A service account, in the groups of its kind and namespace.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(&service_account(namespace, name))
            .with_group("system:serviceaccounts")
            .with_group(&format!("system:serviceaccounts:{namespace}"))
    }

    /// In one more group.
    #[must_use]
    pub fn with_group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    fn is_in(&self, group: &str) -> bool {
        group == AUTHENTICATED || self.groups.iter().any(|known| known == group)
    }
}

fn service_account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// What the roles say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    /// Which binding allows it, or which bindings lead nowhere. Empty if there is nothing to say.
    pub reason: String,
}

/// Whether the roles in a store let a user do something.
pub fn allows(store: &Store, user: &User, deed: &Deed) -> Verdict {
    if user.is_in(MASTERS) {
        return Verdict {
            allowed: true,
            reason: String::new(),
        };
    }
    let mut lost = Vec::new();
    for binding in bindings(store, deed) {
        let Some(subject) = binding.subject(user) else { continue };
        match binding.role(store) {
            Ok(role) if rules::of(&role).any(|rule| rules::covers(rule, deed)) => {
                return Verdict {
                    allowed: true,
                    reason: format!("RBAC: allowed by {} to {subject}", binding.described()),
                };
            }
            Ok(_) => {}
            Err(missing) if lost.contains(&missing) => {}
            Err(missing) => lost.push(missing),
        }
    }
    Verdict {
        allowed: false,
        reason: match lost.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        },
    }
}

/// A binding of a role, and the namespace that it is about; empty for the whole cluster.
struct Binding<'a> {
    object: Arc<Value>,
    namespace: &'a str,
    name: &'a str,
}

fn place(plural: &str) -> Place {
    Place {
        group: GROUP.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The bindings that count for a deed: those of the cluster, and those of its namespace if it is about one.
fn bindings<'a>(store: &'a Store, deed: &'a Deed) -> impl Iterator<Item = Binding<'a>> {
    let namespace = deed.namespace();
    let of_cluster = store.all(&place("clusterrolebindings")).collect::<Vec<_>>();
    let of_namespace = store
        .all(&place("rolebindings"))
        .filter(|(key, _)| !namespace.is_empty() && key.namespace == namespace)
        .collect::<Vec<_>>();
    of_cluster.into_iter().chain(of_namespace).map(|(key, object)| Binding {
        object,
        namespace: &key.namespace,
        name: &key.name,
    })
}

impl<'a> Binding<'a> {
    /// The first subject that is this user, in words.
    fn subject(&self, user: &User) -> Option<String> {
        let subjects = self.object["subjects"].as_array()?;
        subjects.iter().find_map(|subject| {
            let text = |key: &str| subject[key].as_str().unwrap_or_default();
            let (kind, name) = (text("kind"), text("name"));
            match kind {
                "User" => (user.name == name).then(|| format!("User \"{name}\"")),
                "Group" => user.is_in(name).then(|| format!("Group \"{name}\"")),
                "ServiceAccount" => {
                    // One without a namespace is of the binding's.
                    let namespace = Some(text("namespace")).filter(|said| !said.is_empty());
                    let namespace = namespace.unwrap_or(self.namespace);
                    let is_meant = !namespace.is_empty() && user.name == service_account(namespace, name);
                    is_meant.then(|| format!("ServiceAccount \"{name}/{namespace}\""))
                }
                _ => None,
            }
        })
    }

    /// The role that is bound.
    fn role(&self, store: &Store) -> Result<Arc<Value>, String> {
        let (kind, name) = self.role_ref();
        let (plural, namespace) = match kind {
            "Role" => ("roles", self.namespace),
            _ => ("clusterroles", ""),
        };
        let found = store.get(&place(plural), &crate::store::Key::new(namespace, name));
        let missing = || format!("{}.{GROUP} \"{name}\" not found", kind.to_lowercase());
        found.ok_or_else(missing)
    }

    fn role_ref(&self) -> (&str, &str) {
        let text = |key: &str| self.object["roleRef"][key].as_str().unwrap_or_default();
        (text("kind"), text("name"))
    }

    fn described(&self) -> String {
        let (kind, role) = self.role_ref();
        let name = self.name;
        if self.namespace.is_empty() {
            format!("ClusterRoleBinding \"{name}\" of {kind} \"{role}\"")
        } else {
            format!("RoleBinding \"{name}/{}\" of {kind} \"{role}\"", self.namespace)
        }
    }
}

impl Api {
    /// Refuses what the roles do not let a user do.
    pub fn may(&self, user: &User, deed: &Deed) -> Result<(), Failure> {
        let verdict = allows(&self.store, user, deed);
        if verdict.allowed {
            return Ok(());
        }
        let mut why = format!("User \"{}\" cannot {deed}", user.name);
        if !verdict.reason.is_empty() {
            why = format!("{why}: {}", verdict.reason);
        }
        Err(match deed {
            Deed::Resource { thing, .. } => Failure::Denied {
                subject: Subject {
                    group: thing.group.clone(),
                    what: thing.resource.clone(),
                },
                name: thing.name.clone(),
                why,
            },
            Deed::Path { .. } => Failure::DeniedPath { why },
        })
    }

    /// Answers one request of a user, as far as the roles let him.
    pub fn handle_as(&mut self, user: &User, http: &Http<'_>, moment: &Moment) -> Answer {
        let deed = Deed::read(http.method, http.path, http.query);
        match self.admitted(user, &deed, http) {
            Ok(request) if review::is_asked(&request) => review::answer(self, user, &request, moment),
            Ok(request) => self.handle(&request, moment),
            Err(failure) => failure.into(),
        }
    }

    fn admitted(&self, user: &User, deed: &Deed, http: &Http<'_>) -> Result<Request, Failure> {
        self.may(user, deed)?;
        let request = Request::parse(http)?;
        if let (true, Deed::Resource { thing, .. }) = (self.would_create(&request), deed) {
            let creation = Deed::Resource {
                verb: "create".to_owned(),
                thing: thing.clone(),
            };
            self.may(user, &creation)?;
        }
        Ok(request)
    }

    /// Whether what is asked for as a change makes an object, because there is none to change.
    fn would_create(&self, request: &Request) -> bool {
        if !request.target.subresource.is_empty() {
            return false;
        }
        let Ok(kind) = self.kinds.of(&request.target) else {
            return false;
        };
        let can_create = match request.verb {
            Verb::Update => kind.put_creates,
            Verb::Patch => request.content_type == "application/apply-patch+yaml",
            Verb::Get
            | Verb::List
            | Verb::Watch
            | Verb::Create
            | Verb::Delete
            | Verb::DeleteCollection
            | Verb::Other => false,
        };
        can_create && self.store.get(&kind.place(), &key_of(request)).is_none()
    }
}
