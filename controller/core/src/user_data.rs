//! Boot configuration: which placeholders of the template are filled in and how, and the id of the bootstrap token.
//!
//! MC-5. Makes no token (that needs randomness) and keeps no copy of one: the filled
//! text is written once, into a buffer of its final size, so that its owner can wipe it.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::api::keys;
use crate::ids::Uid;

/// Most bytes of filled user data that a driver takes.
pub const MAX_BYTES: usize = 64 * 1024;

const TOKEN: Placeholder = Placeholder {
    plain: keys::PLACEHOLDER_TOKEN.as_bytes(),
    encoded: keys::PLACEHOLDER_TOKEN_ENCODED.as_bytes(),
};
const NAME: Placeholder = Placeholder {
    plain: keys::PLACEHOLDER_NAME.as_bytes(),
    encoded: keys::PLACEHOLDER_NAME_ENCODED.as_bytes(),
};

/// The filled user data is longer than a driver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("user data has {bytes} bytes, more than the {limit} that a driver accepts")]
pub struct TooLong {
    /// Its length.
    pub bytes: usize,
    /// The limit.
    pub limit: usize,
}

/// One placeholder in its two spellings.
struct Placeholder {
    plain: &'static [u8],
    encoded: &'static [u8],
}

impl Placeholder {
    /// What to look for and what to put there. The plain spelling excludes the encoded one: where the plain one occurs
    /// at all, encoded ones stay as they are.
    fn filling<'v>(&self, template: &[u8], value: &'v str) -> Option<Filling<'v>> {
        if contains(template, self.plain) {
            return Some(Filling {
                mark: self.plain,
                value: Cow::Borrowed(value.as_bytes()),
            });
        }
        contains(template, self.encoded).then(|| Filling {
            mark: self.encoded,
            value: query_escape(value),
        })
    }
}

/// Replacement of one mark. Borrowed: a real token needs no escaping, so no second copy of it is made.
struct Filling<'v> {
    mark: &'static [u8],
    value: Cow<'v, [u8]>,
}

/// Whether the template asks for a bootstrap token in either spelling.
pub fn needs_token(template: &[u8]) -> bool {
    contains(template, TOKEN.plain) || contains(template, TOKEN.encoded)
}

/// The template with its placeholders filled in. Without a token (no cluster to join) its placeholder stays.
pub fn fill(template: &[u8], token: Option<&str>, name: &str) -> Result<Vec<u8>, TooLong> {
    let token = token.and_then(|token| TOKEN.filling(template, token));
    let fillings: Vec<Filling<'_>> = token.into_iter().chain(NAME.filling(template, name)).collect();

    // Measured first: a buffer that grows would leave halves of a token in freed memory.
    let mut bytes = 0;
    walk(template, &fillings, |piece| bytes += piece.len());
    if bytes > MAX_BYTES {
        return Err(TooLong {
            bytes,
            limit: MAX_BYTES,
        });
    }
    let mut filled = Vec::with_capacity(bytes);
    walk(template, &fillings, |piece| filled.extend_from_slice(piece));
    Ok(filled)
}

/// Tells the pieces of the filled text in order.
fn walk(template: &[u8], fillings: &[Filling<'_>], mut tell: impl FnMut(&[u8])) {
    let mut rest = template;
    while let Some((first, after)) = rest.split_first() {
        match fillings
            .iter()
            .find_map(|filling| Some((filling, rest.strip_prefix(filling.mark)?)))
        {
            Some((filling, after)) => {
                tell(&filling.value);
                rest = after;
            }
            None => {
                tell(std::slice::from_ref(first));
                rest = after;
            }
        }
    }
}

fn contains(text: &[u8], mark: &[u8]) -> bool {
    text.windows(mark.len()).any(|window| window == mark)
}

/// Escapes as a URL's query does: letters, digits and `-_.~` stay, a space becomes `+`, all else `%XX`.
fn query_escape(text: &str) -> Cow<'_, [u8]> {
    let stays = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    if text.bytes().all(stays) {
        return Cow::Borrowed(text.as_bytes());
    }
    let escape = |byte: u8| match byte {
        _ if stays(byte) => char::from(byte).to_string(),
        b' ' => "+".to_owned(),
        _ => format!("%{byte:02X}"),
    };
    Cow::Owned(text.bytes().map(escape).collect::<String>().into_bytes())
}

/// Id of a Machine's bootstrap token: 6 characters of `a-z0-9`, the form that Kubernetes asks for. Taken from the uid
/// and not from the name, whose last bytes collide within a few hundred machines (W11). `attempt`
/// grows when the id turns out to be another's.
pub fn bootstrap_token_id(uid: &Uid, attempt: u32) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let hash = Sha256::digest(format!("{uid}/{attempt}"));
    let (head, _) = hash.split_first_chunk::<8>().expect("SHA-256 has 32 bytes");
    let number = u64::from_be_bytes(*head);
    let digits = (0..6).map(|place| number / 36_u64.pow(place) % 36);
    digits
        .map(|digit| char::from(*ALPHABET.get(digit as usize).expect("a remainder of 36 is below 36")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TEXT: &str = "token=<<BOOTSTRAP_TOKEN>> name=<<MACHINE_NAME>> token=<<BOOTSTRAP_TOKEN>>";

    fn filled(template: &str, token: Option<&str>, name: &str) -> String {
        String::from_utf8(fill(template.as_bytes(), token, name).expect("short enough")).expect("UTF-8 in, UTF-8 out")
    }

    #[test]
    fn every_plain_placeholder_is_filled() {
        assert_eq!(
            filled(TEXT, Some("abcdef.0123"), "m-1"),
            "token=abcdef.0123 name=m-1 token=abcdef.0123"
        );
    }

    #[test]
    fn encoded_placeholders_are_filled_with_escaped_values() {
        let template = "data:,t%3D%3C%3CBOOTSTRAP_TOKEN%3E%3E%20n%3D%3C%3CMACHINE_NAME%3E%3E";
        assert_eq!(filled(template, Some("a b/c"), "m.1"), "data:,t%3Da+b%2Fc%20n%3Dm.1");
    }

    #[test]
    fn where_the_plain_form_occurs_the_encoded_ones_stay_each_placeholder_for_itself() {
        let template = "%3C%3CBOOTSTRAP_TOKEN%3E%3E <<BOOTSTRAP_TOKEN>> %3C%3CMACHINE_NAME%3E%3E";
        assert_eq!(filled(template, Some("t"), "m"), "%3C%3CBOOTSTRAP_TOKEN%3E%3E t m");
    }

    #[test]
    fn without_a_token_its_placeholder_stays_and_the_name_is_filled() {
        assert_eq!(
            filled("<<BOOTSTRAP_TOKEN>> <<MACHINE_NAME>>", None, "m"),
            "<<BOOTSTRAP_TOKEN>> m"
        );
    }

    #[test]
    fn a_value_that_looks_like_a_placeholder_is_not_filled_again() {
        assert_eq!(
            filled("<<BOOTSTRAP_TOKEN>> <<MACHINE_NAME>>", Some("<<MACHINE_NAME>>"), "m"),
            "<<MACHINE_NAME>> m"
        );
    }

    #[test]
    fn bytes_that_are_no_text_pass_unchanged() {
        let template = [&[0xff, 0x00, b'<'], NAME.plain, &[0xfe]].concat();
        assert_eq!(fill(&template, None, "m"), Ok(vec![0xff, 0x00, b'<', b'm', 0xfe]));
    }

    #[test]
    fn a_token_is_needed_for_either_spelling_and_for_no_other() {
        assert!(needs_token(b"x<<BOOTSTRAP_TOKEN>>"));
        assert!(needs_token(b"%3C%3CBOOTSTRAP_TOKEN%3E%3E"));
        assert!(!needs_token(
            b"<<MACHINE_NAME>> %3c%3cBOOTSTRAP_TOKEN%3e%3e <BOOTSTRAP_TOKEN>"
        ));
        assert!(!needs_token(b""));
    }

    #[test]
    fn the_limit_counts_the_filled_text() {
        let template = format!("{}<<MACHINE_NAME>>", "x".repeat(MAX_BYTES - 4));
        assert_eq!(
            fill(template.as_bytes(), None, "four").map(|text| text.len()),
            Ok(MAX_BYTES)
        );
        let error = TooLong {
            bytes: MAX_BYTES + 1,
            limit: MAX_BYTES,
        };
        assert_eq!(fill(template.as_bytes(), None, "fives"), Err(error));
        assert_eq!(
            error.to_string(),
            "user data has 65537 bytes, more than the 65536 that a driver accepts"
        );
    }

    #[test]
    fn the_buffer_never_grows() {
        let text = fill(TEXT.as_bytes(), Some("abcdef.0123456789abcdef"), "m-1").expect("short enough");
        assert_eq!(text.capacity(), text.len());
    }

    #[test]
    fn token_ids_have_the_form_that_kubernetes_asks_for_and_are_constant() {
        let id = bootstrap_token_id(&Uid::new("0e7b5bd0-6f2c-4f0e-9a55-3f0b8f1f2d11"), 0);
        assert_eq!(id, "lm0wpb");
        assert_ne!(
            id,
            bootstrap_token_id(&Uid::new("0e7b5bd0-6f2c-4f0e-9a55-3f0b8f1f2d11"), 1)
        );
    }

    /// W11: the original's ids of machines named x-00001 … x-00099 are all one.
    /// Rows: W11.
    #[test]
    fn a_thousand_machines_have_a_thousand_token_ids() {
        let ids: BTreeSet<String> = (0..1000)
            .map(|n| bootstrap_token_id(&Uid::new(format!("x-{n:05}")), 0))
            .collect();
        assert_eq!(ids.len(), 1000);
        assert!(
            ids.iter()
                .flat_map(|id| id.bytes())
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        );
    }
}
