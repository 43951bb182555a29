//! Credentials: fetched when a call needs them, shared by the calls of one class, wiped from memory soon after.
//!
//! Decides how long a fetched Secret may be used: as long as the metadata watch says that its version is the current
//! one, and no longer than a minute without use. Nothing here has `Debug`, and no error holds more than a Secret's name.
//! What is wiped is the store's copy: the bytes that kube decoded them from and those on their way to a driver are the
//! libraries'.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{mask, status};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use millwright_core::driver::Failure;
use millwright_core::ids::{ResourceVersion, SecretKey};
use tokio::time::Instant;
use zeroize::{Zeroize as _, Zeroizing};

/// Key of the boot configuration in a class's Secret.
const USER_DATA: &str = "userData";
/// Most bytes of secret data that a driver takes (`driver.proto`, "Sizes").
const MAX_BYTES: usize = 128 * 1024;
/// A Secret not asked for this long is wiped.
const IDLE: Duration = Duration::from_secs(60);
/// The API server's own word for what does not exist.
const NOT_FOUND: &str = "NotFound";
/// How often the idle ones are looked for.
const SWEEP: Duration = Duration::from_secs(15);
/// How long a Secret whose current version nobody knows (it is not watched, or not yet) may be used.
const UNWATCHED: Duration = Duration::from_secs(5);
/// How long a failure answers for the next callers, so that a thousand machines do not ask a thousand times.
const FAILED: Duration = Duration::from_secs(2);

/// Values from this length on keep a `last_known_state` that holds them from being stored.
const LEAST_DROPPED: usize = 16;
/// The data of Secrets. Wiped when dropped; has no `Debug`.
#[derive(Default)]
pub struct SecretData {
    data: BTreeMap<String, Vec<u8>>,
    /// The Secrets that hold more than user data: whose account it is.
    account: Vec<SecretKey>,
    /// What one call sends beside the data, which is as secret.
    sent: Vec<Zeroizing<Vec<u8>>>,
}

impl SecretData {
    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The same, with the Secrets that the credentials are from.
    pub fn of_account(mut self, account: Vec<SecretKey>) -> Self {
        self.account = account;
        self
    }

    /// The Secrets that the credentials are from. Calls with the same are of one account.
    pub(super) fn account(&self) -> &[SecretKey] {
        &self.account
    }

    /// The same for one call, which sends this user data, with this token in it.
    pub(crate) fn sending(&self, user_data: &[u8], token: Option<&str>) -> Self {
        let token = token.map(str::as_bytes);
        let sent = std::iter::once(user_data).chain(token);
        Self {
            data: self.data.clone(),
            account: self.account.clone(),
            sent: sent.map(|value| Zeroizing::new(value.to_vec())).collect(),
        }
    }

    /// Whether it holds more than user data.
    fn has_credentials(&self) -> bool {
        self.data.keys().any(|name| name != USER_DATA)
    }

    /// A copy for a request. Its owner is the request, which nobody wipes.
    pub(crate) fn to_wire(&self) -> BTreeMap<String, Vec<u8>> {
        self.data.clone()
    }

    /// The text without what is secret: values of these Secrets and what else the call sends, in whichever form a text quotes them.
    pub(crate) fn mask(&self, text: &str) -> String {
        let secrets: Vec<&[u8]> = self.data.values().map(Vec::as_slice).collect();
        let sent: Vec<&[u8]> = self.sent.iter().map(|value| value.as_slice()).collect();
        mask::masked(text, &secrets, &sent)
    }

    /// The lines of all that is secret.
    fn lines(&self) -> impl Iterator<Item = &str> {
        let sent = self.sent.iter().map(|value| value.as_slice());
        let values = self.data.values().map(Vec::as_slice).chain(sent);
        let texts = values.filter_map(|value| std::str::from_utf8(value).ok());
        texts.flat_map(str::lines).map(str::trim)
    }

    /// What a status says, masked before it is cut: half a secret is one.
    pub(crate) fn failure(&self, status: &tonic::Status) -> Failure {
        let (code, message) = (status.code(), self.mask(status.message()));
        let (details, metadata) = (status.details().to_vec().into(), status.metadata().clone());
        let masked = tonic::Status::with_details_and_metadata(code, message, details, metadata);
        let mut failure = status::failure(&masked);
        failure.message = self.mask(&failure.message);
        failure.last_known_state = self.state(failure.last_known_state);
        failure
    }

    /// Whether a text that is stored where many may read it holds one of these Secrets, or a bootstrap token, in whichever form. Short values,
    /// such as a region, may stand in it.
    pub(super) fn is_quoted_in(&self, text: &str) -> bool {
        let long = |value: &&[u8]| value.len() >= LEAST_DROPPED;
        let secrets: Vec<&[u8]> = self.data.values().map(Vec::as_slice).filter(long).collect();
        mask::masked(text, &secrets, &[]) != text
    }

    /// A driver's `last_known_state`, which is stored where many may read it. One that holds a whole line of what is secret, or a bootstrap
    /// token, is not kept: masked it would mislead the driver. Short values, such as a region, may stand in it.
    pub(super) fn state(&self, state: Option<String>) -> Option<String> {
        let state = state?;
        let holds = |line: &str| line.len() >= LEAST_DROPPED && state.contains(line);
        if self.lines().any(holds) || mask::without_tokens(&state) != state {
            tracing::warn!("last_known_state dropped: it holds a secret that the driver was sent");
            return None;
        }
        Some(state)
    }

    fn bytes(&self) -> usize {
        self.data.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

impl Drop for SecretData {
    fn drop(&mut self) {
        self.data.values_mut().for_each(|value| value.zeroize());
    }
}

impl FromIterator<(String, Vec<u8>)> for SecretData {
    fn from_iter<I: IntoIterator<Item = (String, Vec<u8>)>>(entries: I) -> Self {
        Self {
            data: entries.into_iter().collect(),
            account: Vec::new(),
            sent: Vec::new(),
        }
    }
}

/// The Secrets of one class, merged.
#[derive(Clone)]
pub struct ClassSecrets {
    /// Everything but the user data.
    pub data: Arc<SecretData>,
    /// The template of the boot configuration. `None`: no Secret of the class has one, or it is empty.
    pub user_data: Option<Arc<Zeroizing<Vec<u8>>>>,
}

/// Why a class's Secrets cannot be had. Never an empty map instead (CL-2, W7).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It does not exist.
    #[error("Secret {0} does not exist")]
    Missing(SecretKey),
    /// This manager may not read it.
    #[error("Secret {0}: the API server does not let this manager read it")]
    Forbidden(SecretKey),
    /// The API server gave no answer, or an error.
    #[error("Secret {key}: {why}")]
    Unreachable {
        /// The Secret.
        key: SecretKey,
        /// What the client says.
        why: String,
    },
    /// The Secrets of the class hold more than a driver takes.
    #[error("the Secrets of the class hold {bytes} bytes, more than the {limit} that a driver accepts")]
    TooLarge {
        /// Their length, without the user data.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// Fetches and keeps Secrets. Cheap to clone.
#[derive(Clone)]
pub struct SecretStore {
    client: kube::Client,
    /// One lock for each Secret: the first caller fetches, the others wait and find what it fetched.
    slots: Arc<Mutex<BTreeMap<SecretKey, Slot>>>,
}

type Slot = Arc<tokio::sync::Mutex<Held>>;

/// What is known of one Secret.
#[derive(Default)]
struct Held {
    fetched: Option<Fetched>,
    failed: Option<(SecretError, Instant)>,
    used: Option<Instant>,
}

struct Fetched {
    version: String,
    at: Instant,
    data: Arc<SecretData>,
}

impl SecretStore {
    /// A store that fetches with this client.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            slots: Arc::default(),
        }
    }

    /// The Secrets of a class, `keys` in the order of merging: a later one wins. `current` tells the version that the
    /// metadata watch last saw of a Secret.
    pub async fn get(
        &self,
        keys: &[SecretKey],
        current: impl Fn(&SecretKey) -> Option<String>,
    ) -> Result<ClassSecrets, SecretError> {
        let (mut merged, mut account) = (SecretData::default(), Vec::new());
        for key in keys {
            let data = self.one(key, current(key)).await?;
            account.extend(data.has_credentials().then(|| key.clone()));
            for (name, value) in &data.data {
                if let Some(mut lost) = merged.data.insert(name.clone(), value.clone()) {
                    lost.zeroize();
                }
            }
        }
        let user_data = merged.data.remove(USER_DATA).filter(|template| !template.is_empty());
        let user_data = user_data.map(|template| Arc::new(Zeroizing::new(template)));
        if merged.bytes() > MAX_BYTES {
            return Err(SecretError::TooLarge {
                bytes: merged.bytes(),
                limit: MAX_BYTES,
            });
        }
        Ok(ClassSecrets {
            data: Arc::new(merged.of_account(account)),
            user_data,
        })
    }

    /// One Secret, from memory if it is current.
    async fn one(&self, key: &SecretKey, current: Option<String>) -> Result<Arc<SecretData>, SecretError> {
        let slot = Arc::clone(
            self.slots
                .lock()
                .expect("nothing panics under this lock")
                .entry(key.clone())
                .or_default(),
        );
        let mut held = slot.lock().await;
        let now = Instant::now();
        held.used = Some(now);
        if let Some(fetched) = held
            .fetched
            .as_ref()
            .filter(|fetched| fetched.is_current(current.as_deref(), now))
        {
            return Ok(Arc::clone(&fetched.data));
        }
        // Only an absence that the watch agrees with is remembered: a Secret that has just been made must be found.
        let failed = held.failed.take().filter(|(error, at)| {
            now.duration_since(*at) < FAILED && !(current.is_some() && matches!(error, SecretError::Missing(_)))
        });
        if let Some((error, at)) = failed {
            held.failed = Some((error.clone(), at));
            return Err(error);
        }
        match self.fetch(key).await {
            Ok(fetched) => {
                let data = Arc::clone(&fetched.data);
                held.fetched = Some(fetched);
                Ok(data)
            }
            Err(error) => {
                held.fetched = None;
                held.failed = Some((error.clone(), Instant::now()));
                Err(error)
            }
        }
    }

    async fn fetch(&self, key: &SecretKey) -> Result<Fetched, SecretError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let secret = api.get(&key.name).await.map_err(|error| classify(key, &error))?;
        let data = secret
            .data
            .unwrap_or_default()
            .into_iter()
            .map(|(name, value)| (name, value.0))
            .collect();
        let version = secret.metadata.resource_version.unwrap_or_default();
        tracing::debug!(secret = %key, version, "secret fetched");
        Ok(Fetched {
            version,
            at: Instant::now(),
            data: Arc::new(data),
        })
    }

    /// Wipes what has not been asked for within a minute. Runs until dropped.
    pub async fn upkeep(self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.sweep();
        }
    }

    fn sweep(&self) {
        let now = Instant::now();
        let is_used = |slot: &Slot| match slot.try_lock() {
            Ok(held) => held.used.is_none_or(|used| now.duration_since(used) < IDLE),
            // Somebody is using it now.
            Err(_) => true,
        };
        self.slots
            .lock()
            .expect("nothing panics under this lock")
            .retain(|_, slot| is_used(slot));
    }
}

impl Fetched {
    /// Whether it may be used, where the watch last saw `current`. A version newer than the watch's is the better one.
    fn is_current(&self, current: Option<&str>, now: Instant) -> bool {
        let Some(current) = current else {
            return now.duration_since(self.at) < UNWATCHED;
        };
        match (ResourceVersion::parse(&self.version), ResourceVersion::parse(current)) {
            (Some(held), Some(current)) => held >= current,
            _ => self.version == current,
        }
    }
}

/// Why a read failed. Only the status is told: the body of a Secret never gets into an error's text.
fn classify(key: &SecretKey, error: &kube::Error) -> SecretError {
    let unreachable = |why: String| SecretError::Unreachable { key: key.clone(), why };
    match error {
        // A bare 404 may come from a proxy: it proves nothing.
        kube::Error::Api(status) if status.code == 404 && status.reason == NOT_FOUND => {
            SecretError::Missing(key.clone())
        }
        kube::Error::Api(status) if status.code == 401 || status.code == 403 => SecretError::Forbidden(key.clone()),
        kube::Error::Api(status) => unreachable(format!("the API server answered {} {}", status.code, status.reason)),
        // A deserializer quotes what it could not read.
        kube::Error::SerdeError(_) => unreachable("the API server's answer is no Secret".to_owned()),
        other => unreachable(format!("the API server cannot be asked: {}", chain(other))),
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = Vec::new();
    for text in causes.map(ToString::to_string) {
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: O4.
    #[test]
    fn values_and_bootstrap_tokens_are_masked_and_words_are_not() {
        let entries = [
            ("key", "-----BEGIN KEY-----\nMIIEvQIBADAN\n"),
            ("zone", "eu"),
            ("long", "MIIEvQIBADANxyz"),
        ];
        let entries = entries.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let secrets: SecretData = entries.into_iter().collect();
        for (text, masked) in [
            ("no quota in eu for e2.small", "no quota in eu for e2.small"),
            ("bad key: MIIEvQIBADAN!", "bad key: ***!"),
            (
                "token abcdef.0123456789abcdef, twice abcdef.0123456789abcdef",
                "token abcdef.***, twice abcdef.***",
            ),
            ("abcdef.0123456789abcde. ü.", "abcdef.0123456789abcde. ü."),
            ("host12.mycompanyclusters.com", "host12.mycompanyclusters.com"),
            ("MIIEvQIBADANxyz of a longer value", "*** of a longer value"),
        ] {
            assert_eq!(secrets.mask(text), masked);
        }
    }

    fn base64(around: &str, bytes: &[u8]) -> String {
        use base64::Engine as _;
        around.replace("{in}", &base64::engine::general_purpose::STANDARD.encode(bytes))
    }

    /// A driver prints what it was given with its language's quotes, or puts it into an address.
    #[test]
    fn what_is_quoted_in_another_form_is_masked_and_a_last_known_state_with_a_secret_is_not_kept() {
        let key = r#"{"private_key":"-----BEGIN\nPRIVATELINE-AAAA\n"}"#;
        let entries = [
            ("json", key),
            ("accessKey", "AKIASECRETKEY12345"),
            ("region", "eu-central-1"),
            ("password", "p@ss/w0rd"),
        ];
        let secrets: SecretData = entries
            .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
            .into_iter()
            .collect();
        let token = "abcdef.0123456789abcdef";
        let sending = secrets.sending(b"boot abcdef.0123456789abcdef word\nshort", Some(token));
        for (text, hidden) in [
            (format!("{key:?}"), "PRIVATELINE-AAAA"),
            ("boot abcdef.0123456789abcdef word".to_owned(), "word"),
            ("boot%20abcdef.0123456789abcdef%20".to_owned(), "0123456789"),
            ("?key=AKIASECRETKEY12345".to_owned(), "AKIASECRET"),
            ("https://u:p%40ss%2Fw0rd@host/a".to_owned(), "ss%2Fw0rd"),
            (base64("user: {in}", key.as_bytes()), "eyJwcml2"),
            (base64("https://host/path/{in}", key.as_bytes()), "eyJwcml2"),
            (
                base64("cut: {in}", key.as_bytes()).split_at(34).0.to_owned(),
                "eyJwcml2",
            ),
            (base64("{in}", b"boot abcdef.0123456789abcdef word\nshort"), "Ym9vdCBh"),
        ] {
            let masked = sending.mask(&text);
            assert!(!masked.contains(hidden), "{masked}");
        }
        let harmless = "the size of userdataword is unknown";
        let words = secrets.sending(b"#cloud-config userdataword", None);
        assert_eq!(words.mask(harmless), harmless, "a word of user data is any program's");
        for secret in [
            "?key=AKIASECRETKEY12345",
            "(abcdef.0123456789abcdef)",
            "u=boot abcdef.0123456789abcdef word",
        ] {
            assert_eq!(sending.state(Some(secret.to_owned())), None);
        }
        let harmless = Some("step=2 disk-0123 eu-central-1".to_owned());
        assert_eq!(sending.state(harmless.clone()), harmless);
    }
}
