//! Guards against a `larder explain` that says what the proxy does not do, and a command that waits forever for a proxy
//! that does not respond.

use crate::{
    origin::Origin,
    process::{Larder, errors, refused, run, said},
    serving::admin_of,
};
use rustix::process::Signal;
use std::{fs, thread};
use tempfile::TempDir;

/// Returns the line about the answer that `larder explain` prints for a URL.
fn answer(home: &TempDir, url: &str) -> String {
    let told = said(home, &["explain", url]);
    let answer = told.lines().find_map(|line| line.strip_prefix("outcome  "));
    answer.unwrap_or_else(|| panic!("{url}: {told}")).to_owned()
}

/// Returns the status of a client's request for a URL through the proxy.
fn status(larder: &Larder, url: &str) -> u16 {
    let host = url.split('/').nth(2).unwrap();
    let request = match url.strip_prefix("https://") {
        Some(_) => format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        None => format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
    };
    larder.send(&request).status
}

#[test]
fn explained_refusal_is_the_one_that_the_proxy_sends() {
    let home = TempDir::new().unwrap();
    let list = home.path().join("list");
    let config = home.path().join("larder.toml");
    fs::write(&list, "ads.example\n").unwrap();
    let text = format!("[forward]\nblock_lists = [\"{}\"]\nconnect_ports = [8443]\n", list.display());
    fs::write(&config, text).unwrap();
    let larder = Larder::start(&home, &["--config", config.to_str().unwrap(), "--disk", "none"]);
    for (url, told) in [
        ("http://127.0.0.1/", "the target is not allowed, a loopback address: --allow-target 127.0.0.1/32"),
        ("http://[::1]/a", "the target is not allowed, a loopback address: --allow-target ::1/128"),
        ("http://ads.example/a", "the host is blocked"),
        ("http://www.ads.example/a", "the host is blocked"),
        ("https://127.0.0.1/", "tunnels to port 443 are not allowed: see forward.connect_ports"),
    ] {
        let status = status(&larder, url);
        assert_eq!(answer(&home, url), format!("{status}, {told}"));
    }
    assert!(!said(&home, &["explain", "http://127.0.0.1/"]).contains("goes to the origin"));
    let denied = answer(&home, "https://127.0.0.1:8443/");
    assert!(denied.starts_with("403, the target is not allowed, a loopback address"), "{denied}");
    assert_eq!(answer(&home, "HTTPS://192.0.2.1:8443/"), "a tunnel, not cached: see --intercept");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn explained_site_is_one_that_the_proxy_serves() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let config = home.path().join("larder.toml");
    let text = format!("[[site]]\nhosts = [\"www.example.test\"]\norigin = \"http://{}\"\n", origin.address);
    fs::write(&config, text).unwrap();
    let larder = Larder::start(&home, &["--config", config.to_str().unwrap(), "--disk", "none"]);
    let other = "http://other.example.test/";
    let status = status(&larder, other);
    assert_eq!(answer(&home, other), format!("{status}, no site has this host and path: see --origin and [[site]]"));
    let told = said(&home, &["explain", "http://www.example.test/a"]);
    assert!(told.contains("\nstored   nothing: a request goes to the origin\n"), "{told}");
    assert!((0..3).any(|_| larder.get("/a").is_hit()));
    assert_eq!(answer(&home, "HTTP://WWW.example.test/a"), "from the cache (lifetime)");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn url_that_is_none_is_refused_with_its_correction() {
    let home = TempDir::new().unwrap();
    let long = format!("http://example.com/{}", "a".repeat(70_000));
    for (url, told) in [
        ("http://h/a b", "encode the space as %20: http://h/a%20b"),
        ("http://user:pw@host/", "leave them out, as clients do: http://host/"),
        ("http://", "it has no host"),
        (long.as_str(), "it has 70019 bytes"),
    ] {
        let found = refused(&home, &["explain", url], 2);
        assert!(found.contains(told) && found.len() < 1000, "{url}: {found}");
    }
}

#[test]
fn purge_of_a_host_needs_no_scheme_and_a_star_is_explained() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = Larder::start_reverse(&home, origin.address);
    assert!((0..3).any(|_| larder.get("/a").is_hit()));
    assert_eq!(said(&home, &["purge", "--site", "www.example.test"]), "purged: www.example.test\n");
    assert!(!larder.get("/a").is_hit());
    let output = run(&home, &["purge", "http://www.example.test/img/*"]);
    assert!(output.status.success() && output.stdout == b"nothing was stored: http://www.example.test/img/*\n");
    let told = errors(&output);
    assert!(told.contains("larder purge --prefix http://www.example.test/img/"), "{told}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn warm_says_how_to_end_the_offline_mode() {
    let home = TempDir::new().unwrap();
    let larder = Larder::start(&home, &["--disk", "none", "--offline", "on"]);
    let told = refused(&home, &["warm", "http://www.example.test/"], 1);
    assert!(told.contains("it is offline") && told.contains("larder offline off"), "{told}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn command_does_not_wait_for_ever_for_a_proxy_that_is_stopped() {
    let home = TempDir::new().unwrap();
    let larder = Larder::start(&home, &["--disk", "none", "--admin", "127.0.0.1:0"]);
    let admin = admin_of(&larder).to_string();
    larder.signal(Signal::STOP);
    let commands = [
        (vec!["ls"], "control.sock"),
        (vec!["ls", "--admin", &admin], &admin),
        (vec!["purge", "http://www.example.test/"], "control.sock"),
        (vec!["purge", "--admin", &admin, "--all"], &admin),
        (vec!["reload"], "control.sock"),
        (vec!["env"], "control.sock"),
    ];
    let home = &home;
    thread::scope(|scope| {
        for (arguments, place) in &commands {
            scope.spawn(move || {
                let told = refused(home, arguments, 1);
                assert!(told.contains("has not responded for 10 s: ") && told.contains(place), "{arguments:?}: {told}");
                assert!(told.contains("kill -CONT"), "{told}");
            });
        }
    });
    larder.signal(Signal::CONT);
    assert!(said(home, &["purge", "--all"]).contains("purged: everything"));
    assert_eq!(larder.stop(), Some(0));
}
