//! Checks that a signal ends the program in an orderly way, whatever it is doing.

use crate::{origin::Origin, process::Larder};
use rustix::process::Signal;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::mpsc,
};
use tempfile::TempDir;

#[test]
fn sigterm_and_sigint_stop_it_with_code_0() {
    let home = TempDir::new().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut larder = Larder::start(&home, &["--size", "64MiB"]);
        larder.signal(signal);
        assert_eq!(larder.wait(), Some(0));
    }
}

#[test]
fn idle_connections_do_not_keep_it_alive() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = Larder::start_reverse(&home, origin.address);
    let _idle = TcpStream::connect(larder.address).unwrap();
    assert_eq!(larder.get("/a").status, 200);
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn second_signal_ends_it_at_once() {
    let home = TempDir::new().unwrap();
    let (asked, was_asked) = mpsc::channel();
    let origin = Origin::start_silent(asked);
    let flags = ["--disk", "none", "--drain-timeout", "1h", "--origin", &format!("http://{}", origin.address)];
    let mut larder = Larder::start(&home, &flags);
    let mut connection = TcpStream::connect(larder.address).unwrap();
    connection.write_all(b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    was_asked.recv().unwrap();
    larder.signal(Signal::TERM);
    larder.wait_for_line("stopping");
    assert_eq!(larder.signal_until_end(Signal::TERM), Some(1));
}

#[test]
fn second_signal_ends_it_at_once_and_what_it_cut_short_is_in_the_log() {
    let home = TempDir::new().unwrap();
    let (mut larder, _connection) = waiting(&home, "1h");
    larder.signal(Signal::TERM);
    larder.wait_for_line("stopping");
    assert_eq!(larder.signal_until_end(Signal::TERM), Some(1));
    check_aborted(&home);
}

/// GNU `timeout` and some supervisors signal a process twice.
#[test]
fn signals_that_arrive_together_are_one_and_exchanges_have_their_time() {
    let home = TempDir::new().unwrap();
    let (mut larder, _connection) = waiting(&home, "100ms");
    larder.signal(Signal::TERM);
    larder.signal(Signal::INT);
    assert_eq!(larder.wait(), Some(0));
}

#[test]
fn what_the_end_of_the_time_to_drain_cuts_short_is_in_the_log() {
    let home = TempDir::new().unwrap();
    let (larder, _connection) = waiting(&home, "0s");
    assert_eq!(larder.stop(), Some(0));
    check_aborted(&home);
}

#[test]
fn health_checks_fail_before_connections_are_refused() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let file = home.path().join("larder.toml");
    let start = |notice: &str| {
        let text =
            format!("ready_path = \"/-/ready\"\ndrain_notice = \"{notice}\"\norigin = \"http://{}\"\n", origin.address);
        fs::write(&file, text).unwrap();
        Larder::start(&home, &["--disk", "none", "--config", file.to_str().unwrap()])
    };
    let mut larder = start("1h");
    assert_eq!(larder.get("/-/ready").status, 200);
    larder.signal(Signal::TERM);
    larder.wait_for_line("health checks fail from now on");
    // Requests that load balancers still send are answered.
    assert_eq!((larder.get("/-/ready").status, larder.get("/a").status), (503, 200));
    larder.wait_for_line("stopping");
    assert_eq!(larder.signal_until_end(Signal::TERM), Some(1));
    assert_eq!(start("10ms").stop(), Some(0));
}

/// Protects an origin's own resource, which Larder would answer for.
#[test]
fn path_of_health_checks_is_the_origins_unless_the_operator_names_it() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = Larder::start(&home, &["--disk", "none", "--origin", &format!("http://{}", origin.address)]);
    assert_eq!(larder.get("/-/ready").body, "/-/ready", "the origin answers with the path");
    assert_eq!(larder.stop(), Some(0));
}

/// Starts a proxy with this drain time, and a connection with an incomplete response whose remainder never arrives.
fn waiting(home: &TempDir, drain: &str) -> (Larder, TcpStream) {
    let origin = format!("http://{}", Origin::start_halting().address);
    let log = home.path().join("access.log");
    let flags =
        ["--disk", "none", "--drain-timeout", drain, "--origin", &origin, "--access-log", log.to_str().unwrap()];
    let larder = Larder::start(home, &flags);
    let mut connection = TcpStream::connect(larder.address).unwrap();
    connection.write_all(b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    connection.read_exact(&mut [0]).unwrap();
    (larder, connection)
}

#[track_caller]
fn check_aborted(home: &TempDir) {
    let lines = lines(&home.path().join("access.log"));
    assert!(matches!(&lines[..], [line] if line.contains("_ABORTED/") && line.contains("/a ")), "{lines:?}");
}

fn lines(log: &Path) -> Vec<String> {
    fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn other_signals_end_nothing() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let mut larder = Larder::start_reverse(&home, origin.address);
    for signal in [Signal::USR2, Signal::ALARM, Signal::HUP] {
        larder.signal(signal);
    }
    larder.wait_for_line("SIGHUP: the new configuration is in force");
    larder.signal(Signal::USR1);
    larder.wait_for_line("SIGUSR1: reopened the access log and reloaded the certificates");
    assert_eq!(larder.get("/a").status, 200);
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn sighup_begins_a_new_log_and_loses_no_line() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let log = home.path().join("access.log");
    let moved = home.path().join("access.log.1");
    let url = format!("http://{}", origin.address);
    let mut larder = Larder::start(&home, &["--disk", "none", "--origin", &url, "--access-log", log.to_str().unwrap()]);
    assert_eq!(larder.get("/before").status, 200);
    fs::rename(&log, &moved).unwrap();
    larder.signal(Signal::HUP);
    larder.wait_for_line("SIGHUP: ");
    assert_eq!(larder.get("/after").status, 200);
    assert_eq!(larder.stop(), Some(0));
    let before = lines(&moved);
    let after = lines(&log);
    assert_eq!(before.len() + after.len(), 2, "{before:?} {after:?}");
    assert!(after.iter().any(|line| line.contains("/after")), "{after:?}");
}

#[test]
fn sighup_reads_certificates_again_and_keeps_those_before_if_they_are_broken() {
    let home = TempDir::new().unwrap();
    let certificates = concat!(env!("CARGO_MANIFEST_DIR"), "/../larder-proxy/tests/it/tls/");
    let [file, key] = ["leaf.pem", "leaf.key"].map(|name| {
        fs::copy(Path::new(certificates).join(name), home.path().join(name)).unwrap();
        home.path().join(name).to_str().unwrap().to_owned()
    });
    let flags = ["--disk", "none", "--listen-tls", "127.0.0.1:0", "--certificate", &format!("{file},{key}")];
    let mut larder = Larder::start(&home, &flags);
    larder.signal(Signal::HUP);
    larder.wait_for_line("SIGHUP: the new configuration is in force");
    fs::write(&file, "no certificate").unwrap();
    larder.signal(Signal::HUP);
    larder.wait_for_line("SIGHUP: nothing changed");
    larder.signal(Signal::USR1);
    let said = larder.wait_for_line("SIGUSR1: ");
    assert!(said.contains("cannot read certificate") && said.contains("keeping the previous ones"), "{said}");
    assert_eq!(larder.stop(), Some(0));
}
