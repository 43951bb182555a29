//! The API as one value with one door.
//!
//! Decides which room answers a request. It holds the objects and the kinds; what time it is and which ids are fresh comes in
//! with each request, so that the same requests at the same moments give the same answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::accept::{self, Wanted};
use crate::discovery;
use crate::failure::Failure;
use crate::kinds::{Kind, Kinds};
use crate::list::{self, Listing};
pub use crate::moment::Moment;
use crate::request::{Request, Verb};
use crate::store::{Change, Key, Object, Place, Store, Tree};
use crate::table;
use crate::watch::{self, Batch, Event, Started, Watch};
use crate::write::part::Part;
use crate::write::{create, delete, evict, patch, scale, size, update};

/// What the API says.
#[derive(Debug)]
pub enum Answer {
    /// A JSON body, and the texts of `Warning` headers.
    Object {
        code: u16,
        body: Tree,
        warnings: Vec<String>,
    },
    /// Objects as they are stored.
    List(Box<Listing>),
    /// A plain text, where no API lives.
    Text { code: u16, body: String },
    /// A stream of events that has begun; ask [`Api::events`] for more.
    Watch(Box<Started>),
}

impl Answer {
    pub(crate) fn ok(body: impl Into<Tree>) -> Self {
        Self::with(200, body)
    }

    /// The media type under which it is sent: clients tell the two forms of discovery apart by it.
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Object { body, .. } if body.get("kind") == Some(&json!("APIGroupDiscoveryList")) => {
                discovery::AGGREGATED
            }
            Self::Object { .. } | Self::List(_) | Self::Watch(_) => "application/json",
            Self::Text { .. } => "text/plain; charset=utf-8",
        }
    }

    pub(crate) fn with(code: u16, body: impl Into<Tree>) -> Self {
        Self::Object {
            code,
            body: body.into(),
            warnings: Vec::new(),
        }
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoPath => Self::Text {
                code: 404,
                body: failure.to_string(),
            },
            other => Self::with(other.code(), other.status()),
        }
    }
}

/// A Kubernetes API.
#[derive(Debug, Clone)]
pub struct Api {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    /// When it was asked last: the time by which events tell ages, as whatever causes one brings its moment.
    now: Timestamp,
    /// The versions of objects that hold nulls where they lie, though nobody sees them. The server compares what lies with what it
    /// would write, so that the next write of such an object takes place even if it changes nothing.
    pub(crate) nulls: BTreeSet<u64>,
    /// What the caller of the request under way is to be warned of.
    warnings: Vec<String>,
}

/// The namespaces that are there from the start, as on the server.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Api {
    /// An API with the built-in kinds and the namespaces that every cluster has.
    pub fn new(now: Timestamp) -> Self {
        let mut api = Self {
            store: Store::default(),
            kinds: Kinds::default(),
            now,
            nulls: BTreeSet::new(),
            warnings: Vec::new(),
        };
        for (number, name) in NAMESPACES.iter().enumerate() {
            // Uids that no caller makes: version 0 of a uuid is not in use.
            let moment = Moment {
                now,
                uid: format!("00000000-0000-0000-0000-{number:012}"),
                suffix: String::new(),
            };
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            api.install(&namespace, &moment)
                .expect("a namespace of a valid name is admitted into an empty store");
        }
        api
    }

    /// The API that held these objects at that version. Watches and pages from before answer 410.
    pub fn restored(version: u64, objects: impl IntoIterator<Item = (Place, Key, Value)>, now: Timestamp) -> Self {
        let mut api = Self {
            store: Store::restored(version, objects),
            kinds: Kinds::default(),
            now,
            nulls: BTreeSet::new(),
            warnings: Vec::new(),
        };
        let definitions = Place {
            group: "apiextensions.k8s.io".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
        };
        for (_, definition) in api.store.all(&definitions) {
            api.kinds.define(&definition);
        }
        api
    }

    /// Every change after a version, for who keeps them.
    pub fn changes(&self, after: u64) -> Vec<(&Place, &Change)> {
        self.store.all_since(after)
    }

    /// Creates an object without a request, as an installer would.
    pub fn install(&mut self, object: &Value, moment: &Moment) -> Result<Arc<Value>, Failure> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let kind = self
            .kinds
            .named(api_version, kind)
            .cloned()
            .ok_or(Failure::NoResource)?;
        create::insert(self, &kind, object.clone(), &crate::write::Options::default(), moment).map(|made| made.value())
    }

    /// Answers one request.
    pub fn handle(&mut self, request: &Request, moment: &Moment) -> Answer {
        self.now = moment.now;
        self.warnings.clear();
        let mut answer = self.answer(request, moment).unwrap_or_else(Answer::from);
        if let Answer::Object { warnings, .. } = &mut answer {
            warnings.append(&mut self.warnings);
        }
        answer
    }

    /// Tells the caller something that does not hinder his request.
    pub(crate) fn warn(&mut self, warnings: Vec<String>) {
        self.warnings.extend(warnings);
    }

    /// What happened after a version that a watch looks at.
    pub fn events(&self, watch: &Watch, after: u64) -> Batch {
        watch::events(&self.store, watch, after, self.now)
    }

    /// The event that tells a watch how far it has come.
    pub fn bookmark(&self, watch: &Watch) -> Option<Event> {
        watch
            .bookmarks
            .then(|| Event::Said(watch::bookmark(watch, self.store.version(), false)))
            .map(|event| watch.dressed(event, self.now))
    }

    /// All kinds that are served, for discovery.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// One object as it is stored.
    pub fn stored(&self, place: &Place, key: &Key) -> Option<Arc<Value>> {
        self.store.get(place, key)
    }

    /// All objects of a kind as they are stored, in their order.
    pub fn all<'a>(&'a self, place: &Place) -> impl Iterator<Item = (&'a Key, Arc<Value>)> + use<'a> {
        self.store.all(place)
    }

    /// What became of a kind's objects after a version, as far as that is remembered.
    pub fn changes_of(&self, place: &Place, after: u64) -> impl Iterator<Item = &Change> {
        self.store.since(place, after).into_iter().flatten()
    }

    /// The version of the newest write.
    pub fn version(&self) -> u64 {
        self.store.version()
    }

    /// Forgets history, as etcd's compaction does: older watches and pages answer 410.
    pub fn compact(&mut self, version: u64) {
        self.store.compact(version);
    }

    /// Forgets history that is longer than so many changes of one kind.
    pub fn trim(&mut self, changes: usize) {
        self.store.trim(changes);
    }

    /// Keeps the texts alone of kinds with more objects than `many`: a tenth of the room, but each look inside reads the text anew.
    pub fn cool(&mut self, many: usize) {
        self.store.cool(many);
    }

    fn answer(&mut self, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
        let target = &request.target;
        if target.resource.is_empty() {
            return discovery::answer(&self.kinds, request);
        }
        let kind = self.kinds.of(target)?;
        if kind.namespaced && target.namespace.is_empty() && !matches!(request.verb, Verb::List | Verb::Watch) {
            return Err(match kind.custom {
                true => Failure::NoPath,
                false if target.name.is_empty() => Failure::NoMethod,
                false => Failure::NoResource,
            });
        }
        if request.verb == Verb::Create && !target.name.is_empty() && target.subresource.is_empty() && !kind.custom {
            return Err(Failure::NoMethod); // those of ours are created at any path, by the name that they say
        }
        if !kind.custom && kind.serves(&target.subresource) && is_no_method(request) {
            return Err(Failure::NoMethod);
        }
        let form = match accept::of_kind(&kind, request)? {
            Wanted::Table(version) => Some(table::Form::of(version, &request.query)?),
            Wanted::Plain | Wanted::Metadata => None,
        };
        let answer = self.answer_plain(&kind, request, moment)?;
        Ok(match form {
            Some(form) => form.of_answer(&kind, answer, moment.now),
            None => answer,
        })
    }

    fn answer_plain(&mut self, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
        let target = &request.target;
        let part = match target.subresource.split_once('/') {
            Some((part, _)) if kind.custom => part,
            _ => &target.subresource,
        };
        if !kind.serves(part) {
            return Err(match kind.custom {
                true => Failure::NotFound {
                    subject: kind.resource(),
                    name: target.name.clone(),
                },
                false => Failure::NoResource,
            });
        }
        match part {
            "" => self.answer_whole(kind, request, moment),
            "status" => self.answer_status(kind, request, moment),
            "scale" => scale::answer(self, kind, request, moment),
            _ if request.verb == Verb::Create => evict::answer(self, kind, request, moment),
            _ => Err(Failure::NoMethod),
        }
    }

    fn answer_whole(&mut self, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
        match request.verb {
            Verb::Update | Verb::Patch if request.target.name.is_empty() => Err(nameless(kind, request)),
            Verb::Get => list::get(self, kind, request),
            Verb::List => list::list(self, kind, request),
            Verb::Watch => watch::start(self, kind, request, moment),
            Verb::Create => create::answer(self, kind, request, moment),
            Verb::Update => update::answer(self, kind, request, Part::Whole, moment),
            Verb::Patch => patch::answer(self, kind, request, Part::Whole, moment),
            Verb::Delete => delete::answer(self, kind, request, moment),
            Verb::DeleteCollection => delete::answer_collection(self, kind, request, moment),
            Verb::Other => Err(not_supported(kind, "")),
        }
    }

    fn answer_status(&mut self, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
        match request.verb {
            Verb::Get => list::get(self, kind, request),
            Verb::Update => update::answer(self, kind, request, Part::Status, moment),
            Verb::Patch => patch::answer(self, kind, request, Part::Status, moment),
            Verb::Delete if kind.custom => Err(not_supported(kind, "delete")),
            Verb::Create if kind.custom => Err(not_supported(kind, "create")),
            Verb::Other if kind.custom => Err(not_supported(kind, "")),
            Verb::List | Verb::Watch | Verb::Create | Verb::Delete | Verb::DeleteCollection | Verb::Other => {
                Err(Failure::NoMethod)
            }
        }
    }

    /// The stored object that a request names.
    pub(crate) fn find(&self, kind: &Kind, key: &Key) -> Result<Tree, Failure> {
        let found = self.store.tree(&kind.place(), key);
        found.ok_or_else(|| Failure::NotFound {
            subject: kind.resource(),
            name: key.name.clone(),
        })
    }

    /// Stores an object and lets definitions take effect.
    pub(crate) fn put(&mut self, kind: &Kind, key: Key, object: Value) -> Result<Tree, Failure> {
        let place = kind.place();
        let object = self.store.next(object);
        size::admit(&object)?;
        let stored = self.store.put(&place, key, object);
        if kind.is("CustomResourceDefinition") {
            let place = defined(&stored);
            if self.kinds.at(&place).is_none() {
                self.store.begin(&place);
            }
            self.kinds.define(&stored);
        }
        Ok(stored)
    }

    /// Takes an object away; a definition takes its kinds and all their objects with it.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Object> {
        let gone = self.store.remove(&kind.place(), key)?;
        if kind.is("CustomResourceDefinition") {
            let gone = gone.value();
            let place = defined(&gone);
            let keys: Vec<Key> = self.store.all(&place).map(|(key, _)| key.clone()).collect();
            for key in keys {
                self.store.remove(&place, &key);
            }
            self.kinds.forget(&gone);
        }
        Some(gone)
    }
}

/// Whether the router of the server's own kinds knows no such method.
fn is_no_method(request: &Request) -> bool {
    let is_collection = request.target.name.is_empty();
    request.is_head
        || request.verb == Verb::Other
        || (is_collection && matches!(request.verb, Verb::Update | Verb::Patch))
}

/// The refusal of a PUT or PATCH to a collection of custom objects.
fn nameless(kind: &Kind, request: &Request) -> Failure {
    let format = (request.verb == Verb::Patch).then(|| patch::format_of(kind, request));
    match format {
        Some(Err(failure)) => failure,
        Some(Ok(_)) | None => Failure::BadRequest("name must be provided".to_owned()),
    }
}

fn not_supported(kind: &Kind, verb: &'static str) -> Failure {
    Failure::NotSupported {
        verb,
        subject: kind.resource(),
    }
}

/// Where the objects of a definition lie.
fn defined(definition: &Value) -> Place {
    let text = |pointer| crate::object::text(definition, pointer).to_owned();
    Place {
        group: text("/spec/group"),
        plural: text("/spec/names/plural"),
    }
}
