//! An API server of a few lines for tests: objects by their paths, events that were written, watches that say only that one
//! must list anew. Minds versions, and no other precondition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::client::{Body, ClientBuilder, DynBody};
use millwright::kube::client::{Cluster, Policy};
use millwright_core::merge;
use serde_json::{Value, from_value, json};
use tower::{BoxError, service_fn};

/// How often a watch looks whether somebody has changed something.
const LOOK: Duration = Duration::from_secs(5);
/// So often, until it ends in its time.
const LOOKS: usize = 6;

/// An API server of a test, which serves what the test stored. Cheap to clone.
#[derive(Clone, Default)]
pub struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// The version at which somebody else than the manager last changed something.
    changed: u64,
    /// Name, reason and words of each event, once for each time that it was written or counted.
    events: Vec<(String, String, String)>,
    /// A path whose object cannot be read, and the status of the answer.
    refused: Option<(String, u16)>,
    is_away: bool,
    /// Finalizers that somebody adds to objects, by path, just before the next write of each.
    meddled: BTreeMap<String, String>,
    /// So many of the next writes are answered with a 429.
    throttled: u32,
}

type Answer = (u16, Value);

impl Server {
    /// A client to it.
    pub fn cluster(&self, policy: Policy) -> Cluster {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.serve(request).await }
        });
        Cluster::over(ClientBuilder::new(service, "default"), policy)
    }

    async fn serve(&self, request: Request<Body>) -> Result<Response<Box<DynBody>>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let query = head.uri.query().unwrap_or_default();
        if query.contains("watch=") {
            let version = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
            let since: u64 = version.and_then(|version| version.parse().ok()).unwrap_or_default();
            for _ in 0..LOOKS {
                tokio::time::sleep(LOOK).await;
                let mut stored = self.stored();
                let is_expired = stored.changed > since;
                stored.reached()?;
                if is_expired {
                    let expired = json!({"type": "ERROR", "object": failure(410, "Expired").1});
                    return Ok(answer(200, &expired.to_string()));
                }
            }
            return Ok(answer(200, &self.stored().bookmark().to_string()));
        }
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (code, value) = self.stored().reached()?.handle(&head.method, head.uri.path(), body);
        Ok(answer(code, &value.to_string()))
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap()
    }

    /// Somebody stores an object.
    pub fn put(&self, path: &str, object: Value) {
        let mut stored = self.stored();
        stored.keep(path, object);
        stored.changed = stored.version;
    }

    /// Somebody changes an object.
    pub fn edit(&self, path: &str, patch: Value) {
        let mut object = self.get(path).expect("the object is there");
        merge::apply(&mut object, &patch);
        self.put(path, object);
    }

    /// An object ends without the manager.
    pub fn remove(&self, path: &str) {
        let mut stored = self.stored();
        stored.objects.remove(path).expect("the object is there");
        stored.version += 1;
        stored.changed = stored.version;
    }

    /// The object as it is stored.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.stored().objects.get(path).cloned()
    }

    /// The words of the events with this reason, once for each time that one was written or counted.
    pub fn told(&self, reason: &str) -> Vec<String> {
        let stored = self.stored();
        let events = stored.events.iter().filter(|(_, of, _)| of == reason);
        events.map(|(_, _, note)| note.clone()).collect()
    }

    /// From now on nobody can read this object; everything can be read again with `None`.
    pub fn refuse(&self, refused: Option<(&str, u16)>) {
        self.stored().refused = refused.map(|(path, code)| (path.to_owned(), code));
    }

    /// Somebody adds a finalizer to an object after the manager has read it and before its next write arrives.
    pub fn meddle(&self, path: &str, finalizer: &str) {
        self.stored().meddled.insert(path.to_owned(), finalizer.to_owned());
    }

    /// It has too much to do: so many of the next writes are put off. Gives how many were still to be.
    pub fn throttle(&self, writes: u32) -> u32 {
        std::mem::replace(&mut self.stored().throttled, writes)
    }

    /// Whether it can be reached.
    pub fn is_away(&self, is_away: bool) {
        self.stored().is_away = is_away;
    }

    /// The one bootstrap token, and until when it lives.
    pub fn token(&self) -> (String, Timestamp) {
        let stored = self.stored();
        let mut tokens = stored
            .objects
            .iter()
            .filter(|(path, _)| path.contains("/bootstrap-token-"));
        let (_, token) = tokens.next().expect("there is a token");
        let field = |name: &str| decoded(&token["data"][name]);
        let value = format!("{}.{}", field("token-id"), field("token-secret"));
        (value, field("expiration").parse().unwrap())
    }
}

impl Stored {
    fn bookmark(&self) -> Value {
        let metadata = json!({"resourceVersion": self.version.to_string()});
        json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Any", "metadata": metadata}})
    }

    fn reached(&mut self) -> Result<&mut Self, BoxError> {
        if self.is_away {
            return Err("no route to host".into());
        }
        Ok(self)
    }

    fn handle(&mut self, method: &Method, path: &str, body: Value) -> Answer {
        let path = path.trim_end_matches("/status");
        if path.contains("/events") {
            return self.hear(path, &body);
        }
        if let Some((_, code)) = self.refused.as_ref().filter(|(refused, _)| refused == path) {
            return failure(*code, "Failed");
        }
        if *method != Method::GET && self.throttled > 0 {
            self.throttled -= 1;
            return failure(429, "TooManyRequests");
        }
        match *method {
            Method::GET if is_collection(path) => self.list(path),
            Method::GET => self
                .objects
                .get(path)
                .map_or_else(missing, |object| (200, object.clone())),
            Method::POST => self.create(path, body),
            Method::PATCH => self.patch(path, &body),
            _ => {
                self.objects.remove(path);
                (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
        }
    }

    fn hear(&mut self, path: &str, event: &Value) -> Answer {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let counted = self
            .events
            .iter()
            .find(|(name, ..)| path.ends_with(&format!("/{name}")));
        let heard = match counted {
            Some(counted) => counted.clone(),
            None => (
                text(&event["metadata"]["name"]),
                text(&event["reason"]),
                text(&event["message"]),
            ),
        };
        self.events.push(heard);
        (201, event.clone())
    }

    fn list(&self, path: &str) -> Answer {
        let inside = format!("{path}/");
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(path, _)| path.starts_with(&inside))
            .map(|(_, object)| object)
            .collect();
        let metadata = json!({"resourceVersion": self.version.to_string()});
        (
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}),
        )
    }

    fn create(&mut self, path: &str, object: Value) -> Answer {
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        match self.objects.contains_key(&path) {
            true => failure(409, "AlreadyExists"),
            false => (201, self.keep(&path, object)),
        }
    }

    fn patch(&mut self, path: &str, body: &Value) -> Answer {
        self.meddle(path);
        let Some(mut object) = self.objects.get(path).cloned() else {
            return missing();
        };
        let version = object["metadata"]["resourceVersion"].clone();
        let planned_on = &body["metadata"]["resourceVersion"];
        if !planned_on.is_null() && *planned_on != version {
            return failure(409, "Conflict");
        }
        merge::apply(&mut object, body);
        object["metadata"]["resourceVersion"] = version;
        let object = self.keep(path, object);
        let metadata = &object["metadata"];
        let is_held = metadata["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        if !metadata["deletionTimestamp"].is_null() && !is_held {
            self.objects.remove(path);
        }
        (200, object)
    }

    fn meddle(&mut self, path: &str) {
        let (Some(finalizer), Some(mut object)) = (self.meddled.remove(path), self.objects.get(path).cloned()) else {
            return;
        };
        let held = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        object["metadata"]["finalizers"] = held.into_iter().chain([json!(finalizer)]).collect();
        self.keep(path, object);
        self.changed = self.version;
    }

    fn keep(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

fn is_collection(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    [
        "machines",
        "machinesets",
        "machinedeployments",
        "machineclasses",
        "secrets",
        "nodes",
    ]
    .contains(&last)
}

fn missing() -> Answer {
    failure(404, "NotFound")
}

fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": reason});
    (code, status)
}

fn answer(code: u16, text: &str) -> Response<Box<DynBody>> {
    let body: Box<DynBody> = Box::new(Full::from(text.to_owned()).map_err(|never| match never {}));
    Response::builder().status(code).body(body).unwrap()
}

/// A text as a Secret holds it.
pub fn encoded(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

fn decoded(value: &Value) -> String {
    let ByteString(bytes) = from_value(value.clone()).unwrap();
    String::from_utf8(bytes).unwrap()
}
