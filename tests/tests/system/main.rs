//! Manager, provider and a real kube-apiserver, each a process of its own, as a user meets them.
//!
//! Most of these tests wait: they share one control plane, each in a namespace of its own, and several run beside each
//! other (`RUST_TEST_THREADS` in `.cargo/config.toml`).

mod admission;
mod api_budget;
mod class_status;
mod crash_manager;
mod crash_provider;
mod drain;
mod e2e_leader;
mod e2e_scaling;
mod in_place;
mod input_manifests;
mod input_processes;
mod notices;
mod orphans;
mod preservation;
mod real_cluster;
mod refused_account;
mod rollout_commands;
mod rollouts;
mod traces;
