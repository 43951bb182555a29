//! The kinds that the simulator knows, by their plurals: where their objects lie, and by which path they are asked for. The one table of
//! them, for whoever acts on objects and whoever judges them.

use millwright_sandbox::store::Place;

/// One kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// As `machines`.
    pub plural: &'static str,
    group: &'static str,
    version: &'static str,
    /// The namespace in which the simulator makes objects of it; "" where it has none.
    pub namespace: &'static str,
}

const fn ours(plural: &'static str) -> Kind {
    kind_of(plural, "machine.sapcloud.io", "v1alpha1", "default")
}

const fn kind_of(plural: &'static str, group: &'static str, version: &'static str, namespace: &'static str) -> Kind {
    Kind {
        plural,
        group,
        version,
        namespace,
    }
}

/// All of them.
pub const ALL: [Kind; 14] = [
    ours("machinedeployments"),
    ours("machinesets"),
    ours("machines"),
    ours("machineclasses"),
    kind_of("namespaces", "", "v1", ""),
    kind_of("nodes", "", "v1", ""),
    kind_of("secrets", "", "v1", "default"),
    kind_of("pods", "", "v1", "default"),
    kind_of("events", "", "v1", "default"),
    kind_of("persistentvolumes", "", "v1", ""),
    kind_of("persistentvolumeclaims", "", "v1", "default"),
    kind_of("leases", "coordination.k8s.io", "v1", "default"),
    kind_of("poddisruptionbudgets", "policy", "v1", "default"),
    kind_of("volumeattachments", "storage.k8s.io", "v1", ""),
];

/// The kind of this plural.
///
/// # Panics
///
/// Where there is none: a judge that looked there would find nothing wrong for ever.
pub fn kind(plural: &str) -> &'static Kind {
    let known = ALL.iter().find(|kind| kind.plural == plural);
    assert!(known.is_some(), "{plural} is no kind of the simulator's: see kinds.rs");
    known.unwrap_or(&ALL[0])
}

/// Where objects of this kind lie.
pub fn place(plural: &str) -> Place {
    kind(plural).place()
}

/// Paths of our kinds.
pub const OURS: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";

/// Where objects of a kind are made.
pub fn collection(plural: &str) -> String {
    kind(plural).collection()
}

/// Where one object of a kind is.
pub fn path(plural: &str, name: &str) -> String {
    format!("{}/{name}", collection(plural))
}

impl Kind {
    /// Where its objects lie.
    pub fn place(&self) -> Place {
        Place {
            group: self.group.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// Where its objects are made.
    pub fn collection(&self) -> String {
        let root = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match self.namespace {
            "" => format!("{root}/{}", self.plural),
            namespace => format!("{root}/namespaces/{namespace}/{}", self.plural),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use millwright_sandbox::api::{Api, Moment};

    use super::*;

    #[test]
    fn the_api_serves_every_kind_of_the_table_where_the_table_says() {
        let moment = Moment {
            now: Timestamp::UNIX_EPOCH,
            uid: "u".to_owned(),
            suffix: String::new(),
        };
        let mut api = Api::new(Timestamp::UNIX_EPOCH);
        for crd in millwright_core::api::crds::all() {
            api.install(&serde_json::to_value(crd).unwrap(), &moment).unwrap();
        }
        for kind in &ALL {
            let served = api.kinds().at(&kind.place());
            let served = served.unwrap_or_else(|| unreachable!("{} is not served", kind.plural));
            assert_eq!(served.namespaced, !kind.namespace.is_empty(), "{}", kind.plural);
        }
    }

    #[test]
    #[should_panic(expected = "podz is no kind")]
    fn an_unknown_plural_is_an_error() {
        place("podz");
    }
}
