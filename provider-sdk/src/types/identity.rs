//! Who a VM is, as its tags say it, and the spelling of tags where a provider allows few characters.
//!
//! A driver stores the tags of the request and reads the identity of what it finds. It needs no other memory.

use std::collections::BTreeMap;

use super::{CreateMachine, MachineKey};
use crate::error::DriverError;

/// Whose VM it is and what it was made of. What the tags do not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The Machine. From tags, a name of more than 63 bytes is cut: the uid identifies.
    pub key: MachineKey,
    /// Name of the MachineClass.
    pub machine_class: String,
    /// Digest of what the VM was made of; from tags, its first 32 characters.
    pub spec_digest: String,
}

impl Identity {
    /// The identity that the VM of this creation has.
    pub fn of(request: &CreateMachine) -> Self {
        Self {
            key: request.key.clone(),
            machine_class: request.machine_class.name.clone(),
            spec_digest: request.spec_digest.clone(),
        }
    }

    /// The tags that say it, as in [`CreateMachine::tags`].
    pub fn tags(&self) -> BTreeMap<String, String> {
        let key = millwright_proto::v1::MachineKey {
            cluster_id: self.key.cluster_id.clone(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: self.key.uid.clone(),
        };
        millwright_proto::identity_tags(&key, &self.machine_class, &self.spec_digest)
    }

    /// What a VM's tags say. Other tags are passed over.
    pub fn from_tags(tags: &BTreeMap<String, String>) -> Self {
        let said = |name: &str| tags.get(&format!("millwright/{name}")).cloned().unwrap_or_default();
        Self {
            key: MachineKey {
                cluster_id: said("cluster"),
                namespace: said("namespace"),
                name: said("name"),
                uid: said("uid"),
            },
            machine_class: said("machine-class"),
            spec_digest: said("spec-digest"),
        }
    }
}

/// How tags are written at a provider that allows fewer characters, or shorter values, than the contract. Nothing is lost: a byte that is not
/// allowed becomes `_` and two hex digits, and a value that is too long goes on in a tag of its own.
///
/// ```
/// use millwright_provider_sdk::TagCodec;
///
/// const LABELS: TagCodec = TagCodec::new(63, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
/// let tags = [("millwright/name".to_owned(), "a.b".to_owned())].into();
/// let labels = LABELS.encode(&tags)?;
/// assert_eq!(labels["millwright_2fname"], "a_2eb");
/// assert_eq!(LABELS.decode(&labels), tags);
/// # Ok::<(), millwright_provider_sdk::DriverError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TagCodec {
    longest: usize,
    is_allowed: fn(u8) -> bool,
}

/// Begins what stands for a byte. Followed by a letter that is no hex digit, it begins the number of a part.
const ESCAPE: char = '_';
const PART: &str = "_z";

impl TagCodec {
    /// For keys and values of at most `longest` bytes, 8 or more, of the bytes that `is_allowed` names. The provider must allow `_`, lower-case
    /// letters and digits.
    pub const fn new(longest: usize, is_allowed: fn(u8) -> bool) -> Self {
        Self { longest, is_allowed }
    }

    /// The tags as the provider takes them.
    ///
    /// # Errors
    /// `DRIVER_FAULT` if a key is too long, which those of the contract are at no provider of 32 bytes and more.
    pub fn encode(&self, tags: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, DriverError> {
        let mut written = BTreeMap::new();
        for (key, value) in tags {
            let (name, mut rest) = (self.escape(key), self.escape(value));
            for part in 0.. {
                let name = match part {
                    0 => name.clone(),
                    part => format!("{name}{PART}{part}"),
                };
                if name.len() > self.longest {
                    let text = format!("the tag {key} does not fit into {} bytes", self.longest);
                    return Err(DriverError::fault(text));
                }
                let tail = rest.split_off(rest.len().min(self.longest));
                written.insert(name, rest);
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
        }
        Ok(written)
    }

    /// The tags as they were before [`encode`](Self::encode). A tag that `encode` does not write stays as it is.
    pub fn decode(&self, tags: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let is_first = |key: &str| !key.contains(PART);
        let firsts = tags.iter().filter(|(key, _)| is_first(key));
        let mut read = BTreeMap::new();
        for (name, value) in firsts {
            let parts = (1..).map_while(|part: usize| tags.get(&format!("{name}{PART}{part}")));
            let whole: String = std::iter::once(value).chain(parts).map(String::as_str).collect();
            match (unescape(name), unescape(&whole)) {
                (Some(key), Some(value)) => read.insert(key, value),
                _ => read.insert(name.clone(), value.clone()),
            };
        }
        read
    }

    fn escape(&self, text: &str) -> String {
        let mut written = String::with_capacity(text.len());
        for byte in text.bytes() {
            if byte.is_ascii() && byte != b'_' && (self.is_allowed)(byte) {
                written.push(char::from(byte));
            } else {
                written.push_str(&format!("{ESCAPE}{byte:02x}"));
            }
        }
        written
    }
}

/// `None` for what no [`TagCodec`] writes.
fn unescape(text: &str) -> Option<String> {
    let mut pieces = text.split(ESCAPE);
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        // The number's own parser would take a sign and upper case, too.
        if !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MachineClass;

    const NARROW: TagCodec = TagCodec::new(32, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));

    fn tags<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
        entries
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into_iter()
            .collect()
    }

    fn identity() -> Identity {
        Identity {
            key: MachineKey {
                cluster_id: "shoot--a--b".into(),
                namespace: "default".into(),
                name: format!("m.{}", "n".repeat(50)),
                uid: "0b5c9d1e-6a7f-4e5d-8c3b-2a1908f7e6d5".into(),
            },
            machine_class: "small.v1".into(),
            spec_digest: "ab".repeat(16),
        }
    }

    #[test]
    fn a_vm_without_our_tags_has_no_identity() {
        let foreign = tags([("Name", "m"), ("other/uid", "x")]);
        assert_eq!(Identity::from_tags(&foreign), Identity::default());
    }

    #[test]
    fn an_identity_is_read_back_from_its_tags() {
        assert_eq!(Identity::from_tags(&identity().tags()), identity());
        let key = identity().key;
        let request = CreateMachine {
            spec_digest: "ab".repeat(32),
            ..CreateMachine::new(key, MachineClass::default())
        };
        assert_eq!(Identity::of(&request).tags()["millwright/spec-digest"], "ab".repeat(16));
        assert!(
            request.is_made_of(&Identity::from_tags(&Identity::of(&request).tags()).spec_digest),
            "the tag of a digest is as good as the digest"
        );
    }

    #[test]
    fn tags_survive_a_provider_that_allows_few_characters_and_short_values() {
        let all = [
            identity().tags(),
            tags([("a_b", "_"), ("k", ""), ("é", "ü_zß"), ("a", "_41"), ("zz", "A_z1")]),
            tags([
                ("long", &"x.".repeat(60)),
                ("exact", &"x".repeat(32)),
                ("one-more", &"x".repeat(33)),
            ]),
        ];
        for tags in all {
            let written = NARROW.encode(&tags).expect("it fits");
            let is_narrow = |text: &String| {
                text.len() <= 32
                    && text
                        .bytes()
                        .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
            };
            assert!(
                written.iter().all(|(key, value)| is_narrow(key) && is_narrow(value)),
                "{written:?}"
            );
            assert_eq!(NARROW.decode(&written), tags);
        }
    }

    /// VMs that exist are found by these labels: their spelling must never change.
    #[test]
    fn an_identity_is_spelled_in_labels_of_providers_as_ever() {
        // As Google Compute Engine takes labels.
        const GCE: TagCodec = TagCodec::new(63, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        // As Yandex Cloud does: all that tags hold, but capital letters.
        const YANDEX: TagCodec = TagCodec::new(
            63,
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'/' | b'@' | b'\\'),
        );
        let (name, digest) = (format!("m.{}", "n".repeat(50)), "ab".repeat(16));
        let uid = "0b5c9d1e-6a7f-4e5d-8c3b-2a1908f7e6d5";
        let gce = [
            ("millwright_2fcluster", "shoot--a--b"),
            ("millwright_2fmachine-class", "small_2ev1"),
            ("millwright_2fname", &name.replace('.', "_2e")),
            ("millwright_2fnamespace", "default"),
            ("millwright_2fspec-digest", &digest),
            ("millwright_2fuid", uid),
        ];
        let yandex = [
            ("millwright/cluster", "shoot--a--b"),
            ("millwright/machine-class", "small.v1"),
            ("millwright/name", &name),
            ("millwright/namespace", "default"),
            ("millwright/spec-digest", &digest),
            ("millwright/uid", uid),
        ];
        for (codec, labels) in [(GCE, tags(gce)), (YANDEX, tags(yandex))] {
            assert_eq!(codec.encode(&identity().tags()).expect("it fits"), labels);
            assert_eq!(Identity::from_tags(&codec.decode(&labels)), identity());
        }
    }

    #[test]
    fn an_escape_is_two_lower_case_hex_digits_and_all_else_stays_as_it_is() {
        for text in ["a_+f", "a_-1", "a_2E", "a_fF", "a_2", "a_ 2"] {
            let foreign = tags([(text, "v"), ("k", text)]);
            assert_eq!(NARROW.decode(&foreign), foreign, "{text}");
        }
        assert_eq!(NARROW.decode(&tags([("k", "a_2eb")])), tags([("k", "a.b")]));
    }

    #[test]
    fn a_key_that_does_not_fit_is_an_error_and_a_foreign_tag_stays_as_it_is() {
        let long = tags([(&"k".repeat(33), "v")]);
        assert_eq!(NARROW.encode(&long).unwrap_err().reason(), &crate::Reason::DriverFault);
        let foreign = tags([("Cost_Centre", "7_xy")]);
        assert_eq!(NARROW.decode(&foreign), foreign);
    }
}
