//! Checks that the program, started as a new user would, proxies, caches, and keeps its cache.

use crate::{
    origin::Origin,
    process::{self, Larder, Response},
};
use rustix::process::Signal;
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
};
use tempfile::TempDir;

/// More requests than loading a store of one segment can take.
const ATTEMPTS_MAX: usize = 100_000;

#[test]
fn start_lines_say_where_it_listens_what_it_keeps_and_how_to_try_it() {
    let home = TempDir::new().unwrap();
    let larder = Larder::start(&home, &["--size", "64MiB"]);
    let store = home.path().join("cache/larder/store.larder");
    for expected in [
        &format!("  listen   http://{}  forward proxy", larder.address),
        &format!("  store    {}: 67.1 MB", store.display()),
        "  entries  0 (room for about ",
        " in all: ",
        " MB memory cache\n  memory   auto: ",
        &format!("  try      curl -x http://{} http://example.com/", larder.address),
    ] {
        assert!(larder.start_lines.contains(expected), "{expected:?} is not in {}", larder.start_lines);
    }
    let folder = fs::metadata(store.parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    assert_eq!(larder.stop(), Some(0));
    assert_eq!(fs::metadata(store).unwrap().len(), 64 << 20);
}

#[test]
fn an_origin_that_fails_is_told_once_in_the_log_and_plainly_to_clients() {
    let home = TempDir::new().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut larder = Larder::start_reverse(&home, nobody);
    for path in ["/a", "/b", "/c"] {
        let failed = larder.get(path);
        assert_eq!(failed.status, 502);
        assert!(failed.body.starts_with(&format!("no response from {nobody}: it refuses")), "{}", failed.body);
    }
    larder.signal(Signal::TERM);
    let log = larder.wait_for_line("stopping");
    let lines: Vec<_> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    let [line] = lines[..] else { panic!("not one line: {log}") };
    assert!(line.contains(&format!("origin=\"{nobody}\" error=\"connection_refused\"")), "{line}");
    assert!(line.contains("Connection refused (os error 111)"), "{line}");
    assert_eq!(larder.wait(), Some(0));
}

#[test]
fn second_request_is_a_hit() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = Larder::start_reverse(&home, origin.address);
    let first = larder.get("/a");
    assert_eq!((first.status, first.body.as_str(), first.is_hit()), (200, "/a", false));
    let second = larder.get("/a");
    assert_eq!((second.status, second.body.as_str(), second.is_hit()), (200, "/a", true));
    assert_eq!(origin.count(), 1);
}

#[test]
fn restart_keeps_what_was_stored() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = Larder::start_reverse(&home, origin.address);
    for number in 0..20 {
        assert_eq!(larder.get(&format!("/{number}")).status, 200);
    }
    assert_eq!(larder.stop(), Some(0));

    let larder = Larder::start_reverse(&home, origin.address);
    for number in 0..20 {
        let response = until_stored(&larder, &format!("/{number}"));
        assert_eq!((response.body, response.status), (format!("/{number}"), 200));
    }
    assert_eq!(origin.count(), 20);
}

#[test]
fn memory_only_caches_and_leaves_only_the_lock_of_its_socket() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = Larder::start(&home, &["--disk", "none", "--origin", &format!("http://{}", origin.address)]);
    assert!(larder.start_lines.contains("  store    none"), "{}", larder.start_lines);
    larder.get("/a");
    assert!(larder.get("/a").is_hit());
    assert_eq!(larder.stop(), Some(0));
    let left: Vec<_> =
        fs::read_dir(home.path().join("cache/larder")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["control.lock"]);
}

#[test]
fn forward_mode_reaches_loopback_only_if_told_so() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let host = origin.address;
    let request = format!("GET http://{host}/a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");

    let larder = Larder::start(&home, &["--disk", "none"]);
    assert_eq!(larder.send(&request).status, 403);
    assert_eq!(origin.count(), 0);

    let larder = Larder::start(&home, &["--disk", "none", "--allow-target", "127.0.0.0/8"]);
    let response = larder.send(&request);
    assert_eq!((response.status, response.body.as_str()), (200, "/a"));
    assert!(larder.send(&request).is_hit());
    assert_eq!(origin.count(), 1);
}

#[test]
fn sites_of_the_configuration_are_served_by_host() {
    let home = TempDir::new().unwrap();
    let first = Origin::start();
    let second = Origin::start();
    let config = home.path().join("larder.toml");
    let site = |host: &str, origin: &Origin| {
        format!("[[site]]\nhosts = [\"{host}\"]\norigin = \"http://{}\"\n", origin.address)
    };
    let sites = site("www.example.test", &first) + &site("other.test", &second);
    fs::write(&config, format!("{sites}[store]\npath = \"none\"\n")).unwrap();
    let larder = Larder::start(&home, &["--config", config.to_str().unwrap()]);
    assert_eq!(larder.get("/a").status, 200);
    assert_eq!((first.count(), second.count()), (1, 0));
    let request = "GET /a HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n";
    assert_eq!(larder.send(request).status, 200);
    assert_eq!((first.count(), second.count()), (1, 1));
}

#[test]
fn admin_listener_counts_requests() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let flags = ["--disk", "none", "--admin", "127.0.0.1:0", "--origin", &format!("http://{}", origin.address)];
    let larder = Larder::start(&home, &flags);
    let admin = admin_of(&larder);
    larder.get("/a");
    larder.get("/a");
    let get = |path: &str| Response::get_admin(admin, path);
    assert_eq!(get("/healthz").status, 200);
    let metrics = get("/metrics");
    assert_eq!(metrics.status, 200);
    for line in ["larder_hits_total 1", "larder_origin_requests_total 1"] {
        assert!(metrics.body.lines().any(|found| found == line), "{line:?} is not in {}", metrics.body);
    }
}

#[test]
fn explain_and_purge_ask_the_running_proxy() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let flags = ["--disk", "none", "--admin", "127.0.0.1:0", "--origin", &format!("http://{}", origin.address)];
    let larder = Larder::start(&home, &flags);
    let admin = admin_of(&larder).to_string();
    let tell = |command: &str, more: &[&str]| {
        let told = process::run(&home, &[&[command, "--admin", &admin], more].concat());
        let text = [told.stdout, told.stderr].concat();
        (told.status.code(), String::from_utf8(text).unwrap())
    };
    larder.get("/a");
    larder.get("/a");
    let url = "http://www.example.test/a";
    let (code, told) = tell("explain", &[url]);
    assert!(code == Some(0) && told.contains("outcome  from the cache (lifetime)"), "{told}");
    let (code, told) = tell("explain", &["--field", "Cache-Control: no-cache", url]);
    assert!(code == Some(0) && told.contains("(request-no-cache)"), "{told}");
    assert_eq!(tell("purge", &[url]), (Some(0), format!("purged: {url}\n")));
    assert_eq!(tell("purge", &[url]), (Some(0), format!("nothing was stored: {url}\n")));
    assert_eq!(tell("purge", &["--all"]), (Some(0), "purged: everything\n".to_owned()));
    assert!(tell("explain", &[url]).1.contains("stored   nothing"));
    for (arguments, code) in [(&["/a"][..], 2), (&["--field", "a b: c", url], 2), (&["http://"], 2)] {
        assert_eq!(tell("explain", arguments).0, Some(code), "{arguments:?}");
    }
}

pub(crate) fn admin_of(larder: &Larder) -> std::net::SocketAddr {
    let line = larder.start_lines.lines().find(|line| line.starts_with("  admin ")).expect("it says where admin is");
    let (_, rest) = line.split_once("http://").unwrap();
    rest.split_once('/').expect("its page").0.parse().unwrap()
}

/// Requests `path` from the cache only (RFC 9111 5.2.1.7) until it is loaded.
fn until_stored(larder: &Larder, path: &str) -> Response {
    let fields = "Host: www.example.test\r\nCache-Control: only-if-cached\r\nConnection: close";
    let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n");
    let mut responses = (0..ATTEMPTS_MAX).map(|_| larder.send(&request));
    responses.find(|response| response.status != 504).expect("it is loaded in time")
}

#[test]
fn purge_that_the_proxy_could_not_write_down_ends_with_1() {
    let home = TempDir::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().to_string();
    let proxy = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            asked.push(byte[0]);
        }
        socket
            .write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\nnot purged permanently: the disk is full\n")
            .unwrap();
    });
    let told = process::run(&home, &["purge", "--admin", &admin, "http://site.example/a"]);
    proxy.join().unwrap();
    assert_eq!(told.status.code(), Some(1));
    let errors = String::from_utf8(told.stderr).unwrap();
    assert!(errors.contains("not purged permanently: the disk is full") && errors.contains("help: "), "{errors}");
}
