//! What the quick start and the whole-system tests share: a real API server on loopback and child processes that never
//! outlive their parent. It decides nothing about machines and knows none of our kinds.
//!
//! - [`apiserver`]: finds or builds kube-apiserver and etcd, starts any number of isolated control planes.
//! - [`once`]: what is expensive to make is made once.
//! - [`process`]: one child process with its log file.
//! - [`workdir`]: the files of one run, gone with it.

pub mod apiserver;
pub mod once;
pub mod process;
pub mod workdir;
