//! The subcommands for people and scripts: the console of a living cloud, and a look into the file of a dead one.

use std::{fmt::Write as _, path::PathBuf};

use clap::{Subcommand, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    clock,
    cloud::Entry,
    console::{Console, VmView, listing},
};

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Look at a running cloud, or let one of its hosts fail.
    Console {
        /// The socket that the provider was given as --console.
        #[arg(long, value_name = "unix:///PATH")]
        connect: String,
        /// How to print.
        #[arg(long, short, value_enum, default_value_t = Output::Table)]
        output: Output,
        /// What to do.
        #[command(subcommand)]
        action: Action,
    },
    /// Print VMs and journal of a state file that no process has open, as JSON.
    State {
        /// The file.
        #[arg(long, value_name = "FILE")]
        state: PathBuf,
    },
}

/// What to do at the console.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List every VM of every cluster.
    Vms,
    /// List all that happened.
    Journal,
    /// Power a VM off.
    Stop {
        /// Id of the VM, or name of its machine.
        vm: String,
    },
    /// Power a VM on again.
    Start {
        /// Id of the VM, or name of its machine.
        vm: String,
    },
    /// Take a VM away at once.
    Remove {
        /// Id of the VM, or name of its machine.
        vm: String,
    },
}

/// How to print lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns, for people.
    Table,
    /// A JSON array.
    Json,
}

/// Carries out a subcommand and gives what to print.
pub async fn carry_out(tool: Tool) -> anyhow::Result<String> {
    match tool {
        Tool::State { state } => json(&listing(&state)?),
        Tool::Console {
            connect,
            output,
            action,
        } => {
            let mut console = Console::connect(&connect).await?;
            match action {
                Action::Vms => show(output, &console.vms().await?, vm_rows),
                Action::Journal => show(output, &console.journal().await?, journal_rows),
                Action::Stop { vm } => console
                    .stop(&vm)
                    .await
                    .map(|()| format!("{vm} is off\n"))
                    .map_err(Into::into),
                Action::Start { vm } => console
                    .start(&vm)
                    .await
                    .map(|()| format!("{vm} is on\n"))
                    .map_err(Into::into),
                Action::Remove { vm } => console
                    .remove(&vm)
                    .await
                    .map(|()| format!("{vm} is gone\n"))
                    .map_err(Into::into),
            }
        }
    }
}

fn show<T: Serialize>(output: Output, items: &[T], rows: fn(&[T]) -> Vec<Vec<String>>) -> anyhow::Result<String> {
    match output {
        Output::Json => json(&items),
        Output::Table => Ok(table(&rows(items))),
    }
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn vm_rows(vms: &[VmView]) -> Vec<Vec<String>> {
    let now = clock::now();
    let head = ["NAME", "STATE", "NODE", "TYPE", "ZONE", "CLUSTER", "AGE", "PROVIDER ID"].map(str::to_owned);
    let rows = vms.iter().map(|vm| {
        vec![
            vm.name.clone(),
            vm.state.clone(),
            if vm.node_registered { "joined" } else { "-" }.to_owned(),
            vm.instance_type.clone(),
            vm.zone.clone(),
            vm.cluster.clone(),
            age(vm.accepted_at, now),
            vm.provider_id.clone(),
        ]
    });
    std::iter::once(head.to_vec()).chain(rows).collect()
}

fn journal_rows(entries: &[Entry]) -> Vec<Vec<String>> {
    let head = ["TIME", "EVENT", "NAME", "VM", "UID"].map(str::to_owned);
    let rows = entries.iter().map(|entry| {
        let (event, at) = (entry.event.word().to_owned(), format!("{:.3}", entry.at));
        vec![
            at,
            event,
            entry.name.clone(),
            entry.vm_id.to_string(),
            entry.uid.clone(),
        ]
    });
    std::iter::once(head.to_vec()).chain(rows).collect()
}

fn age(since: Timestamp, now: Timestamp) -> String {
    format!("{}s", clock::until(now, since).as_secs())
}

/// Left-aligned columns, two spaces apart.
fn table(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            // Writing to a string cannot fail.
            write!(line, "{cell:<width$}  ").ok();
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
