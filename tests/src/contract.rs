//! The contract: the same sequences of requests to the sandbox and to a real kube-apiserver, and what differs.
//!
//! - [`script`]: a sequence as text, with places for what earlier answers said.
//! - [`kinds`]: the kinds that are asked about, with bodies; [`generate`]: sequences from a seed, led by a guess of the state;
//!   [`acts`] and [`changes`]: what one request may be.
//! - [`value`]: the sandbox as the one side; [`wire`]: any API server over HTTP as the other.
//! - [`memory`]: what a side has said so far; [`normal`]: an answer without what no two servers share.
//! - [`run`]: waves of sequences on both sides; [`shrink`]: the least that still differs; [`coverage`]: what was reached.
//!
//! It may not know how either side works inside.

pub mod acts;
pub mod changes;
pub mod coverage;
pub mod dice;
pub mod generate;
pub mod kinds;
pub mod memory;
pub mod normal;
pub mod run;
pub mod script;
pub mod shrink;
pub mod value;
pub mod wire;
