//! Names of things as types, so that one cannot be passed for another. Decides nothing.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares a newtype over `String` for one kind of identifier.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text as it is.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text, or nothing where it is empty: the API writes "absent" both ways.
            pub fn non_empty(text: Option<&str>) -> Option<Self> {
                text.filter(|text| !text.is_empty()).map(Self::new)
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// `metadata.uid` of an object: lives and dies with it, unlike its name.
    Uid
);
text_id!(
    /// `metadata.name` of an object of ours in the control namespace.
    Name
);
text_id!(
    /// A VM's id at its provider, equal to `Node.spec.providerID`.
    ProviderId
);
text_id!(
    /// Name of a Node object of the target cluster.
    NodeName
);
/// One Node, as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRef {
    /// Its name.
    pub name: NodeName,
    /// Its uid: a namesake is another Node.
    pub uid: Uid,
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

text_id!(
    /// Name of a PersistentVolume of the target cluster.
    VolumeName
);
text_id!(
    /// A driver's name: what `MachineClass.provider` says and `GetDriverInfo` answers.
    DriverName
);

/// `metadata.resourceVersion`, comparable since Kubernetes 1.35 (KEP-5504) and, on etcd, before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// Reads the text form. `None` where it is no number: such a version cannot be compared.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A Secret named by a class: its namespace may be another than the class's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretKey {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
