//! What somebody wants to do, in the words of roles.
//!
//! Decides how method, path and query name a verb and a thing. Knows neither which kinds there are nor who asks, and takes
//! every path for something: what is not there is refused before it is missed.

use crate::request::Query;
use crate::select::terms;

/// Something that roles can speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    Resource {
        verb: String,
        thing: Thing,
    },
    /// Where no resource lives: discovery, health.
    Path {
        verb: String,
        path: String,
    },
}

/// A resource, or one object of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thing {
    /// Empty for the core group.
    pub group: String,
    pub resource: String,
    pub subresource: String,
    /// Empty for all namespaces and for what has none.
    pub namespace: String,
    /// Empty for collections, and for what is created.
    pub name: String,
}

impl Thing {
    /// `machines/status`, as roles name it.
    pub fn whole(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

impl std::fmt::Display for Deed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Resource { verb, thing } => {
                write!(
                    f,
                    "{verb} resource \"{}\" in API group \"{}\" ",
                    thing.whole(),
                    thing.group
                )?;
                if thing.namespace.is_empty() {
                    write!(f, "at the cluster scope")
                } else {
                    write!(f, "in the namespace \"{}\"", thing.namespace)
                }
            }
            Self::Path { verb, path } => write!(f, "{verb} path \"{path}\""),
        }
    }
}

impl Deed {
    /// Reads a request's head.
    pub fn read(method: &str, path: &str, query: &str) -> Self {
        Self::of_resource(method, path, query).unwrap_or_else(|| Self::Path {
            verb: method.to_lowercase(),
            path: path.to_owned(),
        })
    }

    /// The namespace it is about, if it is about one.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Resource { thing, .. } => &thing.namespace,
            Self::Path { .. } => "",
        }
    }

    fn of_resource(method: &str, path: &str, query: &str) -> Option<Self> {
        let decoded = crate::request::parts(path);
        let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (special, rest) = match rest {
            // Old ways of saying what is done before saying to what.
            [special @ ("watch" | "proxy"), rest @ ..] => (Some(*special), rest),
            _ => (None, rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, "status" | "finalize", ..] | ["namespaces", namespace] => (*namespace, rest),
            ["namespaces", namespace, inner @ ..] => (*namespace, inner),
            _ => ("", rest),
        };
        let mut rest = rest.iter().copied();
        let mut thing = Thing {
            group: group.to_owned(),
            resource: rest.next()?.to_owned(),
            name: rest.next().unwrap_or_default().to_owned(),
            subresource: rest.next().filter(|_| special.is_none()).unwrap_or_default().to_owned(),
            namespace: namespace.to_owned(),
        };
        let verb = special.unwrap_or_else(|| verb(method, &mut thing, &Query::parse(query)));
        Some(Self::Resource {
            verb: verb.to_owned(),
            thing,
        })
    }
}

/// The verb. A collection of which only one name is wanted counts as that object.
fn verb(method: &str, thing: &mut Thing, query: &Query) -> &'static str {
    match method {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if thing.name.is_empty() => "deletecollection",
        "DELETE" => "delete",
        "GET" | "HEAD" if !thing.name.is_empty() => "get",
        "GET" | "HEAD" => {
            thing.name = only_name(query.first("fieldSelector")).to_owned();
            if query.is_set("watch") { "watch" } else { "list" }
        }
        _ => "",
    }
}

/// The name that a field selector asks for; empty if it asks for none, or for one that no path can have.
fn only_name(selector: &str) -> &str {
    let mut names = terms(selector).into_iter().filter_map(|part| {
        let (field, name) = part.split_once("==").or_else(|| part.split_once('='))?;
        (field == "metadata.name").then_some(name)
    });
    let possible = |name: &&str| !matches!(*name, "." | "..") && !name.contains(['/', '%', '\\']);
    names.next_back().filter(possible).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(method: &str, path: &str) -> String {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Deed::read(method, path, query).to_string()
    }

    #[test]
    fn a_namespace_is_a_place_for_what_is_in_it_and_for_itself() {
        assert_eq!(
            told("GET", "/api/v1/namespaces/a/pods/p/log"),
            "get resource \"pods/log\" in API group \"\" in the namespace \"a\""
        );
        assert_eq!(
            told("DELETE", "/api/v1/namespaces/a"),
            "delete resource \"namespaces\" in API group \"\" in the namespace \"a\""
        );
        assert_eq!(
            told("PUT", "/api/v1/namespaces/a/finalize"),
            "update resource \"namespaces/finalize\" in API group \"\" in the namespace \"a\""
        );
        assert_eq!(
            told("GET", "/api/v1/namespaces"),
            "list resource \"namespaces\" in API group \"\" at the cluster scope"
        );
    }

    #[test]
    fn a_namespace_without_a_name_is_all_of_them_and_no_slash_hides() {
        assert_eq!(
            told("GET", "/api/v1/namespaces//secrets"),
            "list resource \"secrets\" in API group \"\" at the cluster scope"
        );
        assert_eq!(
            told("GET", "/api/v1/namespaces/a%2Fsecrets"),
            "list resource \"secrets\" in API group \"\" in the namespace \"a\""
        );
    }

    #[test]
    fn what_names_no_resource_is_a_path() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis/apps/v1",
            "/apis/apps",
            "/version",
            "/apix/v1/pods",
        ] {
            assert_eq!(told("GET", path), format!("get path \"{path}\""));
        }
    }

    #[test]
    fn a_selector_that_excludes_a_name_names_none() {
        assert_eq!(only_name("metadata.name!=a"), "");
        assert_eq!(only_name("metadata.name==a"), "a");
        assert_eq!(only_name("spec.nodeName=x,metadata.name=a"), "a");
        assert_eq!(only_name("metadata.name=a/b"), "");
        assert_eq!(only_name(r"metadata.namespace!=x\,metadata.name=a"), "");
    }
}
