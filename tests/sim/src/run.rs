//! One run: a world, everybody in it, the workload, the quiet tail, the verdict.
//!
//! Decides who takes part and in which order; what each then does is decided in rooms of their own.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Once};
use std::time::Duration;

use millwright_oracles::Ending;
use millwright_provider_virtual::cloud::{Cloud, Delays};
use millwright_sandbox::api::{Api, Moment};

use crate::accidents::Debts;
use crate::call_fault::{CallFault, InjectedFault};
use crate::chaos::Chaos;
use crate::choices::{Choices, Count, Deviation};
use crate::clock::{CloudSky, DAWN, Time};
use crate::event::{Oracle, Regime, Violation, What};
use crate::fault::{Enabled, Lags};
use crate::judge::{Judge, ending};
use crate::life::Lives;
use crate::pods::Crew;
use crate::provider::{Port, Transport};
use crate::world::hooks::Hooks;
use crate::world::{Parts, World};
use crate::{actors, agents, any, autoscaler, outage, reference, tail, workload};

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
    Injected(InjectedFault),
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
    /// The decisions that were not the default.
    pub deviations: Vec<Deviation>,
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
    pub calls: Vec<&'static [(&'static str, CallFault)]>,
    /// What happened, if it was to be told.
    pub story: Vec<String>,
}

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
    static BASE: Api = base();
}

/// An API with our definitions and the fixtures, made once for each thread.
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
    let fixtures = workload::fixtures().into_iter();
    for (number, object) in definitions.chain(fixtures).enumerate() {
        api.install(&object, &moment(number))
            .expect("what every run has is admitted");
    }
    api
}

/// Runs a plan by a seed.
pub fn by_seed(plan: &Plan, seed: u64) -> Outcome {
    run(plan, Choices::drawn(seed))
}

/// Runs a plan by these choices, and the default one everywhere else.
pub fn by_names(plan: &Plan, deviations: &[Deviation]) -> Outcome {
    run(plan, Choices::told(deviations))
}

/// Runs a plan with the default choice everywhere, and compares it with no other run.
pub fn by_default(plan: &Plan) -> Outcome {
    simulate(plan, Choices::told(&[]), false)
}

/// A partitioned manager may still have pending work: a run that ends otherwise than its reference is run again with a longer settle
/// time before L6 is reported.
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

async fn play(plan: &Plan, choices: Choices, soaks: bool) -> Outcome {
    let cast = Cast::of(plan, choices);
    let world = &cast.world;
    cast.enter_all();
    if cast.regime == Regime::AnyState {
        any::prepare(world, cast.delays).await;
    }
    let living = tokio::spawn(Arc::clone(&cast.lives).run());
    tokio::select! {
        biased;
        () = world.broke() => {}
        () = cast.act(plan, soaks) => {}
    }
    if living.is_finished() || PANICKED.get() {
        world.broken("no-panic", "something panicked; its text is on stderr".to_owned());
    }
    world.judge();
    cast.verdict()
}

/// Who takes part in a run, and where.
struct Cast {
    workload: String,
    regime: Regime,
    world: Arc<World>,
    port: Arc<Port>,
    lives: Arc<Lives>,
    delays: Delays,
    lags: Lags,
}

impl Cast {
    fn of(plan: &Plan, mut choices: Choices) -> Self {
        let time = Time::begin();
        let workload = workload::chosen(plan.workload.as_deref(), &mut choices);
        let (enabled, strike) = match &plan.faults {
            Faults::None => (Enabled::none(), None),
            Faults::Injected(strike) => (Enabled::none(), Some(*strike)),
            Faults::Swarm => (Enabled::swarm(&mut choices), None),
            Faults::These(names) => (Enabled::these(names).unwrap_or_default(), None),
        };
        // Where one call is struck, or none, all calls are those of the workload.
        let is_drawn = matches!(plan.faults, Faults::Swarm | Faults::These(_));
        let looks = workload::has_orphans(&workload) || (is_drawn && choices.choose("orphans", 3) > 0);
        let lags = match strike {
            Some(InjectedFault { fault, .. }) => Lags::of([fault].into_iter()),
            None => enabled.lags(),
        };
        let (lag, delays) = paces(&enabled, &mut choices);
        let world = World::new(Parts {
            api: BASE.with(Api::clone),
            choices,
            strike,
            enabled,
            cloud: Cloud::in_memory(Arc::new(CloudSky::new(time)), lag),
            time,
            hooks: plan.hooks,
            oracles: (plan.oracles)(),
            is_told: plan.is_told,
        });
        let port = Port::new(Arc::clone(&world), plan.transport, delays, lag);
        Self {
            regime: workload::regime(&workload),
            lives: Lives::new(Arc::clone(&world), Arc::clone(&port), plan.is_pair, looks),
            workload,
            world,
            port,
            delays,
            lags,
        }
    }

    /// All but managers begin. Their order here is that in which they first look.
    fn enter_all(&self) {
        let Self { world, port, lives, .. } = self;
        let (elects, regime, lags) = (lives.elects(), self.regime, self.lags);
        world.tell(What::Begin { elects, regime, lags });
        lives.tell();
        port.start();
        let cloud = world.cloud.clone();
        tokio::spawn(async move { cloud.run_clockwork().await });
        tokio::spawn(actors::kubelets(Arc::clone(world)));
        tokio::spawn(actors::collector(Arc::clone(world)));
        tokio::spawn(agents::agents(Arc::clone(world)));
        if let Some(pods) = workload::pods(&self.workload) {
            tokio::spawn(Crew::new(Arc::clone(world), pods).run());
        }
        tokio::spawn(autoscaler::run(Arc::clone(world)));
        let debts = Arc::<Debts>::default();
        tokio::spawn(actors::operator(Arc::clone(world), Arc::clone(&debts)));
        let chaos = Chaos {
            world: Arc::clone(world),
            lives: Arc::clone(lives),
            port: Arc::clone(port),
            debts,
        };
        tokio::spawn(chaos.run());
    }

    /// The workload, the quiet tail, and what time is given beyond.
    async fn act(&self, plan: &Plan, soaks: bool) {
        let world = &self.world;
        workload::operator::act(world, &self.port, workload::actions(&self.workload).unwrap_or_default()).await;
        if !matches!(plan.faults, Faults::None | Faults::Injected(_)) {
            world.delay("faults-end", &[1000, 0, 5000, 30_000]).await;
        }
        outage::outlast(world).await;
        world.calm();
        tail::converge(world, &self.lives).await;
        // What arrives very late arrives in the run.
        if soaks || plan.rests || world.enter().enabled.has("F10l") {
            tail::soak(world, &self.lives).await;
        }
        if plan.rests {
            tail::rest(world, &self.lives).await;
        }
    }

    fn verdict(self) -> Outcome {
        let (world, regime) = (self.world, self.regime);
        let is_whole = regime != Regime::AnyState && !world.is_broken();
        let ending = is_whole.then(|| world.look(|truth| ending(truth, regime)));
        let mut state = world.enter();
        let antecedents = state.witness.antecedents();
        let choices = std::mem::replace(&mut state.choices, Choices::told(&[]));
        let trace = std::mem::take(&mut state.witness.trace);
        Outcome {
            digest: trace.digest(),
            violation: state.witness.violation.clone(),
            points: choices.points().clone(),
            deviations: choices.into_deviations(),
            antecedents,
            workload: self.workload,
            ending,
            struck: std::mem::take(&mut state.witness.struck),
            faults: state.enabled.names(),
            passed: world.time.passed(),
            events: trace.events(),
            requests: state.requests,
            writes: state.writes,
            calls: std::mem::take(&mut state.calls),
            story: trace.into_story(),
        }
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
