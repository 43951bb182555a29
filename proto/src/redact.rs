//! `Debug` for the messages that carry secrets: every field but the secret bytes.
//!
//! Decides nothing. A secret appears as the number of its keys or bytes, so a log tells that it was there and no more.

use std::fmt;

use crate::v1;

/// Writes `Debug` for a message: the plain fields, then the sizes of the secret ones.
macro_rules! redacted_debug {
    ($message:ident { $($plain:ident),* } secret { $($secret:ident),* }) => {
        impl fmt::Debug for v1::$message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message))
                    $(.field(stringify!($plain), &self.$plain))*
                    $(.field(stringify!($secret), &format_args!("<redacted, {}>", self.$secret.len())))*
                    .finish()
            }
        }
    };
}

redacted_debug!(CreateMachineRequest { key, machine_class, tags, spec_digest, last_known_state, node_labels, node_annotations } secret { secret_data, user_data });
redacted_debug!(InitializeMachineRequest { key, provider_id, machine_class, last_known_state } secret { secret_data });
redacted_debug!(DeleteMachineRequest { key, provider_id, machine_class, last_known_state } secret { secret_data });
redacted_debug!(GetMachineStatusRequest { key, provider_id, machine_class } secret { secret_data });
redacted_debug!(ListMachinesRequest { cluster_id, machine_class, page_size, page_token } secret { secret_data });
redacted_debug!(WatchMachinesRequest { cluster_id, machine_class, resume_token, heartbeat_interval } secret { secret_data });
redacted_debug!(ValidateMachineClassRequest { machine_class, live } secret { secret_data });
redacted_debug!(GetNodeTemplateRequest { machine_class } secret { secret_data });

#[cfg(test)]
mod tests {
    use crate::v1;

    const CANARY: &[u8] = b"canary-1f3e";

    #[test]
    fn no_secret_shows_in_the_debug_text_of_a_request() {
        let request = v1::CreateMachineRequest {
            secret_data: [("password".to_owned(), CANARY.to_vec())].into(),
            user_data: CANARY.to_vec(),
            ..Default::default()
        };
        let text = format!("{request:?}");
        assert!(
            !text.contains("canary") && !text.contains(&format!("{CANARY:?}")),
            "{text}"
        );
        assert!(text.contains("<redacted, 11>"), "{text}");
    }

    /// A new secret field in the contract must be added to the list in `build.rs`. Read from the text, because
    /// prost-types 0.14 has no field for the option.
    #[test]
    fn every_message_with_a_debug_redact_field_is_redacted() {
        let contract = include_str!("../machine/driver/v1/driver.proto");
        let build = include_str!("../build.rs");
        let mut message = "";
        let mut fields = 0;
        for line in contract.lines() {
            if let Some(name) = line.strip_prefix("message ") {
                message = name.trim_end_matches(" {");
            }
            if line.contains("[debug_redact = true]") {
                fields += 1;
                assert!(
                    build.contains(&format!("\".machine.driver.v1.{message}\"")),
                    "{message}: {line}"
                );
            }
        }
        assert_eq!(fields, 9, "every secret field was seen");
    }
}
