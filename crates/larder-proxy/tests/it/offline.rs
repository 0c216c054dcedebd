//! Without an uplink to the origins: which requests are answered, and how the outage is detected.

use std::net::{SocketAddr, TcpListener};

use larder_proxy::{Offline, ProxyConfig};

use crate::support::{Connection, Fixture, Received, Reply, Response, eventually};

/// Starts a proxy that accepts operator commands.
fn operated(
    handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
    change: impl FnOnce(&mut ProxyConfig),
) -> Fixture {
    Fixture::with(handle, |config| {
        config.admin = Some("127.0.0.1:0".parse().unwrap());
        change(config);
    })
}

/// Sends an operator command, and returns the response.
fn operate(fixture: &Fixture, command: &str) -> Response {
    operate_as(fixture, command, "localhost")
}

fn operate_as(fixture: &Fixture, command: &str, host: &str) -> Response {
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    admin.send(format!("{command} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    admin.read_response("GET")
}

fn is_offline(fixture: &Fixture) -> bool {
    operate(fixture, "GET /metrics").text().contains("larder_offline 1\n")
}

/// Checks that stored responses are served on a ship, on a train or during an outage, and that no origin is contacted
/// if the operator forbids it.
#[test]
fn operator_who_is_offline_gets_what_is_stored_and_504_for_the_rest() {
    let fixture = operated(
        |received, _| match received.target.as_str() {
            "/fresh" => Reply::ok(&["Cache-Control: max-age=60"], "fresh"),
            "/forbidden" => Reply::ok(&["Cache-Control: max-age=10, must-revalidate", "Age: 20", "ETag: \"a\""], "no"),
            // Two days past its lifetime.
            _ => Reply::ok(&["Cache-Control: max-age=10", "Age: 172800", "ETag: \"a\""], "stale"),
        },
        |_| {},
    );
    for target in ["/fresh", "/stale", "/forbidden"] {
        fixture.get(target, &[]);
        eventually("it is stored", || {
            let told = operate(&fixture, &format!("EXPLAIN http://site.example{target}")).text();
            told.contains("stored   in memory") || told.contains("stored   on the disk")
        });
    }
    assert!(operate(&fixture, "OFFLINE /on").text().starts_with("on: no origin is contacted"));
    assert!(is_offline(&fixture));
    let count = fixture.origin.count();
    let stale = fixture.get("/stale", &["Cache-Control: no-cache"]);
    assert_eq!((stale.status, stale.text().as_str()), (200, "stale"));
    assert!(stale.is_hit() && stale.cache_status().ends_with("detail=offline"), "{}", stale.cache_status());
    let fresh = fixture.get("/fresh", &["Pragma: no-cache"]);
    assert!(fresh.is_hit() && !fresh.cache_status().contains("offline"), "{}", fresh.cache_status());
    for (method, target) in [("GET", "/missing"), ("GET", "/forbidden"), ("POST", "/fresh"), ("HEAD", "/missing")] {
        let refused = fixture.connect().request(method, target, &[]);
        assert_eq!((refused.status, refused.field("retry-after")), (504, Some("10")), "{method} {target}");
        let expected = format!(
            "larder; error=destination_unavailable; next-hop=\"{}\"; details=\"offline\"",
            fixture.origin.address
        );
        assert_eq!(
            refused.field("proxy-status").map(|value| value.replace(';', "; ").replace(";  ", "; ")),
            Some(expected)
        );
        assert!(refused.text().contains("this proxy is offline") || method == "HEAD", "{}", refused.text());
    }
    let explained = operate(&fixture, "EXPLAIN http://site.example/stale").text();
    assert!(explained.contains("outcome  from the cache (offline)"), "{explained}");
    let explained = operate(&fixture, "EXPLAIN http://site.example/missing").text();
    assert!(explained.contains("outcome  504, because the origin cannot be contacted (offline)"), "{explained}");
    operate(&fixture, "OFFLINE /on-even-forbidden");
    assert_eq!(fixture.get("/forbidden", &[]).text(), "no");
    assert_eq!(fixture.origin.count(), count, "no origin is contacted");
    operate(&fixture, "OFFLINE /off");
    assert!(!is_offline(&fixture));
    assert_eq!(fixture.get("/missing", &[]).status, 200);
    assert_eq!(operate(&fixture, "OFFLINE /later").status, 400);
    assert_eq!(operate_as(&fixture, "OFFLINE /on", "rebound.example").status, 421);
    assert!(operate(&fixture, "OFFLINE /status").text().starts_with("off: "));
}

/// Returns ports of this machine on which nothing listens. Other tests run at the same time, and their servers could
/// take free ports of 127.0.0.1.
fn closed_ports<const COUNT: usize>() -> [SocketAddr; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.77:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// Guards against three failures of a proxy: each request waits for a time-out while the uplink is down; one failing
/// server makes all others unavailable; the proxy stays offline after the uplink is back.
#[test]
fn several_origins_that_fail_mean_that_the_line_is_down_until_one_is_back() {
    let fixture = operated(
        |_, _| Reply::ok(&["Cache-Control: max-age=60"], "here"),
        |config| (config.default_origin, config.forward, config.offline) = (None, true, Offline::Auto),
    );
    let get = |address: SocketAddr, path: &str| {
        let mut connection = fixture.connect();
        connection.send(format!("GET http://{address}{path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        connection.read_response("GET")
    };
    let [first, second, third, fourth, fifth] = closed_ports();
    for number in 0..10 {
        assert_eq!(get(first, &format!("/{number}")).status, 502);
    }
    assert_eq!(get(second, "/").status, 502);
    assert!(!is_offline(&fixture), "two are not several");
    assert_eq!(get(fixture.origin.address, "/a").status, 200);
    assert_eq!(get(third, "/").status, 502);
    assert!(!is_offline(&fixture), "one of four answers");
    assert_eq!(get(fourth, "/").status, 502);
    assert!(is_offline(&fixture));
    let told = operate(&fixture, "OFFLINE /status").text();
    assert!(told.starts_with("auto: the uplink has been down for ") && told.contains(&first.to_string()), "{told}");
    let refused = get(fifth, "/");
    assert_eq!(refused.status, 504, "nothing is known of it");
    assert!(refused.field("proxy-status").is_some_and(|status| status.contains("details=\"offline\"")));
    assert_eq!(get(fixture.origin.address, "/b").text(), "here", "it answered just now, so it is on this side");
    let _back = TcpListener::bind(second).unwrap();
    eventually("the uplink is up again", || !is_offline(&fixture));
    assert_eq!(get(fifth, "/").status, 502, "it is asked again");
}
