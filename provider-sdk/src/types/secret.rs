//! Values that must not be seen: the class's credentials and the boot configuration.
//!
//! Neither type has `Debug` or `Display`, so no log line can hold one by accident, and both are overwritten with zeros
//! when their last copy is dropped. The copies that the transport makes while it decodes a request are beyond reach.

use std::collections::BTreeMap;
use std::sync::Arc;

use zeroize::Zeroizing;

/// The data of the class's Secrets, merged, without user data. Cloning shares, it does not copy.
///
/// ```compile_fail
/// println!("{:?}", millwright_provider_sdk::Secrets::default());
/// ```
#[derive(Clone, Default)]
pub struct Secrets(Arc<BTreeMap<String, Zeroizing<Vec<u8>>>>);

impl Secrets {
    /// The bytes of one key, or `None` if the Secret has no such key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(|value| value.as_slice())
    }

    /// As [`get`](Self::get), for values that are text. `None` also if the value is not UTF-8.
    pub fn get_str(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The names of the keys, which are no secret.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there are no keys at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, Vec<u8>)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (String, Vec<u8>)>>(entries: I) -> Self {
        Self(Arc::new(
            entries
                .into_iter()
                .map(|(key, value)| (key, Zeroizing::new(value)))
                .collect(),
        ))
    }
}

/// Boot configuration of a VM, final: placeholders are filled in. Cloning shares, it does not copy.
///
/// ```compile_fail
/// println!("{:?}", millwright_provider_sdk::UserData::default());
/// ```
#[derive(Clone, Default)]
pub struct UserData(Arc<Zeroizing<Vec<u8>>>);

impl UserData {
    /// The bytes to hand to the provider.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Whether the class has no boot configuration.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<u8>> for UserData {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Zeroizing::new(bytes)))
    }
}
