//! Manager, provider, quick start and a real kube-apiserver, each a process of its own, as a user meets them; and what must not shake:
//! the Lease taken away, creations refused, the target cluster away, nodes lost at once, drivers that come and go, everything at once.
//!
//! Most of these tests wait: they share one control plane, each in a namespace of its own, and several run beside each
//! other (`RUST_TEST_THREADS` in `.cargo/config.toml`). They are one program for that reason.

mod admission;
mod api_budget;
mod away;
mod chaos;
mod class_status;
mod compatibility;
mod crash_manager;
mod crash_provider;
mod drain;
mod driver_dir;
mod e2e_leader;
mod e2e_scaling;
mod edited_class;
mod events;
mod faults;
mod in_place;
mod input_manifests;
mod input_processes;
mod lease;
mod lost_nodes;
mod notices;
mod original;
mod orphans;
mod ownership;
mod preservation;
mod quick_start;
mod real_cluster;
mod refused;
mod refused_account;
mod restored;
mod roles;
mod rollout_commands;
mod rollouts;
mod taken_back;
mod traces;
