//! Values that must not be seen: the class's credentials and the boot configuration.
//!
//! `Debug` tells that they are there and no more, none has `Display`, and all are overwritten with zeros when their last copy is dropped. The
//! copies that the transport makes while it decodes a request are beyond reach.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::DriverError;

/// What stands for a value.
const REDACTED: &str = "<redacted>";

/// The data of the class's Secrets, merged, without user data. Cloning shares, it does not copy.
#[derive(Clone, Default)]
pub struct Secrets(Arc<BTreeMap<String, Secret>>);

impl Secrets {
    /// The value of a key that the driver cannot do without.
    ///
    /// # Errors
    /// `CREDENTIALS_MISSING`, with the key's name, if there is no such key or its value is empty.
    pub fn require(&self, key: &str) -> Result<&Secret, DriverError> {
        let value = self.0.get(key).filter(|value| !value.as_bytes().is_empty());
        value.ok_or_else(|| DriverError::credentials_missing(format!("secret_data.{key}")))
    }

    /// As [`require`](Self::require), for values that are text.
    ///
    /// # Errors
    /// As `require`; `INVALID_FIELD` if the value is not UTF-8.
    pub fn require_str(&self, key: &str) -> Result<&str, DriverError> {
        let text = std::str::from_utf8(self.require(key)?.as_bytes());
        text.map_err(|_| DriverError::invalid_field(format!("secret_data.{key}"), "is not UTF-8"))
    }

    /// The bytes of one key, or `None` if the Secret has no such key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Secret::as_bytes)
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

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter()).finish()
    }
}

impl FromIterator<(String, Vec<u8>)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (String, Vec<u8>)>>(entries: I) -> Self {
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key, Secret(Zeroizing::new(value))));
        Self(Arc::new(entries.collect()))
    }
}

/// One value of a Secret.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The bytes to hand to the provider.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// Boot configuration of a VM, final: placeholders are filled in. Cloning shares, it does not copy.
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

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl From<Vec<u8>> for UserData {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Zeroizing::new(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    fn secrets() -> Secrets {
        let entries = [("user", "admin"), ("empty", "")];
        let entries = entries.map(|(key, value)| (key.to_owned(), value.into()));
        entries.into_iter().chain([("bytes".to_owned(), vec![0xff])]).collect()
    }

    #[test]
    fn a_key_that_is_lacking_or_empty_is_named_in_the_error() {
        for key in ["password", "empty"] {
            let error = secrets().require(key).unwrap_err();
            let missing = format!("secret_data.{key}");
            assert_eq!(
                error.reason(),
                &Reason::CredentialsMissing {
                    missing: missing.clone()
                }
            );
            assert!(error.message().contains(&missing), "{error}");
        }
        let error = secrets().require_str("bytes").unwrap_err();
        assert_eq!(error.reason().name(), Some("INVALID_FIELD"));
        assert_eq!(secrets().require_str("user").unwrap(), "admin");
    }

    #[test]
    fn no_value_shows_in_a_debug_text() {
        let text = format!("{:?} {:?}", secrets(), secrets().require("user").unwrap());
        assert!(text.contains("\"user\": <redacted>"), "{text}");
        assert!(!text.contains("admin") && !text.contains("97, 100"), "{text}");
    }
}
