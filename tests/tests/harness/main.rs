//! What the other tests stand on: control planes, our programs, and the walls between our crates.

mod apiserver;
mod cluster;
mod house;
mod programs;
mod walls;
