//! Drivers that come late, die, are replaced, share a name or are none: what the pool makes of them, over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test says by its panic what went wrong, and waits in real time"
)]

mod stub;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millwright::driver::{DriverState, Endpoint, EndpointState, Endpoints, Health, Pauses};
use millwright_core::driver::Effect;
use millwright_core::ids::DriverName;
use stub::{Act, Desk, Stub, endpoint, pauses, run_server, target, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_comes_late_is_found_and_its_machines_are_woken() {
    let directory = directory();
    let socket = directory.path().join("x.sock");
    let mut desk = Desk::at(&[&socket]);
    until("asked once", || {
        desk.health(&endpoint(&socket)).contains("No such file").then_some(())
    })
    .await;
    let DriverState::Missing { why } = desk.pool.get(&DriverName::new("x")) else {
        panic!("nobody has shown himself")
    };
    assert!(
        why.contains("no driver calls itself x") && why.contains(&socket.display().to_string()),
        "{why}"
    );

    let stub = Stub::named("x");
    let _running = stub.serve(&socket);
    assert_eq!(desk.change().await, "x");
    assert_eq!(desk.ready("x").await.info().vendor_version, "1");
    let heard = stub.heard.lock().unwrap().infos[0].clone();
    assert_eq!(
        (heard.manager_name.as_str(), heard.manager_capabilities[0]),
        ("millwright", 1)
    );
    let other = desk.pool.get(&DriverName::new("y"));
    assert!(matches!(other, DriverState::Missing { .. }), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_dies_is_away_at_the_next_call_and_back_when_it_is_back() {
    let directory = directory();
    let socket = directory.path().join("x.sock");
    let running = Stub::named("x").serve(&socket);
    let mut desk = Desk::at(&[&socket]);
    assert_eq!(desk.change().await, "x");
    let driver = desk.ready("x").await;

    running.kill();
    let failure = driver.get_machine_status(&target()).await.expect_err("it is dead");
    assert_eq!((failure.reason, failure.effect), (None, Effect::Unknown));
    // The next regular handshake would be in 60 s: it is the failed call that made the pool look.
    assert_eq!(desk.change().await, "x");
    assert!(
        desk.away("x").await.contains("x.sock is away"),
        "{:?}",
        desk.pool.states()
    );

    let _running = Stub::named("x")
        .with(|script| script.info.vendor_version = "2".into())
        .serve(&socket);
    assert_eq!(desk.change().await, "x");
    let after = desk.ready("x").await;
    assert_eq!(after.info().vendor_version, "2");
    assert!(
        after
            .get_machine_status(&target())
            .await
            .is_err_and(|failure| failure.code.word() == "Unimplemented")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_was_replaced_without_a_lost_call_is_noticed() {
    let directory = directory();
    let socket = directory.path().join("x.sock");
    let stub = Stub::named("x");
    let _running = stub.serve(&socket);
    let pauses = Pauses {
        ready: Duration::from_millis(50),
        ..pauses()
    };
    let mut desk = Desk::new(Endpoints::listed([endpoint(&socket)]), pauses);
    assert_eq!(desk.change().await, "x");
    let before = desk.ready("x").await;
    assert!(before.info().capabilities.is_empty());

    stub.set(|script| {
        script.info.vendor_version = "2".into();
        script.info.capabilities = vec![5];
    });
    assert_eq!(desk.change().await, "x");
    let after = desk.ready("x").await;
    assert_eq!(
        (after.info().vendor_version.as_str(), after.info().capabilities.len()),
        ("2", 1)
    );
    // Handshakes that bring nothing new wake nobody.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(desk.changes.try_recv().is_err());
}

/// Rows: D5.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_begins_anew_between_two_calls_is_noticed_at_once() {
    let directory = directory();
    let socket = directory.path().join("x.sock");
    let running = Stub::named("x").serve(&socket);
    let mut desk = Desk::at(&[&socket]);
    assert_eq!(desk.change().await, "x");
    let before = desk.ready("x").await;
    tokio::time::sleep(2 * pauses().lasting).await;
    // The next regular handshake would be in 60 s.
    running.kill();
    std::fs::remove_file(&socket).ok();
    let _running = Stub::named("x").serve(&socket);
    assert_eq!(desk.change().await, "x");
    let after = desk.ready("x").await;
    assert!(!Arc::ptr_eq(&before, &after), "it is another process");
}

/// Rows: O6.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_drivers_of_one_name_neither_is_used_until_the_one_that_was_never_used_ends() {
    let directory = directory();
    let (first, second) = (directory.path().join("z.sock"), directory.path().join("a.sock"));
    let slower = |script: &mut stub::Script| {
        script.info.vendor_version = "first".into();
        script.on_info = Act::Late(Duration::from_millis(100));
    };
    let _running = Stub::named("x").with(slower).serve(&first);
    let other = Stub::named("x")
        .with(|script| script.info.vendor_version = "second".into())
        .serve(&second);
    let desk = Desk::at(&[&first, &second]);

    desk.away("x").await;
    for (socket, rival) in [(&first, "a.sock"), (&second, "z.sock")] {
        let words = format!("{rival}; of two drivers with one name neither is used");
        until("both are refused", || {
            desk.health(&endpoint(socket)).contains(&words).then_some(())
        })
        .await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    desk.away("x").await;
    let not_all = not_all(&desk);
    assert!(not_all.contains("z.sock") && not_all.contains("a.sock"), "{not_all}");

    other.kill();
    assert_eq!(desk.ready("x").await.info().vendor_version, "first");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_listed_drivers_of_one_name_one_is_used_once_the_others_socket_is_gone() {
    let directory = directory();
    let (first, second) = (directory.path().join("a.sock"), directory.path().join("b.sock"));
    let running = Stub::named("x").serve(&first);
    let _other = Stub::named("x")
        .with(|script| script.info.vendor_version = "second".into())
        .serve(&second);
    let desk = Desk::at(&[&first, &second]);
    desk.away("x").await;
    running.kill();
    std::fs::remove_file(&first).unwrap();
    assert_eq!(desk.ready("x").await.info().vendor_version, "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_drivers_stand_behind_one_pool_each_by_its_name() {
    let directory = directory();
    let (x, y) = (directory.path().join("1.sock"), directory.path().join("2.sock"));
    let (stub_x, stub_y) = (Stub::named("x"), Stub::named("y"));
    let _running = (stub_x.serve(&x), stub_y.serve(&y));
    let desk = Desk::at(&[&x, &y]);
    let scope = target();
    desk.ready("x")
        .await
        .get_machine_status(&scope)
        .await
        .expect_err("the stub has no such call");
    desk.ready("y").await;
    let lines = desk.recorder.0.lock().unwrap().clone();
    assert_eq!(lines, [("x".to_owned(), "GetMachineStatus", "Unimplemented", "")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_does_not_answer_delays_no_other() {
    let directory = directory();
    let (slow, quick) = (directory.path().join("a.sock"), directory.path().join("b.sock"));
    let _slow = Stub::named("slow")
        .with(|script| script.on_info = Act::Hang)
        .serve(&slow);
    let _quick = Stub::named("quick").serve(&quick);
    let begun = Instant::now();
    let pauses = Pauses {
        handshake: Duration::from_secs(2),
        first: Duration::from_millis(200),
        ..pauses()
    };
    let desk = Desk::new(Endpoints::listed([endpoint(&slow), endpoint(&quick)]), pauses);
    desk.ready("quick").await;
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    until("the slow one is told", || {
        desk.health(&endpoint(&slow))
            .contains("no answer to GetDriverInfo within 2s")
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_late_answer_does_not_take_a_driver_away_and_two_do() {
    let directory = directory();
    let socket = directory.path().join("x.sock");
    let stub = Stub::named("x");
    let _running = stub.serve(&socket);
    let pauses = Pauses {
        handshake: Duration::from_millis(700),
        ready: Duration::from_millis(50),
        ..pauses()
    };
    let mut desk = Desk::new(Endpoints::listed([endpoint(&socket)]), pauses);
    assert_eq!(desk.change().await, "x");
    stub.set(|script| script.on_info = Act::Hang);
    let begun = Instant::now();
    assert_eq!(desk.change().await, "x");
    assert!(begun.elapsed() > Duration::from_millis(1300), "{:?}", begun.elapsed());
    assert!(desk.away("x").await.contains("no answer to GetDriverInfo within 700ms"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_of_an_unusable_name_is_refused_with_its_name() {
    let directory = directory();
    let socket = directory.path().join("x.sock");
    let _running = Stub::named("two words").serve(&socket);
    let desk = Desk::at(&[&socket]);
    until("refused", || {
        desk.health(&endpoint(&socket))
            .contains(r#"it calls itself "two words""#)
            .then_some(())
    })
    .await;
}

/// Waits until the endpoint is called wrong.
async fn wrong(desk: &Desk, endpoint: &Endpoint) -> String {
    until("wrong", || {
        let states = desk.pool.states();
        let state = states.iter().find(|state| state.endpoint == *endpoint)?;
        if let Health::Wrong { why } = &state.health {
            Some(why.clone())
        } else {
            None
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grpc_server_of_another_service_is_told_as_such() {
    let directory = directory();
    let socket = directory.path().join("x.sock");
    let path = socket.clone();
    let _running = run_server(move || {
        let listener = tokio::net::UnixListener::bind(path).unwrap();
        let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
        async move {
            let (_, health) = tonic_health::server::health_reporter();
            tonic::transport::Server::builder()
                .add_service(health)
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        }
    });
    let desk = Desk::at(&[&socket]);
    let why = wrong(&desk, &endpoint(&socket)).await;
    assert!(why.contains("does not serve machine.driver.v1.DriverService"), "{why}");
}

/// A port that sends `greeting` to whoever says something, and hangs up.
fn talker(greeting: &'static [u8]) -> (stub::Running, Endpoint) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let running = run_server(move || {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(greeting).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    (running, format!("tcp://127.0.0.1:{port}").parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_protocol_is_told_as_such() {
    let http1 = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for greeting in [&http1[..], b"SSH-2.0-OpenSSH_9.6\r\n"] {
        let (_running, endpoint) = talker(greeting);
        let desk = Desk::new(Endpoints::listed([endpoint.clone()]), pauses());
        let why = wrong(&desk, &endpoint).await;
        assert!(why.contains("does not speak gRPC"), "{why}");
    }
}

/// A TLS server answers plain text with an alert and hangs up; a crashing driver looks the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_is_away_and_asked_again() {
    for greeting in [&b"\x15\x03\x01\x00\x02\x02\x46"[..], b""] {
        let (_running, endpoint) = talker(greeting);
        let desk = Desk::new(Endpoints::listed([endpoint.clone()]), pauses());
        until("hung up", || {
            desk.health(&endpoint).starts_with("hung up when asked").then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_refuses_to_say_who_it_is_is_told_with_its_own_words() {
    let directory = directory();
    let socket = directory.path().join("x.sock");
    let refusal = Act::Fail(tonic::Status::permission_denied("peer uid 1000 is not allowed"));
    let _running = Stub::named("x").with(|script| script.on_info = refusal).serve(&socket);
    let desk = Desk::at(&[&socket]);
    let why = wrong(&desk, &endpoint(&socket)).await;
    assert_eq!(
        why,
        "GetDriverInfo failed with PermissionDenied: peer uid 1000 is not allowed"
    );
}

/// A pool over a directory, with these pauses.
fn over(directory: &Path, pauses: Pauses) -> Desk {
    Desk::new(Endpoints::Directory(directory.to_owned()), pauses)
}

/// Waits until every driver is known and can be asked; their names.
async fn every(desk: &Desk) -> Vec<String> {
    until("every driver can be asked", || {
        let states = desk.pool.states();
        let are_ready = !states.is_empty() && states.iter().all(EndpointState::is_ready);
        let names = states.iter().filter_map(|state| state.name.as_ref());
        are_ready.then(|| names.map(ToString::to_string).collect())
    })
    .await
}

/// Why not every driver can be asked.
fn not_all(desk: &Desk) -> String {
    let states = desk.pool.states();
    let away = states.iter().filter(|state| !state.is_ready());
    let away: String = away
        .map(|state| format!("{}: {}; ", state.endpoint, state.health))
        .collect();
    format!("{away}{}", desk.pool.get(&DriverName::new("nobody")))
}

/// Long enough for several looks into the directory.
async fn looks() {
    tokio::time::sleep(Duration::from_millis(600)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_of_a_directory_are_found_when_they_come() {
    let directory = directory();
    let drivers = directory.path().join("drivers");
    let mut desk = over(&drivers, pauses());
    std::fs::create_dir(&drivers).unwrap();
    let _x = Stub::named("x").serve(&drivers.join("x.sock"));
    assert_eq!(desk.change().await, "x");
    let _y = Stub::named("y").serve(&drivers.join("y.sock"));
    assert_eq!(desk.change().await, "y");
    assert_eq!(every(&desk).await, ["x", "y"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_whose_socket_goes_is_away_and_counts_until_it_is_back() {
    let directory = directory();
    let (x, y) = (directory.path().join("x.sock"), directory.path().join("y.sock"));
    let running = Stub::named("x").serve(&x);
    let _other = Stub::named("y").serve(&y);
    let desk = over(directory.path(), pauses());
    assert_eq!(every(&desk).await, ["x", "y"]);
    let since = desk.pool.ready_since(&DriverName::new("x"));
    assert!(since.is_some());

    let driver = desk.ready("x").await;
    running.kill();
    std::fs::remove_file(&x).unwrap();
    let _ = driver.get_machine_status(&target()).await;
    desk.away("x").await;
    looks().await;
    desk.away("x").await;
    desk.ready("y").await;
    let why = not_all(&desk);
    assert!(why.contains("x.sock"), "{why}");
    assert!(!why.contains("y.sock"), "{why}");
    assert_eq!(desk.pool.ready_since(&DriverName::new("x")), None);

    let _running = Stub::named("x").serve(&x);
    assert_eq!(every(&desk).await, ["x", "y"]);
    assert!(desk.pool.ready_since(&DriverName::new("x")) > since);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_driver_whose_socket_is_gone_is_free_for_another_socket() {
    let directory = directory();
    let (old, new) = (directory.path().join("old.sock"), directory.path().join("new.sock"));
    let running = Stub::named("x").serve(&old);
    let desk = over(directory.path(), pauses());
    desk.ready("x").await;
    running.kill();
    let second = Stub::named("x").with(|script| script.info.vendor_version = "2".into());
    let _second = second.serve(&new);
    until("refused while the first socket lies there", || {
        desk.health(&endpoint(&new)).contains("neither is used").then_some(())
    })
    .await;

    std::fs::remove_file(&old).unwrap();
    until("the second serves the name", || {
        match desk.pool.get(&DriverName::new("x")) {
            DriverState::Ready(driver) => (driver.info().vendor_version == "2").then_some(()),
            DriverState::Away { .. } | DriverState::Missing { .. } => None,
        }
    })
    .await;
    assert_eq!(every(&desk).await, ["x"]);

    let _third = Stub::named("x").serve(&old);
    until("who comes back later is one of two", || {
        desk.health(&endpoint(&old))
            .contains("new.sock; of two drivers")
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_absent_empty_or_cannot_be_read_proves_nothing() {
    let directory = directory();
    let (absent, file) = (directory.path().join("absent"), directory.path().join("file"));
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(&file, b"").unwrap();
    for (place, word) in [
        (&absent, "no driver was found"),
        (&empty, "no driver was found"),
        (&file, "cannot be read"),
    ] {
        let desk = over(place, pauses());
        looks().await;
        assert!(not_all(&desk).contains(word), "{place:?}: {}", not_all(&desk));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_never_told_a_name_is_waited_for_when_it_goes_but_not_for_ever() {
    let directory = directory();
    let _x = Stub::named("x").serve(&directory.path().join("x.sock"));
    let dead = directory.path().join("dead.sock");
    std::fs::write(&dead, b"").unwrap();
    let pauses = Pauses {
        forget: Duration::from_secs(2),
        ..pauses()
    };
    let desk = over(directory.path(), pauses);
    desk.ready("x").await;
    looks().await;
    assert!(not_all(&desk).contains("dead.sock"), "{}", not_all(&desk));
    std::fs::remove_file(&dead).unwrap();
    looks().await;
    assert!(not_all(&desk).contains("dead.sock"), "{}", not_all(&desk));
    assert_eq!(every(&desk).await, ["x"]);
}

/// A replacement at the same path: the old process still holds its connection, its file is another's now.
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_is_unlinked_while_its_driver_answers_keeps_its_driver() {
    let directory = directory();
    let socket: &Path = &directory.path().join("x.sock");
    let _running = Stub::named("x").serve(socket);
    let desk = Desk::new(Endpoints::Directory(directory.path().to_owned()), pauses());
    desk.ready("x").await;
    std::fs::remove_file(socket).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    desk.ready("x").await;
}
