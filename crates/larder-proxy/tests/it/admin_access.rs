//! The admin listener, reachable from other machines. Guards against a client without a token that sees cached
//! responses or purges them.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

use larder_proxy::{NeedsRestart, Proxy, ProxyConfig};
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};
use tempfile::TempDir;

use crate::support::{
    Connection, Fixture, Reply,
    certificates::{Made, client_config},
    eventually,
};

const TOKENS: &str = "# for Prometheus\nread 0123456789abcdef\npurge fedcba9876543210\n";

/// Writes a file that only this user may read.
fn write_own(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn tokens_that_others_may_read_are_refused() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("tokens");
    write_own(&path, TOKENS);
    let start = |mode| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let admin = Some(([127, 0, 0, 1], 0).into());
        let listeners = vec!["127.0.0.1:0".parse().unwrap()];
        let config = ProxyConfig { listeners, admin, admin_tokens: Some(path.clone()), ..ProxyConfig::default() };
        Proxy::start(config, None).map(drop)
    };
    for mode in [0o640, 0o604, 0o644, 0o660] {
        let refused = start(mode).unwrap_err().to_string();
        assert!(refused.contains("other users may read it") && refused.contains("chmod 600"), "{refused}");
    }
    start(0o600).unwrap();
}

fn guarded(directory: &TempDir) -> Fixture {
    let path = directory.path().join("tokens");
    write_own(&path, TOKENS);
    Fixture::with(
        |_, _| Reply::ok(&["Cache-Control: max-age=60"], "stored"),
        |config| {
            config.admin = Some("127.0.0.1:0".parse().unwrap());
            config.admin_tokens = Some(path);
        },
    )
}

fn status(fixture: &Fixture, method: &str, target: &str, token: &str) -> u16 {
    let credentials = format!("Authorization: Bearer {token}");
    let fields = if token.is_empty() { Vec::new() } else { vec![credentials.as_str()] };
    Connection::open_admin(fixture.proxy.admin_addr().unwrap()).request(method, target, &fields).status
}

#[test]
fn without_a_token_there_is_health_and_nothing_else() {
    let directory = TempDir::new().unwrap();
    let fixture = guarded(&directory);
    let url = "http://site.example/a";
    fixture.get("/a", &[]);
    let reader = "0123456789abcdef";
    let purger = "fedcba9876543210";
    for (method, target, token, expected) in [
        ("GET", "/healthz", "", 200),
        ("GET", "/", "", 401),
        ("GET", "/metrics", "", 401),
        ("GET", "/overview.json", "0123456789abcdeX", 401),
        ("EXPLAIN", url, "", 401),
        ("PURGE", url, "", 401),
        ("OFFLINE", "/on", "", 401),
        ("GET", "/metrics", reader, 200),
        ("GET", "/", reader, 200),
        ("EXPLAIN", url, reader, 200),
        ("PURGE", url, reader, 403),
        ("OFFLINE", "/on", purger, 403),
    ] {
        assert_eq!(status(&fixture, method, target, token), expected, "{method} {target} {token}");
    }
    fixture.get_hit("/a", &[]);
    assert_eq!(status(&fixture, "PURGE", url, purger), 200);
    assert!(!fixture.get("/a", &[]).is_hit());
}

#[test]
fn tokens_change_with_a_reload_and_never_go_while_others_reach_the_listener() {
    let directory = TempDir::new().unwrap();
    let fixture = guarded(&directory);
    let path = directory.path().join("tokens");
    write_own(&path, "read another-token-of-ours\n");
    let mut config = Fixture::config(&fixture.origin);
    (config.admin, config.admin_tokens) = (Some("127.0.0.1:0".parse().unwrap()), Some(path.clone()));
    fixture.proxy.handle().reload(config.clone()).unwrap();
    assert_eq!(status(&fixture, "GET", "/metrics", "0123456789abcdef"), 401);
    assert_eq!(status(&fixture, "GET", "/metrics", "another-token-of-ours"), 200);
    fs::write(&path, "read short\n").unwrap();
    let refused = fixture.proxy.handle().reload(config.clone()).unwrap_err().to_string();
    assert!(refused.contains("line 1") && !refused.contains("short"), "{refused}");
    assert_eq!(status(&fixture, "GET", "/metrics", "another-token-of-ours"), 200);
    write_own(&path, "read another-token-of-ours\n");
    // The address stays until a restart, and so must its protection.
    (config.admin, config.admin_tokens) = (None, None);
    assert_eq!(fixture.proxy.handle().reload(config).unwrap().unchanged, [NeedsRestart::Admin]);
    assert_eq!(status(&fixture, "GET", "/metrics", ""), 401);
}

#[test]
fn others_reach_no_listener_without_tokens() {
    let fixture = Fixture::new(|_, _| Reply::default());
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let config = ProxyConfig { admin: Some(address.parse().unwrap()), ..Fixture::config(&fixture.origin) };
        let refused = Proxy::start(config, None).err().unwrap().to_string();
        assert!(refused.contains("has no tokens"), "{refused}");
    }
    let config = ProxyConfig {
        admin: Some("127.0.0.1:0".parse().unwrap()),
        admin_tls: true,
        ..Fixture::config(&fixture.origin)
    };
    assert!(Proxy::start(config, None).err().unwrap().to_string().contains("no certificate"));
}

#[test]
fn pages_are_served_over_tls() {
    let directory = TempDir::new().unwrap();
    let made = Made::new(directory.path(), "a", &["admin.example"]);
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            config.admin = Some("127.0.0.1:0".parse().unwrap());
            (config.admin_tls, config.identities) = (true, vec![made.identity.clone()]);
        },
    );
    let address = fixture.proxy.admin_addr().unwrap();
    let name = ServerName::try_from("admin.example").unwrap();
    let connection = ClientConnection::new(client_config(&[&made.der], &[]), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: admin.example\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("ok\n"), "{text}");
}

/// A page of another site sends what a browser permits, under a name that resolves to this machine (DNS rebinding).
///
/// Guards against a page that purges everything, or reads cached responses, when a user only views it.
#[test]
fn pages_of_other_sites_reach_nothing_but_health() {
    let fixture = Fixture::with(
        |_, _| Reply::ok(&["Cache-Control: max-age=60"], "stored"),
        |config| config.admin = Some("127.0.0.1:0".parse().unwrap()),
    );
    let address = fixture.proxy.admin_addr().unwrap();
    fixture.get_hit("/a", &[]);
    let ask = |request: &str, lines: &str| {
        let mut connection = Connection::open(address);
        connection.send(format!("{request} HTTP/1.1\r\nContent-Length: 0\r\n{lines}\r\n\r\n"));
        connection.read_response("GET").status
    };
    let requests = [
        "GET /",
        "HEAD /",
        "GET /metrics",
        "GET /overview.json",
        "GET /readyz",
        "GET /dashboard.js",
        "PURGE /",
        "PURGE http://site.example/a",
        "EXPLAIN http://site.example/a",
        "SHOW http://site.example/a",
        "POST /purge",
        "LIST /",
        "PIN /",
        "OFFLINE /on",
        "MISSING /clear",
    ];
    for request in requests {
        for (lines, status) in [
            ("Host: evil.example:3180\r\nPurge-Scope: all", 421),
            ("Host: site.example\r\nPurge-Scope: all", 421),
            ("Host: 192.0.2.1\r\nPurge-Scope: all", 421),
            ("Purge-Scope: all", 400),
            ("Host: localhost\r\nHost: localhost\r\nPurge-Scope: all", 400),
            ("Host: localhost\r\nOrigin: http://evil.example\r\nPurge-Scope: all", 403),
            ("Host: localhost\r\nOrigin: http://localhost:8000\r\nPurge-Scope: all", 403),
            ("Host: localhost\r\nOrigin: null\r\nPurge-Scope: all", 403),
            ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nPurge-Scope: all", 403),
            ("Host: localhost\r\nSec-Fetch-Site: same-site\r\nPurge-Scope: all", 403),
        ] {
            assert_eq!(ask(request, lines), status, "{request} {lines}");
        }
    }
    assert_eq!(ask("GET /healthz", "Host: evil.example\r\nSec-Fetch-Site: cross-site"), 200);
    assert!(fixture.get("/a", &[]).is_hit(), "nothing was purged");
    for host in ["127.0.0.1:3180", "localhost", "LOCALHOST:1", "[::1]:3180", &address.to_string()] {
        assert_eq!(ask("GET /metrics", &format!("Host: {host}\r\nSec-Fetch-Site: none")), 200, "{host}");
    }
    assert_eq!(ask("PURGE http://site.example/a", &format!("Host: {address}\r\nOrigin: http://{address}")), 200);
}

/// Guards against a failing health check that causes the restart of a healthy proxy.
#[test]
fn health_is_answered_while_idle_connections_are_open() {
    let fixture = Fixture::with(|_, _| Reply::default(), |config| config.admin = Some("127.0.0.1:0".parse().unwrap()));
    let address = fixture.proxy.admin_addr().unwrap();
    let mut idle: Vec<Connection> = (0..200).map(|_| Connection::open_admin(address)).collect();
    assert_eq!(Connection::open_admin(address).request("GET", "/healthz", &[]).status, 200);
    assert!(idle.first_mut().unwrap().is_closed(), "the oldest made room");
    assert_eq!(idle.last_mut().unwrap().request("GET", "/healthz", &[]).status, 200, "the latest did not");
}

/// Guards against the restart of a healthy proxy because a client sends heads of requests without their bodies.
#[test]
fn health_alone_is_answered_while_all_connections_are_busy() {
    let fixture = Fixture::with(|_, _| Reply::default(), |config| config.admin = Some("127.0.0.1:0".parse().unwrap()));
    let address = fixture.proxy.admin_addr().unwrap();
    let mut busy: Vec<Connection> = (0..64).map(|_| Connection::open_admin(address)).collect();
    for connection in &mut busy {
        connection.send("LIST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
        // Its body is waited for.
        assert_eq!(connection.read_head().status, 100);
    }
    let mut idle: Vec<Connection> = (0..20).map(|_| Connection::open_admin(address)).collect();
    for _ in 0..20 {
        let mut connection = Connection::open_admin(address);
        assert_eq!(connection.request("GET", "/healthz", &[]).status, 200);
        assert!(connection.is_closed(), "it makes room for the next");
        assert_eq!(Connection::open_admin(address).request("GET", "/metrics", &[]).status, 503);
    }
    assert!(idle.first_mut().unwrap().is_closed(), "the oldest made room");
    busy.truncate(63);
    eventually("other pages are answered again", || {
        Connection::open_admin(address).try_request("GET", "/metrics").is_some_and(|response| response.status == 200)
    });
}

/// Guards against a rebound name that is accepted because others may have it too.
#[test]
fn any_host_is_answered_with_a_token_and_none_without() {
    let directory = TempDir::new().unwrap();
    let fixture = guarded(&directory);
    for host in ["evil.example", "admin.example:3180", "192.0.2.1"] {
        for (lines, status) in [
            ("", 401),
            ("Authorization: Bearer another-token-of-theirs\r\n", 401),
            ("Authorization: Bearer 0123456789abcdef\r\n", 200),
            ("Authorization: Bearer 0123456789abcdef\r\nOrigin: http://other.example\r\n", 403),
            ("Authorization: Bearer 0123456789abcdef\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ] {
            let mut connection = Connection::open(fixture.proxy.admin_addr().unwrap());
            connection.send(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n"));
            assert_eq!(connection.read_response("GET").status, status, "{host} {lines}");
        }
    }
}

#[test]
fn slow_head_ends_its_connection() {
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            config.admin = Some("127.0.0.1:0".parse().unwrap());
            config.limits.header = Duration::from_millis(1);
        },
    );
    let mut slow = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    // Without Larder's own limit, the HTTP library waits for 30 s.
    slow.reader.get_ref().set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    slow.send("GET /healthz HTTP/1.1\r\nHost: ");
    assert!(slow.is_closed());
}
