//! The language of stories: one line, one event; after each the manager runs until it is quiet, for at most a second, but where the
//! line begins with `quietly`.
//!
//! ```text
//! create KIND NAME [of CLASS | of COUNT] [JSON]     edit|status KIND NAME JSON     delete KIND NAME [orphaning]
//! check CLASS ready | token | faulty TEXT           driver ready | away TEXT | missing | silent | speaks
//! driver can initialise | makes ports | is joined by NAME | is alone driver shows VMs after SECONDS
//! driver fails CALL with REASON                     driver answers CALL unnamed | twinned | creating | broken | going | lingering | crumbed | unseen | half-done
//! node of MACHINE joins [unready] [gated] [as ID]   vm of MACHINE vanishes
//! vm of MACHINE is running | stopped | reclaimed | doubtful    provider tells of MACHINE    provider shows | lists all of CLASS
//! pod NAME runs on MACHINE [with volume] [of daemon]   pod NAME is held | misheld | throttled | free | stuck | failed | gone
//! volume NAME is attached to MACHINE | volume NAME is detached from MACHINE
//! deletions are lost | answered | refused | allowed  creations are lost | answered | refused | allowed
//! creations of sets are refused | allowed            conditions are refused | allowed
//! cordons are refused | allowed                      vm of MACHINE ends in SECONDS
//! class NAME is removed by force                     all nodes join (but those of Machines annotated version=broken)
//! machine|set NAME cannot be written | can be written  target is away | back              lease is lost
//! after SECONDS        restart        no manager for SECONDS        no target cluster        original ways
//! show        show conditions        show preserved        show states
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{CreationRequest, Machine, MachineClass, MachineDeployment, MachineSet, keys, meta};
use millwright_core::class::{Fault, Readiness, Recipe};
use millwright_core::driver::{Call, Capability};
use millwright_core::ids::{DriverName, Name};
use millwright_core::machine::{node, preserve};
use millwright_core::merge;
use serde_json::{Value, json};

use crate::cloud::{Dictated, failure};
use crate::etcd::Resource;
use crate::reasons;
use crate::stage::{Crash, DriverNow, Stage};
use crate::turns::Turn;

/// How often the manager looks before a story ends as one that never becomes quiet.
const MOST_PASSES: usize = 20_000;
/// How many decisions it takes until then. Each look costs as much as there is, so looks alone are no bound in time.
const MOST_TOLD: usize = 2_000;
/// How many objects it makes until then, in a whole story.
const MOST_MADE: u64 = 1_000;

/// Does what one line says, without running anything.
pub fn line(stage: &mut Stage, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(stage.act(line, &words).is_some(), "cannot read {line:?}");
}

/// Plays a story and tells it.
pub fn play(text: &str, place: &str) -> String {
    tell(&mut Stage::default(), text, place)
}

/// Plays a story on a stage and tells it.
pub fn tell(stage: &mut Stage, text: &str, place: &str) -> String {
    let mut told = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            told.push(line.to_owned());
            continue;
        }
        told.push(format!("> {line}"));
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "quietly").collect();
        let is_quiet = line.starts_with("quietly");
        let shown = stage
            .act(line, &words)
            .unwrap_or_else(|| panic!("{place}:{}: cannot read {line:?}", number + 1));
        if words[0] != "after" && !is_quiet {
            stage
                .settle(stage.uptime + Duration::from_secs(1))
                .expect("no story has a crash in it");
        }
        told.extend(stage.told.drain(..).map(|line| format!("  {line}")));
        told.extend(shown.lines().map(|line| format!("  {line}")));
    }
    told.push(String::new());
    told.join("\n")
}

impl Stage {
    /// Runs whatever is due until then.
    pub fn settle(&mut self, until: Duration) -> Result<(), Crash> {
        let before = self.told.len();
        for _ in 0..MOST_PASSES {
            if self.told.len() - before > MOST_TOLD || self.etcd.made() > MOST_MADE {
                break;
            }
            match self.turn() {
                Some(Turn::Look(key)) => {
                    let verdict = self.pass(&key)?;
                    self.world.queue.give_back(key, verdict, self.uptime);
                }
                Some(Turn::Answer(place)) => self.deliver(place),
                None => match self.world.queue.next_due() {
                    Some(due) if due <= until => self.uptime = self.uptime.max(due),
                    Some(_) | None => {
                        self.uptime = until;
                        return Ok(());
                    }
                },
            }
        }
        let last: Vec<&String> = self.told.iter().rev().take(10).collect();
        panic!("the manager never becomes quiet: {last:#?}");
    }

    /// Does what a line says. `None`: the line cannot be read.
    fn act(&mut self, line: &str, words: &[&str]) -> Option<String> {
        let json = line
            .find('{')
            .map(|at| serde_json::from_str(&line[at..]).expect("the JSON of a line can be read"));
        match words {
            ["create", kind, name, rest @ ..] => self.create(kind, name, rest, json.unwrap_or(json!({})))?,
            ["edit", kind, name, ..] => self.change(kind, name, &json?, false)?,
            ["status", kind, name, ..] => self.change(kind, name, &json!({"status": json?}), true)?,
            ["delete", kind, name] => self.delete(kind, name)?,
            ["delete", "set", name, "orphaning"] => self.orphan::<MachineSet, Machine>(name),
            ["delete", "deployment", name, "orphaning"] => self.orphan::<MachineDeployment, MachineSet>(name),
            ["check", class, verdict, ..] => {
                let found = judged(verdict, line)?;
                self.checks.insert(Name::new(*class), found);
                self.world.doubt(&Name::new(*class), self.uptime);
            }
            ["driver", rest @ ..] => self.direct(line, rest)?,
            ["deletions", "are", "lost"] => self.loses_deletions = true,
            ["deletions", "are", "answered"] => self.loses_deletions = false,
            ["creations", "are", "refused"] => self.refuses_creations = true,
            ["creations", "are", "allowed"] => self.refuses_creations = false,
            ["creations", "of", "sets", "are", "refused"] => self.refuses_sets = true,
            ["creations", "of", "sets", "are", "allowed"] => self.refuses_sets = false,
            ["conditions", "are", "refused"] => self.refuses_conditions = true,
            ["conditions", "are", "allowed"] => self.refuses_conditions = false,
            ["deletions", "are", "refused"] => self.refuses_deletions = true,
            ["deletions", "are", "allowed"] => self.refuses_deletions = false,
            ["machine" | "set", name, "cannot", "be", "written"] => drop(self.unwritable.insert(Name::new(*name))),
            ["machine" | "set", name, "can", "be", "written"] => drop(self.unwritable.remove(&Name::new(*name))),
            ["class", name, "is", "removed", "by", "force"] => {
                let class = self.etcd.classes.remove(&Name::new(*name))?;
                self.world
                    .observe(millwright_core::change::Change::Deleted(class), self.uptime);
            }
            ["target", "is", "away"] => self.sight.target_since = None,
            ["target", "is", "back"] => {
                self.sight.target_since = Some(self.now());
                self.world.look_at_all(self.uptime, Duration::ZERO);
            }
            ["lease", "is", "lost"] => self.holds_lease = false,
            ["creations", "are", "lost"] => self.loses_creations = true,
            ["creations", "are", "answered"] => self.loses_creations = false,
            ["node", "of", machine, "joins", rest @ ..] => self.join(machine, rest),
            ["pod", name, "runs", "on", machine, how @ ..] => self.run_pod(name, machine, how),
            ["volume", name, "is", "attached", "to", machine] => self.attach(name, machine, true),
            ["volume", name, "is", "detached", "from", machine] => self.attach(name, machine, false),
            ["cordons", "are", how] => self.refuses_cordons = *how == "refused",
            ["vm", "of", machine, "ends", "in", seconds] => self.end_vm_in(machine, seconds)?,
            ["pod", name, "is", how] => self.treat_pod(name, how)?,
            ["vm", "of", machine, "vanishes"] => self.cloud.vms.retain(|_, vm| vm.machine.as_str() != *machine),
            ["vm", "of", machine, "is", how] => self.change_vm(machine, how)?,
            ["provider", "tells", "of", machine] => self.tell_of(machine)?,
            ["provider", "shows", "all", "of", class] => self.show_all(class),
            ["provider", "lists", "all", "of", class] => self.list_all(class),
            ["after", seconds] => {
                let until = self.uptime + Duration::from_secs_f64(seconds.parse().ok()?);
                self.settle(until).expect("no story has a crash in it");
            }
            ["all", "nodes", "join"] => self.join_all(),
            ["restart"] => self.restart(),
            ["no", "manager", "for", seconds] => {
                self.uptime += Duration::from_secs(seconds.parse().ok()?);
                self.restart();
            }
            ["no", "target", "cluster"] => self.settings.has_target = false,
            ["original", "ways"] => self.settings.heeds_min_ready = false,
            ["show"] => return Some(self.show()),
            ["show", "preserved"] => return Some(self.show_preserved()),
            ["show", "states"] => return Some(self.show_states()),
            ["show", "conditions"] => return Some(self.show_conditions()),
            _ => return None,
        }
        Some(String::new())
    }

    fn create(&mut self, kind: &str, name: &str, rest: &[&str], extra: Value) -> Option<()> {
        let of = match rest {
            ["of", of, ..] => *of,
            _ => "",
        };
        let template = json!({
            "metadata": {"labels": {"pool": name}},
            "spec": {"class": {"kind": "MachineClass", "name": "small"}},
        });
        let owner = || {
            let replicas = of.parse::<i32>().ok();
            json!({"spec": {"replicas": replicas, "selector": {"matchLabels": {"pool": name}}, "template": template}})
        };
        let mut body = match kind {
            "machine" => json!({"spec": {"class": {"kind": "MachineClass", "name": of}}}),
            "class" => json!({"provider": "virtual", "providerSpec": {"size": "s"}}),
            "set" | "deployment" => owner(),
            _ => return None,
        };
        if kind == "deployment" {
            let bounds = json!({"maxSurge": 1, "maxUnavailable": 0});
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": bounds});
            merge::apply(&mut body, &json!({"spec": {"strategy": strategy}}));
        }
        merge::apply(&mut body, &json!({"metadata": {"name": name, "namespace": "test"}}));
        merge::apply(&mut body, &extra);
        let now = self.now();
        match kind {
            "machine" => self.saw_created::<Machine>(body, now),
            "class" => self.saw_created::<MachineClass>(body, now),
            "set" => self.saw_created::<MachineSet>(body, now),
            _ => self.saw_created::<MachineDeployment>(body, now),
        }
        Some(())
    }

    fn saw_created<K: Resource>(&mut self, mut body: Value, now: jiff::Timestamp) {
        // What is there is there as if it had always been: a story may begin in the middle of a life.
        if let Some(fields) = body.as_object_mut() {
            fields
                .entry("apiVersion")
                .or_insert(json!("machine.sapcloud.io/v1alpha1"));
        }
        let object = self.etcd.create::<K>(body, now).expect("the name is free");
        self.saw(object);
    }

    fn change(&mut self, kind: &str, name: &str, patch: &Value, status: bool) -> Option<()> {
        match kind {
            "machine" => self.patch::<Machine>(name, patch, status),
            "class" => self.patch::<MachineClass>(name, patch, status),
            "set" => self.patch::<MachineSet>(name, patch, status),
            "deployment" => self.patch::<MachineDeployment>(name, patch, status),
            "node" => self.patch::<Node>(name, patch, status),
            _ => return None,
        }
        Some(())
    }

    pub fn patch<K: Resource>(&mut self, name: &str, patch: &Value, status: bool) {
        let name = Name::new(name);
        let written = if status {
            self.etcd.merge_status::<K>(&name, None, patch)
        } else {
            self.etcd.merge::<K>(&name, None, patch)
        };
        self.saw(written.expect("the object is there"));
    }

    fn delete(&mut self, kind: &str, name: &str) -> Option<()> {
        match kind {
            "machine" => self.end::<Machine>(name),
            "class" => self.end::<MachineClass>(name),
            "set" => self.end::<MachineSet>(name),
            "deployment" => self.end::<MachineDeployment>(name),
            "node" => self.end::<Node>(name),
            _ => return None,
        }
        Some(())
    }

    pub fn end<K: Resource>(&mut self, name: &str) {
        let name = Name::new(name);
        let known = self.etcd.get::<K>(&name).expect("the object is there");
        let now = self.now();
        match self.etcd.delete::<K>(&name, None, now).expect("the object is there") {
            Some(left) => self.saw(left),
            None => self
                .world
                .observe(millwright_core::change::Change::Deleted(known), self.uptime),
        }
    }

    /// As with `--cascade=orphan`: the object waits for the garbage collector, which frees its children a moment later.
    fn orphan<K: Resource, C: Resource>(&mut self, name: &str) {
        let key = Name::new(name);
        let uid = self.etcd.get::<K>(&key).expect("the object is there").uid();
        self.etcd
            .add_finalizer::<K>(&key, &uid, "orphan")
            .expect("the object is there");
        self.end::<K>(name);
        self.settle(self.uptime + Duration::from_millis(100))
            .expect("no story has a crash in it");
        let children: Vec<Name> = C::table(&mut self.etcd).keys().cloned().collect();
        for child in children {
            let mut known = self.etcd.get::<C>(&child).expect("it is there");
            if meta::controller_uid(known.metadata()) == Some(uid.clone()) {
                self.patch::<C>(child.as_str(), &json!({"metadata": {"ownerReferences": null}}), false);
            }
        }
        let known = self.etcd.get::<K>(&key).expect("its finalizer holds it");
        match self
            .etcd
            .remove_finalizer::<K>(&key, &uid, "orphan")
            .expect("it is there")
        {
            Some(left) => self.saw(left),
            None => self
                .world
                .observe(millwright_core::change::Change::Deleted(known), self.uptime),
        }
    }

    fn direct(&mut self, line: &str, words: &[&str]) -> Option<()> {
        match words {
            ["ready"] => self.driver = DriverNow::Ready,
            ["missing"] => self.driver = DriverNow::Missing,
            ["away", ..] => self.driver = DriverNow::Away(line.split_once("away ")?.1.to_owned()),
            ["is", "joined", "by", other] => drop(self.others.insert(DriverName::new(*other))),
            ["is", "alone"] => self.others.clear(),
            ["silent"] => self.silent = true,
            ["speaks"] => self.silent = false,
            ["can", "initialise"] => {
                self.cloud.info.capabilities.insert(Capability::InitializeMachine);
                self.cloud.needs_initialization = true;
            }
            ["makes", "ports"] => self.cloud.ports = Some(BTreeMap::new()),
            ["shows", "VMs", "after", seconds] => {
                self.cloud.info.propagation_delay = SignedDuration::from_secs(seconds.parse().ok()?);
            }
            ["fails", call, "with", reason] => {
                let (code, reason) = reasons::named(reason)?;
                self.cloud
                    .dictated
                    .push_back((called(call)?, Dictated::Fails(failure(code, reason))));
            }
            ["answers", call, how] => {
                let how = match *how {
                    "unnamed" => Dictated::Unnamed,
                    "twinned" => Dictated::Twinned,
                    "creating" => Dictated::Creating,
                    "broken" => Dictated::Broken,
                    "going" => Dictated::Going,
                    "lingering" => Dictated::Lingering,
                    "crumbed" => Dictated::Crumbed,
                    "unseen" => Dictated::Unseen,
                    "half-done" => Dictated::HalfDone,
                    _ => return None,
                };
                self.cloud.dictated.push_back((called(call)?, how));
            }
            _ => return None,
        }
        if matches!(words, ["ready" | "missing" | "away", ..]) {
            self.sight.driver_since = (self.driver == DriverNow::Ready).then(|| self.now());
        }
        if matches!(words, ["ready" | "missing" | "away" | "is", ..]) {
            let driver = self.cloud.info.name.clone();
            self.world.driver_changed(&driver, self.uptime);
        }
        Some(())
    }

    /// The kubelets of all VMs that have no Node yet register one, but those of a version that does not work.
    pub fn join_all(&mut self) {
        let is_due = |machine: &&Machine| {
            let name = meta::name(&machine.metadata);
            let works = meta::annotation(&machine.metadata, "version") != Some("broken");
            let node = Name::new(format!("node-of-{name}"));
            let has_vm = self.cloud.vms.values().any(|vm| vm.machine.as_str() == name);
            works && has_vm && !self.etcd.nodes.contains_key(&node)
        };
        let due = self.etcd.machines.values().filter(is_due);
        let due: Vec<String> = due.map(|machine| meta::name(&machine.metadata).to_owned()).collect();
        for name in due {
            self.join(&name, &[]);
        }
    }

    /// The kubelet on a Machine's VM registers its Node, or reports anew.
    pub fn join(&mut self, machine: &str, how: &[&str]) {
        let vm = self.cloud.vms.iter().find(|(_, vm)| vm.machine.as_str() == machine);
        let own = vm.map_or_else(
            || "virtual:///unknown".to_owned(),
            |(uid, _)| format!("virtual:///{uid}"),
        );
        let token = vm.and_then(|(uid, _)| self.tokens.get(uid));
        assert!(
            token.is_none_or(|until| self.now() < *until),
            "the token of {machine} has run out"
        );
        let after = |mark: &str| how.iter().skip_while(|word| **word != mark).nth(1);
        let id = after("as").map_or(own, |id| (*id).to_owned());
        let name = after("named").map_or_else(|| format!("node-of-{machine}"), |name| (*name).to_owned());
        let ready = if how.contains(&"unready") { "False" } else { "True" };
        let gate = json!({"key": keys::TAINT_CRITICAL_COMPONENTS, "effect": "NoSchedule"});
        let known = self.etcd.nodes.get(&Name::new(&name)).map_or(&[][..], node::taints);
        let ours = known.iter().filter(|taint| preserve::marks::is_ours(taint));
        let taints: Vec<Value> = ours
            .map(|taint| json!(taint))
            .chain(how.contains(&"gated").then_some(gate))
            .collect();
        let taints = Some(taints).filter(|taints| !taints.is_empty());
        let spec = json!({"spec": {"providerID": id, "taints": taints}});
        if !self.etcd.nodes.contains_key(&Name::new(&name)) {
            let now = self.now();
            self.saw_created::<Node>(
                json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}}),
                now,
            );
        }
        self.patch::<Node>(&name, &spec, false);
        // The kubelet leaves our condition alone.
        let stored = self.etcd.nodes.get(&Name::new(&name));
        let others = stored.map_or(&[][..], node::conditions).iter();
        let others = others
            .filter(|told| told.type_ == keys::NODE_PRESERVED)
            .map(|told| json!(told));
        let all: Vec<Value> = [json!({"type": "Ready", "status": ready})]
            .into_iter()
            .chain(others)
            .collect();
        self.patch::<Node>(&name, &json!({"status": {"conditions": all}}), true);
    }

    /// The conditions of deployments and sets, in their words.
    fn show_conditions(&self) -> String {
        let deployments = self.etcd.deployments.iter().flat_map(|(name, deployment)| {
            let conditions = deployment.status.iter().flat_map(|status| &status.conditions);
            conditions.map(move |condition| ("MachineDeployment", name, json!(condition)))
        });
        let sets = self.etcd.sets.iter().flat_map(|(name, set)| {
            let conditions = set.status.iter().flat_map(|status| &status.conditions);
            conditions.map(move |condition| ("MachineSet", name, json!(condition)))
        });
        let told = deployments.chain(sets).map(|(kind, name, condition)| {
            let field = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            let (type_, status, reason) = (field("type"), field("status"), field("reason"));
            format!("= {kind} {name} {type_}={status} {reason}: {}", field("message"))
        });
        let told: Vec<String> = told.collect();
        match told.is_empty() {
            true => "= no condition".to_owned(),
            false => told.join("\n"),
        }
    }

    /// What drivers want to see again of each Machine.
    fn show_states(&self) -> String {
        let state = |machine: &Machine| {
            machine
                .status
                .as_ref()
                .and_then(|status| status.last_known_state.clone())
        };
        let told = self.etcd.machines.iter().map(|(name, machine)| {
            let state = state(machine).unwrap_or_else(|| "nothing".to_owned());
            format!("= Machine {name} lastKnownState: {state}")
        });
        told.collect::<Vec<String>>().join("\n")
    }

    /// All there is, a line each.
    fn show(&self) -> String {
        let machines = self.etcd.machines.values().map(|machine| {
            let id = machine.provider_id().map_or("no VM".to_owned(), |id| id.to_string());
            let phase = if machine.phase().is_new() {
                "New"
            } else {
                machine.phase().as_str()
            };
            format!(
                "= Machine {} {phase}, {id}",
                machine.metadata.name.as_deref().unwrap_or("?")
            )
        });
        let sets = self.etcd.sets.values().map(|set| {
            let status = set.status.clone().unwrap_or_default();
            let name = set.metadata.name.as_deref().unwrap_or("?");
            format!(
                "= MachineSet {name} {} of {}, {} ready",
                status.replicas, set.spec.replicas, status.ready_replicas
            )
        });
        let deployments = self
            .etcd
            .deployments
            .keys()
            .map(|name| format!("= MachineDeployment {name}"));
        let nodes = self.etcd.nodes.keys().map(|name| format!("= Node {name}"));
        let vms = self.cloud.vms.values().map(|vm| format!("= VM of {}", vm.machine));
        let tokens = self
            .tokens
            .iter()
            .map(|(uid, until)| format!("= token of {uid} until {until:.0}"));
        let ports = self.cloud.ports.iter().flatten();
        let ports = ports.map(|(_, machine)| format!("= port of {machine}"));
        let all: Vec<String> = deployments
            .chain(sets)
            .chain(machines)
            .chain(vms)
            .chain(ports)
            .chain(nodes)
            .chain(tokens)
            .collect();
        if all.is_empty() {
            "= nothing".to_owned()
        } else {
            all.join("\n")
        }
    }
}

fn judged(verdict: &str, line: &str) -> Option<Readiness> {
    let recipe = |needs_token| {
        Readiness::Ready(Recipe {
            digest: String::new(),
            needs_token,
            essentials: CreationRequest::default(),
        })
    };
    match verdict {
        "ready" => Some(recipe(false)),
        "token" => Some(recipe(true)),
        "faulty" => Some(Readiness::Faulty(Fault::UserData(
            line.split_once("faulty ")?.1.to_owned(),
        ))),
        "secretless" => Some(Readiness::Faulty(Fault::NoUserData(Vec::new()))),
        _ => None,
    }
}

fn called(word: &str) -> Option<Call> {
    [Call::Create, Call::Initialize, Call::Status, Call::Delete]
        .into_iter()
        .find(|call| call.to_string() == word)
}
