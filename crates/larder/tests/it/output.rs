//! Checks the behavior of a command whose output cannot be written, because the reader has closed the pipe or the disk
//! is full.

use crate::{
    origin::Origin,
    process::{Larder, command},
};
use std::{
    fs,
    process::{Output, Stdio},
};
use tempfile::TempDir;

/// Commands that print more than one line and end at once.
const PRINTING: [&[&str]; 9] = [
    &["plan", "--size", "1TB", "--memory", "1GB"],
    &["plan", "--size", "1TB", "--memory", "1GB", "--json"],
    &["sim", "models"],
    &["sim", "models", "ssd-sata"],
    &["sim", "papers"],
    &["run", "--help"],
    &["--version"],
    &["store", "info", "store.larder"],
    &["store", "check", "store.larder"],
];

/// Runs a command that uses a small store, with its standard output sent to `output`.
fn run(home: &TempDir, arguments: &[&str], output: Stdio) -> Output {
    command(home.path()).current_dir(home.path()).args(arguments).stdout(output).output().unwrap()
}

fn with_store() -> TempDir {
    let home = TempDir::new().unwrap();
    let made = run(&home, &["store", "format", "store.larder", "--size", "64MiB"], Stdio::null());
    assert!(made.status.success(), "{made:?}");
    home
}

#[test]
fn a_reader_that_went_away_ends_a_command_quietly() {
    let home = with_store();
    for arguments in PRINTING {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let Output { status, stderr, .. } = run(&home, arguments, writer.into());
        assert!(status.success() && stderr.is_empty(), "{arguments:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    }
}

#[test]
fn a_full_disk_at_standard_output_is_told() {
    let home = with_store();
    for arguments in PRINTING {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let Output { status, stderr, .. } = run(&home, arguments, full.into());
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("cannot write to standard output: No space left on device"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_proxy_whose_words_nobody_reads_serves_and_stops_in_order() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let mut larder = Larder::start_reverse(&home, origin.address);
    larder.close_errors();
    assert_eq!(larder.get("/a").status, 200);
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn a_failure_that_nobody_reads_keeps_its_code() {
    let home = TempDir::new().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = command(home.path()).args(["run", "--size", "1XB"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
