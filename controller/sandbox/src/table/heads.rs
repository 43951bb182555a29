//! The columns of each kind.
//!
//! Those of built-in kinds are the server's; what it says to describe them is left empty.

use super::Head;
use crate::kinds::Kind;

/// The columns of a kind, one text each: a name behind `+` is shown in wide output only, a type other than text stands behind
/// a colon.
fn built_in(kind: &Kind) -> &'static [&'static str] {
    match kind.kind.as_str() {
        "Secret" => &["Name", "Type", "Data", "Age"],
        "ConfigMap" => &["Name", "Data", "Age"],
        "Namespace" => &["Name", "Status", "Age"],
        "ServiceAccount" => &["Name", "Age"],
        "Lease" => &["Name", "Holder", "Age"],
        "ControllerRevision" => &["Name", "Controller", "Revision", "Age"],
        "PodDisruptionBudget" => &[
            "Name",
            "Min Available",
            "Max Unavailable",
            "Allowed Disruptions:integer",
            "Age",
        ],
        "VolumeAttachment" => &["Name", "Attacher", "PV", "Node", "Attached:boolean", "Age"],
        "RoleBinding" | "ClusterRoleBinding" => &["Name", "Role", "Age", "+Users", "+Groups", "+ServiceAccounts"],
        "Node" => &[
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "+Internal-IP",
            "+External-IP",
            "+OS-Image",
            "+Kernel-Version",
            "+Container-Runtime",
        ],
        "Pod" => &[
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "+IP",
            "+Node",
            "+Nominated Node",
            "+Readiness Gates",
        ],
        "Event" => &[
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "+Subobject",
            "+Source",
            "Message",
            "+First Seen",
            "+Count",
            "+Name",
        ],
        "PersistentVolume" => &[
            "Name",
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "VolumeAttributesClass",
            "Reason",
            "Age",
            "+VolumeMode",
        ],
        "PersistentVolumeClaim" => &[
            "Name",
            "Status",
            "Volume",
            "Capacity",
            "Access Modes",
            "StorageClass",
            "VolumeAttributesClass",
            "Age",
            "+VolumeMode",
        ],
        _ => &["Name", "Created At:date"],
    }
}

/// The columns of a kind.
pub fn of(kind: &Kind) -> Vec<Head> {
    if !kind.custom {
        return built_in(kind).iter().map(|said| head(said)).collect();
    }
    let mut out = vec![head("Name")];
    if kind.columns.is_empty() {
        out.push(head("Age:date"));
    }
    out.extend(kind.columns.iter().map(|column| Head {
        name: column.name.clone(),
        kind: column.kind.clone(),
        format: column.format.clone(),
        description: described(&column.path, &column.description),
        priority: column.priority,
    }));
    out
}

/// A column without a description says at least where it looks.
fn described(path: &str, said: &str) -> String {
    if said.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {path}")
    } else {
        said.to_owned()
    }
}

/// The columns of a scale.
pub fn of_scale() -> Vec<Head> {
    ["Name", "Desired:integer", "Available:integer", "Age:date"]
        .into_iter()
        .map(head)
        .collect()
}

fn head(said: &str) -> Head {
    let (wide, said) = said.strip_prefix('+').map_or((false, said), |rest| (true, rest));
    let (name, kind) = said.split_once(':').unwrap_or((said, "string"));
    // The server marks the attacher as a name, too.
    let named = matches!(name, "Name" | "Attacher");
    Head {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: if named { "name" } else { "" }.to_owned(),
        description: String::new(),
        priority: i64::from(wide),
    }
}
