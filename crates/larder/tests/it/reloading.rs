//! Checks that a changed configuration costs no restart and no connection, and is not reported as active when it is
//! not.

use crate::{
    origin::Origin,
    process::{Larder, errors, run},
};
use rustix::process::Signal;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Starts a proxy of this user, on the default store, in front of `origin`, with a configuration file.
fn start(home: &TempDir, origin: &Origin, text: &str) -> (Larder, PathBuf) {
    let file = home.path().join("larder.toml");
    let origin = format!("http://{}", origin.address);
    fs::write(&file, text).unwrap();
    let larder = Larder::start(home, &["--config", file.to_str().unwrap(), "--size", "64MiB", "--origin", &origin]);
    (larder, file)
}

fn reload(home: &TempDir) -> (Option<i32>, String) {
    let output = run(home, &["reload"]);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output))
}

/// Sends a GET on a connection that stays open. Returns the head of the response.
fn ask(connection: &mut TcpStream, path: &str) -> String {
    write!(connection, "GET {path} HTTP/1.1\r\nHost: www.example.test\r\n\r\n").unwrap();
    let mut read = Vec::new();
    while !read.windows(4).any(|part| part == b"\r\n\r\n") {
        let mut octet = [0];
        connection.read_exact(&mut octet).unwrap();
        read.push(octet[0]);
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("it says how long it is");
    connection.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
    head
}

#[test]
fn file_that_changed_is_in_force_for_the_next_request_of_an_open_connection() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let (mut larder, file) = start(&home, &origin, "");
    let mut open = TcpStream::connect(larder.address).unwrap();
    assert!(ask(&mut open, "/a").contains("\r\nvia: "));
    fs::write(&file, "[response]\nvia = false\n").unwrap();
    assert!(ask(&mut open, "/a").contains("\r\nvia: "), "nobody asked for it yet");
    assert_eq!(reload(&home), (Some(0), "the new configuration is in force\n".to_owned()));
    assert!(!ask(&mut open, "/a").contains("\r\nvia: "));
    fs::write(&file, "").unwrap();
    larder.signal(Signal::HUP);
    larder.wait_for_line("SIGHUP: the new configuration is in force");
    assert!(ask(&mut open, "/a").contains("\r\nvia: "));
    assert_eq!(origin.count(), 1, "what is cached stays");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn wrong_file_changes_nothing_and_is_told_with_its_place() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let (mut larder, file) = start(&home, &origin, "[response]\nvia = false\n");
    fs::write(&file, "[response]\nvia = true\n\n[limits]\nidel = \"1s\"\n").unwrap();
    let (code, told) = reload(&home);
    assert_eq!(code, Some(1), "{told}");
    for part in ["nothing changed", "idel", "larder.toml", "line 5", "idle"] {
        assert!(told.contains(part), "no {part} in {told}");
    }
    larder.signal(Signal::HUP);
    larder.wait_for_line("SIGHUP: nothing changed");
    let mut open = TcpStream::connect(larder.address).unwrap();
    assert!(!ask(&mut open, "/a").contains("\r\nvia: "));
    fs::write(&file, "passwords = 1\n").unwrap();
    assert_eq!(reload(&home).0, Some(1));
    fs::remove_file(&file).unwrap();
    let (code, told) = reload(&home);
    assert!(code == Some(1) && told.contains("larder.toml"), "{told}");
    assert!(!ask(&mut open, "/a").contains("\r\nvia: "));
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn what_needs_a_restart_is_named_every_time() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let (larder, file) = start(&home, &origin, "workers = 2\n");
    fs::write(&file, "workers = 3\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\npolicy = \"log-clock\"\n").unwrap();
    for _ in 0..2 {
        let (code, told) = reload(&home);
        assert_eq!(code, Some(0), "{told}");
        let (_, keys) = told.trim().split_once("except for settings that need a restart: ").expect(&told);
        assert_eq!(keys, "store.policy, workers, admin.listen");
    }
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn nobody_to_reload_is_told() {
    let home = TempDir::new().unwrap();
    let (code, told) = reload(&home);
    assert!(code == Some(1) && told.contains("no larder of yours is running") && told.contains("SIGHUP"), "{told}");
    assert!(!Path::new(home.path()).join(".cache").exists(), "asking makes nothing");
}
