//! The sizes that the cloud offers. The one table of them; spec, node and template read it.

/// A size of VM.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) name: &'static str,
    pub(crate) cpus: u32,
    pub(crate) memory_gib: u32,
    /// Millionths of a US dollar an hour.
    pub(crate) price_micros: i64,
}

const SIZES: [Size; 3] = [
    Size {
        name: "small",
        cpus: 2,
        memory_gib: 4,
        price_micros: 20_000,
    },
    Size {
        name: "medium",
        cpus: 4,
        memory_gib: 16,
        price_micros: 70_000,
    },
    Size {
        name: "large",
        cpus: 8,
        memory_gib: 32,
        price_micros: 140_000,
    },
];

/// Pods that fit on a node of any size, the kubelet's own default.
pub(crate) const PODS: u32 = 110;
const DISK_GIB: u32 = 20;
/// What the kubelet and the system keep for themselves.
const RESERVED_MILLI_CPU: u32 = 80;
const RESERVED_MIB: u32 = 512;

/// A node's resources by their names in Kubernetes.
pub(crate) type Resources = [(&'static str, String); 4];

impl Size {
    /// The size of this name, if the cloud offers it.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        SIZES.iter().find(|size| size.name == name)
    }

    /// The names on offer, for messages.
    pub(crate) fn names() -> String {
        SIZES.map(|size| size.name).join(", ")
    }

    pub(crate) fn capacity(&self) -> Resources {
        [
            ("cpu", self.cpus.to_string()),
            ("memory", format!("{}Gi", self.memory_gib)),
            ("ephemeral-storage", format!("{DISK_GIB}Gi")),
            ("pods", PODS.to_string()),
        ]
    }

    /// What is left for pods.
    pub(crate) fn allocatable(&self) -> Resources {
        [
            ("cpu", format!("{}m", self.cpus * 1000 - RESERVED_MILLI_CPU)),
            ("memory", format!("{}Mi", self.memory_gib * 1024 - RESERVED_MIB)),
            ("ephemeral-storage", format!("{}Gi", DISK_GIB - 2)),
            ("pods", PODS.to_string()),
        ]
    }
}
