//! What kind of request goes to the API server, read from its method and path, and how long its answer may take. Pure.
//!
//! The fence, the limits and the metrics all ask the same questions; they are answered once, here.

use std::time::Duration;

use http::{Method, Response, Uri};
use kube::client::DynBody;

/// How long one answer may take, to its last byte. Half of the API server's own limit of a minute: behind that, it has
/// given up too. kube has no limit of its own, and a peer that is gone would hold a worker for minutes.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// What the HTTP client underneath answers.
pub(super) type Answer = Response<Box<DynBody>>;

/// One request as the API server's own metrics would name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`; `other` for anything that names no resource.
    pub verb: &'static str,
    /// Plural name, with the subresource: `machines/status`. Empty where the path names no resource.
    pub resource: String,
}

impl Call {
    /// Reads a request.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let Some(target) = Target::of(uri.path()) else {
            return Self {
                verb: "other",
                resource: String::new(),
            };
        };
        let verb = match *method {
            Method::GET if asks_to_watch(uri) => "watch",
            Method::GET if target.named => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "other",
        };
        Self {
            verb,
            resource: target.resource,
        }
    }

    /// Whether the answer is a stream that is meant to stay open.
    pub fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    /// Whether the request changes something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete")
    }

    /// Whether the request is about who leads.
    pub fn is_lease(&self) -> bool {
        self.resource == "leases"
    }

    /// Whether the request evicts a pod.
    pub fn is_eviction(&self) -> bool {
        self.resource == "pods/eviction"
    }

    /// Whether the request publishes a Kubernetes event.
    pub fn is_event(&self) -> bool {
        self.resource == "events"
    }
}

fn asks_to_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

struct Target {
    resource: String,
    named: bool,
}

impl Target {
    /// `/api/v1/…` or `/apis/GROUP/VERSION/…`, then `[namespaces/NS/]RESOURCE[/NAME[/SUB]]`.
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let prefix = match parts.next()? {
            "api" => 1,
            "apis" => 2,
            _ => return None,
        };
        let rest: Vec<&str> = parts.skip(prefix).collect();
        let within = match rest.as_slice() {
            ["namespaces", _, resource @ ..] if !resource.is_empty() && !is_of_namespace(resource) => resource,
            all => all,
        };
        match within {
            [] => None,
            [resource] => Some(Self {
                resource: (*resource).to_owned(),
                named: false,
            }),
            [resource, _] => Some(Self {
                resource: (*resource).to_owned(),
                named: true,
            }),
            [resource, _, sub, ..] => Some(Self {
                resource: format!("{resource}/{sub}"),
                named: true,
            }),
        }
    }
}

/// `/api/v1/namespaces/NS/status` speaks of the Namespace itself.
fn is_of_namespace(rest: &[&str]) -> bool {
    matches!(rest, ["status" | "finalize"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: Method, uri: &str) -> (&'static str, String) {
        let call = Call::of(&method, &uri.parse().unwrap());
        (call.verb, call.resource)
    }

    const MACHINES: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines";

    #[test]
    fn verbs_are_told_apart_by_method_name_and_query() {
        assert_eq!(call(Method::GET, MACHINES), ("list", "machines".into()));
        assert_eq!(
            call(Method::GET, &format!("{MACHINES}?limit=500&watch=true")),
            ("watch", "machines".into())
        );
        assert_eq!(call(Method::GET, &format!("{MACHINES}/m1")), ("get", "machines".into()));
        assert_eq!(
            call(Method::PATCH, &format!("{MACHINES}/m1/status?fieldManager=x")),
            ("patch", "machines/status".into())
        );
        assert_eq!(
            call(Method::DELETE, &format!("{MACHINES}/m1")),
            ("delete", "machines".into())
        );
    }

    #[test]
    fn resources_are_found_with_and_without_a_namespace() {
        assert_eq!(call(Method::GET, "/api/v1/nodes"), ("list", "nodes".into()));
        assert_eq!(
            call(Method::POST, "/api/v1/namespaces/kube-system/secrets"),
            ("create", "secrets".into())
        );
        assert_eq!(
            call(Method::GET, "/api/v1/namespaces/default"),
            ("get", "namespaces".into())
        );
        assert_eq!(
            call(Method::PUT, "/api/v1/namespaces/default/finalize"),
            ("update", "namespaces/finalize".into())
        );
    }

    #[test]
    fn what_names_no_resource_is_no_write() {
        let call = Call::of(&Method::GET, &"/version".parse().unwrap());
        assert_eq!(call.verb, "other");
        assert!(!call.is_write());
    }

    #[test]
    fn a_label_value_that_says_watch_is_no_watch() {
        assert_eq!(
            call(Method::GET, &format!("{MACHINES}?labelSelector=watch%3Dtrue")).0,
            "list"
        );
    }
}
