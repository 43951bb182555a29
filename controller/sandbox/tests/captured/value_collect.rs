//! What happens to dependents after their owners, round by round.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::request::{Http, Request};
use serde_json::{Value, json};

fn moment(number: u32) -> Moment {
    Moment {
        now: "2026-11-21T12:00:00Z".parse().unwrap(),
        uid: format!("00000000-0000-0000-0002-{number:012}"),
        suffix: format!("{number:05}"),
    }
}

fn ask(api: &mut Api, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let number = u32::try_from(api.version()).unwrap() + 100;
    let http = Http {
        method,
        path,
        query,
        body: body.as_bytes(),
        ..Http::default()
    };
    match api.handle(&Request::parse(&http).unwrap(), &moment(number)) {
        Answer::Object { code, body, .. } => (code, Value::clone(&body)),
        Answer::List(listing) => (200, listing.to_value()),
        other => panic!("no object: {other:?}"),
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An owner and a dependent that blocks its deletion.
fn family() -> Api {
    let mut api = Api::new("2026-11-21T12:00:00Z".parse().unwrap());
    let (_, owner) = ask(&mut api, "POST", MAPS, &json!({ "metadata": { "name": "owner" } }));
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    });
    ask(
        &mut api,
        "POST",
        MAPS,
        &json!({ "metadata": { "name": "child", "ownerReferences": [reference] } }),
    );
    api
}

fn settle(api: &mut Api) {
    let rounds = (0..20)
        .take_while(|round| api.collect(&moment(*round)).unwrap() > 0)
        .count();
    assert!(rounds < 20, "collection comes to rest");
}

fn is_there(api: &mut Api, name: &str) -> bool {
    ask(api, "GET", &format!("{MAPS}/{name}"), &Value::Null).0 == 200
}

#[test]
fn dependents_follow_an_owner_that_went_in_the_background() {
    let mut api = family();
    ask(&mut api, "DELETE", &format!("{MAPS}/owner"), &Value::Null);
    assert!(!is_there(&mut api, "owner") && is_there(&mut api, "child"));
    settle(&mut api);
    assert!(!is_there(&mut api, "child"));
}

#[test]
fn an_owner_deleted_in_the_foreground_goes_after_its_dependents() {
    let mut api = family();
    ask(
        &mut api,
        "DELETE",
        &format!("{MAPS}/owner?propagationPolicy=Foreground"),
        &Value::Null,
    );
    assert!(is_there(&mut api, "owner"));
    settle(&mut api);
    assert!(!is_there(&mut api, "child") && !is_there(&mut api, "owner"));
}

#[test]
fn orphans_stay_and_forget_their_owner() {
    let mut api = family();
    ask(
        &mut api,
        "DELETE",
        &format!("{MAPS}/owner?propagationPolicy=Orphan"),
        &Value::Null,
    );
    settle(&mut api);
    let (code, child) = ask(&mut api, "GET", &format!("{MAPS}/child"), &Value::Null);
    assert_eq!((code, &child["metadata"]["ownerReferences"]), (200, &Value::Null));
    assert!(!is_there(&mut api, "owner"));
}

#[test]
fn a_namespace_goes_after_what_is_in_it() {
    let mut api = family();
    ask(&mut api, "DELETE", "/api/v1/namespaces/default", &Value::Null);
    let (code, refused) = ask(&mut api, "POST", MAPS, &json!({ "metadata": { "name": "late" } }));
    assert_eq!((code, refused["reason"].as_str()), (403, Some("Forbidden")));
    settle(&mut api);
    assert_eq!(ask(&mut api, "GET", "/api/v1/namespaces/default", &Value::Null).0, 404);
}

#[test]
fn a_dependent_of_nobody_left_alone_is_not_touched() {
    let mut api = family();
    assert_eq!(api.collect(&moment(1)).unwrap(), 0);
}

#[test]
fn a_page_and_a_watch_of_forgotten_history_are_refused_with_410() {
    let mut api = family();
    let (_, page) = ask(&mut api, "GET", &format!("{MAPS}?limit=1"), &Value::Null);
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    ask(&mut api, "DELETE", &format!("{MAPS}/owner"), &Value::Null);
    let (code, rest) = ask(
        &mut api,
        "GET",
        &format!("{MAPS}?limit=1&continue={token}"),
        &Value::Null,
    );
    assert_eq!(
        (code, rest["items"][0]["metadata"]["name"].as_str()),
        (200, Some("owner")),
        "a page shows its version"
    );
    api.compact(api.version());
    assert_eq!(
        ask(
            &mut api,
            "GET",
            &format!("{MAPS}?limit=1&continue={token}"),
            &Value::Null
        )
        .0,
        410
    );
}

#[test]
fn a_change_that_touches_no_deletion_and_no_owner_asks_for_no_round() {
    let mut api = family();
    while api.collect(&moment(1)).unwrap() > 0 {}
    let settled = api.version();
    let map = json!({ "metadata": { "name": "other" }, "data": { "a": "b" } });
    ask(&mut api, "POST", MAPS, &map);
    assert!(!api.may_be_due_since(settled));
    ask(&mut api, "DELETE", &format!("{MAPS}/owner"), &Value::Null);
    assert!(api.may_be_due_since(settled));
    let settled = api.version();
    api.compact(settled);
    assert!(
        api.may_be_due_since(settled - 1),
        "what is forgotten may have been of interest"
    );
}
