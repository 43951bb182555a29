//! One run: a world, everybody in it, the workload, the quiet tail, the verdict.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Once};
use std::time::Duration;

use millwright_oracles::Ending;
use millwright_provider_virtual::cloud::{Cloud, Delays};
use millwright_sandbox::api::{Api, Moment};

use crate::choices::{Choices, Count, Wild};
use crate::clock::{CloudSky, DAWN, Time};
use crate::event::{Oracle, Regime, Violation, What};
use crate::fault::Enabled;
use crate::hooks::Hooks;
use crate::judge::{Judge, ending, is_ahead, last_expiry, settled};
use crate::life::Lives;
use crate::meddle::Debts;
use crate::provider::{Port, Transport};
use crate::strike::{Blow, Strike};
use crate::workload;
use crate::world::{Parts, World};
use crate::{actors, any, reference};

/// L1: all is as wanted this long after faults ended. A quarter of an hour, and what machines may take to be given up: the
/// creation timeout, the health timeout, and the pause after an exhausted resource.
pub const BOUND: Duration = Duration::from_mins(15 + 4 + 2 + 2);
/// How long it must stay so.
const STAYS: Duration = Duration::from_secs(90);
/// The longest that a harm reaches beyond the end of faults: a silent watch until its end, a late request, a call's deadline.
const SOAK: Duration = Duration::from_mins(10);
/// S12: how long nothing may be written; a sixth of it where managers elect a leader.
const REST: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Which faults a run may have.
#[derive(Clone, Debug)]
pub enum Faults {
    /// None at all.
    None,
    /// About four, by choice.
    Swarm,
    /// These.
    These(Vec<String>),
    /// One, at one call.
    Strike(Strike),
}

/// What is run.
#[derive(Clone)]
pub struct Plan {
    /// The workload; none: by choice.
    pub workload: Option<String>,
    /// What may go wrong.
    pub faults: Faults,
    /// Where the bug zoo puts its mistakes.
    pub hooks: Hooks,
    /// What carries calls to the driver.
    pub transport: Transport,
    /// Who judges.
    pub oracles: fn() -> Vec<Box<dyn Oracle>>,
    /// Whether two managers live side by side; without it by choice.
    pub is_pair: bool,
    /// Whether a time of rest follows, which the calls of a manager at rest make long.
    pub rests: bool,
    /// Whether the story is kept.
    pub is_told: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            workload: None,
            faults: Faults::Swarm,
            hooks: Hooks::default(),
            transport: Transport::default(),
            oracles: Judge::boxed,
            is_pair: false,
            rests: true,
            is_told: false,
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Its identity.
    pub digest: u64,
    /// The first broken property.
    pub violation: Option<Violation>,
    /// The decisions that were not tame.
    pub wild: Vec<Wild>,
    /// How often each point was reached.
    pub points: BTreeMap<&'static str, Count>,
    /// How often each oracle could judge.
    pub antecedents: Vec<(&'static str, u64)>,
    /// The workload.
    pub workload: String,
    /// What it came to, if it came to rest from an ordinary start.
    pub ending: Option<Ending>,
    /// How often each fault struck.
    pub struck: BTreeMap<&'static str, u64>,
    /// Faults that were enabled.
    pub faults: Vec<&'static str>,
    /// Virtual time that passed.
    pub passed: Duration,
    /// Events of the trace.
    pub events: u64,
    /// Requests of managers.
    pub requests: u64,
    /// Of these, those that changed something.
    pub writes: u64,
    /// What could have become of each call of managers to API and driver.
    pub calls: Vec<&'static [(&'static str, Blow)]>,
    /// What happened, if it was to be told.
    pub story: Vec<String>,
}

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
    static BASE: Api = base();
}

/// An API with our definitions and the furniture, made once for each thread.
fn base() -> Api {
    let moment = |number: usize| Moment {
        now: DAWN,
        uid: format!("00000000-0000-4000-9000-{number:012}"),
        suffix: String::new(),
    };
    let mut api = Api::new(DAWN);
    let definitions = millwright_core::api::crds::all()
        .into_iter()
        .map(|crd| serde_json::to_value(crd).expect("a definition is JSON"));
    let furniture = workload::furniture().into_iter();
    for (number, object) in definitions.chain(furniture).enumerate() {
        api.install(&object, &moment(number))
            .expect("what every run has is admitted");
    }
    api
}

/// Runs a plan by a seed.
pub fn by_seed(plan: &Plan, seed: u64) -> Outcome {
    run(plan, Choices::drawn(seed))
}

/// Runs a plan by these choices, and the tame one everywhere else.
pub fn by_names(plan: &Plan, wild: &[Wild]) -> Outcome {
    run(plan, Choices::told(wild))
}

/// Runs a plan with the tame choice everywhere, and compares it with no other run.
pub fn tame(plan: &Plan) -> Outcome {
    simulate(plan, Choices::told(&[]), false)
}

/// Who is cut off or blind when all is as wanted has not done all that he will do: an end that differs from the reference is looked
/// at again when that is over.
fn run(plan: &Plan, choices: Choices) -> Outcome {
    let mut first = simulate(plan, choices.clone(), false);
    reference::judge(&mut first);
    let differs = first
        .violation
        .as_ref()
        .is_some_and(|it| it.property == reference::PROPERTY);
    if !differs || plan.rests {
        return first;
    }
    let mut second = simulate(plan, choices, true);
    reference::judge(&mut second);
    second
}

fn simulate(plan: &Plan, choices: Choices, soaks: bool) -> Outcome {
    watch_panics();
    PANICKED.set(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without input and output needs nothing that could be missing");
    runtime.block_on(play(plan, choices, soaks))
}

/// A panic anywhere in a run is a violation, caught by the manager or not.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            usual(info);
        }));
    });
}

async fn play(plan: &Plan, mut choices: Choices, soaks: bool) -> Outcome {
    let time = Time::begin();
    let name = match &plan.workload {
        Some(name) => name.clone(),
        None => {
            let nth = choices.choose("workload", u32::try_from(workload::ALL.len()).unwrap_or(1)) as usize;
            workload::ALL.get(nth).copied().unwrap_or("scale").to_owned()
        }
    };
    let enabled = match &plan.faults {
        Faults::None | Faults::Strike(_) => Enabled::none(),
        Faults::Swarm => Enabled::swarm(&mut choices),
        Faults::These(names) => Enabled::these(names).unwrap_or_default(),
    };
    let (lag, delays) = paces(&enabled, &mut choices);
    let cloud = Cloud::in_memory(Arc::new(CloudSky::new(time)), lag);
    let world = World::new(Parts {
        api: BASE.with(Api::clone),
        choices,
        strike: match plan.faults {
            Faults::Strike(strike) => Some(strike),
            Faults::None | Faults::Swarm | Faults::These(_) => None,
        },
        enabled,
        cloud: cloud.clone(),
        time,
        hooks: plan.hooks,
        oracles: (plan.oracles)(),
        is_told: plan.is_told,
    });
    let port = Port::new(Arc::clone(&world), plan.transport, delays, lag);
    let lives = Lives::new(Arc::clone(&world), Arc::clone(&port), plan.is_pair);
    let elects = lives.elects();
    let regime = workload::regime(&name);
    world.tell(What::Begin { elects, regime });
    lives.tell();
    port.start();
    tokio::spawn(async move { cloud.run_clockwork().await });
    tokio::spawn(actors::kubelets(Arc::clone(&world)));
    tokio::spawn(actors::collector(Arc::clone(&world)));
    let debts = Arc::<Debts>::default();
    tokio::spawn(actors::operator(Arc::clone(&world), Arc::clone(&debts)));
    tokio::spawn(actors::chaos(
        Arc::clone(&world),
        Arc::clone(&lives),
        Arc::clone(&port),
        debts,
    ));
    if regime == Regime::AnyState {
        any::prepare(&world, delays).await;
    }
    let living = tokio::spawn(Arc::clone(&lives).run());

    let whole = async {
        course(plan, &name, &world, &port).await;
        if soaks || plan.rests {
            soak(&world).await;
        }
        if plan.rests {
            rest(&world, &lives).await;
        }
    };
    tokio::select! {
        biased;
        () = world.broke() => {}
        () = whole => {}
    }
    if living.is_finished() || PANICKED.get() {
        world.broken("no-panic", "something panicked; its text is on stderr".to_owned());
    }
    world.judge();
    let is_whole = regime != Regime::AnyState && world.enter().violation.is_none();
    let ending = is_whole.then(|| world.look(|truth| ending(truth, regime)));
    Outcome {
        ending,
        ..verdict(&world, name)
    }
}

/// How far lookups at the cloud lag behind, and how long what it does takes.
fn paces(enabled: &Enabled, choices: &mut Choices) -> (Duration, Delays) {
    let lag = if enabled.has("F35") {
        let nth = choices.choose("list-lag", 3) as usize;
        Duration::from_secs([3, 20, 60].get(nth).copied().unwrap_or(3))
    } else {
        Duration::ZERO
    };
    let lingers = if enabled.has("F40") {
        60
    } else if enabled.has("F45") {
        // A kubelet can join after its VM's deletion began only where that lasts.
        u64::from(choices.choose("lingers", 2)) * 30
    } else {
        0
    };
    let delays = Delays {
        create: Duration::from_secs(1),
        join: Duration::from_secs(1),
        delete: Duration::from_secs(lingers),
    };
    (lag, delays)
}

/// What the human does, and what comes of it.
async fn course(plan: &Plan, name: &str, world: &Arc<World>, port: &Arc<Port>) {
    workload::act(world, port, workload::deeds(name).unwrap_or_default()).await;
    if !matches!(plan.faults, Faults::None | Faults::Strike(_)) {
        world.delay("faults-end", &[1000, 0, 5000, 30_000]).await;
    }
    world.calm();
    converge(world).await;
}

/// All that was sent, answered or shown late comes to its end, and is answered in its turn.
async fn soak(world: &Arc<World>) {
    tokio::time::sleep(SOAK).await;
    converge(world).await;
}

/// A time in which nobody changes anything; in some runs a manager dies or ends in it, and its successor finds all done.
async fn rest(world: &Arc<World>, lives: &Lives) {
    // A time that a wrong clock has written is put right by whoever looks next with a right one, which is no unrest.
    if world.enter().violation.is_some() || world.look(is_ahead) {
        return;
    }
    world.tell(What::Rest);
    // A leader renews its lease all the time, which costs as much as ten runs.
    let half = if lives.elects() { REST / 12 } else { REST / 2 };
    pass(world, half).await;
    let how = world.choose("rest", 3);
    if how > 0 {
        match how {
            1 => lives.kill(),
            _ => lives.stop(),
        }
        // It starts, takes the lease over and lists everything; then there is rest again.
        pass(world, SOAK).await;
        world.tell(What::Rest);
    }
    pass(world, half).await;
    if world.enter().violation.is_none()
        && let Err(why) = world.look(settled)
    {
        world.broken("L1", format!("not as wanted any more after a time of rest: {why}"));
    }
}

/// Lets time pass, until something breaks.
async fn pass(world: &Arc<World>, time: Duration) {
    let until = world.time.passed() + time;
    while world.time.passed() < until && world.enter().violation.is_none() {
        tokio::time::sleep(MINUTE).await;
    }
}

/// L1: within the bound all is as wanted, and stays so.
async fn converge(world: &Arc<World>) {
    let until = world.time.passed() + BOUND;
    let (mut since, mut version, mut last) = (None, None, Err("not looked at".to_owned()));
    while world.enter().violation.is_none() {
        let (now, current) = (world.time.passed(), world.look(|truth| truth.api.version()));
        // VMs go without a change of the API.
        if version != Some(current) || last.is_err() {
            last = world.look(settled);
            version = Some(current);
        }
        match &last {
            Ok(()) => {
                let since = *since.get_or_insert(now);
                if now - since >= STAYS {
                    return;
                }
            }
            Err(_) => since = None,
        }
        // A token that arrived late, when its machine had joined, goes by its own time, which a wrong clock may have put far off.
        if since.is_none() && now > until.max(world.look(last_expiry) + MINUTE) {
            // A deletion that never ends has a name of its own.
            world.judge();
            let why = last.err().unwrap_or_default();
            world.broken(
                "L1",
                format!("not as wanted {} s after faults ended: {why}", BOUND.as_secs()),
            );
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn verdict(world: &Arc<World>, workload: String) -> Outcome {
    let antecedents = world.antecedents();
    let mut state = world.enter();
    let choices = std::mem::replace(&mut state.choices, Choices::told(&[]));
    let trace = std::mem::take(&mut state.trace);
    let points = choices.points().clone();
    Outcome {
        digest: trace.digest(),
        violation: state.violation.clone(),
        points,
        wild: choices.into_wild(),
        antecedents,
        workload,
        ending: None,
        struck: std::mem::take(&mut state.struck),
        faults: state.enabled.names(),
        passed: world.time.passed(),
        events: trace.events(),
        requests: state.requests,
        writes: state.writes,
        calls: std::mem::take(&mut state.calls),
        story: trace.into_story(),
    }
}
