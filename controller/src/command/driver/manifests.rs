//! The class and the Secrets of a call, from the manifests that users have. Sends nothing.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use millwright_core::api::{MachineClass, SecretRef, meta};
use millwright_core::ids::SecretKey;
use serde_json::Value;

use crate::command::failure::Failure;

/// Where objects lie whose manifests name no namespace.
const NAMESPACE: &str = "default";
/// Key of the boot configuration in a class's Secret.
const USER_DATA: &str = "userData";

/// What the files hold that a driver call needs.
#[derive(Default)]
pub struct Manifests {
    classes: Vec<MachineClass>,
    secrets: BTreeMap<SecretKey, BTreeMap<String, Vec<u8>>>,
}

/// A class with what its Secrets hold.
pub struct Class {
    pub namespace: String,
    pub name: String,
    pub object: MachineClass,
    pub secrets: BTreeMap<String, Vec<u8>>,
    pub user_data: Vec<u8>,
}

impl Manifests {
    /// Reads files of YAML or JSON, each with any number of objects, and all such files of folders. Other kinds are passed over.
    pub fn read(named: &[PathBuf]) -> Result<Self, Failure> {
        let mut all = Self::default();
        let files: Vec<Vec<PathBuf>> = named.iter().map(|path| files(path)).collect::<Result<_, _>>()?;
        for file in &files.concat() {
            let wrong = |error: &dyn std::fmt::Display| Failure::Manifest(format!("{}: {error}", file.display()));
            let text = String::from_utf8(bytes(file)?).map_err(|error| wrong(&error))?;
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| wrong(&error))?;
            for object in objects {
                all.take(object).map_err(|error| wrong(&error))?;
            }
        }
        Ok(all)
    }

    fn take(&mut self, object: Value) -> Result<(), serde_json::Error> {
        match object.get("kind").and_then(Value::as_str) {
            Some("List") => {
                let items = object.get("items").and_then(Value::as_array).cloned();
                items.into_iter().flatten().try_for_each(|item| self.take(item))
            }
            Some("MachineClass") => {
                self.classes.push(serde_json::from_value(object)?);
                Ok(())
            }
            Some("Secret") => {
                let secret: Secret = serde_json::from_value(object)?;
                let key = SecretKey {
                    namespace: namespace_of(secret.metadata.namespace.as_deref()),
                    name: secret.metadata.name.unwrap_or_default(),
                };
                let data = secret.data.into_iter().flatten().map(|(name, value)| (name, value.0));
                let texts = secret.string_data.into_iter().flatten();
                let texts = texts.map(|(name, text)| (name, text.into_bytes()));
                self.secrets.insert(key, data.chain(texts).collect());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The class of that name; without one, the only class there is.
    pub fn class(&self, name: Option<&str>) -> Result<Class, Failure> {
        let names: Vec<&str> = self.classes.iter().map(|class| meta::name(&class.metadata)).collect();
        let object = match name {
            Some(name) => self.classes.iter().find(|class| meta::name(&class.metadata) == name),
            None => self.classes.first().filter(|_| self.classes.len() == 1),
        };
        let Some(object) = object else {
            return Err(Failure::Manifest(match (names.as_slice(), name) {
                ([], _) => "no MachineClass is given: name its manifest with -f FILE".to_owned(),
                (names, Some(name)) => format!("there is no MachineClass {name}; the files have {}", names.join(", ")),
                (names, None) => format!(
                    "the files have several classes, say which by --class: {}",
                    names.join(", ")
                ),
            }));
        };
        let namespace = namespace_of(object.metadata.namespace.as_deref());
        let mut secrets = self.secrets_of(object, &namespace)?;
        let user_data = secrets.remove(USER_DATA).unwrap_or_default();
        Ok(Class {
            name: meta::name(&object.metadata).to_owned(),
            object: object.clone(),
            namespace,
            secrets,
            user_data,
        })
    }

    /// The data of the class's Secrets, a later one over an earlier one.
    fn secrets_of(&self, class: &MachineClass, namespace: &str) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
        let mut merged = BTreeMap::new();
        for reference in class.secret_refs() {
            let key = key_of(reference, namespace);
            let Some(data) = self.secrets.get(&key) else {
                let class = meta::name(&class.metadata);
                return Err(Failure::Manifest(format!(
                    "MachineClass {class} names the Secret {key}, which is in none of the files: add its manifest with -f FILE"
                )));
            };
            merged.extend(data.clone());
        }
        Ok(merged)
    }
}

/// The file itself, or the manifests of a folder.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let wrong = |error: std::io::Error| Failure::Manifest(format!("{}: {error}", path.display()));
    let entries = std::fs::read_dir(path).map_err(wrong)?;
    let entries: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    let is_manifest = |path: &PathBuf| {
        let ending = path.extension().and_then(std::ffi::OsStr::to_str);
        matches!(ending, Some("yaml" | "yml" | "json"))
    };
    let mut manifests: Vec<PathBuf> = entries.into_iter().filter(is_manifest).collect();
    manifests.sort();
    Ok(manifests)
}

fn key_of(reference: &SecretRef, namespace: &str) -> SecretKey {
    reference.key().unwrap_or_else(|| SecretKey {
        namespace: namespace.to_owned(),
        name: reference.name.clone().unwrap_or_default(),
    })
}

fn namespace_of(named: Option<&str>) -> String {
    named.filter(|named| !named.is_empty()).unwrap_or(NAMESPACE).to_owned()
}

/// What a file holds; `-` is the standard input.
pub fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |error: std::io::Error| Failure::Manifest(format!("{}: {error}", file.display()));
    if file != Path::new("-") {
        return std::fs::read(file).map_err(wrong);
    }
    let mut read = Vec::new();
    std::io::stdin().lock().read_to_end(&mut read).map_err(wrong)?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "
kind: MachineClass
metadata: {name: small, namespace: shop}
provider: virtual
secretRef: {name: boot, namespace: shop}
credentialsSecretRef: {name: account, namespace: shop}
---
kind: Deployment
metadata: {name: other}
---
kind: List
items:
- kind: Secret
  metadata: {name: boot, namespace: shop}
  data: {userData: Ym9vdA==, region: ZXU=}
- kind: Secret
  metadata: {name: account, namespace: shop}
  stringData: {region: us}
";

    fn read(text: &str) -> Manifests {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Manifests::read(&[file.path().to_owned()]).unwrap()
    }

    fn refusal(manifests: &Manifests, name: Option<&str>) -> String {
        manifests.class(name).err().unwrap().to_string()
    }

    #[test]
    fn a_class_comes_with_its_secrets_laid_over_each_other_and_without_user_data() {
        let class = read(TWO).class(None).unwrap();
        assert_eq!((class.namespace.as_str(), class.name.as_str()), ("shop", "small"));
        assert_eq!(class.user_data, b"boot");
        assert_eq!(class.secrets, [("region".to_owned(), b"us".to_vec())].into());
    }

    #[test]
    fn a_folder_stands_for_the_manifests_in_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("two.yaml"), TWO).unwrap();
        std::fs::write(folder.path().join("notes.txt"), "no: [manifest").unwrap();
        let manifests = Manifests::read(&[folder.path().to_owned()]).unwrap();
        assert_eq!(manifests.class(None).unwrap().name, "small");
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        assert!(refusal(&read(""), None).contains("name its manifest with -f FILE"));
        let other = refusal(&read(TWO), Some("large"));
        assert_eq!(other, "there is no MachineClass large; the files have small");
        let alone = read("kind: MachineClass\nmetadata: {name: a}\nsecretRef: {name: s}");
        let lacks = refusal(&alone, None);
        assert!(
            lacks.contains("names the Secret default/s, which is in none of the files"),
            "{lacks}"
        );
        let two = "kind: MachineClass\nmetadata: {name: a}\n---\nkind: MachineClass\nmetadata: {name: b}";
        assert!(refusal(&read(two), None).contains("say which by --class: a, b"));
    }
}
