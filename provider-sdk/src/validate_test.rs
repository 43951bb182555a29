//! Each rule of `validate.rs` by a request that breaks only this rule, and by one at its very limit.

use super::*;
use crate::reason::Reason;

fn good_key() -> v1::MachineKey {
    v1::MachineKey {
        cluster_id: "dev-1".into(),
        namespace: "default".into(),
        name: "m.1-a".into(),
        uid: "0b5c9d1e-6a7f-4e5d-8c3b-2a1908f7e6d5".into(),
    }
}

fn good_class() -> v1::MachineClass {
    v1::MachineClass {
        name: "small".into(),
        namespace: "default".into(),
        provider: "virtual".into(),
        provider_spec: Some(Struct::default()),
        ..Default::default()
    }
}

fn good_create() -> v1::CreateMachineRequest {
    v1::CreateMachineRequest {
        key: Some(good_key()),
        machine_class: Some(good_class()),
        tags: [("millwright.io/cluster".to_owned(), "dev-1".to_owned())].into(),
        spec_digest: "ab".repeat(32),
        ..Default::default()
    }
}

fn fields(result: Result<(), DriverError>) -> Vec<String> {
    match result {
        Ok(()) => Vec::new(),
        Err(error) => match error.reason() {
            Reason::InvalidField { violations } => violations.iter().map(|violation| violation.field.clone()).collect(),
            other => panic!("{other:?}"),
        },
    }
}

/// The fields that a creation is refused for after `change`.
fn faults(change: impl FnOnce(&mut v1::CreateMachineRequest)) -> Vec<String> {
    let mut request = good_create();
    change(&mut request);
    fields(Validator::new("virtual").create_machine(&request))
}

fn key_faults(change: impl FnOnce(&mut v1::MachineKey)) -> Vec<String> {
    faults(|request| change(request.key.as_mut().expect("the good request has a key")))
}

fn class_faults(change: impl FnOnce(&mut v1::MachineClass)) -> Vec<String> {
    faults(|request| change(request.machine_class.as_mut().expect("the good request has a class")))
}

fn spec_of(kind: prost_types::value::Kind) -> Option<Struct> {
    let value = prost_types::Value { kind: Some(kind) };
    Some(Struct {
        fields: [("a".to_owned(), value)].into(),
    })
}

#[test]
fn a_good_request_passes() {
    assert!(faults(|_| ()).is_empty());
}

#[test]
fn each_required_field_is_named_when_it_is_missing() {
    assert_eq!(faults(|request| request.key = None), ["key"]);
    assert_eq!(key_faults(|key| key.cluster_id.clear()), ["key.cluster_id"]);
    assert_eq!(key_faults(|key| key.namespace.clear()), ["key.namespace"]);
    assert_eq!(key_faults(|key| key.name.clear()), ["key.name"]);
    assert_eq!(key_faults(|key| key.uid.clear()), ["key.uid"]);
    assert_eq!(faults(|request| request.machine_class = None), ["machine_class"]);
    assert_eq!(class_faults(|class| class.name.clear()), ["machine_class.name"]);
    assert_eq!(
        class_faults(|class| class.namespace.clear()),
        ["machine_class.namespace"]
    );
    assert_eq!(class_faults(|class| class.provider.clear()), ["machine_class.provider"]);
    assert_eq!(
        class_faults(|class| class.provider_spec = None),
        ["machine_class.provider_spec"]
    );
}

/// What a person leaves out who calls a driver by hand.
#[test]
fn tags_and_digest_may_be_missing_and_where_nothing_is_made_the_names_of_the_class_too() {
    assert!(faults(|request| request.tags.clear()).is_empty());
    assert!(faults(|request| request.spec_digest.clear()).is_empty());
    let class = v1::MachineClass {
        name: String::new(),
        namespace: String::new(),
        ..good_class()
    };
    let request = v1::GetMachineStatusRequest {
        key: Some(good_key()),
        machine_class: Some(class),
        ..Default::default()
    };
    assert!(fields(Validator::new("virtual").get_machine_status(&request)).is_empty());
}

#[test]
fn all_faults_are_told_at_once() {
    let empty = v1::CreateMachineRequest::default();
    let named = fields(Validator::new("virtual").create_machine(&empty));
    assert_eq!(named, ["key", "machine_class"]);
}

#[test]
fn malformed_keys_are_refused() {
    for cluster_id in ["Dev", "a_b", "a/b", &"a".repeat(64)] {
        assert_eq!(
            key_faults(|key| key.cluster_id = cluster_id.into()),
            ["key.cluster_id"],
            "{cluster_id}"
        );
    }
    for name in ["A", "-a", "a-", "a..b", "a_b", ".a", &"a".repeat(254)] {
        assert_eq!(key_faults(|key| key.name = name.into()), ["key.name"], "{name}");
    }
    for uid in [
        "x",
        "0b5c9d1e-6a7f-4e5d-8c3b-2a1908f7e6d",
        "0b5c9d1e06a7f-4e5d-8c3b-2a1908f7e6d5x",
        &"é".repeat(18),
    ] {
        assert_eq!(key_faults(|key| key.uid = uid.into()), ["key.uid"], "{uid}");
    }
    assert!(key_faults(|key| key.name = "a".repeat(253)).is_empty());
}

#[test]
fn sizes_are_allowed_up_to_the_limit_and_not_a_byte_beyond() {
    let state = |size| faults(|request| request.last_known_state = "s".repeat(size));
    assert_eq!(
        (state(4096), state(4097)),
        (vec![], vec!["last_known_state".to_owned()])
    );
    let user_data = |size| faults(|request| request.user_data = vec![0; size]);
    assert_eq!(
        (user_data(65_536), user_data(65_537)),
        (vec![], vec!["user_data".to_owned()])
    );
    let secret = |size| faults(|request| request.secret_data = [("k".to_owned(), vec![0; size])].into());
    assert_eq!(
        (secret(131_071), secret(131_072)),
        (vec![], vec!["secret_data".to_owned()])
    );
    let keys = |count| faults(|request| request.secret_data = (0..count).map(|n| (n.to_string(), vec![])).collect());
    assert_eq!((keys(64), keys(65)), (vec![], vec!["secret_data".to_owned()]));
    // {"a":"…"} is 8 bytes longer than the text.
    let text = |size: usize| prost_types::value::Kind::StringValue("s".repeat(size - 8));
    let spec = |size| class_faults(|class| class.provider_spec = spec_of(text(size)));
    assert_eq!(
        (spec(262_144), spec(262_145)),
        (vec![], vec!["machine_class.provider_spec".to_owned()])
    );
}

#[test]
fn tags_have_their_own_rules() {
    let tag = |key: &str, value: &str| faults(|request| request.tags = [(key.to_owned(), value.to_owned())].into());
    assert!(tag(&"k".repeat(63), &"v".repeat(63)).is_empty());
    assert_eq!(tag("Key", "v"), ["tags.Key"]);
    assert_eq!(tag("k", &"v".repeat(64)), ["tags.k"]);
    let many = |count| faults(|request| request.tags = (0..count).map(|n| (format!("k{n}"), String::new())).collect());
    assert_eq!((many(16), many(17)), (vec![], vec!["tags".to_owned()]));
}

#[test]
fn a_class_of_another_driver_is_refused() {
    assert_eq!(
        class_faults(|class| class.provider = "aws".into()),
        ["machine_class.provider"]
    );
}

#[test]
fn a_number_that_json_cannot_say_is_refused() {
    let spec = spec_of(prost_types::value::Kind::NumberValue(f64::NAN));
    assert_eq!(
        class_faults(|class| class.provider_spec = spec),
        ["machine_class.provider_spec"]
    );
}

#[test]
fn a_deletion_needs_a_uid_or_a_provider_id() {
    let request = |uid: &str, provider_id: &str| v1::DeleteMachineRequest {
        key: Some(v1::MachineKey {
            uid: uid.into(),
            ..good_key()
        }),
        machine_class: Some(good_class()),
        provider_id: provider_id.into(),
        ..Default::default()
    };
    let named = |uid, id| fields(Validator::new("virtual").delete_machine(&request(uid, id)));
    assert_eq!(named("", ""), ["key.uid"]);
    assert!(named("", "virtual:///x").is_empty());
    assert!(named(&good_key().uid, "").is_empty());
}

#[test]
fn a_list_refuses_a_negative_page_and_a_missing_cluster() {
    let request = v1::ListMachinesRequest {
        machine_class: Some(good_class()),
        page_size: -1,
        ..Default::default()
    };
    assert_eq!(
        fields(Validator::new("virtual").list_machines(&request)),
        ["cluster_id", "page_size"]
    );
}

#[test]
fn no_value_is_repeated_in_the_answer() {
    let mut request = good_create();
    request.secret_data = [("k".to_owned(), b"canary".repeat(50_000))].into();
    request.user_data = b"canary".repeat(50_000);
    request.last_known_state = "canary".repeat(1000);
    let error = Validator::new("virtual")
        .create_machine(&request)
        .expect_err("all three are too long");
    assert!(!format!("{error:?} {error}").contains("canary"));
}

fn map(entries: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    entries.into_iter().collect()
}

#[test]
fn labels_are_those_that_kubernetes_allows() {
    let label = |key: &str, value: &str| {
        let labels = map([(key.to_owned(), value.to_owned())]);
        let of_class = class_faults(|class| class.labels = labels.clone());
        let of_node = faults(|request| request.node_labels = labels);
        assert_eq!(of_class.is_empty(), of_node.is_empty(), "{key}={value}");
        of_class.is_empty()
    };
    let bad_keys = [
        "",
        "/a",
        "a/",
        "a/b/c",
        "A.io/a",
        "-a",
        "a b",
        &"k".repeat(64),
        &format!("{}/a", "p".repeat(254)),
    ];
    for key in bad_keys {
        assert!(!label(key, "v"), "{key}");
    }
    for value in ["-v", "v.", "a/b", &"v".repeat(64)] {
        assert!(!label("k", value), "{value}");
    }
    for (key, value) in [("a.io/K_1", ""), ("k", "V.1_x-2"), (&"k".repeat(63), &"v".repeat(63))] {
        assert!(label(key, value), "{key}={value}");
    }
}

#[test]
fn keys_of_annotations_are_compared_in_lower_case_as_kubernetes_does() {
    let told =
        |key: &str| faults(|request| request.node_annotations = map([(key.to_owned(), "Free / Text".to_owned())]));
    for key in ["A.io/a", "Example.COM/Some_Key", "K"] {
        assert!(told(key).is_empty(), "{key}");
    }
    for key in ["A_b.io/a", "-A.io/a", "A.io/", "A b"] {
        assert_eq!(told(key), ["node_annotations"], "{key}");
    }
    let label = faults(|request| request.node_labels = map([("A.io/a".to_owned(), "v".to_owned())]));
    assert_eq!(label, ["node_labels"]);
}

#[test]
fn labels_and_annotations_of_a_node_have_one_limit_together() {
    let told = |size: usize| {
        faults(|request| {
            request.node_labels = map([("l".to_owned(), "v".to_owned())]);
            request.node_annotations = map([("a".to_owned(), "v".repeat(size - 3))]);
        })
    };
    assert_eq!(told(262_145), ["node_annotations"]);
    assert!(told(262_144).is_empty());
    let bad_key = faults(|request| request.node_annotations = map([("a b".to_owned(), "free / text".to_owned())]));
    assert_eq!(bad_key, ["node_annotations"]);
}

#[test]
fn a_class_has_at_most_16_older_marks_in_the_providers_own_spelling() {
    let marks = |count: usize| map((0..count).map(|n| (format!("Mark {n}/é"), "any thing".to_owned())));
    let told = |marks| class_faults(|class| class.legacy_marks = marks);
    assert_eq!(told(marks(17)), ["machine_class.legacy_marks"]);
    assert!(told(marks(16)).is_empty());
    assert_eq!(
        told(map([(String::new(), "v".to_owned())])),
        ["machine_class.legacy_marks"]
    );
    assert_eq!(
        told(map([("k".to_owned(), "v".repeat(257))])),
        ["machine_class.legacy_marks"]
    );
}

#[test]
fn a_locator_has_4_kib_and_makes_the_spec_optional() {
    let text = |size: usize| prost_types::value::Kind::StringValue("s".repeat(size - 8));
    let located = |size| class_faults(|class| class.locator = spec_of(text(size)));
    assert_eq!(located(4097), ["machine_class.locator"]);
    assert!(located(4096).is_empty());
    let alone = class_faults(|class| {
        class.locator = spec_of(text(20));
        class.provider_spec = None;
    });
    assert!(alone.is_empty());
}

#[test]
fn a_node_template_of_a_class_is_held_to_the_sizes_of_the_contract() {
    let told = |change: fn(&mut v1::NodeTemplate)| {
        let mut template = v1::NodeTemplate::default();
        change(&mut template);
        class_faults(|class| class.node_template = Some(template))
    };
    assert_eq!(
        told(|it| it.instance_type = "t".repeat(257)),
        ["machine_class.node_template.instance_type"]
    );
    assert_eq!(
        told(|it| it.labels = map([("a b".to_owned(), String::new())])),
        ["machine_class.node_template.labels"]
    );
    assert_eq!(
        told(|it| it.capacity = map((0..65).map(|n| (n.to_string(), "1".to_owned())))),
        ["machine_class.node_template.capacity"]
    );
    assert!(told(|it| it.capacity = map([("memory".to_owned(), "16Gi".to_owned())])).is_empty());
}

#[test]
fn a_digest_is_a_sha_256_in_hex_or_unknown() {
    let told = |digest: String| faults(|request| request.spec_digest = digest);
    for bad in ["abc".to_owned(), "AB".repeat(32), "ab".repeat(31), "zz".repeat(32)] {
        assert_eq!(told(bad), ["spec_digest"]);
    }
    assert!(told(String::new()).is_empty());
}
