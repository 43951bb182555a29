//! What must not shake: everything at once, the Lease taken away, creations refused, the target cluster away, nodes lost at once, a size
//! taken back, the shipped roles, drivers that come and go, and what is told of it. On a real kube-apiserver, with manager and provider as
//! processes.

mod chaos;
mod driver_dir;
mod events;
mod lease;
mod lost_nodes;
mod refused;
mod roles;
mod taken_back;
mod target_away;
