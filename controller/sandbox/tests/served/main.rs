//! The HTTP server around the value: its clients, its disk, what it does with bad input, and kubectl.

mod http_bad_input;
mod http_client;
mod http_crash;
mod http_disk;
mod kubectl_speaks_to_the_sandbox;
