//! At stake: that a signal ends the program in order, whatever is going on.

use crate::{origin::Origin, process::Larder};
use rustix::process::Signal;
use std::{io::Write, net::TcpStream, sync::mpsc};
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
    let (home, origin) = (TempDir::new().unwrap(), Origin::start());
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
    let flags = ["--disk", "none", "--drain", "1h", "--origin", &format!("http://{}", origin.address)];
    let mut larder = Larder::start(&home, &flags);
    let mut connection = TcpStream::connect(larder.address).unwrap();
    connection.write_all(b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    was_asked.recv().unwrap();
    larder.signal(Signal::TERM);
    larder.wait_for_line("stopping");
    larder.signal(Signal::TERM);
    assert_eq!(larder.wait(), Some(1));
}
