//! Deleting: at once, after a while, or when the last finalizer has gone.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::failure::{Cause, Failure};
use crate::kinds::Kind;
use crate::list::{self, options_invalid};
use crate::moment::Moment;
use crate::object::{self, FOREGROUND, ORPHAN};
use crate::protobuf::{self, Envelope};
use crate::request::Request;
use crate::shown::Shape;
use crate::state::Api;
use crate::store::{Key, Object, Tree, set_version};
use crate::write::update::path_in_storage;
use crate::write::{dry_run_complaint, key_of, kind_unreadable, no_kind, text, typed, upkeep};

/// What becomes of an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Says which object is meant, how fast it is to go and what becomes of its dependents.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub uid: Option<String>,
    pub version: Option<String>,
    pub grace: Option<i64>,
    pub propagation: Option<Propagation>,
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Reads the options of a DELETE: its body, or else its query.
    fn read(request: &Request) -> Result<Self, Failure> {
        let query = &request.query;
        let said: Value = if request.body.is_empty() {
            json!({
                "propagationPolicy": query.said("propagationPolicy"),
                "gracePeriodSeconds": query.number("gracePeriodSeconds")?,
                "orphanDependents": query.switch("orphanDependents"),
                "preconditions": { "uid": query.said("uid"), "resourceVersion": query.said("resourceVersion") },
                "dryRun": query.all("dryRun").collect::<Vec<_>>(),
            })
        } else {
            let said = Self::stated(request)?;
            let kind = object::text(&said, "/kind");
            if !matches!(kind, "" | "DeleteOptions") {
                let version = object::text(&said, "/apiVersion");
                return Err(Failure::BadRequest(format!(
                    "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
                )));
            }
            if let Some(why) = typed::complaint_of_options(&said) {
                return Err(Failure::BadRequest(why));
            }
            said
        };
        Self::of(&said)
    }

    /// What the body of a DELETE says.
    fn stated(request: &Request) -> Result<Value, Failure> {
        if request.content_type == protobuf::MEDIA {
            return Envelope::open(&request.body, "v1", "DeleteOptions")
                .and_then(|envelope| envelope.object())
                .map_err(Failure::BadRequest);
        }
        let (said, _) = text(request).map_err(|unread| unread.refusal(Failure::BadRequest))?;
        kind_unreadable(&said).map_or(Ok(said), |why| Err(Failure::BadRequest(no_kind(&why))))
    }

    /// Reads a `DeleteOptions` value.
    pub(crate) fn of(said: &Value) -> Result<Self, Failure> {
        let text = |pointer: &str| said.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let dry: Vec<&str> = said["dryRun"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if let Some(cause) = dry_run_complaint(&dry) {
            return Err(options_invalid("DeleteOptions", vec![cause]));
        }
        Ok(Self {
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
            grace: said["gracePeriodSeconds"].as_i64(),
            propagation: propagation(
                text("/propagationPolicy").as_deref(),
                said["orphanDependents"].as_bool(),
            )?,
            dry_run: !dry.is_empty(),
        })
    }

    /// Whether the object that is there is the one that is meant.
    pub(crate) fn check(&self, kind: &Kind, object: &Value) -> Result<(), Failure> {
        let conflict = |why: String| Failure::Conflict {
            subject: kind.subject(),
            name: object::name(object).to_owned(),
            why,
        };
        let (uid, version) = (object::uid(object), object::text(object, "/metadata/resourceVersion"));
        if let Some(meant) = self.uid.as_deref().filter(|meant| *meant != uid) {
            return Err(conflict(format!(
                "the UID in the precondition ({meant}) does not match the UID in record ({uid}). The object might have been \
                 deleted and then recreated"
            )));
        }
        if let Some(meant) = self.version.as_deref().filter(|meant| *meant != version) {
            return Err(conflict(format!(
                "the ResourceVersion in the precondition ({meant}) does not match the ResourceVersion in record ({version}). \
                 The object might have been modified"
            )));
        }
        Ok(())
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>) -> Result<Option<Propagation>, Failure> {
    let field = "propagationPolicy";
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        return Err(options_invalid(
            "DeleteOptions",
            vec![Cause::invalid(field, format!("\"{policy}\""), why)],
        ));
    }
    match policy {
        Some("Background") => Ok(Some(Propagation::Background)),
        Some("Foreground") => Ok(Some(Propagation::Foreground)),
        Some("Orphan") => Ok(Some(Propagation::Orphan)),
        Some(other) => {
            let known = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
            Err(options_invalid(
                "DeleteOptions",
                vec![Cause::unsupported(field, &format!("\"{other}\""), known)],
            ))
        }
        None => Ok(orphan.map(|orphan| {
            if orphan {
                Propagation::Orphan
            } else {
                Propagation::Background
            }
        })),
    }
}

/// What became of an object that was deleted.
pub(crate) enum Outcome {
    Gone(Tree),
    Going(Tree),
}

/// Kinds whose deletion shows what went.
const RETURNED: [&str; 5] = [
    "Pod",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "VolumeAttachment",
    "ServiceAccount",
];

/// Answers DELETE of one object.
pub fn answer(api: &mut Api, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
    let options = DeleteOptions::read(request)?;
    let shape = Shape::of(&request.accept);
    let body = match delete(api, kind, &key_of(request), &options, moment)? {
        Outcome::Going(object) => shape.of_shared(kind, &object),
        // Some are answered with themselves, anything else with a note that it is gone.
        Outcome::Gone(object) if RETURNED.iter().any(|known| kind.is(known)) => shape.of_shared(kind, &object),
        Outcome::Gone(object) => gone(kind, &object).into(),
    };
    Ok(Answer::ok(body))
}

fn gone(kind: &Kind, object: &Value) -> Value {
    let mut details = json!({ "name": object::name(object), "kind": kind.plural, "uid": object::uid(object) });
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

/// Answers DELETE of a collection: each object by itself, and a list of what was there.
pub fn answer_collection(
    api: &mut Api,
    kind: &Arc<Kind>,
    request: &Request,
    moment: &Moment,
) -> Result<Answer, Failure> {
    if kind.is("Namespace") {
        return Err(Failure::NoMethod);
    }
    let options = DeleteOptions::read(request)?;
    let answer = list::list(api, kind, request)?;
    if let Answer::List(listing) = &answer {
        for item in listing.objects.iter().map(Object::value) {
            let key = Key::new(object::text(&item, "/metadata/namespace"), object::name(&item));
            delete(api, kind, &key, &options, moment)?;
        }
    }
    Ok(answer)
}

/// Deletes one object as far as it can be now.
pub(crate) fn delete(
    api: &mut Api,
    kind: &Kind,
    key: &Key,
    options: &DeleteOptions,
    moment: &Moment,
) -> Result<Outcome, Failure> {
    let old = api.find(kind, key)?;
    options.check(kind, &old)?;
    if is_ending(kind, &old, options) {
        return Ok(Outcome::Going(old));
    }
    let mut new = Value::clone(&old);
    if !kind.is("Event") {
        mark_propagation(&mut new, options.propagation); // events have no dependents
    }
    let grace = grace(kind, &old, options);
    mark_deletion(kind, &mut new, grace, moment.now);
    if kind.is("Namespace") {
        object::part(&mut new, "status")["phase"] = json!("Terminating");
    }
    let content = kind.is("Namespace") && new.pointer("/spec/finalizers/0").is_some();
    let stays = grace > 0 || content || !object::finalizers(&new).is_empty();
    if new != *old && stays && !options.dry_run {
        return Ok(Outcome::Going(api.put(kind, key.clone(), new)?));
    }
    if stays {
        return Ok(Outcome::Going(new.into()));
    }
    let grace_of = |object: &Value| object.pointer("/metadata/deletionGracePeriodSeconds").cloned();
    // The end of a pod is announced, however short; anything else goes as it was.
    let is_announced = kind.is("Pod") && grace_of(&new) != grace_of(&old);
    if options.dry_run {
        return Ok(Outcome::Gone(if is_announced { new.into() } else { old }));
    }
    if object::finalizers(&new) != object::finalizers(&old) {
        // A write of its own on the server, which a precondition on the version then does not survive.
        if options.version.is_some() {
            return Err(lost(kind, key, &old));
        }
    }
    if is_announced {
        api.put(kind, key.clone(), new.clone())?;
    } else {
        new = Value::clone(&old);
    }
    api.remove(kind, key);
    // What is gone is shown as of the version at which it went.
    set_version(&mut new, api.version());
    Ok(Outcome::Gone(new.into()))
}

/// The refusal of a deletion whose own first half made its precondition stale.
fn lost(kind: &Kind, key: &Key, now: &Value) -> Failure {
    let version = object::text(now, "/metadata/resourceVersion");
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         ResourceVersion in precondition: , ResourceVersion in object meta: {version}",
        path_in_storage(kind, key)
    );
    Failure::Conflict {
        subject: kind.resource(),
        name: key.name.clone(),
        why,
    }
}

/// What is negative means one second, as the server has it since 1.27.
fn asked_grace(options: &DeleteOptions) -> Option<i64> {
    options.grace.map(|grace| if grace < 0 { 1 } else { grace })
}

/// Whether a pod has time to end in that this deletion does not shorten. Then it changes nothing, not even the finalizers.
fn is_ending(kind: &Kind, old: &Value, options: &DeleteOptions) -> bool {
    let given = old
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let is_shorter = asked_grace(options).is_some_and(|asked| asked < given);
    kind.is("Pod") && object::is_deleting(old) && given > 0 && !is_shorter
}

/// How long an object may take to end. Only pods that run on a node get time.
fn grace(kind: &Kind, old: &Value, options: &DeleteOptions) -> i64 {
    if !kind.is("Pod") {
        return 0;
    }
    let asked = asked_grace(options);
    let given = old.pointer("/metadata/deletionGracePeriodSeconds");
    if let Some(given) = given.and_then(Value::as_i64) {
        // It is ending already; the time can only become shorter.
        return asked.unwrap_or(given).min(given);
    }
    let ended = matches!(object::text(old, "/status/phase"), "Succeeded" | "Failed");
    if ended || object::text(old, "/spec/nodeName").is_empty() {
        return 0;
    }
    let own = old.pointer("/spec/terminationGracePeriodSeconds");
    asked.or_else(|| own.and_then(Value::as_i64)).unwrap_or(30)
}

fn mark_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    finalizers.retain(|one| (one != FOREGROUND && one != ORPHAN) || Some(one.as_str()) == wanted);
    if let Some(wanted) = wanted.filter(|wanted| !finalizers.iter().any(|one| one == wanted)) {
        finalizers.push(wanted.to_owned());
    }
    set_finalizers(object, finalizers);
}

/// Writes finalizers; none at all leave no trace.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let metadata = object::metadata(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
}

fn mark_deletion(kind: &Kind, object: &mut Value, grace: i64, now: Timestamp) {
    let since = object::text(object, "/metadata/deletionTimestamp")
        .parse::<Timestamp>()
        .ok();
    let given = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if since.is_some() && grace >= given {
        return;
    }
    let begun = since.and_then(|end| end.checked_sub(SignedDuration::from_secs(given)).ok());
    let end = begun
        .unwrap_or(now)
        .checked_add(SignedDuration::from_secs(grace))
        .unwrap_or(now);
    let first = since.is_none();
    let metadata = object::metadata(object);
    metadata.insert(
        "deletionTimestamp".to_owned(),
        json!(end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
    );
    if !kind.is("Namespace") {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
    }
    if first && metadata.get("generation").and_then(Value::as_u64).unwrap_or(0) > 0 {
        upkeep::count(object);
    }
}
