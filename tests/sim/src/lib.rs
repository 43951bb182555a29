//! The manager in one process under virtual time, over the sandbox as API and the virtual provider as driver, with faults.
//!
//! A run is a function of its plan and its choices: one thread, one runtime whose clock moves when nothing can run, every
//! decision asked of [`choices::Choices`]. What is real: the manager's whole wiring, its kube client down to the HTTP request,
//! the Driver API's messages, the SDK, the virtual driver and its cloud; where it is asked for, HTTP/2 between them. What is not:
//! sockets, TLS, RBAC.
//!
//! | module | decides |
//! |---|---|
//! | [`choices`] | how decisions are drawn, recorded and read back |
//! | [`fault`], [`call_fault`] | which harm there is, and where it may strike |
//! | [`clock`] | virtual time |
//! | [`world`], [`witness`] | the state that outlives every process, and who hears of what; who sees what happens |
//! | [`transport`], [`flow`], [`provider`] | what a request, a watch, a call meets on its way to the API or the driver |
//! | [`process`] | a process's lifetime: crash, freeze, partition |
//! | [`pipes`], [`call_recorder`] | gRPC over pipes; where the driver's end counts calls |
//! | [`faulty_provider`], [`account`] | the driver with what goes wrong in it; what ails its cloud for a while |
//! | [`life`], [`actors`] | the managers' lives; kubelets, controllers, what happens now and then |
//! | [`autoscaler`] | the cluster autoscaler, where a run has one |
//! | [`chaos`], [`outage`], [`refusal`] | harm that comes by itself; outages of minutes and hours, and what must be done nevertheless; a kind of write that is refused |
//! | [`sockets`] | the directory in which managers look for drivers |
//! | [`kinds`] | the kinds of objects, by their plurals |
//! | [`accidents`] | the human's accidents, and what he then owes |
//! | [`workload`], [`any`] | what is wanted; a start in any state that the API admits |
//! | [`notifier`] | in which order waiters are woken |
//! | [`spin`] | how much may happen while no time passes |
//! | [`event`], [`trace`] | what happened, for oracles, the digest and the story |
//! | [`bound`], [`judge`] | to what a request bound itself; what the oracles are shown |
//! | [`run`], [`shrink`], [`campaign`] | one run, a smaller one, many |
//! | [`seed`] | which seed is the first |
//! | [`tail`] | what must come true when faults have ended |
//! | [`share`] | how many are shared among threads |
//! | [`reference`] | how a run must end, by the one in which nothing went wrong |
//! | [`tape`] | how a run is written down, to be had again by others |
//! | [`world::hooks`], [`zoo`] | where mistakes can be put, and those that are; how soon each is caught |

pub mod accidents;
pub mod account;
pub mod actors;
mod agents;
pub mod any;
pub mod autoscaler;
pub mod bound;
pub mod call_fault;
pub mod call_recorder;
pub mod campaign;
pub mod chaos;
pub mod choices;
pub mod clock;
pub mod event;
pub mod fault;
pub mod faulty_provider;
pub mod flow;
pub mod judge;
pub mod kinds;
pub mod life;
pub mod notifier;
pub mod outage;
pub mod pipes;
pub mod pods;
pub mod process;
pub mod provider;
pub mod reference;
pub mod refusal;
pub mod run;
pub mod seed;
pub mod share;
pub mod shrink;
pub mod sockets;
pub mod spin;
pub mod tail;
pub mod tape;
pub mod trace;
pub mod transport;
pub mod witness;
pub mod workload;
pub mod world;
pub mod zoo;
