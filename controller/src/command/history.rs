//! `rollout history`: the revisions as a table, or the template of one.

use jiff::Timestamp;
use millwright_core::api::{MachineDeployment, Template, meta};
use millwright_core::rollout::{Revision, Revisions, order};

use super::failure::Failure;
use super::flags::{Format, HistoryFlags, Reach};
use super::session::Session;
use super::status::full_name;
use super::{age, output, table};
use crate::env::{Outside as _, System};

const NONE: &str = "<none>";

/// Runs the command.
pub async fn run(flags: &HistoryFlags, reach: &Reach) -> Result<(), Failure> {
    let name = flags.target.name()?;
    let session = Session::open(reach).await?;
    let deployment = session.deployment(&name).await?;
    let sets = session.sets().await?;
    let revisions = Revisions::of(&deployment, &sets);
    let text = match (flags.revision, flags.output) {
        (Some(number), _) => {
            let found = order::target(&revisions, number).map_err(|refusal| Failure::refused(&name, &refusal, None))?;
            let head = format!("{}, revision {number}", full_name(&deployment));
            of_one(&head, found)?
        }
        (None, Some(Format::Wide)) => wide(&deployment, &revisions, System.now()),
        (None, None) => short(&deployment, &revisions),
    };
    output::print(&text)
}

/// The table of kubectl, with what tells machines' templates apart.
fn short(deployment: &MachineDeployment, revisions: &Revisions<'_>) -> String {
    let row = |revision: &Revision<'_>| [number(revision), class(revision), replicas(revision), cause(revision)];
    let rows: Vec<_> = revisions.iter().map(row).collect();
    let table = table::lines(["REVISION", "CLASS", "REPLICAS", "CHANGE-CAUSE"], &rows);
    format!("{}\n{table}", full_name(deployment))
}

fn wide(deployment: &MachineDeployment, revisions: &Revisions<'_>, now: Timestamp) -> String {
    let row = |revision: &Revision<'_>| {
        let current = if revision.is_current { "*" } else { "" };
        [
            number(revision),
            current.to_owned(),
            earlier(revision),
            meta::name(&revision.set.metadata).to_owned(),
            class(revision),
            replicas(revision),
            age::of(&revision.set.metadata, now),
            cause(revision),
        ]
    };
    let rows: Vec<_> = revisions.iter().map(row).collect();
    let head = [
        "REVISION",
        "CURRENT",
        "EARLIER",
        "MACHINESET",
        "CLASS",
        "REPLICAS",
        "AGE",
        "CHANGE-CAUSE",
    ];
    format!("{}\n{}", full_name(deployment), table::lines(head, &rows))
}

/// The template as YAML, with what it is of in a comment, so that the whole can be applied or compared.
fn of_one(head: &str, revision: &Revision<'_>) -> Result<String, Failure> {
    let set = meta::name(&revision.set.metadata);
    Ok(format!("# {head} (machineset {set})\n{}", yaml(&revision.template())?))
}

/// A template as it stands in a deployment.
pub fn yaml(template: &Template) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(template.as_json()).map_err(|error| Failure::Yaml(error.to_string()))?;
    Ok(format!("{}\n", text.trim_end()))
}

fn number(revision: &Revision<'_>) -> String {
    revision
        .number
        .map_or_else(|| NONE.to_owned(), |number| number.to_string())
}

fn earlier(revision: &Revision<'_>) -> String {
    let numbers: Vec<String> = revision.earlier().iter().map(i64::to_string).collect();
    match numbers.as_slice() {
        [] => NONE.to_owned(),
        some => some.join(","),
    }
}

fn class(revision: &Revision<'_>) -> String {
    let class = revision.set.spec.template.class().and_then(|class| class.name);
    class.filter(|name| !name.is_empty()).unwrap_or_else(|| NONE.to_owned())
}

/// Available of wanted.
fn replicas(revision: &Revision<'_>) -> String {
    let available = revision
        .set
        .status
        .as_ref()
        .map_or(0, |status| status.available_replicas);
    format!("{available}/{}", revision.set.spec.replicas)
}

fn cause(revision: &Revision<'_>) -> String {
    revision.cause().map_or_else(|| NONE.to_owned(), table::one_line)
}

#[cfg(test)]
mod tests {
    use millwright_core::api::{MachineSet, keys};
    use serde_json::json;

    use super::*;

    fn deployment() -> MachineDeployment {
        serde_json::from_value(json!({
            "metadata": {"name": "workers", "uid": "d"},
            "spec": {"template": {"spec": {"class": {"name": "large"}}}},
        }))
        .unwrap()
    }

    fn set(name: &str, annotations: serde_json::Value, class: &str, available: i32) -> MachineSet {
        serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "annotations": annotations,
                "creationTimestamp": "2030-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "v", "kind": "k", "name": "workers", "uid": "d", "controller": true}],
            },
            "spec": {"replicas": 3, "template": {
                "metadata": {"labels": {keys::TEMPLATE_HASH: name, "app": "shop"}},
                "spec": {"class": {"name": class}},
            }},
            "status": {"availableReplicas": available},
        }))
        .unwrap()
    }

    fn two() -> [MachineSet; 2] {
        [
            set(
                "w-2",
                json!({keys::REVISION: "3", keys::REVISION_HISTORY: "1", keys::CHANGE_CAUSE: "more\nroom"}),
                "large",
                1,
            ),
            set("w-1", json!({keys::REVISION: "2"}), "small", 3),
        ]
    }

    #[test]
    fn the_table_has_a_line_for_each_revision() {
        let (deployment, sets) = (deployment(), two());
        let wanted = "\
machinedeployment.machine.sapcloud.io/workers
REVISION   CLASS   REPLICAS   CHANGE-CAUSE
2          small   3/3        <none>
3          large   1/3        more room
";
        assert_eq!(short(&deployment, &Revisions::of(&deployment, &sets)), wanted);
    }

    #[test]
    fn the_wide_table_also_says_which_set_has_the_template_and_which_is_the_present_one() {
        let (mut deployment, sets) = (deployment(), two());
        deployment.spec.template = sets[0].spec.template.without_label(keys::TEMPLATE_HASH);
        let now: Timestamp = "2030-01-01T00:05:00Z".parse().unwrap();
        let wanted = "\
machinedeployment.machine.sapcloud.io/workers
REVISION   CURRENT   EARLIER   MACHINESET   CLASS   REPLICAS   AGE   CHANGE-CAUSE
2                    <none>    w-1          small   3/3        5m    <none>
3          *         1         w-2          large   1/3        5m    more room
";
        assert_eq!(wide(&deployment, &Revisions::of(&deployment, &sets), now), wanted);
    }

    #[test]
    fn one_revision_is_its_template_as_a_deployment_would_have_it() {
        let (deployment, sets) = (deployment(), two());
        let revisions = Revisions::of(&deployment, &sets);
        let wanted = "\
# workers, revision 3 (machineset w-2)
metadata:
  labels:
    app: shop
spec:
  class:
    name: large
";
        assert_eq!(
            of_one("workers, revision 3", revisions.find(3).unwrap()).unwrap(),
            wanted
        );
    }
}
