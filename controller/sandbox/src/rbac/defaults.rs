//! The roles that every cluster has from the start.
//!
//! Of the real server's sixty-odd, those that users bind or meet: the administrator's, and what everybody may ask.

use serde_json::{Value, json};

use crate::api::Api;
use crate::failure::Failure;
use crate::moment::Moment;

/// Roles with the groups that they are bound to.
fn all() -> [(&'static str, Value, &'static [&'static str]); 4] {
    [
        (
            "cluster-admin",
            json!([
                { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] },
                { "nonResourceURLs": ["*"], "verbs": ["*"] },
            ]),
            &["system:masters"],
        ),
        (
            "system:basic-user",
            json!([
                {
                    "apiGroups": ["authorization.k8s.io"],
                    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                    "verbs": ["create"],
                },
                { "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"] },
            ]),
            &["system:authenticated"],
        ),
        (
            "system:discovery",
            json!([{
                "nonResourceURLs": [
                    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz",
                    "/version", "/version/",
                ],
                "verbs": ["get"],
            }]),
            &["system:authenticated"],
        ),
        (
            "system:public-info-viewer",
            json!([{ "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"] }]),
            &["system:authenticated", "system:unauthenticated"],
        ),
    ]
}

/// Stores those of them that are not there.
pub fn install(api: &mut Api, mut moment: impl FnMut() -> Moment) -> Result<(), Failure> {
    const VERSION: &str = "rbac.authorization.k8s.io/v1";
    const GROUP: &str = "rbac.authorization.k8s.io";
    for (name, rules, groups) in all() {
        let metadata = json!({
            "name": name,
            "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
            "annotations": { "rbac.authorization.kubernetes.io/autoupdate": "true" },
        });
        let subjects = groups
            .iter()
            .map(|group| json!({ "apiGroup": GROUP, "kind": "Group", "name": group }));
        let role = json!({ "apiVersion": VERSION, "kind": "ClusterRole", "metadata": metadata, "rules": rules });
        let binding = json!({
            "apiVersion": VERSION, "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": name },
            "subjects": subjects.collect::<Value>(),
        });
        for object in [role, binding] {
            match api.install(&object, &moment()) {
                // Whoever changed it meant it.
                Ok(_) | Err(Failure::AlreadyExists { .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(())
}
