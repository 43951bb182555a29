//! What a command is about, as kubectl's users write it: `machinedeployment/NAME`, `mcd NAME`, or the bare name where only one kind
//! can be meant.

use kube::Resource;
use millwright_core::api::{GROUP, Machine, MachineClass, MachineDeployment, MachineSet, VERSION};
use millwright_core::explain;
use millwright_core::ids::Name;

/// Short names of MachineDeployment. A test compares them with the CRD.
const SHORT: &[&str] = &["mcd"];

/// Why the arguments name no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSubject {
    /// Only deployments have rollouts.
    #[error("{0:?} is no kind that has rollouts: write machinedeployment/NAME, mcd/NAME or just NAME")]
    Kind(String),
    /// Not a kind of ours.
    #[error(
        "{0:?} is no kind of Millwright: write machinedeployment/NAME, machineset/NAME, machine/NAME or machineclass/NAME (mcd, mcs, mc, mcc)"
    )]
    Unknown(String),
    /// A kind without a name.
    #[error("{0:?}: the name is missing; write KIND/NAME, as machinedeployment/workers")]
    NoName(String),
    /// A name without a kind, where several kinds are possible.
    #[error("{0:?}: the kind is missing; write machinedeployment/{0}, machineset/{0}, machine/{0} or machineclass/{0}")]
    NoKind(String),
    /// No object can have the name.
    #[error(
        "{0:?} is not a name that Kubernetes takes (a-z, 0-9, - and ., with a letter or a digit at both ends and beside each ., 253 at most)"
    )]
    Name(String),
    /// Two objects where one is expected.
    #[error("{0:?} and {1:?}: name one object, as machinedeployment/NAME")]
    Two(String, String),
}

/// Parses `KIND/NAME` or `KIND NAME`, of any of our kinds.
pub fn object(words: &[String]) -> Result<explain::Subject, BadSubject> {
    let (kind, name) = match words {
        [word] => word.split_once('/').ok_or_else(|| BadSubject::NoKind(word.clone()))?,
        [kind, name] if !kind.contains('/') && !name.contains('/') => (kind.as_str(), name.as_str()),
        [one, other, ..] => return Err(BadSubject::Two(one.clone(), other.clone())),
        [] => return Err(BadSubject::NoName(String::new())),
    };
    let subject = if is_of::<MachineDeployment>(SHORT, kind) {
        explain::Subject::Deployment
    } else if is_of::<MachineSet>(&["mcs", "ms"], kind) {
        explain::Subject::Set
    } else if is_of::<Machine>(&["mc"], kind) {
        explain::Subject::Machine
    } else if is_of::<MachineClass>(&["mcc"], kind) {
        explain::Subject::Class
    } else {
        return Err(BadSubject::Unknown(kind.to_owned()));
    };
    Ok(subject(Name::new(checked(kind, name)?)))
}

/// Parses `machinedeployment/NAME`, `machinedeployment NAME` or a bare `NAME`, which is a MachineDeployment.
pub fn name(words: &[String]) -> Result<String, BadSubject> {
    match words {
        [word] => match word.split_once('/') {
            Some((kind, name)) => named(kind, name),
            None if is_kind(word) => Err(BadSubject::NoName(word.clone())),
            None => checked("machinedeployment", word),
        },
        [kind, name] if !kind.contains('/') && !name.contains('/') => named(kind, name),
        [one, other, ..] => Err(BadSubject::Two(one.clone(), other.clone())),
        [] => Err(BadSubject::NoName(String::new())),
    }
}

fn named(kind: &str, name: &str) -> Result<String, BadSubject> {
    if !is_kind(kind) {
        return Err(BadSubject::Kind(kind.to_owned()));
    }
    checked(kind, name)
}

fn checked(kind: &str, name: &str) -> Result<String, BadSubject> {
    if name.is_empty() {
        return Err(BadSubject::NoName(format!("{kind}/")));
    }
    machine(name)
}

fn is_kind(word: &str) -> bool {
    is_of::<MachineDeployment>(SHORT, word)
}

/// Whether a word is the kind: in any case; singular, plural or short; optionally followed by `.GROUP` or `.VERSION.GROUP`.
fn is_of<K: Resource<DynamicType = ()>>(short: &[&str], word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let (kind, rest) = word.split_once('.').unwrap_or((&word, GROUP));
    let singular = K::kind(&()).to_ascii_lowercase();
    let is_known = kind == singular || kind == K::plural(&()) || short.contains(&kind);
    let group = rest.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix('.'));
    is_known && group.unwrap_or(rest) == GROUP
}

/// Parses a name without a kind, as `millwright driver` takes the name of a Machine.
pub fn machine(name: &str) -> Result<String, BadSubject> {
    match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(BadSubject::Name(name.to_owned())),
    }
}

/// A DNS-1123 subdomain, as the API server takes names, and drivers (SPEC.md, GEN-38).
fn is_name(name: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_part = |part: &str| {
        let bytes = part.bytes();
        bytes.clone().all(is_inner) && is_end(bytes.clone().next()) && is_end(bytes.last())
    };
    name.len() <= 253 && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;

    use super::*;

    fn of(text: &str) -> Result<String, BadSubject> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        name(&words)
    }

    #[test]
    fn every_spelling_of_the_kind_is_known() {
        for text in [
            "workers",
            "mcd/workers",
            "mcd workers",
            "machinedeployment/workers",
            "machinedeployments/workers",
            "MachineDeployment/workers",
            "machinedeployment workers",
            "machinedeployment.machine.sapcloud.io/workers",
            "machinedeployments.v1alpha1.machine.sapcloud.io/workers",
        ] {
            assert_eq!(of(text).as_deref(), Ok("workers"), "{text}");
        }
    }

    #[test]
    fn the_short_name_is_the_definitions() {
        assert_eq!(
            MachineDeployment::crd().spec.names.short_names,
            Some(SHORT.iter().map(|short| (*short).to_owned()).collect())
        );
    }

    #[test]
    fn objects_of_all_kinds_are_told_apart_by_their_short_names_too() {
        let of = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            object(&words).map_err(|error| error.to_string())
        };
        let a = || Name::new("a");
        assert_eq!(of("mcd/a"), Ok(explain::Subject::Deployment(a())));
        assert_eq!(of("machineset a"), Ok(explain::Subject::Set(a())));
        assert_eq!(of("mc/a"), Ok(explain::Subject::Machine(a())));
        assert_eq!(of("machineclasses/a"), Ok(explain::Subject::Class(a())));
        assert!(of("pod/a").unwrap_err().contains("is no kind of Millwright"));
        assert!(of("a").unwrap_err().contains("the kind is missing"));
        assert!(of("mc/").unwrap_err().contains("the name is missing"));
        // `why` takes no bare name, and says no word of one.
        for text in ["mc/", "mc/a mc/b"] {
            let refusal = of(text).unwrap_err();
            assert!(
                !refusal.contains("just NAME") && !refusal.contains("MachineDeployment"),
                "{refusal}"
            );
        }
        let shorts = [Machine::crd(), MachineSet::crd(), MachineClass::crd()].map(|crd| crd.spec.names.short_names);
        let known: [&[&str]; 3] = [&["mc"], &["mcs", "ms"], &["mcc"]];
        assert_eq!(
            shorts,
            known.map(|all| Some(all.iter().map(|short| (*short).to_owned()).collect()))
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_to_write() {
        let refusal = |text: &str| of(text).unwrap_err().to_string();
        assert_eq!(
            refusal("deployment/workers"),
            "\"deployment\" is no kind that has rollouts: write machinedeployment/NAME, mcd/NAME or just NAME"
        );
        assert!(refusal("machinedeployment.apps/workers").contains("is no kind that has rollouts"));
        assert!(refusal("machinedeployment").contains("the name is missing"));
        assert!(refusal("mcd/").contains("the name is missing"));
        assert!(refusal("Workers").contains("not a name that Kubernetes takes"));
        assert!(refusal("mcd/a/b").contains("not a name that Kubernetes takes"));
        assert!(refusal("a..b").contains("not a name that Kubernetes takes"));
        assert!(refusal("mcd/a mcd/b").contains("name one object"));
    }

    #[test]
    fn a_machines_name_is_one_that_a_driver_takes() {
        let longest = "a".repeat(253);
        for name in ["m", "m-1.zone-a", longest.as_str()] {
            assert_eq!(machine(name).as_deref(), Ok(name));
        }
        let longer = "a".repeat(254);
        for name in [
            "",
            "BAD_name",
            "-m",
            "m-",
            ".m",
            "m.",
            "a..b",
            "a.-b",
            "machine/m",
            longer.as_str(),
        ] {
            assert!(machine(name).is_err(), "{name}");
        }
    }
}
