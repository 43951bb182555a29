//! The harness of the whole-system tests: a real API server, our real programs as processes, and what to do where a
//! machine lacks the tools. It may not know how anything of ours works inside.
//!
//! ```no_run
//! # use millwright_tests::apiserver;
//! # async fn a_machine_comes_up() {
//! let Some(plane) = apiserver::start("a machine comes up").await else { return }; // skipped, and said so
//! let namespace = plane.create_namespace("e2e").await.unwrap();
//! # let _ = namespace; }
//! ```
//!
//! - [`accounts`]: service accounts with the shipped roles.
//! - [`api_requests`]: what the API server was asked.
//! - [`apiserver`]: control planes for tests.
//! - [`proxy`]: a way to a server that can be shut; [`faults`]: one that spoils an API server's answers.
//! - [`cluster`]: an API server with everything that makes pods run; [`budgets`]: a watch that judges whether budgets hold.
//! - [`collector`]: where traces go.
//! - [`programs`]: our own programs, built from this checkout.
//! - [`clients`]: grpcurl and Python, which know the Driver API from its proto alone.
//! - [`figures`]: a benchmark run beside the original's figures.
//! - [`fleet`]: manager and virtual provider as processes.
//! - [`script`]: what a scene is made of; [`scene`]: a namespace with both, what a user does there and what can be seen;
//!   [`cloud`]: what the cloud's console shows; [`manifests`]: its objects.
//! - [`laws`]: what must be true of it; [`rolling`]: a rollout's bounds, judged at every event.
//! - [`service`]: a process that is killed and started again, and the one way to wait.
//! - [`timetable`]: kills, outages and orders at instants drawn from a seed.
//! - [`contract`]: the sandbox against the real API server.
//! - [`requirement`]: skip loudly, or fail where CI demands it; [`sampling`]: how much is tried, and from which seed.

#![allow(
    clippy::indexing_slicing,
    reason = "only tests use this; a field that is not in a JSON value reads as null"
)]

pub mod accounts;
pub mod api_requests;
pub mod apiserver;
pub mod budgets;
pub mod clients;
pub mod cloud;
pub mod cluster;
pub mod collector;
pub mod contract;
pub mod faults;
pub mod figures;
pub mod fleet;
pub mod laws;
pub mod manifests;
pub mod programs;
pub mod proxy;
pub mod requirement;
pub mod rolling;
pub mod sampling;
pub mod scene;
pub mod script;
pub mod service;
pub mod timetable;
