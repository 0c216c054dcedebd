//! A new configuration for a running proxy: what changes, what stays, and that no client is disconnected.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread,
};

use larder_proxy::{AccessLogTarget, Listener, NeedsRestart, Offline, ProxyConfig, ReloadOutcome};

use crate::support::{Connection, Fixture, Gate, Received, Reply, eventually, http2::Http2};

/// Returns a response, fresh for some seconds, that names its request.
fn named(request: &Received, number: usize) -> Reply {
    Reply::ok(&["Cache-Control: max-age=60"], format!("{} {number}", request.target))
}

/// Reloads a fixture's configuration with changes.
fn reload(fixture: &Fixture, change: impl FnOnce(&mut ProxyConfig)) -> io::Result<ReloadOutcome> {
    let mut config = Fixture::config(&fixture.origin);
    change(&mut config);
    fixture.proxy.handle().reload(config)
}

#[test]
fn connection_that_is_open_meets_another_configuration_with_its_next_request() {
    let fixture = Fixture::new(named);
    let mut open = fixture.connect();
    let mut open2 = Http2::plain(fixture.proxy.local_addrs()[0]);
    assert!(!open.request("GET", "/a", &[]).is_hit());
    assert!(open.request("GET", "/a", &[]).is_hit());
    assert!(open2.get("http://site.example/a", &[]).is_hit());
    let reloaded = reload(&fixture, |config| config.add_cache_status = false).unwrap();
    assert_eq!(reloaded.local_addrs, fixture.proxy.local_addrs(), "an address that stays has its port");
    assert_eq!(reloaded.unchanged, []);
    let again = open.request("GET", "/a", &[]);
    assert_eq!(
        (again.text().as_str(), again.field("cache-status")),
        ("/a 0", None),
        "it is from the cache all the same"
    );
    assert_eq!(open2.get("http://site.example/a", &[]).field("cache-status"), None);
    reload(&fixture, |config| config.clients = vec!["192.0.2.0/24".parse().unwrap()]).unwrap();
    assert_eq!(open.request("GET", "/a", &[]).status, 403);
    reload(&fixture, |_| ()).unwrap();
    assert!(fixture.get("/a", &[]).is_hit());
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn changes_under_load_break_no_request_and_no_connection() {
    let fixture = Fixture::with(named, |config| config.worker_count = 2);
    let is_over = AtomicBool::new(false);
    let count = AtomicU32::new(0);
    thread::scope(|scope| {
        for client in 0..4 {
            let fixture = &fixture;
            let is_over = &is_over;
            let count = &count;
            scope.spawn(move || {
                let mut connection = fixture.connect();
                for number in 0.. {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    let target = format!("/{}", (client * 7 + number) % 50);
                    let response = connection.request("GET", &target, &[]);
                    assert!(response.status == 200 && response.text().starts_with(&format!("{target} ")), "{target}");
                    count.fetch_add(1, Relaxed);
                }
            });
        }
        for number in 0.. {
            if number >= 40 && count.load(Relaxed) >= 2000 {
                break;
            }
            reload(&fixture, |config| {
                config.worker_count = 2;
                config.add_via = number % 2 == 0;
                config.hot_bytes = if number % 3 == 0 { 1 << 20 } else { 4 << 20 };
            })
            .unwrap();
        }
        is_over.store(true, Relaxed);
    });
    assert_eq!(fixture.proxy.stats().connections, 4, "each had one connection");
}

#[test]
fn configuration_that_cannot_be_used_changes_nothing() {
    let fixture = Fixture::new(named);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let missing = fixture.state_file("none").join("file");
    let wrong: [fn(&mut ProxyConfig, SocketAddr, PathBuf); 4] = [
        |config, _, missing| config.passwords = Some(missing),
        |config, _, _| config.listeners.clear(),
        |config, address, _| config.listeners.push(Listener::plain(address)),
        |config, _, missing| config.access_log = Some(AccessLogTarget::File(missing)),
    ];
    for change in wrong {
        let refused = reload(&fixture, |config| {
            change(config, taken.local_addr().unwrap(), missing.clone());
            (config.add_cache_status, config.hot_bytes, config.offline) = (false, 1, Offline::On);
        });
        assert!(refused.is_err());
        assert!(fixture.get("/new", &[]).field("cache-status").is_some(), "{refused:?}");
        assert!(fixture.get("/new", &[]).is_hit(), "{refused:?}");
    }
}

#[test]
fn listeners_come_and_go() {
    let fixture = Fixture::new(named);
    let first = fixture.proxy.local_addrs()[0];
    let second = "127.0.0.2:0".parse().unwrap();
    let reloaded = reload(&fixture, |config| config.listeners.push(Listener::plain(second))).unwrap();
    let [kept, added] = reloaded.local_addrs[..] else { panic!("{reloaded:?}") };
    assert_eq!(kept, first);
    let mut late = Connection::open(added);
    assert_eq!(late.request("GET", "/a", &[]).status, 200);
    let reloaded = reload(&fixture, |config| config.listeners = vec![Listener::plain(second)]).unwrap();
    assert_eq!(reloaded.local_addrs, [added]);
    assert_eq!(late.request("GET", "/a", &[]).status, 200);
    assert_eq!(Connection::open(added).request("GET", "/a", &[]).status, 200);
    eventually("the first address is closed", || std::net::TcpStream::connect(first).is_err());
}

#[test]
fn what_was_found_out_and_said_stays() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::with(
        move |request, number| {
            let reply = if request.target == "/slow" { Reply::default().wait(&held) } else { Reply::default() };
            let body = format!("{} {number}", request.target);
            let length = body.len();
            reply
                .send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n{body}"))
        },
        |config| config.admin = Some("127.0.0.1:0".parse().unwrap()),
    );
    let admin = Some("127.0.0.1:0".parse().unwrap());
    let ask = |request: &str| {
        let mut connection = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
        connection.send(format!("{request} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        connection.read_response("GET").text()
    };
    thread::scope(|scope| {
        let slow = scope.spawn(|| fixture.get("/slow", &[]).text());
        eventually("it is with the origin", || fixture.origin.count() == 1);
        // A purge between the fetch and the new configuration: the fetched response is not stored under the new one
        // either.
        ask("PURGE http://site.example/slow");
        reload(&fixture, |config| config.admin = admin).unwrap();
        gate.open();
        assert_eq!(slow.join().unwrap(), "/slow 0");
    });
    assert_eq!(fixture.get("/slow", &[]).text(), "/slow 1");
    assert!(ask("OFFLINE /on").starts_with("on"));
    reload(&fixture, |config| config.admin = admin).unwrap();
    assert!(ask("OFFLINE /status").starts_with("on"), "the operator's word holds");
    assert_eq!(fixture.get("/never-asked-for", &[]).status, 504);
    reload(&fixture, |config| (config.admin, config.offline) = (admin, Offline::Auto)).unwrap();
    assert!(ask("OFFLINE /status").starts_with("auto"), "unless the configuration says something else than before");
    let page = ask("GET /metrics");
    assert!(page.contains("larder_requests_total{outcome=\"TCP_MISS\"}"), "figures go on: {page}");
}

#[test]
fn access_log_goes_where_the_configuration_in_force_says() {
    let fixture = Fixture::new(named);
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    let to = |path: &std::path::Path| Some(AccessLogTarget::File(path.to_owned()));
    let mut open = fixture.connect();
    reload(&fixture, |config| config.access_log = to(&first)).unwrap();
    open.request("GET", "/a", &[]);
    reload(&fixture, |config| config.access_log = to(&second)).unwrap();
    open.request("GET", "/b", &[]);
    let lines = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    eventually("both are written", || lines(&first).contains("/a ") && lines(&second).contains("/b "));
    assert!(!lines(&first).contains("/b ") && !lines(&second).contains("/a "));
}

#[test]
fn what_needs_a_restart_is_told() {
    let fixture = Fixture::with(named, |config| config.hot_bytes = 0);
    let reloaded = reload(&fixture, |config| {
        config.worker_count += 1;
        config.admin = Some("127.0.0.1:0".parse().unwrap());
        config.hot_bytes = 1 << 20;
        config.add_via = false;
    });
    let unchanged = reloaded.unwrap().unchanged;
    assert_eq!(unchanged, [NeedsRestart::WorkerCount, NeedsRestart::Admin, NeedsRestart::HotBytes]);
    assert_eq!(fixture.get("/", &[]).field("via"), None, "the rest is in force");
}
