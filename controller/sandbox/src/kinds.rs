//! Which kinds there are: the built-in ones and those that CustomResourceDefinitions name.
//!
//! Decides what a group, version and plural stand for, and how the server treats objects of that kind. Stores none.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::failure::{Failure, Subject};
use crate::request::Target;
use crate::schema::Schema;
use crate::store::{Place, Tree};
use crate::topology::Topology;

/// Which changes count in `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// The server keeps no generation for this kind; what a caller writes stays.
    Nothing,
    /// Changes of `spec`.
    Spec,
    /// Changes of anything but metadata, and of status where status is apart.
    AllButMetadata,
}

/// Where a custom kind's scale subresource finds its numbers, as paths of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    /// Absent for kinds that publish no selector.
    pub selector: Option<Vec<String>>,
}

/// A column of `kubectl get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    /// JSONPath within the object, as `.metadata.creationTimestamp`.
    pub path: String,
}

/// One served version of a kind.
#[derive(Debug, Clone)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Whether status is written apart.
    pub status: bool,
    pub scale: Option<Scale>,
    pub counts: Counts,
    pub columns: Vec<Column>,
    /// Whether a PUT to a missing name creates.
    pub put_creates: bool,
    /// Whether a PUT must say which version it replaces.
    pub put_needs_version: bool,
    /// Fields that a field selector may name, beside `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<String>,
    /// What the definition of a custom kind says of its objects. Absent for built-in kinds.
    pub schema: Option<Arc<Schema>>,
    /// Which lists are sets, maps or whole. Absent for built-in kinds whose shape is not held.
    pub topology: Option<Arc<Topology>>,
    /// The `openAPIV3Schema` from which that was read.
    pub open_api: Option<Value>,
    /// Whether a definition asked for this kind.
    pub custom: bool,
}

impl Kind {
    /// Where its objects lie. Both groups of events share one place.
    pub fn place(&self) -> Place {
        let group = if self.plural == "events" { "" } else { &self.group };
        Place {
            group: group.to_owned(),
            plural: self.plural.clone(),
        }
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `machines.machine.sapcloud.io`.
    pub fn resource(&self) -> Subject {
        Subject {
            group: self.group.clone(),
            what: self.plural.clone(),
        }
    }

    /// `Machine.machine.sapcloud.io`.
    pub fn subject(&self) -> Subject {
        Subject {
            // Events are called by the name under which they are stored.
            group: self.place().group,
            what: self.kind.clone(),
        }
    }

    /// Whether its objects have this part that is spoken to apart; the whole is one.
    pub fn serves(&self, subresource: &str) -> bool {
        match subresource {
            "" => true,
            "status" => self.status,
            "scale" => self.scale.is_some(),
            "eviction" => self.is("Pod"),
            _ => false,
        }
    }

    /// Whether this is the built-in kind of that name.
    pub fn is(&self, kind: &str) -> bool {
        !self.custom && self.kind == kind
    }
}

/// One line of the table of built-in kinds: group, version, plural, kind, short names, namespaced, status, counts,
/// a PUT creates, a PUT needs a version, selectable fields.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    bool,
    Counts,
    bool,
    bool,
    &'static str,
);

const RBAC: &str = "rbac.authorization.k8s.io";
const EVENT_FIELDS: &str = "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
     involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type";
/// As the newer group calls them.
const NEW_EVENT_FIELDS: &str = "regarding.kind regarding.namespace regarding.name regarding.uid regarding.apiVersion \
     regarding.resourceVersion regarding.fieldPath reason reportingController type";
const POD_FIELDS: &str = "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork \
     status.phase status.podIP status.nominatedNodeName";

#[rustfmt::skip]
const BUILT_IN: [Row; 19] = {
    use Counts::{Nothing, Spec};
    [
        ("", "v1", "namespaces", "Namespace", "ns", false, true, Nothing, false, false, "status.phase"),
        ("", "v1", "secrets", "Secret", "", true, false, Nothing, false, false, "type"),
        ("", "v1", "configmaps", "ConfigMap", "cm", true, false, Nothing, false, false, ""),
        ("", "v1", "serviceaccounts", "ServiceAccount", "sa", true, false, Nothing, false, false, ""),
        ("", "v1", "nodes", "Node", "no", false, true, Nothing, false, false, "spec.unschedulable"),
        ("", "v1", "pods", "Pod", "po", true, true, Spec, false, false, POD_FIELDS),
        ("", "v1", "persistentvolumes", "PersistentVolume", "pv", false, true, Nothing, false, false, ""),
        ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", true, true, Nothing, false, false, ""),
        ("", "v1", "events", "Event", "ev", true, false, Nothing, true, false, EVENT_FIELDS),
        ("events.k8s.io", "v1", "events", "Event", "ev", true, false, Nothing, true, false, NEW_EVENT_FIELDS),
        ("coordination.k8s.io", "v1", "leases", "Lease", "", true, false, Nothing, true, true, ""),
        ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", true, true, Spec, false, true, ""),
        ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", "", false, true, Nothing, false, true, ""),
        (RBAC, "v1", "roles", "Role", "", true, false, Nothing, true, false, ""),
        (RBAC, "v1", "rolebindings", "RoleBinding", "", true, false, Nothing, true, false, ""),
        (RBAC, "v1", "clusterroles", "ClusterRole", "", false, false, Nothing, true, false, ""),
        (RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", "", false, false, Nothing, true, false, ""),
        ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", "crd crds", false, true, Spec, false, true, ""),
        ("apps", "v1", "controllerrevisions", "ControllerRevision", "", true, false, Nothing, false, false, ""),
    ]
};

/// All kinds by group, version and plural.
#[derive(Debug, Clone)]
pub struct Kinds {
    all: BTreeMap<(String, String, String), Arc<Kind>>,
    /// The OpenAPI documents of these kinds by group and version, each made when somebody asks for it. Copies share them.
    documents: Arc<Mutex<BTreeMap<(String, String), Tree>>>,
}

impl Default for Kinds {
    fn default() -> Self {
        let built_in = BUILT_IN.iter().map(|row| {
            let mut kind = built_in(row);
            kind.topology = Topology::of_builtin(&kind.api_version(), &kind.kind).map(Arc::new);
            (
                (kind.group.clone(), kind.version.clone(), kind.plural.clone()),
                Arc::new(kind),
            )
        });
        Self {
            all: built_in.collect(),
            documents: Arc::default(),
        }
    }
}

impl Kinds {
    /// The kind that a request is about. An unknown group has no path at all; an unknown plural of a known one is a resource not found.
    pub fn of(&self, target: &Target) -> Result<Arc<Kind>, Failure> {
        let key = (target.group.clone(), target.version.clone(), target.resource.clone());
        if let Some(kind) = self.all.get(&key) {
            return if kind.namespaced || target.namespace.is_empty() {
                Ok(kind.clone())
            } else {
                Err(Failure::NoResource)
            };
        }
        // Of a group of definitions, the server knows no paths but theirs.
        let served = self
            .all
            .values()
            .any(|kind| !kind.custom && kind.group == target.group && kind.version == target.version);
        Err(if served || target.group.is_empty() {
            Failure::NoResource
        } else {
            Failure::NoPath
        })
    }

    /// All kinds, in order of group, version and plural.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.all.values()
    }

    /// The kind that an owner reference or a manifest names.
    pub fn named(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.all
            .values()
            .find(|known| known.kind == kind && known.api_version() == api_version)
    }

    /// Any served version of what lies at a place.
    pub fn at(&self, place: &Place) -> Option<&Arc<Kind>> {
        self.all.values().find(|kind| kind.place() == *place)
    }

    /// The versions of a group, best first.
    pub(crate) fn versions(&self, group: &str) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .all()
            .filter(|kind| kind.group == group)
            .map(|kind| kind.version.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names.sort_by_key(|version| std::cmp::Reverse(maturity(version)));
        names
    }

    /// The kinds of one group and version, by plural.
    pub(crate) fn served(&self, group: &str, version: &str) -> impl Iterator<Item = &Kind> {
        self.all()
            .map(AsRef::as_ref)
            .filter(move |kind| kind.group == group && kind.version == version)
    }

    /// The document of a group and version: what `make` made of these kinds the first time.
    pub fn document(&self, group: &str, version: &str, make: impl FnOnce() -> Value) -> Tree {
        let mut documents = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (group.to_owned(), version.to_owned());
        documents.entry(place).or_insert_with(|| make().into()).clone()
    }

    /// Takes up what a definition says now, in place of what it said before.
    pub fn define(&mut self, definition: &Value) {
        self.forget(definition);
        for kind in custom(definition) {
            self.all.insert(
                (kind.group.clone(), kind.version.clone(), kind.plural.clone()),
                Arc::new(kind),
            );
        }
    }

    /// Forgets the kinds of a definition.
    pub fn forget(&mut self, definition: &Value) {
        let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
        self.documents = Arc::default();
        self.all
            .retain(|(known, _, resource), kind| !kind.custom || *known != group || *resource != plural);
    }
}

/// How far a version has come: `v2` before `v1`, that before `v1beta1`, that before `v1alpha1`; other names last.
fn maturity(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else {
        return (0, 0, 0);
    };
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (major, stage) = rest.split_at(digits);
    let Ok(major) = major.parse() else {
        return (0, 0, 0);
    };
    let number = |text: &str| text.parse().ok();
    if stage.is_empty() {
        (3, major, 0)
    } else if let Some(minor) = stage.strip_prefix("beta").and_then(number) {
        (2, major, minor)
    } else if let Some(minor) = stage.strip_prefix("alpha").and_then(number) {
        (1, major, minor)
    } else {
        (0, 0, 0)
    }
}

fn built_in(row: &Row) -> Kind {
    let (group, version, plural, kind, short, namespaced, status, counts, put_creates, put_needs_version, selectable) =
        row;
    Kind {
        group: (*group).to_owned(),
        version: (*version).to_owned(),
        plural: (*plural).to_owned(),
        singular: kind.to_lowercase(),
        kind: (*kind).to_owned(),
        list_kind: format!("{kind}List"),
        short_names: words(short),
        categories: Vec::new(),
        namespaced: *namespaced,
        status: *status,
        scale: None,
        counts: *counts,
        columns: Vec::new(),
        put_creates: *put_creates,
        put_needs_version: *put_needs_version,
        selectable: words(selectable),
        schema: None,
        topology: None,
        open_api: None,
        custom: false,
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// One kind for each served version of a definition.
fn custom(definition: &Value) -> Vec<Kind> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == json!(true));
    served.map(|version| custom_version(definition, version)).collect()
}

fn custom_version(definition: &Value, version: &Value) -> Kind {
    let kind = text(definition, "/spec/names/kind");
    let open_api = version.pointer("/schema/openAPIV3Schema").cloned();
    let or = |pointer: &str, other: String| {
        Some(text(definition, pointer))
            .filter(|t| !t.is_empty())
            .unwrap_or(other)
    };
    Kind {
        group: text(definition, "/spec/group"),
        version: text(version, "/name"),
        plural: text(definition, "/spec/names/plural"),
        singular: or("/spec/names/singular", kind.to_lowercase()),
        list_kind: or("/spec/names/listKind", format!("{kind}List")),
        short_names: texts(definition, "/spec/names/shortNames"),
        categories: texts(definition, "/spec/names/categories"),
        namespaced: text(definition, "/spec/scope") == "Namespaced",
        status: version.pointer("/subresources/status").is_some(),
        scale: version.pointer("/subresources/scale").map(scale),
        counts: Counts::AllButMetadata,
        columns: columns(version),
        put_creates: false,
        put_needs_version: true,
        selectable: selectable(version),
        // A schema that cannot be read is one that the server would have refused: nothing is checked against it.
        schema: open_api
            .as_ref()
            .and_then(|source| Schema::read(source).ok())
            .map(Arc::new),
        topology: open_api.as_ref().map(Topology::of_custom).map(Arc::new),
        open_api,
        custom: true,
        kind,
    }
}

fn scale(said: &Value) -> Scale {
    let path = |pointer: &str| {
        text(said, pointer)
            .split('.')
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let selector: Vec<String> = path("/labelSelectorPath");
    Scale {
        spec_replicas: path("/specReplicasPath"),
        status_replicas: path("/statusReplicasPath"),
        selector: Some(selector).filter(|path| !path.is_empty()),
    }
}

fn columns(version: &Value) -> Vec<Column> {
    let said = version.get("additionalPrinterColumns").and_then(Value::as_array);
    let column = |column: &Value| Column {
        name: text(column, "/name"),
        kind: text(column, "/type"),
        format: text(column, "/format"),
        description: text(column, "/description"),
        priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
        path: text(column, "/jsonPath"),
    };
    said.into_iter().flatten().map(column).collect()
}

fn selectable(version: &Value) -> Vec<String> {
    let said = version.get("selectableFields").and_then(Value::as_array);
    said.into_iter()
        .flatten()
        .map(|field| text(field, "/jsonPath").trim_start_matches('.').to_owned())
        .collect()
}

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn texts(value: &Value, pointer: &str) -> Vec<String> {
    let all = value.pointer(pointer).and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
