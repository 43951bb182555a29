//! Who may call over a unix socket: the driver's own user, root, and those that were named.
//!
//! The kernel tells the peer's uid once, when it connects. Over TCP there is nothing to go by;
//! there only the loopback address keeps others out.

use tonic::Extensions;
use tonic::transport::server::UdsConnectInfo;

use crate::error::DriverError;
use crate::reason::Reason;

const ROOT: u32 = 0;

/// The users that may call.
pub(crate) struct Peers(Vec<u32>);

impl Peers {
    /// The process's own user, root and these.
    pub(crate) fn new(allowed: &[u32]) -> Self {
        let own = [rustix::process::geteuid().as_raw(), ROOT];
        Self(own.into_iter().chain(allowed.iter().copied()).collect())
    }

    /// Refuses the call of anyone else.
    pub(crate) fn admit(&self, extensions: &Extensions) -> Result<(), DriverError> {
        let Some(connection) = extensions.get::<UdsConnectInfo>() else {
            return Ok(());
        };
        self.judge(connection.peer_cred.map(|peer| peer.uid()))
    }

    fn judge(&self, uid: Option<u32>) -> Result<(), DriverError> {
        match uid {
            Some(uid) if self.0.contains(&uid) => Ok(()),
            Some(uid) => Err(denied(format!(
                "user {uid} may not call this driver; --allow-uid {uid} would let it"
            ))),
            None => Err(denied("the kernel does not tell who is calling".to_owned())),
        }
    }
}

fn denied(message: String) -> DriverError {
    DriverError::new(
        Reason::AccessDenied {
            action: "connect".to_owned(),
        },
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_user_root_and_named_users_may_call() {
        let own = rustix::process::geteuid().as_raw();
        let peers = Peers::new(&[4711]);
        for uid in [own, 0, 4711] {
            peers.judge(Some(uid)).expect("allowed");
        }
        for stranger in [Some(4712), None] {
            let error = peers.judge(stranger).unwrap_err();
            assert!(matches!(error.reason(), Reason::AccessDenied { .. }), "{error}");
        }
    }
}
