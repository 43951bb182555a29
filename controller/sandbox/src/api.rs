//! The API as one value with one door.
//!
//! Decides which module answers a request. The objects and the kinds are in `state`; what time it is and which ids are fresh comes in
//! with each request, so that the same requests at the same moments give the same answers.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::accept::{self, Wanted};
pub use crate::answer::Answer;
use crate::discovery;
use crate::failure::Failure;
use crate::kinds::Kind;
use crate::list;
pub use crate::moment::Moment;
use crate::request::{Request, Verb};
pub use crate::state::Api;
use crate::store::Store;
use crate::table;
use crate::watch::{self, Batch, Event, Watch};
use crate::write::part::Part;
use crate::write::{create, delete, evict, patch, scale, update};

/// The namespaces that are there from the start, as on the server.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Api {
    /// An API with the built-in kinds and the namespaces that every cluster has.
    pub fn new(now: Timestamp) -> Self {
        let mut api = Self::holding(Store::default(), now);
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
            Some(form) => answer.into_table(form, &kind, moment.now),
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
            Verb::Watch => watch::begin::start(self, kind, request, moment),
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
