//! Answers as no driver should give them: arbitrary messages, and bytes that hardly are one. Nothing panics, and what is kept of an answer is
//! bounded and, but for what is sent back as it came, without control characters.
//!
//! `PROPTEST_CASES` says how many answers are tried and `PROPTEST_RNG_SEED` which ones; `.ci/run` sets both.

use millwright_core::driver::{Address, Deletion, DriverInfo, Failure, Violation, Vm};
use millwright_core::ids::{Name, ProviderId, Uid};
use millwright_core::notice::Notice;
use millwright_core::status::is_unseen;
use millwright_proto::{ERROR_DOMAIN, v1};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use tonic_types::pb;

use super::answer::{self, Listed, Page, Told, ValidationReport};
use super::secrets::SecretData;
use super::status;
use super::target::MachineKey;

/// The longest text that is kept of an answer.
const LONGEST: usize = 4096;

/// What is kept of an answer.
#[derive(Default)]
struct Kept {
    /// Texts that get into statuses, events and logs.
    shown: Vec<String>,
    /// What a driver gets back as it gave it, and nobody reads.
    opaque: Vec<String>,
}

impl Kept {
    fn faults(&self) -> Vec<String> {
        let all = self.shown.iter().chain(&self.opaque);
        let mut faults: Vec<String> = all
            .filter(|text| text.len() > LONGEST)
            .map(|text| {
                format!(
                    "{} bytes: {}...",
                    text.len(),
                    text.chars().take(40).collect::<String>().escape_debug()
                )
            })
            .collect();
        let controlled = self.shown.iter().filter(|text| text.chars().any(is_unseen));
        faults.extend(controlled.map(|text| format!("control characters: {}", text.escape_debug())));
        faults
    }

    fn show(&mut self, text: &str) {
        self.shown.push(text.to_owned());
    }

    fn vm(&mut self, vm: Vm) {
        // Every field is named, so that a new one is thought of here.
        let Vm {
            provider_id,
            node_name,
            state: _,
            state_message,
            initialization: _,
            addresses,
            last_known_state,
            poll_after: _,
            disturbance: _,
            ends_at: _,
            tagged_uid: _,
        } = vm;
        self.shown.extend(provider_id.as_ref().map(|id| id.as_str().to_owned()));
        self.shown
            .extend(node_name.as_ref().map(|name| name.as_str().to_owned()));
        self.show(&state_message);
        let addresses: Vec<String> = addresses
            .into_iter()
            .map(|Address { kind, address }| format!("{kind} {address}"))
            .collect();
        assert!(addresses.len() <= 64, "{} addresses", addresses.len());
        self.shown.extend(addresses);
        self.opaque.extend(last_known_state);
    }

    fn failure(&mut self, failure: Failure) {
        let Failure {
            code: _,
            reason: _,
            effect: _,
            message,
            retry_after: _,
            provider_ids,
            last_known_state,
        } = failure;
        self.show(&message);
        assert!(provider_ids.len() <= 8, "{} ids", provider_ids.len());
        self.shown.extend(provider_ids.iter().map(|id| id.as_str().to_owned()));
        self.opaque.extend(last_known_state);
    }

    fn names(&mut self, name: Option<&Name>, uid: Option<&Uid>, id: Option<&ProviderId>) {
        self.shown.extend(name.map(|name| name.as_str().to_owned()));
        self.shown.extend(uid.map(|uid| uid.as_str().to_owned()));
        self.shown.extend(id.map(|id| id.as_str().to_owned()));
    }

    fn page(&mut self, page: Page) {
        let Page {
            vms,
            next,
            unreachable,
            stranger,
            bytes: _,
        } = page;
        for listed in vms {
            let Listed {
                cluster_id,
                namespace,
                name,
                uid,
                vm,
                class,
                spec_digest,
                created: _,
                zone,
            } = listed;
            self.names(name.as_ref(), uid.as_ref(), None);
            self.shown.extend([cluster_id, namespace, zone]);
            self.shown.extend(class.into_iter().chain(spec_digest));
            self.vm(vm);
        }
        self.opaque.extend(next);
        assert!(unreachable.len() <= 64, "{} places", unreachable.len());
        self.shown.extend(unreachable.into_iter().chain(stranger));
    }

    fn report(&mut self, report: ValidationReport) {
        let ValidationReport {
            violations,
            inventory_key,
            locator,
        } = report;
        assert!(violations.len() <= 64, "{} violations", violations.len());
        for violation in violations {
            let Violation {
                field,
                fatal: _,
                reason,
                description,
            } = violation;
            self.shown.extend([field, reason, description]);
        }
        self.shown.extend(inventory_key);
        self.shown.extend(locator.map(|locator| locator.to_string()));
    }

    fn told(&mut self, told: Told) {
        let notice = match told {
            Told::Of(notice) => notice,
            Told::Stranger(vm) => return self.show(&vm),
            Told::All | Told::Nothing => return,
        };
        let Notice {
            namespace,
            name,
            uid,
            provider_id,
            state: _,
            disturbance: _,
        } = notice;
        self.names(name.as_ref(), uid.as_ref(), provider_id.as_ref());
        self.show(&namespace);
    }

    fn info(&mut self, info: DriverInfo) {
        let DriverInfo {
            name,
            vendor_version,
            capabilities: _,
            propagation_delay: _,
        } = info;
        self.show(name.as_str());
        self.show(&vendor_version);
    }
}

/// Everything that is read of a message that may be any of the answers.
fn read(bytes: &[u8]) -> Kept {
    let (mut kept, secrets) = (Kept::default(), SecretData::default());
    let key = MachineKey {
        cluster_id: "c".into(),
        namespace: "n".into(),
        name: Name::new("m"),
        uid: Uid::new("u"),
    };
    if let Ok(answer) = v1::CreateMachineResponse::decode(bytes) {
        match answer::vm_of(&key, &secrets, answer.machine, answer.poll_after) {
            Ok(vm) => kept.vm(vm),
            Err(failure) => kept.failure(failure),
        }
    }
    if let Ok(answer) = v1::ListMachinesResponse::decode(bytes) {
        match answer::page("c", &secrets, answer.into()) {
            Ok(page) => kept.page(page),
            Err(failure) => kept.failure(failure),
        }
    }
    if let Ok(answer) = v1::ValidateMachineClassResponse::decode(bytes) {
        match answer::validation(&secrets, answer.into()) {
            Ok(report) => kept.report(report),
            Err(failure) => kept.failure(failure),
        }
    }
    if let Ok(answer) = v1::WatchMachinesResponse::decode(bytes) {
        match answer::told("c", &secrets, answer) {
            Ok(told) => kept.told(told),
            Err(failure) => kept.failure(failure),
        }
    }
    if let Ok(answer) = v1::DeleteMachineResponse::decode(bytes) {
        let Deletion {
            gone: _,
            poll_after: _,
            last_known_state,
        } = answer::deletion(&secrets, answer);
        kept.opaque.extend(last_known_state);
    }
    if let Ok(answer) = v1::GetDriverInfoResponse::decode(bytes) {
        kept.shown.extend(answer::flaws(&answer));
        match answer::driver_info(&answer) {
            Ok(info) => kept.info(info),
            Err(why) => kept.show(&why),
        }
    }
    let refused = tonic::Status::with_details(tonic::Code::Internal, "it is\nso", bytes.to_vec().into());
    kept.failure(secrets.failure(&refused));
    status::remembered_epoch(&refused);
    kept
}

/// What a driver writes, and what it should not.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[a-z0-9.:/-]{0,12}",
        1 => Just("c".to_owned()),
        1 => Just("m".to_owned()),
        1 => any::<String>(),
        1 => Just("\u{1b}[31m\r\nlevel=ERROR \u{0}\u{85}".to_owned()),
        1 => (0..30_000usize).prop_map(|len| "ä".repeat(len)),
    ]
}

fn duration() -> impl Strategy<Value = Option<prost_types::Duration>> {
    let seconds = prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX), any::<i64>()];
    prop::option::of((seconds, any::<i32>()).prop_map(|(seconds, nanos)| prost_types::Duration { seconds, nanos }))
}

fn time() -> impl Strategy<Value = Option<prost_types::Timestamp>> {
    let seconds = prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX), any::<i64>()];
    prop::option::of((seconds, any::<i32>()).prop_map(|(seconds, nanos)| prost_types::Timestamp { seconds, nanos }))
}

fn key() -> impl Strategy<Value = Option<v1::MachineKey>> {
    let key = (text(), text(), text(), text());
    let key = key.prop_map(|(cluster_id, namespace, name, uid)| v1::MachineKey {
        cluster_id,
        namespace,
        name,
        uid,
    });
    prop::option::of(key)
}

fn address() -> impl Strategy<Value = v1::NodeAddress> {
    (-1..7, text()).prop_map(|(kind, address)| v1::NodeAddress { r#type: kind, address })
}

fn machine() -> impl Strategy<Value = v1::Machine> {
    let who = (key(), text(), text());
    let how = (-1..9, text(), text(), vec(address(), 0..70));
    let from = (text(), text(), time(), text(), text());
    let interruption = prop::option::of((-1..5, time(), text()));
    (who, how, from, interruption).prop_map(|(who, how, from, interruption)| v1::Machine {
        key: who.0,
        provider_id: who.1,
        node_name: who.2,
        state: how.0,
        state_reason: how.1,
        state_message: how.2,
        addresses: how.3,
        machine_class: from.0,
        spec_digest: from.1,
        create_time: from.2,
        zone: from.3,
        last_known_state: from.4,
        interruption: interruption.map(|(kind, effective_time, message)| v1::Interruption {
            kind,
            effective_time,
            message,
        }),
        ..Default::default()
    })
}

fn violation() -> impl Strategy<Value = v1::Violation> {
    let violation = (text(), -1..4, text(), text());
    violation.prop_map(|(field, severity, reason, description)| v1::Violation {
        field,
        severity,
        reason,
        description,
    })
}

/// The details of a status.
fn refusal() -> impl Strategy<Value = pb::Status> {
    let any = |kind: &str, value: Vec<u8>| prost_types::Any {
        type_url: format!("type.googleapis.com/{kind}"),
        value,
    };
    let domain = prop_oneof![3 => Just(ERROR_DOMAIN.to_owned()), 1 => text()];
    let reason = prop_oneof![
        Just("STALE_LEADER".to_owned()),
        Just("MACHINE_DELETED".to_owned()),
        text()
    ];
    let detail = (-1..5, vec(text(), 0..12), text());
    (domain, reason, text(), detail, duration()).prop_map(move |(domain, reason, epoch, detail, retry_delay)| {
        let info = pb::ErrorInfo {
            domain,
            reason,
            metadata: [("epoch".to_owned(), epoch)].into(),
        };
        let detail = v1::ErrorDetail {
            outcome: detail.0,
            provider_ids: detail.1,
            last_known_state: detail.2,
            ..Default::default()
        };
        let details = [
            ("google.rpc.ErrorInfo", info.encode_to_vec()),
            ("machine.driver.v1.ErrorDetail", detail.encode_to_vec()),
            ("google.rpc.RetryInfo", pb::RetryInfo { retry_delay }.encode_to_vec()),
        ];
        pb::Status {
            code: 13,
            message: String::new(),
            details: details.into_iter().map(|(kind, value)| any(kind, value)).collect(),
        }
    })
}

/// An answer of one of the calls, on the wire.
fn answer_bytes() -> impl Strategy<Value = Vec<u8>> {
    let vm = (prop::option::of(machine()), duration());
    let vm = vm.prop_map(|(machine, poll_after)| v1::CreateMachineResponse { machine, poll_after });
    let page = (vec(machine(), 0..4), text(), vec(text(), 0..70));
    let page = page.prop_map(|(machines, next_page_token, unreachable)| v1::ListMachinesResponse {
        machines,
        next_page_token,
        unreachable,
    });
    let locator = prop::option::of((text(), text()).prop_map(|(name, place)| {
        let kind = Some(prost_types::value::Kind::StringValue(place));
        prost_types::Struct {
            fields: [(name, prost_types::Value { kind })].into(),
        }
    }));
    let report = (vec(violation(), 0..70), text(), locator);
    let report = report.prop_map(
        |(violations, inventory_key, locator)| v1::ValidateMachineClassResponse {
            violations,
            inventory_key,
            locator,
        },
    );
    let told = (-1..6, prop::option::of(machine()), text());
    let told = told.prop_map(|(kind, machine, resume_token)| v1::WatchMachinesResponse {
        r#type: kind,
        machine,
        resume_token,
    });
    let deletion = (-1..9, text(), duration());
    let deletion = deletion.prop_map(|(state, last_known_state, poll_after)| v1::DeleteMachineResponse {
        state,
        last_known_state,
        poll_after,
    });
    let info = (text(), text(), vec(any::<i32>(), 0..9), duration());
    let info = info.prop_map(
        |(name, vendor_version, capabilities, propagation_delay)| v1::GetDriverInfoResponse {
            name,
            vendor_version,
            capabilities,
            propagation_delay,
            ..Default::default()
        },
    );
    prop_oneof![
        vm.prop_map(|answer| answer.encode_to_vec()),
        page.prop_map(|answer| answer.encode_to_vec()),
        report.prop_map(|answer| answer.encode_to_vec()),
        told.prop_map(|answer| answer.encode_to_vec()),
        deletion.prop_map(|answer| answer.encode_to_vec()),
        info.prop_map(|answer| answer.encode_to_vec()),
        refusal().prop_map(|answer| answer.encode_to_vec()),
        vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows: O18, O21, D8.
    #[test]
    fn whatever_a_driver_answers_what_is_kept_of_it_is_bounded_and_fit_to_be_shown(
        mut bytes in answer_bytes(),
        spoiled in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        for (at, byte) in spoiled {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let faults = read(&bytes).faults();
        prop_assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
