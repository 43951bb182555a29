//! One function per call of the Driver API: request, place, deadline, answer into values of core.
//!
//! Chooses nothing and repeats nothing: the reconciler is the retry, and two retry loops would multiply. Every call
//! ends within its deadline, whatever the driver does. Secrets go into the request and nowhere else.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millwright_core::driver::{Code, Deletion, DriverInfo, Failure, Reason, Vm};
use millwright_core::ids::DriverName;
use millwright_core::permit::DeletePermit;
use millwright_proto::v1::driver_service_client::DriverServiceClient;
use millwright_proto::{LEADER_EPOCH_KEY, identity_tags, v1};
use tokio::sync::{Notify, SemaphorePermit};
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::accounts::{Accounts, Leave, Line};
use super::answer::{self, Page, ValidationReport};
use super::bounded;
use super::bounds;
use super::endpoint::{Endpoint, Wire};
use super::lanes::{Lane, Lanes, Method};
use super::lead::Lead;
use super::secrets::SecretData;
use super::span::CallSpan;
use super::status;
use super::target::{Creation, MachineKey, Scope, Target};

/// One finished call, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord<'a> {
    /// The driver.
    pub driver: &'a DriverName,
    /// The call.
    pub method: Method,
    /// `OK` or the code's word.
    pub code: &'static str,
    /// The driver's reason as in `ErrorInfo`, empty where there is none.
    pub reason: &'static str,
    /// From the asking until the answer, without the wait for a place.
    pub took: Duration,
}

/// Hears of every finished call.
pub trait CallObserver: Send + Sync + 'static {
    /// A call has ended.
    fn called(&self, record: CallRecord<'_>);
    /// A call waited so long because its provider throttles its account.
    fn held_up(&self, driver: &DriverName, method: Method, took: Duration);
}

/// A driver that has shown itself. Stays callable after the driver went away: calls then fail at once.
pub struct Driver {
    pub(super) info: DriverInfo,
    pub(super) endpoint: Endpoint,
    pub(super) wire: Wire,
    pub(super) lanes: Lanes,
    pub(super) lead: Arc<Lead>,
    pub(super) observer: Arc<dyn CallObserver>,
    pub(super) accounts: Arc<Accounts>,
    /// Wakes the connection's handshake after a failure that the driver did not make.
    pub(super) doubted: Arc<Notify>,
    /// Which life of its endpoint's process it is, counted by connections that ended.
    pub(super) life: u64,
    /// What is added to the leader's epoch for this driver, which remembers a higher one than the Lease knows.
    pub(super) epoch_ahead: AtomicU64,
    /// The highest epoch that this driver says it remembers; 0 where it named none.
    pub(super) epoch_heard: AtomicU64,
}

/// The first addition to the epoch of a driver that remembers too high a one; four times as much at each further try. Epochs are seconds
/// (`millwright_core::lease`), so an hour by which a clock was wrong takes two tries.
const FIRST_AHEAD: u64 = 1024;
/// The largest addition: no epoch comes near it, and a driver that claims a newer leader without end changes nothing else.
const MOST_AHEAD: u64 = 1 << 40;

/// The next addition to the epoch: what the driver needs, if it said so and was not told as much yet.
fn raised(ahead: u64, needed: u64) -> u64 {
    match needed > ahead {
        true => needed,
        false => ahead.saturating_mul(4).clamp(FIRST_AHEAD, MOST_AHEAD).max(ahead),
    }
}

/// What was decided so long ago may be wanted no longer.
const STALE: Duration = Duration::from_secs(1);

/// Which call, about what, on whose account.
#[derive(Clone, Copy)]
struct Of<'a> {
    method: Method,
    machine: Option<&'a MachineKey>,
    credentials: &'a SecretData,
}

/// A driver is replaced, never changed: it is the same one only as the same value in memory.
impl PartialEq for Driver {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("info", &self.info)
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// What the driver said of itself.
    pub fn info(&self) -> &DriverInfo {
        &self.info
    }

    /// The driver remembers a higher epoch than that of the Lease, which this process has just read and holds: a Lease was lost, or a
    /// clock was wrong. From now on this driver, and no other, is told a higher one than it names, or than it was told if it names none
    /// (MAN-13).
    pub fn raise_epoch(&self) {
        let heard = self.epoch_heard.load(Ordering::Acquire);
        let needed = heard.saturating_add(1).saturating_sub(self.lead.epoch().unwrap_or(0));
        let raised = |ahead: u64| Some(raised(ahead, needed));
        // The closure always gives a value, so this cannot fail.
        let _ = self
            .epoch_ahead
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, raised);
    }

    /// Makes sure that one VM exists for the machine.
    pub async fn create_machine(&self, target: &Target, creation: &Creation) -> Result<Vm, Failure> {
        self.create_machine_if(target, creation, always).await
    }

    /// The same, if it is wanted still: a call that had to wait asks that once more before it is sent.
    pub async fn create_machine_if<W>(
        &self,
        target: &Target,
        creation: &Creation,
        still_wanted: impl Fn() -> W,
    ) -> Result<Vm, Failure>
    where
        W: Future<Output = Result<(), Failure>>,
    {
        let (key, machine_class) = (target.key.to_wire(), target.class.to_wire());
        let tags = identity_tags(&key, &machine_class.name, &creation.spec_digest);
        let request = v1::CreateMachineRequest {
            key: Some(key),
            machine_class: Some(machine_class),
            secret_data: target.secrets.to_wire(),
            user_data: creation.user_data.to_vec(),
            tags,
            spec_digest: creation.spec_digest.clone(),
            last_known_state: target.last_known_state.clone().unwrap_or_default(),
            node_labels: creation.node.labels.clone().into_iter().collect(),
            node_annotations: creation.node.annotations.clone().into_iter().collect(),
        };
        let send = async |wire: Wire, request| client(wire).create_machine(request).await;
        let token = creation.token.as_ref().map(|token| token.as_str());
        let secrets = target.secrets.sending(&creation.user_data, token);
        let of = Of {
            method: Method::CreateMachine,
            machine: Some(&target.key),
            credentials: &secrets,
        };
        let response = self.call_if(of, request, still_wanted, send).await?;
        answer::vm_of(&target.key, &secrets, response.machine, response.poll_after)
    }

    /// Steps that can only follow the creation.
    pub async fn initialize_machine(&self, target: &Target) -> Result<Vm, Failure> {
        let request = v1::InitializeMachineRequest {
            key: Some(target.vm_key().to_wire()),
            provider_id: target.provider_id_to_wire(),
            machine_class: Some(target.class.to_wire()),
            secret_data: target.secrets.to_wire(),
            last_known_state: target.last_known_state.clone().unwrap_or_default(),
        };
        let send = async |wire: Wire, request| client(wire).initialize_machine(request).await;
        let response = self
            .call(
                Method::InitializeMachine,
                Some(&target.key),
                &target.secrets,
                request,
                send,
            )
            .await?;
        answer::vm_found(target, response.machine, None)
    }

    /// Removes the VM and everything made for it. The permit is used up: a repeat needs evidence anew.
    pub async fn delete_machine(&self, target: &Target, permit: DeletePermit) -> Result<Deletion, Failure> {
        self.delete_machine_if(target, permit, always).await
    }

    /// The same, if it is wanted still: a call that had to wait asks that once more before it is sent.
    pub async fn delete_machine_if<W>(
        &self,
        target: &Target,
        permit: DeletePermit,
        still_wanted: impl Fn() -> W,
    ) -> Result<Deletion, Failure>
    where
        W: Future<Output = Result<(), Failure>>,
    {
        if *permit.uid() != target.key.uid {
            let why = format!(
                "not sent: the permit is for uid {}, the call for {}",
                permit.uid(),
                target.key.uid
            );
            return Err(Failure::not_sent(Code::InvalidArgument, why));
        }
        let request = v1::DeleteMachineRequest {
            key: Some(target.vm_key().to_wire()),
            provider_id: target.provider_id_to_wire(),
            machine_class: Some(target.class.to_wire()),
            secret_data: target.secrets.to_wire(),
            last_known_state: target.last_known_state.clone().unwrap_or_default(),
        };
        let send = async |wire: Wire, request| client(wire).delete_machine(request).await;
        let of = Of {
            method: Method::DeleteMachine,
            machine: Some(&target.key),
            credentials: &target.secrets,
        };
        let response = self.call_if(of, request, still_wanted, send).await?;
        Ok(answer::deletion(&target.secrets, response))
    }

    /// The VM of a machine.
    pub async fn get_machine_status(&self, target: &Target) -> Result<Vm, Failure> {
        let request = v1::GetMachineStatusRequest {
            key: Some(target.vm_key().to_wire()),
            provider_id: target.provider_id_to_wire(),
            machine_class: Some(target.class.to_wire()),
            secret_data: target.secrets.to_wire(),
        };
        let send = async |wire: Wire, request| client(wire).get_machine_status(request).await;
        let response = self
            .call(
                Method::GetMachineStatus,
                Some(&target.key),
                &target.secrets,
                request,
                send,
            )
            .await?;
        answer::vm_found(target, response.machine, response.poll_after)
    }

    /// One page of the cluster's VMs: the first, or the one that `page_token` names.
    pub async fn list_machines(&self, scope: &Scope, page_token: Option<&str>) -> Result<Page, Failure> {
        let request = v1::ListMachinesRequest {
            cluster_id: scope.cluster_id.clone(),
            machine_class: Some(scope.class.to_wire()),
            secret_data: scope.secrets.to_wire(),
            page_size: 0,
            page_token: page_token.unwrap_or_default().to_owned(),
        };
        let send = async |wire: Wire, request| bounded::list_machines(wire, request).await;
        let response = self
            .call(Method::ListMachines, None, &scope.secrets, request, send)
            .await?;
        answer::page(&scope.cluster_id, &scope.secrets, response)
    }

    /// Checks a class; with `live` also against the provider.
    pub async fn validate_machine_class(&self, scope: &Scope, live: bool) -> Result<ValidationReport, Failure> {
        let request = v1::ValidateMachineClassRequest {
            machine_class: Some(scope.class.to_wire()),
            secret_data: scope.secrets.to_wire(),
            live,
        };
        let send = async |wire: Wire, request| bounded::validate_machine_class(wire, request).await;
        let response = self
            .call(Method::ValidateMachineClass, None, &scope.secrets, request, send)
            .await?;
        answer::validation(&scope.secrets, response)
    }

    /// One call that is wanted whenever its turn comes.
    async fn call<Req, Resp, F>(
        &self,
        method: Method,
        machine: Option<&MachineKey>,
        credentials: &SecretData,
        request: Req,
        send: impl FnOnce(Wire, Request<Req>) -> F,
    ) -> Result<Resp, Failure>
    where
        F: Future<Output = Result<Response<Resp>, Status>>,
    {
        let of = Of {
            method,
            machine,
            credentials,
        };
        self.call_if(of, request, always, send).await
    }

    /// One call, with what is seen of it.
    async fn call_if<Req, Resp, F, W>(
        &self,
        of: Of<'_>,
        request: Req,
        still_wanted: impl Fn() -> W,
        send: impl FnOnce(Wire, Request<Req>) -> F,
    ) -> Result<Resp, Failure>
    where
        F: Future<Output = Result<Response<Resp>, Status>>,
        W: Future<Output = Result<(), Failure>>,
    {
        let call = CallSpan::begin(of.method.name(), &self.endpoint, Some(&self.info.name), of.machine);
        let result = self
            .in_its_place(of, &call, request, still_wanted, send)
            .instrument(self.log_span(of, &call))
            .instrument(call.span().clone())
            .await;
        let failure = result.as_ref().err();
        call.end(failure, failure.is_some_and(|failure| is_expected(of.method, failure)));
        result
    }

    /// Stands around the log's lines about a call. Where traces are exported they are found by it.
    fn log_span(&self, of: Of<'_>, call: &CallSpan) -> Span {
        let machine = of.machine.map_or("", |key| key.name.as_str());
        let method = of.method.name();
        let span = tracing::info_span!("driver_call", driver = %self.info.name, method, machine, trace_id = Empty);
        if let Some(trace) = millwright_trace::trace_of(call.span()) {
            span.record("trace_id", tracing::field::display(trace));
        }
        span
    }

    /// Account, place, deadline, record.
    async fn in_its_place<Req, Resp, F, W>(
        &self,
        of: Of<'_>,
        call: &CallSpan,
        request: Req,
        still_wanted: impl Fn() -> W,
        send: impl FnOnce(Wire, Request<Req>) -> F,
    ) -> Result<Resp, Failure>
    where
        F: Future<Output = Result<Response<Resp>, Status>>,
        W: Future<Output = Result<(), Failure>>,
    {
        let method = of.method;
        let lane = self.lanes.lane(method);
        let line = self.accounts.line(&self.info.name, of.credentials.account());
        let (leave, _place) = self.enter(&line, lane, method, still_wanted).await?;
        if method.changes() && !self.lead.may_change(Instant::now()) {
            return Err(no_lead());
        }
        let begun = Instant::now();
        let mut request = self.wrap(request, lane.timeout());
        call.send(&mut request);
        let sent = send(self.wire.clone(), request);
        let result = match tokio::time::timeout(lane.timeout(), sent).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => {
                self.epoch_heard
                    .fetch_max(status::remembered_epoch(&status).unwrap_or(0), Ordering::AcqRel);
                Err(of.credentials.failure(&status))
            }
            Err(_) => Err(too_late(lane.timeout())),
        };
        self.record(method, result.as_ref().err(), begun.elapsed());
        self.learn(&line, leave, result.as_ref().err());
        result
    }

    /// Waits for the account, then for a place: who waits for a throttled account takes no place from others. Where that took long, it is
    /// asked whether the call is still wanted; a pause that the provider asks for meanwhile is waited for, too.
    async fn enter<'a, W>(
        &self,
        line: &Line,
        lane: &'a Lane,
        method: Method,
        still_wanted: impl Fn() -> W,
    ) -> Result<(Leave, SemaphorePermit<'a>), Failure>
    where
        W: Future<Output = Result<(), Failure>>,
    {
        let asked = Instant::now();
        loop {
            let patience = lane.timeout().saturating_sub(asked.elapsed());
            let leave = self.admit(line, method, patience).await?;
            let Ok(place) = tokio::time::timeout(lane.timeout(), lane.places().acquire()).await else {
                return Err(no_place(lane.timeout(), lane.size()));
            };
            let place = place.expect("the semaphore of a lane is never closed");
            if !leave.is_late && asked.elapsed() < STALE {
                return Ok((leave, place));
            }
            still_wanted().await?;
            if !line.is_refused_since(leave.at) {
                return Ok((leave, place));
            }
        }
    }

    /// Waits until the account may be called, no longer than a call may take.
    async fn admit(&self, line: &Line, method: Method, patience: Duration) -> Result<Leave, Failure> {
        let asked = Instant::now();
        let leave = line.admit(method, patience).await;
        let is_free = leave.as_ref().is_ok_and(|leave| !leave.is_late);
        if !is_free {
            self.observer.held_up(&self.info.name, method, asked.elapsed());
        }
        leave
    }

    /// What the answer says of the rate at which the account may be called.
    fn learn(&self, line: &Line, leave: Leave, failure: Option<&Failure>) {
        let is_news = line.learn(leave.at, failure);
        if let Some(rate) = line.rate().filter(|_| is_news) {
            tracing::info!(
                rate,
                "the provider throttles the account: its calls are slowed, those of others are not"
            );
        }
    }

    /// The request with its deadline and the leader's epoch.
    fn wrap<Req>(&self, request: Req, timeout: Duration) -> Request<Req> {
        let mut request = Request::new(request);
        request.set_timeout(timeout);
        if let Some(epoch) = self.lead.epoch() {
            let epoch = epoch.saturating_add(self.epoch_ahead.load(Ordering::Acquire));
            request.metadata_mut().insert(LEADER_EPOCH_KEY, epoch.into());
        }
        request
    }

    /// Tells metrics, log and the connection how a call ended.
    pub(super) fn record(&self, method: Method, failure: Option<&Failure>, took: Duration) {
        let code = failure.map_or("OK", Failure::word);
        let reason = failure
            .and_then(|failure| failure.reason)
            .map_or("", status::reason_name);
        self.observer.called(CallRecord {
            driver: &self.info.name,
            method,
            code,
            reason,
            took,
        });
        match failure {
            None => tracing::debug!(code, ?took, "driver answered"),
            Some(failure) if is_expected(method, failure) => {
                tracing::debug!(code, reason, message = %failure.message, ?took, "driver answered");
            }
            Some(failure) => {
                tracing::info!(code, reason, effect = ?failure.effect, message = %failure.message, ?took, "driver call failed")
            }
        }
        // Without a reason it may not have been the driver: it may be gone, or another one by now.
        if failure.is_some_and(|failure| failure.reason.is_none() && failure.code != Code::Unimplemented) {
            self.doubted.notify_one();
        }
    }
}

/// Calls about one VM, or about the driver itself.
pub(super) fn client(wire: Wire) -> DriverServiceClient<Wire> {
    DriverServiceClient::new(wire).max_decoding_message_size(bounds::ANSWER)
}

/// Answers of an ordinary life that come as errors: that there is no such VM, to who asked whether there is; and that the
/// work asked for is under way.
fn is_expected(method: Method, failure: &Failure) -> bool {
    match failure.reason {
        Some(Reason::MachineNotFound) => matches!(method, Method::GetMachineStatus | Method::DeleteMachine),
        Some(Reason::OperationInProgress) => true,
        Some(_) | None => false,
    }
}

/// Of a call that is wanted whenever its turn comes.
async fn always() -> Result<(), Failure> {
    Ok(())
}

/// All places stayed taken. Nothing was sent, so nothing is left behind. Not RESOURCE_EXHAUSTED: an autoscaler would take
/// that for a stock-out.
fn no_place(waited: Duration, places: usize) -> Failure {
    let why =
        format!("not sent: {places} calls of this kind are under way at the driver and none ended within {waited:?}");
    Failure::not_sent(Code::Unavailable, why)
}

/// The lease is another's by now, or nearly. Nothing was sent, so nothing is left behind.
fn no_lead() -> Failure {
    Failure::not_sent(Code::Aborted, "not sent: the time in which this process leads is over")
}

/// The deadline passed on this side. The driver works on, so the outcome is unknown.
fn too_late(timeout: Duration) -> Failure {
    Failure::transport(
        Code::DeadlineExceeded,
        format!("the driver did not answer within {timeout:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: Option<Reason>) -> Failure {
        Failure {
            reason,
            ..Failure::transport(Code::NotFound, "m")
        }
    }

    /// A manager before this one may have gone as far as it could with a driver that claimed a newer leader for nothing.
    #[test]
    fn a_driver_that_names_a_high_epoch_is_told_a_higher_one_at_once_and_others_step_by_step() {
        assert_eq!(raised(0, 0), FIRST_AHEAD);
        assert_eq!(raised(FIRST_AHEAD, 0), 4 * FIRST_AHEAD);
        assert_eq!(raised(MOST_AHEAD, 0), MOST_AHEAD);
        assert_eq!(raised(FIRST_AHEAD, MOST_AHEAD + 7), MOST_AHEAD + 7);
        assert_eq!(raised(MOST_AHEAD + 7, 3), MOST_AHEAD + 7, "it was told as much");
        assert_eq!(raised(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn an_answer_of_an_ordinary_life_is_no_failure_worth_a_line() {
        let expected = |method, reason| is_expected(method, &failed(reason));
        let not_found = Some(Reason::MachineNotFound);
        assert!(expected(Method::GetMachineStatus, not_found));
        assert!(expected(Method::DeleteMachine, not_found));
        assert!(!expected(Method::CreateMachine, not_found));
        assert!(!expected(Method::InitializeMachine, not_found));
        assert!(
            Method::ALL
                .into_iter()
                .all(|method| expected(method, Some(Reason::OperationInProgress)))
        );
        assert!(!expected(Method::GetMachineStatus, Some(Reason::ProviderUnavailable)));
        assert!(!expected(Method::GetMachineStatus, None), "nobody knows who said it");
    }
}
