//! Guards against requests that fail because the program is replaced, and a proxy that is gone because its successor
//! does not start.

use crate::{
    origin::{Origin, body_of},
    process::{Larder, Response, command, errors, refused, run, said},
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};
use tempfile::TempDir;

/// Creates a home in which commands find the running proxy, whatever its store.
fn home() -> TempDir {
    let home = TempDir::new().unwrap();
    fs::create_dir_all(home.path().join("cache/larder")).unwrap();
    home
}

/// The new process, as reported by `larder upgrade`. Ended when dropped.
pub(crate) struct Successor(Pid);

impl Successor {
    pub(crate) fn of(told: &str) -> Self {
        let id = told.strip_prefix("process ").and_then(|rest| rest.split(' ').next()).expect("it says which");
        Self(Pid::from_raw(id.parse().unwrap()).unwrap())
    }

    /// Stops it in order.
    pub(crate) fn stop(self) {
        kill_process(self.0, Signal::TERM).unwrap();
        while test_kill_process(self.0).is_ok() && !is_ended(self.0) {
            thread::yield_now();
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// Returns whether a process ended, even if its parent has not waited for it.
fn is_ended(id: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// Sends one request after another on connections that stay open as long as the proxy keeps them. Never repeats a
/// request.
fn ask_on(address: SocketAddr, ends: &AtomicBool, count: &AtomicUsize) {
    let mut number = 0;
    while !ends.load(Relaxed) {
        let mut connection = BufReader::new(TcpStream::connect(address).unwrap());
        let mut is_kept = true;
        while is_kept && !ends.load(Relaxed) {
            number += 1;
            let path = format!("/{}", number % 16);
            let request = format!("GET {path} HTTP/1.1\r\nHost: www.example.test\r\n\r\n");
            connection.get_mut().write_all(request.as_bytes()).unwrap();
            is_kept = read_answer(&mut connection, &path);
            count.fetch_add(1, Relaxed);
        }
    }
}

/// Reads a response, which must be the one for this path. Returns whether the connection stays open.
fn read_answer(connection: &mut BufReader<TcpStream>, path: &str) -> bool {
    let mut length = None;
    let mut is_kept = true;
    let mut first = true;
    loop {
        let mut line = String::new();
        assert_ne!(connection.read_line(&mut line).unwrap(), 0, "the connection ended without an answer: {path}");
        assert!(!first || line.starts_with("HTTP/1.1 200"), "{line}");
        first = false;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        is_kept &= line != "connection: close";
        length = line.strip_prefix("content-length: ").map(|length| length.parse().unwrap()).or(length);
    }
    let mut body = vec![0; length.expect("it says how long it is")];
    connection.read_exact(&mut body).unwrap();
    assert_eq!(String::from_utf8(body).unwrap(), body_of(path));
    is_kept
}

#[test]
fn upgrade_under_load_loses_no_request_and_keeps_what_is_stored() {
    let home = home();
    let origin = Origin::start();
    let mut larder = Larder::start_reverse(&home, origin.address);
    assert_eq!(larder.get("/kept").status, 200);
    let ends = AtomicBool::new(false);
    let count = AtomicUsize::new(0);
    let successors = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ask_on(larder.address, &ends, &count));
        }
        let begun = scope.spawn(|| {
            let first = Successor::of(&said(&home, &["upgrade"]));
            // The new process can be upgraded too.
            let second = Successor::of(&said(&home, &["upgrade"]));
            let passed = count.load(Relaxed);
            while count.load(Relaxed) < passed + 100 {
                thread::yield_now();
            }
            [first, second]
        });
        let successors = begun.join();
        ends.store(true, Relaxed);
        successors.unwrap()
    });
    // The new process has it open too.
    larder.close_errors();
    assert_eq!(larder.wait(), Some(0));
    let kept = Response::get(larder.address, "/kept");
    assert!(kept.is_hit(), "what was stored before both upgrades is there");
    let [first, second] = successors;
    assert_ne!(first.0, second.0);
    second.stop();
    assert!(TcpStream::connect(larder.address).is_err());
}

/// Guards against a client that sends a request on an idle connection just when the upgrade closes it.
#[test]
fn connections_without_a_request_go_over_and_changes_on_them_count() {
    let home = home();
    let origin = Origin::start();
    let larder = Larder::start_reverse(&home, origin.address);
    let mut kept = BufReader::new(TcpStream::connect(larder.address).unwrap());
    let mut ask = |method: &str, path: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: www.example.test\r\nContent-Length: 0\r\n\r\n");
        kept.get_mut().write_all(head.as_bytes()).unwrap();
        assert!(read_answer(&mut kept, path), "the connection is kept");
    };
    ask("GET", "/a");
    // No request has been sent on this one yet.
    let mut fresh = BufReader::new(TcpStream::connect(larder.address).unwrap());
    let first = Successor::of(&said(&home, &["upgrade"]));
    ask("GET", "/a");
    let second = Successor::of(&said(&home, &["upgrade"]));
    assert!((0..3).any(|_| Response::get(larder.address, "/a").is_hit()), "it is stored");
    ask("DELETE", "/a");
    assert!(!Response::get(larder.address, "/a").is_hit(), "what the request changed is not served");
    fresh.get_mut().write_all(b"GET /b HTTP/1.1\r\nHost: www.example.test\r\n\r\n").unwrap();
    assert!(read_answer(&mut fresh, "/b"));
    drop((first, larder));
    second.stop();
}

#[test]
fn answer_that_has_begun_goes_on_after_an_upgrade() {
    let home = home();
    let origin = Origin::start_halting();
    let larder = Larder::start_reverse(&home, origin.address);
    let mut connection = TcpStream::connect(larder.address).unwrap();
    connection.write_all(b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    connection.read_exact(&mut [0]).unwrap();
    let told = said(&home, &["upgrade"]);
    let successor = Successor::of(&told);
    assert!(told.contains("one connection stays with the old process until it ends"), "{told}");
    assert_eq!(run(&home, &["upgrade", "--check"]).status.code(), Some(0), "commands find the new one");
    let id = Pid::from_raw(larder.id().cast_signed()).unwrap();
    assert!(test_kill_process(id).is_ok() && !is_ended(id), "the old one is there for its client");
    drop(connection);
    drop(larder);
    successor.stop();
}

/// Creates a program from a script.
fn program(path: &Path, script: &str) -> String {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn program_that_does_not_start_changes_nothing() {
    let home = home();
    let origin = Origin::start();
    let larder = Larder::start_reverse(&home, origin.address);
    assert_eq!(larder.get("/a").status, 200);
    let ending = program(&home.path().join("ending"), "exit 3");
    let missing = home.path().join("missing").to_str().unwrap().to_owned();
    for (program, why) in [(&ending, "the new larder ended without giving a reason"), (&missing, "cannot start ")] {
        for flags in [&["--check"][..], &[]] {
            let output = run(&home, &[&["upgrade", "--program", program], flags].concat());
            let told = errors(&output);
            assert_eq!(output.status.code(), Some(1), "{told}");
            assert!(told.contains(why) && told.contains("the running larder continues"), "{told}");
        }
    }
    assert!(larder.get("/a").is_hit());
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn program_that_fails_once_the_store_is_free_has_the_old_one_go_on() {
    let home = home();
    let origin = Origin::start();
    let mut larder = Larder::start_reverse(&home, origin.address);
    assert_eq!(larder.get("/a").status, 200);
    // It reports that it can take over, and ends when it should. Its standard input is a socket, which python reads
    // packet by packet.
    let script = "exec python3 -c 'import socket\ns = socket.socket(fileno=0)\nwhile s.recv(65536) != b\"\\\"AllSockets\\\"\": pass\ns.send(b\"\\\"Ready\\\"\")\ns.recv(65536)'";
    let program = program(&home.path().join("failing"), script);
    let output = command(home.path())
        .env("PATH", std::env::var_os("PATH").unwrap())
        .args(["upgrade", "--program", &program])
        .output()
        .unwrap();
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("the new larder ended without giving a reason"), "{told}");
    larder.wait_for_line("  try ");
    assert!(larder.get("/a").is_hit(), "the store is open again");
    assert_eq!(run(&home, &["reload"]).status.code(), Some(0), "it is found again");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn configuration_that_is_wrong_by_now_is_told_by_upgrade() {
    let home = home();
    let origin = Origin::start();
    let file = home.path().join("larder.toml");
    fs::write(&file, "").unwrap();
    let store = home.path().join("store.larder");
    let file_flag = file.to_str().unwrap();
    let store = store.to_str().unwrap();
    let url = format!("http://{}", origin.address);
    let larder = Larder::start(&home, &["--config", file_flag, "--disk", store, "--size", "64MiB", "--origin", &url]);
    assert!(said(&home, &["upgrade", "--check"]).contains("could take over"));
    fs::write(&file, "drain_timeout = \"soon\"\n").unwrap();
    let output = run(&home, &["upgrade"]);
    let told = errors(&output);
    assert!(told.contains("the new larder does not start: ") && told.contains("larder.toml, line 1"), "{told}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn take_over_is_for_upgrade_alone() {
    let home = TempDir::new().unwrap();
    let told = refused(&home, &["run", "--take-over"], 1);
    assert!(told.contains("there is no larder to take over from"), "{told}");
}
