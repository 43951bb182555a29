//! The Driver API as others meet it: clients that share no code with us, and the author of a provider.

mod bridge;
mod driver_by_hand;
mod driver_grpcurl;
mod driver_python;
mod floods;
mod hostile;
mod liar;
mod lies;
mod own_driver;
