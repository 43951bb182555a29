//! One endpoint's connection: the handshake, again and again for as long as the manager runs.
//!
//! Decides when to ask next: every second while nothing answers, seldom while something else answers, every half minute
//! while all is well, and at once after a call failed in a way that the driver did not choose. A channel reconnects
//! by itself and tells nobody: only asking shows that the driver behind it was replaced, and is done at once where a
//! connection ended that had lasted.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millwright_core::driver::{Code, DriverInfo, Failure};
use millwright_core::ids::DriverName;
use millwright_proto::v1;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::accounts::Accounts;
use super::answer;
use super::call::{self, CallObserver, Driver};
use super::endpoint::{Connect, Endpoint, NamedEndpoint, Wire};
use super::lanes::{Deadlines, Lanes};
use super::lead::Lead;
use super::lifeline::Lifeline;
use super::roster::{Health, News, Roster};
use super::span::CallSpan;
use super::status;

/// Who the manager is, told to every driver for its logs.
#[derive(Clone, Debug)]
pub struct ManagerIdentity {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The pauses of the pool. The defaults are for use; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// Between handshakes while nothing answers.
    pub away: Duration,
    /// Between handshakes while something answers that is no driver, or one of a name that is taken.
    pub wrong: Duration,
    /// Between handshakes while the driver is there.
    pub ready: Duration,
    /// Least pause between two handshakes, whatever calls meet.
    pub least: Duration,
    /// Bound of one handshake. The contract asks for an answer within a second.
    pub handshake: Duration,
    /// How long the drivers that are there at the start are waited for, so that their order decides about names.
    pub first: Duration,
    /// So long a connection must have lasted for its end to be a sign that the driver's process ended.
    pub lasting: Duration,
    /// Between two looks into `--driver-dir`.
    pub scan: Duration,
    /// How long a socket that is gone from `--driver-dir` and never told its driver's name is waited for.
    pub forget: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            away: Duration::from_secs(1),
            wrong: Duration::from_secs(15),
            ready: Duration::from_secs(30),
            least: Duration::from_millis(200),
            handshake: Duration::from_secs(5),
            first: Duration::from_secs(1),
            lasting: Duration::from_secs(10),
            scan: Duration::from_secs(3),
            forget: Duration::from_secs(600),
        }
    }
}

/// What all connections of a pool share.
pub(super) struct Shared {
    pub(super) roster: Mutex<Roster<Arc<Driver>>>,
    pub(super) manager: ManagerIdentity,
    pub(super) deadlines: Deadlines,
    pub(super) pauses: Pauses,
    pub(super) connect: Connect,
    pub(super) lead: Arc<Lead>,
    pub(super) observer: Arc<dyn CallObserver>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) on_change: OnChange,
}

/// Told the name of a driver that came, went or was replaced.
pub type OnChange = Arc<dyn Fn(&DriverName) + Send + Sync>;

impl Shared {
    /// Changes the roster and tells those who wait for a name.
    pub(super) fn change(&self, change: impl FnOnce(&mut Roster<Arc<Driver>>) -> News) -> bool {
        let news = change(&mut self.roster.lock().expect("nothing panics under this lock"));
        news.names.iter().for_each(|name| (self.on_change)(name));
        news.is_new
    }
}

/// Why a handshake gave no driver.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nobody is there.
    Silent(String),
    /// No answer in time, or a connection that broke.
    Unsure(String),
    /// Something answered that is no driver.
    Wrong(String),
}

/// The connection to one endpoint.
pub(super) struct Connection {
    endpoint: Endpoint,
    /// The driver that must be there, if one is named.
    expected: Option<DriverName>,
    wire: Wire,
    lifeline: Arc<Lifeline>,
    shared: Arc<Shared>,
    /// The last handshake failed in a way that a driver may get over by the next.
    is_on_trial: bool,
    /// What was last warned of.
    flaws: Vec<String>,
}

type Answer = Result<v1::GetDriverInfoResponse, Trouble>;

impl Connection {
    pub(super) fn new(of: NamedEndpoint, shared: Arc<Shared>) -> Self {
        let NamedEndpoint { name, endpoint } = of;
        let lifeline = Lifeline::new(shared.pauses.lasting);
        let wire = (shared.connect)(&endpoint, &lifeline);
        Self {
            endpoint,
            expected: name,
            wire,
            lifeline,
            shared,
            is_on_trial: false,
            flaws: Vec::new(),
        }
    }

    /// Asks again and again. `pause`: until the first time.
    pub(super) async fn run(mut self, mut pause: Duration) {
        loop {
            let least = self.shared.pauses.least.min(pause);
            tokio::time::sleep(least).await;
            // A doubt that arose in the least pause is kept by the Notify.
            let _ = tokio::time::timeout(pause.saturating_sub(least), self.lifeline.doubted.notified()).await;
            let answer = self.handshake().await;
            pause = self.absorb(answer);
        }
    }

    /// One GetDriverInfo.
    pub(super) async fn handshake(&self) -> Answer {
        let bound = self.shared.pauses.handshake;
        let capabilities = [
            v1::ManagerCapability::Advertised,
            v1::ManagerCapability::Initialize,
            v1::ManagerCapability::AsyncDelete,
        ];
        let mut request = tonic::Request::new(v1::GetDriverInfoRequest {
            manager_name: self.shared.manager.name.clone(),
            manager_version: self.shared.manager.version.clone(),
            manager_capabilities: capabilities.map(i32::from).to_vec(),
        });
        request.set_timeout(bound);
        let call = CallSpan::begin("GetDriverInfo", &self.endpoint, None, None);
        call.send(&mut request);
        let mut client = call::client(self.wire.clone());
        let asked = client.get_driver_info(request).instrument(call.span().clone());
        let answer = match tokio::time::timeout(bound, asked).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err((status::failure(&status), trouble(&status, bound))),
            Err(_) => Err((Failure::transport(Code::DeadlineExceeded, ""), too_slow(bound))),
        };
        call.end(answer.as_ref().err().map(|(failure, _)| failure), false);
        answer.map_err(|(_, trouble)| trouble)
    }

    /// Takes an answer into the roster. Returns the pause until the next handshake.
    pub(super) fn absorb(&mut self, answer: Answer) -> Duration {
        let pauses = self.shared.pauses;
        let read = |response| {
            let info = answer::driver_info(&response).map_err(Trouble::Wrong)?;
            match self.expected.as_ref().filter(|expected| **expected != info.name) {
                None => Ok((info, response)),
                Some(expected) => Err(Trouble::Wrong(format!(
                    "it calls itself {}, and --driver says that {expected} is here",
                    info.name
                ))),
            }
        };
        let trouble = match answer.and_then(read) {
            Ok((info, response)) => {
                self.is_on_trial = false;
                self.tell_flaws(&response);
                return self.shown(info, &response);
            }
            Err(trouble) => trouble,
        };
        // One bad answer of a driver that was there is no reason to stop its machines; that nobody is there, is.
        let is_certain = matches!(trouble, Trouble::Silent(_));
        if !is_certain && !self.is_on_trial && self.is_ready() {
            self.is_on_trial = true;
            return pauses.away;
        }
        self.is_on_trial = false;
        self.renew();
        match trouble {
            Trouble::Silent(why) | Trouble::Unsure(why) => {
                self.lost(Health::Away { why });
                pauses.away
            }
            Trouble::Wrong(why) => {
                self.lost(Health::Wrong { why });
                pauses.wrong
            }
        }
    }

    /// A connection to another host may be dead without anybody saying so: the next question goes over a new one.
    fn renew(&mut self) {
        if matches!(self.endpoint, Endpoint::Tls { .. }) {
            self.lifeline.broke();
            self.wire = (self.shared.connect)(&self.endpoint, &self.lifeline);
        }
    }

    /// The driver has shown itself.
    fn shown(&self, info: DriverInfo, response: &v1::GetDriverInfoResponse) -> Duration {
        let (name, version) = (info.name.clone(), info.vendor_version.clone());
        let (mut replaced, life) = (None, self.lifeline.ends());
        let is_new = self.shared.change(|roster| {
            let before = roster.driver_of(&self.endpoint).cloned();
            let known = before.as_ref().map(|driver| &driver.lanes);
            let lanes = Lanes::new(&response.call_advice, &self.shared.deadlines, known);
            let driver = match before {
                Some(before) if before.info == info && before.lanes.same_as(&lanes) && before.life == life => before,
                before => {
                    replaced = before;
                    Arc::new(self.driver(info, lanes))
                }
            };
            roster.shown(&self.endpoint, name.clone(), driver, Instant::now())
        });
        if let Some(before) = replaced {
            let (from, to) = (&before.info.vendor_version, &version);
            tracing::info!(endpoint = %self.endpoint, driver = %name, from, to, "driver was replaced or begun anew, its capabilities are read again");
        }
        let health = self.health();
        if is_new {
            self.tell_shown(&name, &health, &version);
        }
        if health == Health::Ready {
            self.shared.pauses.ready
        } else {
            self.shared.pauses.wrong
        }
    }

    fn tell_shown(&self, name: &DriverName, health: &Health, version: &str) {
        let endpoint = &self.endpoint;
        if let Health::Conflict { other, .. } = health {
            // The other looks at once, and then as often as this one, whether it is alone again.
            let roster = self.shared.roster.lock().expect("nothing panics under this lock");
            if let Some(rival) = roster.driver_of(other) {
                rival.doubted.notify_one();
            }
            drop(roster);
            tracing::error!(%endpoint, driver = %name, %other, "two drivers have one name: neither is used until the socket of one is gone");
        } else {
            tracing::info!(%endpoint, driver = %name, version, "driver is ready");
        }
    }

    /// Warns of flaws in the answer to GetDriverInfo: once while they are the same.
    fn tell_flaws(&mut self, response: &v1::GetDriverInfoResponse) {
        let flaws = answer::flaws(response);
        if self.flaws == flaws {
            return;
        }
        for why in &flaws {
            tracing::warn!(endpoint = %self.endpoint, driver = response.name, why, "the answer to GetDriverInfo has a flaw, and the driver is used");
        }
        self.flaws = flaws;
    }

    fn driver(&self, info: DriverInfo, lanes: Lanes) -> Driver {
        Driver {
            info,
            endpoint: self.endpoint.clone(),
            wire: self.wire.clone(),
            lanes,
            lead: Arc::clone(&self.shared.lead),
            observer: Arc::clone(&self.shared.observer),
            accounts: Arc::clone(&self.shared.accounts),
            doubted: Arc::clone(&self.lifeline.doubted),
            life: self.lifeline.ends(),
            epoch_ahead: AtomicU64::new(0),
            epoch_heard: AtomicU64::new(0),
        }
    }

    fn lost(&self, health: Health) {
        // `--driver` names a socket that nobody looks for in a directory.
        if let (Endpoint::Unix(path), Health::Away { .. }) = (&self.endpoint, &health)
            && !std::path::Path::new(path).exists()
        {
            self.shared.change(|roster| {
                roster.absent(&self.endpoint, Instant::now());
                News::nothing()
            });
        }
        let is_wrong = matches!(health, Health::Wrong { .. });
        let why = health.to_string();
        if !self.shared.change(|roster| roster.lost(&self.endpoint, health)) {
            return;
        }
        if is_wrong {
            tracing::error!(endpoint = %self.endpoint, why, "no driver behind this endpoint");
        } else {
            tracing::warn!(endpoint = %self.endpoint, why, "driver is away, asking again every second");
        }
    }

    fn is_ready(&self) -> bool {
        self.shared
            .roster
            .lock()
            .expect("nothing panics under this lock")
            .is_ready(&self.endpoint)
    }

    fn health(&self) -> Health {
        self.shared
            .roster
            .lock()
            .expect("nothing panics under this lock")
            .health_of(&self.endpoint)
    }
}

fn too_slow(bound: Duration) -> Trouble {
    Trouble::Unsure(format!("no answer to GetDriverInfo within {bound:?}"))
}

/// What a failed handshake says of the other side.
fn trouble(status: &tonic::Status, bound: Duration) -> Trouble {
    use std::error::Error as _;
    let text = causes(status);
    // A status with a cause was made on this side.
    let is_ours = status.source().is_some();
    match status::failure(status).code {
        Code::DeadlineExceeded => too_slow(bound),
        Code::Unavailable => Trouble::Silent(text),
        Code::Unimplemented => Trouble::Wrong(format!(
            "answers, but does not serve {}: {text}",
            millwright_proto::SERVICE_NAME
        )),
        // HTTP/2 found something else where a frame should be: HTTP/1, TLS, SSH, …
        Code::Internal if is_ours => Trouble::Wrong(format!("does not speak gRPC: {text}")),
        Code::Unknown | Code::Cancelled if is_ours => Trouble::Unsure(format!(
            "hung up when asked (it has just ended, does not speak gRPC, or refuses the manager's certificate): {text}"
        )),
        code => Trouble::Wrong(format!("GetDriverInfo failed with {}: {text}", code.word())),
    }
}

/// A status with its causes, in one line.
fn causes(status: &tonic::Status) -> String {
    use std::error::Error as _;
    let mut texts = vec![status::cut(status.message(), status::MAX_MESSAGE)];
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if texts.iter().all(|told| !told.contains(&text)) {
            texts.push(text);
        }
        cause = error.source();
    }
    texts.join(": ")
}
