//! Write a Millwright provider: implement [`Driver`], call [`serve`].

#![warn(missing_docs)]

mod args;
mod driver;
mod endpoint;
mod error;
mod serve;
pub mod telemetry;
mod types;

pub use self::args::{ServeArgs, parse_duration};
pub use self::driver::Driver;
pub use self::endpoint::{Endpoint, EndpointError};
pub use self::error::{DriverError, FieldViolation, Outcome, Reason};
pub use self::serve::{ServeError, ServeOptions, serve};
pub use self::types::*;
