//! Operation: start, stop, limits, log, metrics.

use std::{sync::Arc, time::Duration};

use larder_proxy::{AccessLogTarget, Outcome, Proxy, ProxyConfig, Shortage};
use larder_store::{Store, StoreOptions};

use crate::support::{Ailing, Ailment, Connection, Fixture, Gate, Origin, Reply, eventually};

#[test]
fn shutdown_lets_exchanges_finish_and_closes_idle_connections() {
    let (fixture, gate) = Fixture::held_halfway();
    let mut idle = fixture.connect();
    let mut busy = fixture.connect();
    busy.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    let mut response = busy.read_head();
    let Fixture { proxy, origin, .. } = fixture;
    let address = proxy.local_addrs()[0];
    let stopping = std::thread::spawn(move || proxy.shutdown(Duration::from_secs(30)));
    assert!(idle.is_closed());
    eventually("nobody listens any more", || std::net::TcpStream::connect(address).is_err());
    gate.open();
    busy.read_body("GET", &mut response);
    assert_eq!((response.text().as_str(), response.complete), ("0123456789", true));
    stopping.join().unwrap();
    assert_eq!(origin.count(), 1);
}

#[test]
fn shutdown_does_not_wait_longer_than_told() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| {
        Reply::head("200 OK", &["Cache-Control: max-age=60", "Content-Length: 10"]).send("01234").wait(&held)
    });
    let mut busy = fixture.connect();
    busy.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    busy.read_head();
    // Read before the shutdown, which does not wait for what is on its way.
    assert_eq!(busy.read_exact(5), b"01234");
    let Fixture { proxy, .. } = fixture;
    proxy.shutdown(Duration::ZERO);
    assert!(busy.is_closed());
    gate.open();
}

#[test]
fn log_has_a_line_for_each_exchange() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let target = AccessLogTarget::File(path.clone());
    let fixture = Fixture::with(
        |_, _| {
            Reply::ok(&["Cache-Control: max-age=60", "Content-Type: text/plain; charset=utf-8", "ETag: \"1\""], "hello")
        },
        |config| config.access_log = Some(target),
    );
    fixture.get("/a", &[]);
    fixture.get_hit("/a", &[]);
    fixture.get("/a", &["If-None-Match: \"1\""]);
    fixture.get("/loop", &["CDN-Loop: larder"]);
    let Fixture { proxy, .. } = fixture;
    proxy.shutdown(Duration::from_secs(30));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.iter().all(|line| line.len() == 10), "{text}");
    let has = |code: &str, rest: &[&str]| lines.iter().any(|line| line[3] == code && line[5..] == *rest);
    assert!(
        has("TCP_MISS/200", &["GET", "http://site.example/a", "-", "HIER_DIRECT/127.0.0.1", "text/plain"]),
        "{text}"
    );
    assert!(has("TCP_IMS_HIT/304", &["GET", "http://site.example/a", "-", "HIER_NONE/-", "-"]), "{text}");
    assert!(has("TCP_DENIED/508", &["GET", "http://site.example/loop", "-", "HIER_NONE/-", "text/plain"]), "{text}");
}

#[test]
fn figures_are_shown_on_the_admin_listener() {
    let fixture = Fixture::with(
        |_, _| Reply::ok(&["Cache-Control: max-age=60"], "hello"),
        |config| config.admin = Some("127.0.0.1:0".parse().unwrap()),
    );
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    assert_eq!(admin.request("GET", "/healthz", &[]).text(), "ok\n");
    assert_eq!(admin.request("GET", "/readyz", &[]).text(), "ok\n");
    let plain = admin.request("GET", "/metrics", &[]);
    assert_eq!(plain.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let plain = plain.text();
    assert!(plain.contains("\n# TYPE larder_hits_total counter\n") && !plain.contains("# EOF"), "{plain}");
    assert!(plain.contains("\nlarder_build_info{version=\""), "{plain}");
    let page = admin.request("GET", "/metrics", &["Accept: application/openmetrics-text"]).text();
    for line in [
        "larder_requests_total{outcome=\"TCP_MISS\"} 1",
        "larder_origin_requests_total 1",
        "larder_store_commits_total 1",
        "larder_flights_total 1",
    ] {
        assert!(page.lines().any(|known| known == line), "no {line} in {page}");
    }
    let figure = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).trim().parse::<u64>().unwrap()
    };
    let parts = ["index", "dirty", "hot", "windows", "connections", "popular", "other"];
    let parts: u64 = parts.map(|part| figure(&format!("larder_memory_bytes{{part=\"{part}\"}}"))).iter().sum();
    assert_eq!(parts, figure("larder_resident_bytes"), "the parts add up to what the process has");
    assert!(page.ends_with("# EOF\n"));
    assert_eq!(admin.request("GET", "/other", &[]).status, 404);
}

#[test]
fn head_that_is_too_long_is_refused() {
    let fixture = Fixture::new(|_, _| Reply::ok(&[], "x"));
    let mut connection = fixture.connect();
    connection.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(70_000)));
    assert_eq!(connection.read_head().status, 431);
    let many = "X-Many: 1\r\n".repeat(450);
    let mut connection = fixture.connect();
    connection.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"));
    assert_eq!(connection.read_head().status, 431);
}

#[test]
fn head_that_never_ends_and_idle_connections_are_closed() {
    let fixture = Fixture::with(
        |_, _| Reply::ok(&[], "x"),
        |config| (config.limits.header, config.limits.idle) = (Duration::ZERO, Duration::ZERO),
    );
    let mut slow = fixture.connect();
    slow.send("GET / HTTP/1.1\r\nHos");
    assert!(slow.is_closed());
    assert!(fixture.connect().is_closed());
}

#[test]
fn silent_origin_is_given_up() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::with(
        move |_, _| Reply::default().wait(&held),
        |config| config.policy.limits.origin_response = Duration::ZERO,
    );
    assert_eq!(fixture.get("/", &[]).status, 504);
    gate.open();
}

#[test]
fn connections_beyond_the_limit_are_closed_while_all_others_wait_for_their_origin() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::with(
        move |_, _| Reply::default().wait(&held).send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
        |config| config.limits.connection_count_max = 2,
    );
    let mut kept: Vec<_> = (0..2).map(|_| fixture.connect()).collect();
    for (number, connection) in kept.iter_mut().enumerate() {
        connection.send(format!("GET /{number} HTTP/1.1\r\nHost: site.example\r\n\r\n"));
    }
    eventually("both wait", || fixture.origin.count() == 2);
    let mut beyond = fixture.connect();
    let told = beyond.read_response("GET");
    assert_eq!((told.status, told.field("retry-after"), told.complete), (503, Some("5"), true));
    assert!(beyond.is_closed());
    gate.open();
    for connection in &mut kept {
        assert_eq!(connection.read_response("GET").status, 200);
    }
}

#[test]
fn client_that_has_waited_longest_for_nothing_gives_way_to_another() {
    let fixture = Fixture::with(
        |_, _| Reply::ok(&[], "x"),
        |config| (config.worker_count, config.limits.connection_count_max) = (1, 2),
    );
    let mut longest = fixture.connect();
    longest.send("GET / HTTP/1.1\r\nHos");
    eventually("it is accepted", || fixture.proxy.stats().connections_open == 1);
    let mut others = Vec::new();
    for _ in 0..3 {
        let mut other = fixture.connect();
        assert_eq!(other.request("GET", "/", &[]).status, 200);
        others.push(other);
    }
    assert!(longest.is_closed());
    assert_eq!(others[2].request("GET", "/", &[]).status, 200);
    eventually("two are left", || fixture.proxy.stats().connections_open == 2);
    assert_eq!(fixture.proxy.stats().refused, [0; Shortage::ALL.len()]);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let fixture = Fixture::new(|received, _| Reply::ok(&["Cache-Control: max-age=60"], &received.target));
    let mut connection = fixture.connect();
    let requests: String = (0..10).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    connection.send(requests);
    for number in 0..10 {
        assert_eq!(connection.read_response("GET").text(), format!("/{number}"));
    }
}

#[test]
fn request_that_waits_behind_a_long_response_does_not_pile_it_up() {
    // The client reads nothing until the origin has been blocked. If the proxy collected the body in memory, that would
    // never happen.
    let len = 200 << 20;
    let fixture = Fixture::with(
        move |_, number| match number {
            0 => {
                let head = Reply::head("200 OK", &["Cache-Control: no-store", &format!("Content-Length: {len}")]);
                (0..200).fold(head, |reply, _| reply.send(vec![b'x'; 1 << 20]))
            }
            _ => Reply::ok(&["Cache-Control: no-store"], "second"),
        },
        |config| config.worker_count = 1,
    );
    let mut connection = fixture.connect();
    connection.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connection.read_head().status, 200);
    // While the client reads nothing, the proxy can have fetched only what sockets and windows hold.
    let mut last = fixture.proxy.stats().origin_bytes;
    let mut same = 0;
    eventually("the origin is held up", || {
        let now = fixture.proxy.stats().origin_bytes;
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same > 200
    });
    assert!(last < 100 << 20, "{last} bytes were fetched for a client that does not read");
    assert!(connection.read_exact(len).iter().all(|byte| *byte == b'x'));
    assert_eq!(connection.read_response("GET").text(), "second");
}

#[test]
fn address_in_use_and_bad_options_are_errors_at_start() {
    let fixture = Fixture::new(|_, _| Reply::default());
    let config = ProxyConfig {
        listeners: fixture.proxy.local_addrs().iter().copied().map(Into::into).collect(),
        ..ProxyConfig::default()
    };
    let error = Proxy::start(config, None).err().expect("the address is taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let config = ProxyConfig { worker_count: 0, ..ProxyConfig::default() };
    assert_eq!(Proxy::start(config, None).err().map(|error| error.kind()), Some(std::io::ErrorKind::InvalidInput));
}

#[test]
fn outcomes_are_counted() {
    let fixture = Fixture::new(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"));
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    let before = fixture.proxy.stats();
    fixture.get("/", &[]);
    eventually("the hit is counted", || {
        fixture.proxy.stats().outcome(Outcome::MemoryHit) == before.outcome(Outcome::MemoryHit) + 1
    });
    assert_eq!(fixture.proxy.stats().outcome(Outcome::Miss), 1);
    assert_eq!(fixture.proxy.stats().memory_cache_entries, 1);
}

#[test]
fn operator_is_told_what_a_request_would_come_to_and_why() {
    let fixture = Fixture::with(
        |received, _| match received.target.as_str() {
            "/fresh" => Reply::ok(&["Cache-Control: max-age=60", "Vary: X-Kind"], "hello"),
            _ => Reply::ok(&["Cache-Control: max-age=10", "Age: 20", "ETag: \"v1\""], "stale"),
        },
        |config| config.admin = Some("127.0.0.1:0".parse().unwrap()),
    );
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    let mut explain = |url: &str, fields: &[&str]| {
        let told = admin.request("EXPLAIN", url, fields);
        (told.status, told.text())
    };
    let (status, nothing) = explain("http://site.example/fresh", &[]);
    assert!(status == 200 && nothing.contains("stored   nothing"), "{nothing}");
    fixture.get_hit("/fresh", &["X-Kind: 1"]);
    fixture.get("/stale", &[]);
    let count = fixture.origin.count();
    for (target, fields, lines) in [
        (
            "/fresh",
            &["X-Kind: 1"][..],
            &[
                "key      http://site.example/fresh",
                "in memory: status 200 OK, 5 bytes",
                "varies   x-kind",
                "variant  x-kind: 1",
                "of 60 s (lifetime)",
                "outcome  from the cache (lifetime)",
            ][..],
        ),
        ("/fresh", &["X-Kind: 2"], &["other variants only", "varies   x-kind"]),
        ("/fresh", &["X-Kind: 1", "Cache-Control: no-cache"], &["outcome  fetched again (request-no-cache)"]),
        (
            "/stale",
            &[],
            &[
                "outcome  validated first (expired)",
                "on error the stored response",
                "sends    if-none-match: \"v1\"",
                "age      20 s of 10 s",
            ],
        ),
    ] {
        eventually("it is told", || {
            let (_, told) = explain(&format!("http://site.example{target}"), fields);
            lines.iter().all(|line| told.contains(line))
        });
    }
    assert_eq!(fixture.origin.count(), count, "no origin is contacted");
    for url in ["/a", "ftp://a/", "*"] {
        assert_eq!(explain(url, &[]).0, 400, "{url}");
    }
}

#[test]
fn health_says_when_the_store_is_loaded() {
    let device = Arc::new(Ailing::new(64 << 20));
    let _recovering = device.recovering();
    let open = || Store::open_on(device.clone(), &StoreOptions::new("memory", 64 << 20)).unwrap();
    drop(open());
    device.set(Ailment::HungInside);
    let store = open();
    let mut config = Fixture::config(&Origin::start(|_, _| Reply::default()));
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    let proxy = Proxy::start(config, Some(store.clone())).unwrap();
    let mut admin = Connection::open_admin(proxy.admin_addr().unwrap());
    let loading = admin.request("GET", "/healthz", &[]);
    assert_eq!((loading.status, &*loading.text()), (503, "the store is loading\n"));
    device.set(Ailment::Nothing);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(store.ready());
    let loaded = admin.request("GET", "/healthz", &[]);
    assert_eq!((loaded.status, &*loaded.text()), (200, "ok\n"));
}

#[test]
fn operator_purges_a_url_a_site_or_everything() {
    let fixture = Fixture::with(
        |received, number| {
            Reply::ok(&["Cache-Control: max-age=60", "Vary: X-Kind"], format!("{} {number}", received.target))
        },
        |config| config.admin = Some("127.0.0.1:0".parse().unwrap()),
    );
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    let mut purge = |url: &str, fields: &[&str]| admin.request("PURGE", url, fields).status;
    let mut other = fixture.connect();
    let mut stored = || {
        let mut hits = [("/a", "X-Kind: 1"), ("/a", "X-Kind: 2"), ("/b", "X-Kind: 1")]
            .map(|(target, kind)| fixture.get(target, &[kind]).is_hit())
            .to_vec();
        other.send("GET /a HTTP/1.1\r\nHost: other.example\r\n\r\n");
        hits.push(other.read_response("GET").is_hit());
        hits
    };
    eventually("all is stored", || stored() == [true; 4]);
    assert_eq!(purge("http://site.example/a", &[]), 200);
    assert_eq!(stored(), [false, false, true, true]);
    eventually("all is stored", || stored() == [true; 4]);
    assert_eq!(purge("http://site.example/", &["Purge-Scope: site"]), 200);
    assert_eq!(stored(), [false, false, false, true]);
    eventually("all is stored", || stored() == [true; 4]);
    assert_eq!(purge("http://x/", &["Purge-Scope: all"]), 200);
    assert_eq!(stored(), [false; 4]);
    for (url, scope) in [("/a", "url"), ("/a", "site"), ("ftp://a/", "url"), ("http://site.example/", "page")] {
        assert_eq!(purge(url, &[&format!("Purge-Scope: {scope}")]), 400, "{url} {scope}");
    }
}

#[test]
fn one_client_address_has_no_more_connections_than_its_limit() {
    let fixture =
        Fixture::with(|_, _| Reply::ok(&[], "x"), |config| config.limits.client_connection_count_max = Some(1));
    let mut only = fixture.connect();
    assert_eq!(only.request("GET", "/", &[]).status, 200);
    let mut beyond = fixture.connect();
    assert_eq!(beyond.read_response("GET").status, 503);
    assert_eq!(fixture.proxy.stats().refused[Shortage::ClientConnections as usize], 1);
    assert_eq!(only.request("GET", "/", &[]).status, 200, "its first connection stays");
    drop(only);
    eventually("it may connect again", || {
        let mut next = fixture.connect();
        next.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
        next.try_read_head().is_some_and(|head| head.status == 200)
    });
}

#[test]
fn connections_of_a_trusted_proxy_are_not_those_of_one_client() {
    let fixture = Fixture::with(
        |_, _| Reply::ok(&[], "x"),
        |config| {
            config.limits.client_connection_count_max = Some(1);
            config.fleet.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        },
    );
    let mut connections = [fixture.connect(), fixture.connect()];
    for connection in &mut connections {
        assert_eq!(connection.request("GET", "/", &[]).status, 200);
    }
}

#[test]
fn one_client_address_has_no_more_requests_than_its_limit() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::with(
        move |_, _| Reply::default().wait(&held).send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
        |config| {
            config.limits.client_request_count_max = Some(1);
            config.fleet.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        },
    );
    let request = |target, client| {
        let mut connection = fixture.connect();
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: site.example\r\nX-Forwarded-For: {client}\r\n\r\n"));
        connection
    };
    let mut first = request("/1", "192.0.2.1");
    eventually("it waits", || fixture.origin.count() == 1);
    let told = request("/2", "192.0.2.1").read_response("GET");
    assert_eq!((told.status, told.field("retry-after")), (429, Some("1")));
    let mut other = request("/3", "192.0.2.2");
    eventually("another client's waits too", || fixture.origin.count() == 2);
    assert_eq!(fixture.proxy.stats().refused[Shortage::ClientRequests as usize], 1);
    gate.open();
    assert_eq!((first.read_response("GET").status, other.read_response("GET").status), (200, 200));
    eventually("it may ask again", || request("/4", "192.0.2.1").read_response("GET").status == 200);
}
