//! A Kubernetes API held in memory: a value with rules.
//!
//! Decides what a kube-apiserver would answer. Pure: no clock, no randomness, no network; times and ids come in with each
//! request, so that the simulator and an HTTP server can share it.
//!
//! [`api::Api::handle`] is the one door; [`api::Api::events`] tells a watch what came after, and [`api::Api::collect`] plays the
//! controllers that follow deletions. `tests/value/*.cases` holds what the real server answered.
//!
//! # Not yet
//! - Applying to a scale is refused.
//! - Built-in kinds: no schema. Types are judged by an apply only, of the defaults there are only those in `builtin`; fields that a
//!   pod's or a claim's update may not change can be changed.
//! - Bad input: `tests/http_bad_input.rs` lists what is answered otherwise, each with its reason. Of built-in kinds, the types of
//!   metadata are judged, and those of configmaps and secrets.
//! - Nulls in the server's own kinds go where they stand for a field of the object or a text of its maps; deeper ones stay.
//! - The server panics over a strategic patch with `$setElementOrder` of a list that is not merged, as a node's taints; here it is
//!   answered 500. What such a list's items say beside the API's fields stays, `$patch` too.
//! - An empty name part of a key or a finalizer is told by one cause; the server also tells the pattern.
//! - JSON that is nested deeper than 127 is refused; the server reads 10,000 levels.
//! - Answers in YAML and protobuf: clients that ask for protobuf also take JSON, which they get. YAML that cannot be read is refused
//!   in the words of another parser than the server's, and nested no deeper than 255.
//! - Bodies in protobuf are read of the server's own kinds, but not definitions. The server panics over one of a custom kind; here it
//!   is answered 415. Fields that came with 1.36 are passed over, and a value in the form of a group is refused in other words.
//! - Paths with empty parts are refused; the server takes those of custom objects.
//! - Tables: readiness gates, init containers and restart times of pods are not told, nor what the server says to describe columns.
//! - OpenAPI: descriptions of built-in kinds are cut after one sentence, those of parameters are left out; `DeleteOptions` and
//!   `Status` name no groups; no documents of `/api`, `/apis` and groups; v2 names no kinds; embedded resources get no head.
//! - `fieldValidation` is not looked at in bodies for a scale or an eviction.
//! - One storage version for all versions of a kind: nothing converts. Definitions are not judged, and are established at once.
//! - Roles: what a user may not do he may still grant to others, and roles that gather others stay as they are written.
//! - Admission webhooks, quotas, finalizers of claims in use.
//!
//! Found by the contract suite of `tests/` (whose generator leaves them out, each with its reason):
//! - What was written through a scale is owned by the scale, but not quite as on the server; and a scale that is set to what it is
//!   is not stored anew.
//! - Where an apply takes the last field out of a free-form object, the empty object goes; the server leaves a null, and may refuse
//!   that.
//! - A status of a wrong type in a create does not end the keeping of owners. Bookmarks of built-in kinds hold metadata only.
//! - Writes to claims of volumes that change nothing are not stored anew.

pub mod accept;
pub mod answer;
pub mod api;
pub mod builtin;
pub(crate) mod builtin_schemas;
pub mod collect;
pub mod discovery;
pub mod failure;
pub mod fields;
pub(crate) mod golang;
#[cfg(feature = "http")]
pub mod http;
pub(crate) mod json;
pub mod kinds;
pub mod list;
pub mod managers;
pub(crate) mod metadata;
pub mod moment;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod rbac;
pub mod reply;
pub mod request;
pub mod schema;
pub mod select;
pub mod shown;
pub mod state;
pub mod store;
pub mod strange;
pub mod table;
pub mod topology;
pub mod watch;
pub mod write;
pub(crate) mod yaml;
