//! The steps of the quick start: what is done, what must come true, and by when. A step that does not come true ends
//! the quick start with what was expected and what is seen.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::Client;
use millwright_core::api::{Phase, meta};
use millwright_provider_virtual::console::Console;

use super::args::{Args, MORE};
use super::manifests::Manifests;
use super::port::Port;
use super::programs::Programs;
use super::screen::Screen;
use super::seen::Seen;
use super::tree;

/// For what takes no VM, far more than it takes on a machine that does something else too.
const PATIENCE: Duration = Duration::from_secs(60);
/// Without any change, this often: ages grow, and programs may have ended.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// Many changes at once are one picture.
const PICTURE: Duration = Duration::from_millis(50);

/// What the steps need.
pub struct Demo<'a> {
    pub(super) client: Client,
    pub(super) screen: &'a mut Screen,
    pub(super) programs: &'a mut Programs,
    pub(super) seen: Seen,
    args: &'a Args,
}

impl<'a> Demo<'a> {
    /// Begins to watch.
    pub fn new(client: Client, screen: &'a mut Screen, programs: &'a mut Programs, args: &'a Args) -> Self {
        let seen = Seen::begin(&client);
        Self {
            client,
            screen,
            programs,
            seen,
            args,
        }
    }

    /// Waits until the manager leads and has its driver.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let port = Port::at(self.programs.metrics())?;
        let until = Instant::now() + PATIENCE;
        while let Some(reason) = port.not_ready().await {
            self.programs.check_alive()?;
            if Instant::now() > until {
                bail!(
                    "expected within {} s: a manager that is ready; seen: {reason}",
                    PATIENCE.as_secs()
                );
            }
            tokio::time::sleep(PICTURE).await;
        }
        let both = match self.args.driver {
            None => "manager and virtual provider are ready, each in a process of its own",
            Some(_) => "the manager is ready, in a process of its own, and has your provider",
        };
        self.screen.say(both)?;
        Ok(())
    }

    /// All steps.
    pub async fn run(&mut self, manifests: &Manifests) -> anyhow::Result<()> {
        let (few, more) = (self.args.replicas, self.args.replicas + MORE);
        let (deployment, from) = (&manifests.deployment, &manifests.from);
        let applied = manifests.apply(&self.client).await?;
        self.screen.say(&format!("applied {from}: {}", applied.join(", ")))?;
        self.all_well(few).await?;

        manifests.scale(&self.client, more).await?;
        self.screen
            .say(&format!("scaling machinedeployment {deployment} up: {few} -> {more}"))?;
        self.all_well(more).await?;

        let victim = self.kill_a_vm().await?;
        manifests.scale(&self.client, few).await?;
        let order = match &victim {
            Some(victim) => {
                format!("; a set deletes machines that are not well before running ones, so {victim} goes first")
            }
            None => String::new(),
        };
        self.screen.say(&format!("scaling down: {more} -> {few}{order}"))?;
        if let Some(victim) = victim {
            self.is_gone(&victim).await?;
        }
        self.all_well(few).await?;
        self.roll(manifests, few).await?;
        self.cloud_holds(few).await?;
        self.sum_up().await
    }

    /// The phase of a machine that is as it should be.
    fn good(&self) -> Phase {
        if self.args.no_nodes {
            Phase::Available
        } else {
            Phase::Running
        }
    }

    async fn all_well(&mut self, count: u16) -> anyhow::Result<()> {
        let count = usize::from(count);
        let (phase, no_nodes) = (self.good(), self.args.no_nodes);
        // Without a node a machine is available and never ready.
        let counted = move |seen: &Seen| {
            seen.counted(|status| {
                if no_nodes {
                    status.available_replicas
                } else {
                    status.ready_replicas
                }
            })
        };
        self.until(
            &format!("{count} machines, all {phase}, counted by their deployment"),
            |seen| {
                let (there, well, counted) = (seen.machines().len(), seen.in_phase(&phase), counted(seen));
                if [there, well, counted] == [count; 3] {
                    Ok(())
                } else {
                    Err(format!(
                        "{there} machines, {well} {phase}, {counted} by the deployment's status"
                    ))
                }
            },
        )
        .await?;
        self.screen.say(&format!("{count} machines are {phase}"))?;
        Ok(())
    }

    /// The youngest machine's, so that the order of deletion shows: by age alone it would go last. Nothing, where the cloud is
    /// not ours.
    async fn kill_a_vm(&mut self) -> anyhow::Result<Option<String>> {
        let Some(mut console) = self.console().await? else {
            self.screen.say(
                "left out: switching a VM off, which only the simulated cloud of the quick start can be asked for",
            )?;
            return Ok(None);
        };
        let machines = self.seen.machines();
        let victim = machines
            .last()
            .context("there is no machine whose VM could be stopped")?;
        let victim = meta::name(&victim.metadata).to_owned();
        console
            .stop(&victim)
            .await
            .with_context(|| format!("the VM of {victim} cannot be stopped"))?;
        self.screen
            .say(&format!("switched the VM of {victim} off; its node's heartbeats stop"))?;
        let name = victim.clone();
        self.until(&format!("machine {victim} in phase Unknown"), move |seen| {
            let machine = seen.machine(&name).ok_or("it is gone")?;
            match machine.phase() {
                Phase::Unknown => Ok(()),
                phase => Err(format!("it is in phase {phase}")),
            }
        })
        .await?;
        self.screen
            .say(&format!("machine {victim} is Unknown: {}", self.seen.reason(&victim)))?;
        Ok(Some(victim))
    }

    /// A changed template replaces every machine.
    async fn roll(&mut self, manifests: &Manifests, count: u16) -> anyhow::Result<()> {
        let old: Vec<String> = self
            .seen
            .machines()
            .iter()
            .map(|machine| meta::name(&machine.metadata).to_owned())
            .collect();
        manifests.roll(&self.client, Timestamp::now()).await?;
        let deployment = &manifests.deployment;
        self.screen.say(&format!(
            "changed the template of machinedeployment {deployment}: every machine is replaced, within maxSurge and maxUnavailable"
        ))?;
        self.until("no machine of the old template", move |seen| {
            let left = old.iter().filter(|name| seen.machine(name).is_some()).count();
            match left {
                0 => Ok(()),
                _ => Err(format!("{left} machines of it")),
            }
        })
        .await?;
        self.all_well(count).await
    }

    async fn is_gone(&mut self, machine: &str) -> anyhow::Result<()> {
        let name = machine.to_owned();
        self.until(&format!("machine {machine} gone"), move |seen| {
            match seen.machine(&name) {
                None => Ok(()),
                Some(machine) => Err(format!("it is in phase {}", machine.phase())),
            }
        })
        .await
    }

    /// Nothing is left behind at the provider.
    async fn cloud_holds(&mut self, count: u16) -> anyhow::Result<()> {
        let until = Instant::now() + self.patience();
        let Some(mut console) = self.console().await? else {
            return Ok(());
        };
        loop {
            let vms = console.vms().await?.len();
            if vms == usize::from(count) {
                return Ok(());
            }
            if Instant::now() > until {
                bail!(
                    "expected within {} s: {count} VMs at the provider; seen: {vms}",
                    self.patience().as_secs()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn sum_up(&mut self) -> anyhow::Result<()> {
        let vms = match self.console().await? {
            Some(mut console) => format!(", {} VMs at the provider", console.vms().await?.len()),
            None => String::new(),
        };
        let requests = Port::at(self.programs.metrics())?.api_requests().await?;
        let (phase, well) = (self.good(), self.seen.in_phase(&self.good()));
        let line = format!(
            "done: {well} machines {phase}{vms}, {requests} API requests by the manager, its events apart, {:.1} s",
            self.screen.seconds()
        );
        self.screen.say(&line)?;
        Ok(())
    }

    /// The simulated cloud's, if it is ours.
    async fn console(&self) -> anyhow::Result<Option<Console>> {
        match self.programs.console() {
            Some(console) => Ok(Some(Console::connect(&console).await?)),
            None => Ok(None),
        }
    }

    /// Draws at every change until `holds`. Fails when time runs out, or when a program ends.
    async fn until(&mut self, expected: &str, holds: impl Fn(&Seen) -> Result<(), String>) -> anyhow::Result<()> {
        let patience = self.patience();
        let until = Instant::now() + patience;
        loop {
            self.draw()?;
            let Err(instead) = holds(&self.seen) else {
                return Ok(());
            };
            self.programs.check_alive()?;
            if Instant::now() > until {
                bail!("expected within {} s: {expected}; seen: {instead}", patience.as_secs());
            }
            self.change().await;
        }
    }

    /// The tree as it is now.
    pub(super) fn draw(&mut self) -> std::io::Result<()> {
        self.screen.show(tree::rows(&self.seen, Timestamp::now()))
    }

    /// Returns when there is something to look at.
    pub(super) async fn change(&mut self) {
        tokio::time::sleep(PICTURE).await;
        // No change in time is a reason to look, too.
        tokio::time::timeout(LOOK, self.seen.change()).await.ok();
    }

    fn patience(&self) -> Duration {
        self.args.patience()
    }
}
