//! The API as a value against what a real kube-apiserver answered, without HTTP and without waiting.

mod face_captured;
mod memory;
mod patch_captured;
mod protobuf_captured;
mod rbac_captured;
mod schema_captured;
mod value_captured;
mod value_collect;
