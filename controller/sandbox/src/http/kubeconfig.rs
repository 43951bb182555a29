//! The file that kubectl reads. Decides its text and nothing else.

use serde_json::json;

/// A kubeconfig with one cluster, one user and one context. JSON strings are YAML strings too, so no name breaks out.
pub(super) fn text(url: &str, user: &str, token: &str) -> String {
    let (url, user, token) = (json!(url), json!(user), json!(token));
    format!(
        "apiVersion: v1\nkind: Config\n\
         clusters: [{{name: sandbox, cluster: {{server: {url}}}}}]\n\
         users: [{{name: {user}, user: {{token: {token}}}}}]\n\
         contexts: [{{name: sandbox, context: {{cluster: sandbox, user: {user}}}}}]\n\
         current-context: sandbox\n"
    )
}
