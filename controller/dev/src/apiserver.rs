//! A real kube-apiserver with its etcd, on loopback, for the quick start and the tests. It decides where the programs
//! come from and how they are started; it may not know any kind of ours.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use millwright_dev::apiserver::ControlPlane;
//!
//! let plane = ControlPlane::start().await?; // about 2 s; any number side by side
//! plane.install_crds("deploy/crds".as_ref()).await?;
//! let namespace = plane.create_namespace("demo").await?;
//! let client = plane.client().await?;
//! let table = plane.kubectl(&["-n", &namespace, "get", "machines"]).await?;
//! println!("{}\nKUBECONFIG={}", table.stdout, plane.kubeconfig().display());
//! # Ok(()) } // dropping `plane` ends both processes and removes their files
//! ```

pub mod access;
pub mod binaries;
mod build;
pub mod control_plane;

pub use access::{AccessError, Kubectl};
pub use binaries::{Binaries, Controllers, FindError};
pub use control_plane::{ControlPlane, Settings, StartError};
