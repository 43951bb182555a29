//! Labels that a node of this cloud bears, as cloud controller and kubelet would set them. The one place of their keys.

use std::collections::BTreeMap;

pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";

pub(crate) const OPERATING_SYSTEM: &str = "linux";
pub(crate) const ARCHITECTURE: &str = "amd64";

/// Labels that follow from where a VM stands and how large it is.
pub(crate) fn of_place(region: &str, zone: &str, instance_type: &str) -> BTreeMap<String, String> {
    let labels = [
        (REGION, region),
        (ZONE, zone),
        (INSTANCE_TYPE, instance_type),
        (OS, OPERATING_SYSTEM),
        (ARCH, ARCHITECTURE),
    ];
    labels
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
