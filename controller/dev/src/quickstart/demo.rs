//! The steps of the quick start: what is done, what must come true, and by when. A step that does not come true ends
//! the quick start with what was expected and what is seen.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::api::DeleteParams;
use kube::{Api, Client};
use millwright_core::api::{Machine, Phase, meta};
use millwright_provider_virtual::console::Console;

use super::args::{Args, MORE};
use super::manifests::{Manifests, NAMESPACE};
use super::pods;
use super::port::Port;
use super::programs::Programs;
use super::screen::Screen;
use super::seen::Seen;
use super::tree::{self, Counted};

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

        self.lose_a_vm(more).await?;
        self.drain(more).await?;
        self.roll(manifests, more).await?;
        self.undo(manifests, more).await?;

        manifests.scale(&self.client, few).await?;
        self.screen.say(&format!("scaling down: {more} -> {few}"))?;
        self.all_well(few).await?;
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

    /// What their owners count of them.
    fn counted(&self) -> Counted {
        if self.args.no_nodes {
            Counted::Available
        } else {
            Counted::Ready
        }
    }

    async fn all_well(&mut self, count: u16) -> anyhow::Result<()> {
        let count = usize::from(count);
        let (phase, counted) = (self.good(), self.counted());
        let counted = move |seen: &Seen| {
            seen.counted(|status| match counted {
                Counted::Available => status.available_replicas,
                Counted::Ready => status.ready_replicas,
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

    /// A machine whose VM is lost is replaced by itself.
    async fn lose_a_vm(&mut self, count: u16) -> anyhow::Result<()> {
        let before = self.names();
        let Some(victim) = self.kill_a_vm().await? else {
            return Ok(());
        };
        self.is_gone(&victim).await?;
        self.all_well(count).await?;
        let names = self.names();
        let newcomer = names.iter().find(|name| !before.contains(*name));
        let newcomer = newcomer.with_context(|| format!("{victim} is gone, and no other machine came for it"))?;
        self.screen.say(&format!(
            "machine {victim} was replaced by {newcomer}, without anybody's help"
        ))?;
        Ok(())
    }

    /// Switches a VM off. Nothing, where the cloud is not ours.
    async fn kill_a_vm(&mut self) -> anyhow::Result<Option<String>> {
        let Some(mut console) = self.console().await? else {
            self.screen.say(
                "left out: switching a VM off, which only the simulated cloud of the quick start can be asked for",
            )?;
            return Ok(None);
        };
        let victim = self.names().pop();
        let victim = victim.context("there is no machine whose VM could be stopped")?;
        console
            .stop(&victim)
            .await
            .with_context(|| format!("the VM of {victim} cannot be stopped"))?;
        self.screen
            .say(&format!("switched the VM of {victim} off; its node's heartbeats stop"))?;
        let name = victim.clone();
        self.until(&format!("machine {victim} in phase Unknown"), move |seen| {
            let Some(machine) = seen.machine(&name) else {
                return Ok(());
            };
            match machine.phase() {
                Phase::New | Phase::Pending | Phase::Available | Phase::Running => {
                    Err(format!("it is in phase {}", machine.phase()))
                }
                // Who looks late sees what follows.
                Phase::Unknown
                | Phase::Failed
                | Phase::CrashLoopBackOff
                | Phase::Terminating
                | Phase::InPlaceUpdating
                | Phase::InPlaceUpdateSuccessful
                | Phase::InPlaceUpdateFailed
                | Phase::Other(_) => Ok(()),
            }
        })
        .await?;
        self.screen
            .say(&format!("machine {victim} is not well: {}", self.seen.reason(&victim)))?;
        Ok(Some(victim))
    }

    /// A machine that is deleted goes when its pods may go. Left out where nodes are a user's own, or are not there.
    async fn drain(&mut self, count: u16) -> anyhow::Result<()> {
        if self.args.no_nodes || self.programs.console().is_none() {
            return Ok(());
        }
        let victim = self
            .names()
            .pop()
            .context("there is no machine that could be drained")?;
        let node = self
            .seen
            .node(&victim)
            .with_context(|| format!("{victim} has no node"))?;
        pods::place(&self.client, &node)
            .await
            .context("no pods came to the node that is to be drained")?;
        let app = pods::APP;
        self.screen.say(&format!(
            "2 pods of {app} run on {victim}, and its PodDisruptionBudget wants both to stay until a third is ready"
        ))?;
        self.delete(&victim).await?;
        self.screen
            .say(&format!("deleted machine {victim}, as `kubectl delete machine` does"))?;
        let name = victim.clone();
        self.until(&format!("machine {victim} waits for the budget"), move |seen| {
            let reason = seen.reason(&name);
            match reason.contains("may not be evicted now") {
                true => Ok(()),
                false => Err(reason),
            }
        })
        .await?;
        self.why(&victim).await?;
        self.let_go(&victim).await?;
        self.all_well(count).await
    }

    async fn delete(&self, machine: &str) -> anyhow::Result<()> {
        let machines: Api<Machine> = Api::namespaced(self.client.clone(), NAMESPACE);
        let deleted = machines.delete(machine, &DeleteParams::default()).await;
        deleted.with_context(|| format!("machine {machine} was not deleted"))?;
        Ok(())
    }

    /// What `millwright why` says.
    async fn why(&mut self, machine: &str) -> anyhow::Result<()> {
        let subject = format!("machine/{machine}");
        let said = self.programs.ask(&["why", &subject]).await?;
        self.screen.say(&format!("$ millwright why {subject}"))?;
        for line in said.lines().filter(|line| !line.is_empty()) {
            self.screen.say(&format!("  {line}"))?;
        }
        Ok(())
    }

    /// The budget lets one pod go at a time.
    async fn let_go(&mut self, victim: &str) -> anyhow::Result<()> {
        for rest in (0..pods::COUNT).rev() {
            self.screen
                .say(&format!("one more pod of {} is ready elsewhere: one may go", pods::APP))?;
            pods::allow(&self.client, 1).await?;
            self.pods_left(rest).await?;
        }
        self.is_gone(victim).await?;
        pods::clear(&self.client).await?;
        self.screen.say(&format!(
            "machine {victim} is gone: its node was drained as the budget allowed"
        ))?;
        Ok(())
    }

    async fn pods_left(&mut self, wanted: u32) -> anyhow::Result<()> {
        let until = Instant::now() + self.patience();
        loop {
            let left = pods::left(&self.client).await?;
            if left <= wanted {
                return Ok(());
            }
            self.programs.check_alive()?;
            if Instant::now() > until {
                bail!(
                    "expected within {} s: {wanted} pods on the node that is drained; seen: {left}",
                    self.patience().as_secs()
                );
            }
            self.draw()?;
            self.change().await;
        }
    }

    /// The machines, the oldest first.
    fn names(&self) -> Vec<String> {
        let machines = self.seen.machines();
        let names = machines.iter().map(|machine| meta::name(&machine.metadata).to_owned());
        names.collect()
    }

    /// A changed class, and with it a changed template, replaces every machine.
    async fn roll(&mut self, manifests: &Manifests, count: u16) -> anyhow::Result<()> {
        let old = self.names();
        let class = manifests.roll(&self.client).await?;
        let deployment = &manifests.deployment;
        self.screen.say(&format!(
            "changed the class of machinedeployment {deployment} to {class}, a copy: every machine is replaced, within maxSurge and maxUnavailable"
        ))?;
        self.all_replaced(old, count).await
    }

    /// So does the way back to the template before.
    async fn undo(&mut self, manifests: &Manifests, count: u16) -> anyhow::Result<()> {
        let old = self.names();
        manifests.undo(&self.client).await?;
        let deployment = &manifests.deployment;
        self.screen.say(&format!(
            "undoing that, as `millwright rollout undo {deployment}` does: the template before comes back"
        ))?;
        self.all_replaced(old, count).await
    }

    async fn all_replaced(&mut self, old: Vec<String>, count: u16) -> anyhow::Result<()> {
        let patience = self.args.patience_for(u32::from(count) + 1);
        self.within(patience, "no machine of the old template", move |seen| {
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
        self.within(self.patience(), expected, holds).await
    }

    async fn within(
        &mut self,
        patience: Duration,
        expected: &str,
        holds: impl Fn(&Seen) -> Result<(), String>,
    ) -> anyhow::Result<()> {
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
        self.screen
            .show(tree::rows(&self.seen, self.counted(), Timestamp::now()))
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
