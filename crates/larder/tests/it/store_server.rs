//! Guards against programs that share a store and get bytes of another value, a value that was written in part, or no
//! answer because of another program.

mod hostile;
mod server;
mod socket_file;

use larder_store::Policy;
use server::{Client, Server, ValueProgram, compile, content};
use std::{
    io::Write,
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// Statuses of responses.
const NOT_FOUND: u8 = 1;
const BAD_HANDLE: u8 = 3;
const TOO_LONG: u8 = 5;
const WRONG_LENGTH: u8 = 6;
const GONE: u8 = 7;
const FAILED: u8 = 9;

#[test]
fn values_of_a_c_program_survive_a_stop_and_a_kill() {
    let home = TempDir::new().unwrap();
    let program = ValueProgram::new(&home);
    let values = [("empty", content(1, 0)), ("short", content(2, 5000)), ("long", content(3, (5 << 20) + 17))];
    let server = Server::start(&home, &["--size", "128MiB"]);
    assert!(server.start_lines.contains("policy log"), "{}", server.start_lines);
    for (key, value) in &values {
        assert_eq!(program.get(&server, key), None);
        program.put(&server, key, value);
        assert_eq!(program.get(&server, key).as_ref(), Some(value));
    }
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(&home, &[]);
    for (key, value) in &values {
        assert_eq!(program.get(&server, key).as_ref(), Some(value), "{key}");
    }
    program.put(&server, "short", &content(4, 7000));
    assert!(program.run(&server, &["remove", "empty"], b"").status.success());
    assert!(program.run(&server, &["sync"], b"").status.success());
    server.kill();

    let server = Server::start(&home, &[]);
    assert_eq!(program.get(&server, "empty"), None);
    assert_eq!(program.get(&server, "short"), Some(content(4, 7000)));
    assert_eq!(program.get(&server, "long").as_ref(), Some(&values[2].1));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn every_policy_serves_values_and_keeps_them() {
    for policy in Policy::all().iter().map(|policy| policy.name) {
        // A bin of `hashcache-basic` has one place, so one store in 500 loses a value to another one.
        let store_count = if policy == "hashcache-basic" { 4 } else { 1 };
        assert!((0..store_count).any(|_| serves_values_and_keeps_them(policy)), "{policy} lost a value");
    }
}

/// Returns whether a new store has all values before and after a restart. What it returns must be right in any case.
fn serves_values_and_keeps_them(policy: &str) -> bool {
    let home = TempDir::new().unwrap();
    let values = [("short", content(2, 5000)), ("long", content(3, (2 << 20) + 17))];
    let is_found = |client: &mut Client, key: &str, value: &[u8]| {
        let found = client.find(key);
        assert!(found.as_ref().is_none_or(|found| found == value), "{policy}: other bytes for {key}");
        found.is_some()
    };
    let server = Server::start(&home, &["--size", "128MiB", "--policy", policy]);
    let mut client = server.connect();
    let mut all_found = true;
    for (key, value) in &values {
        client.put(key, value);
        all_found &= is_found(&mut client, key, value);
    }
    drop(client);
    assert_eq!(server.stop(), Some(0), "{policy}");
    let server = Server::start(&home, &[]);
    assert!(server.start_lines.contains(policy), "{}", server.start_lines);
    for (key, value) in &values {
        all_found &= is_found(&mut server.connect(), key, value);
    }
    all_found
}

#[test]
fn processes_that_share_a_store_read_only_what_was_written() {
    let home = TempDir::new().unwrap();
    let stress = compile(&home, "crates/larder/tests/it/store_server/stress.c");
    // The values that are written do not all fit.
    let server = Server::start(&home, &["--size", "32MiB", "--memory", "8MiB"]);
    let start = |seed: u64| {
        let seed = seed.to_string();
        let mut command = Command::new(&stress);
        command.arg(&server.socket).args([&seed, "120"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<_> = (1..=4).map(start).collect();
    for process in running {
        let output = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{errors}");
        assert!(!said.starts_with("0 found"), "{said}");
    }
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_value_of_100_mb_is_read_as_it_was_written() {
    let home = TempDir::new().unwrap();
    let program = ValueProgram::new(&home);
    let server = Server::start(&home, &["--size", "384MiB", "--memory", "8MiB"]);
    let value = content(9, 100_000_000);
    program.put(&server, "film", &value);
    assert!(program.get(&server, "film").unwrap() == value, "other bytes");
}

#[test]
fn a_client_killed_in_the_middle_of_a_write_leaves_the_old_value() {
    let home = TempDir::new().unwrap();
    let program = ValueProgram::new(&home);
    let server = Server::start(&home, &["--size", "128MiB"]);
    program.put(&server, "page", b"old");
    let mut writer = program.command(&server, &["put", "page"]).stdin(Stdio::piped()).spawn().unwrap();
    // The pipe is much shorter, so most of this is at the server once it is written.
    writer.stdin.as_mut().unwrap().write_all(&content(5, 4 << 20)).unwrap();
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(program.get(&server, "page").unwrap(), b"old");
    let mut client = server.connect();
    let handle = client.create("page");
    assert_eq!(client.write(handle, b"new").status, 0);
    drop(client);
    assert_eq!(program.get(&server, "page").unwrap(), b"old");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_value_is_invisible_until_its_close_and_not_visible_if_abandoned() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home, &["--size", "64MiB"]);
    let mut writer = server.connect();
    let mut reader = server.connect();
    let handle = writer.create("page");
    assert_eq!(writer.write(handle, &content(1, 1 << 20)).status, 0);
    assert_eq!(reader.ask(1, &[b"page"]).status, NOT_FOUND);
    assert_eq!(writer.close(handle).status, 0);
    assert_eq!(reader.get("page"), content(1, 1 << 20));
    let handle = writer.create("page");
    assert_eq!(writer.write(handle, b"other").status, 0);
    assert_eq!(writer.ask(6, &[&handle.to_le_bytes()]).status, 0);
    assert_eq!(reader.get("page"), content(1, 1 << 20));
    assert_eq!(writer.close(handle).status, BAD_HANDLE);
}

#[test]
fn an_open_value_never_gets_bytes_of_another() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home, &["--size", "64MiB", "--memory", "4MiB"]);
    let mut reader = server.connect();
    let mut writer = server.connect();
    let olds = [("short", content(1, 3000)), ("middle", content(2, 600_000)), ("long", content(3, 3 << 20))];
    olds.iter().for_each(|(key, value)| writer.put(key, value));
    let handles = olds.each_ref().map(|(key, _)| reader.open(key));
    for (key, _) in &olds {
        writer.put(key, &content(7, 50_000));
    }
    for (handle, (key, value)) in handles.iter().zip(&olds) {
        assert!(reader.read_all(*handle).unwrap() == *value, "{key} after it was replaced");
    }
    for (key, _) in &olds {
        assert_eq!(writer.ask(7, &[key.as_bytes()]).status, 0);
        assert_eq!(reader.ask(1, &[key.as_bytes()]).status, NOT_FOUND);
    }
    for (handle, (key, value)) in handles.iter().zip(&olds) {
        assert!(reader.read_all(*handle).unwrap() == *value, "{key} after it was removed");
    }
    // More than the store.
    (0..80).for_each(|number| writer.put(&format!("filler {number}"), &content(number, 1 << 20)));
    for (handle, (key, value)) in handles.iter().zip(&olds) {
        match reader.read_all(*handle) {
            Ok(read) => assert!(read == *value, "{key} after it was evicted"),
            Err(status) => assert_eq!(status, GONE, "{key}"),
        }
    }
}

#[test]
fn a_value_with_another_length_than_declared_is_not_stored() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home, &["--size", "64MiB"]);
    let mut client = server.connect();
    let open = |client: &mut Client, length: u64| {
        let response = client.ask(2, &[&length.to_le_bytes(), b"page"]);
        assert_eq!(response.status, 0);
        u32::from_le_bytes(response.content.try_into().unwrap())
    };
    let handle = open(&mut client, 5);
    assert_eq!(client.write(handle, b"four").status, 0);
    assert_eq!(client.close(handle).status, WRONG_LENGTH);
    let handle = open(&mut client, 5);
    assert_eq!(client.write(handle, b"sixsix").status, WRONG_LENGTH);
    assert_eq!(client.close(handle).status, FAILED, "a value that lacks bytes was stored");
    assert_eq!(client.ask(1, &[b"page"]).status, NOT_FOUND);
    let handle = open(&mut client, 5);
    assert_eq!(client.write(handle, b"fives").status, 0);
    assert_eq!(client.close(handle).status, 0);
    assert_eq!(client.get("page"), b"fives");
    assert_eq!(client.ask(2, &[&(33_u64 << 20).to_le_bytes(), b"page"]).status, TOO_LONG);
}

#[test]
fn reads_begin_anywhere_and_end_with_the_value() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home, &["--size", "64MiB", "--memory", "4MiB"]);
    let mut client = server.connect();
    let value = content(1, (2 << 20) + 100);
    client.put("long", &value);
    let handle = client.open("long");
    for (offset, count) in [(0, 1), (4095, 4098), ((1 << 20) - 3, 7), (1 << 20, 1 << 20), (value.len() - 5, 5)] {
        assert_eq!(client.read(handle, offset as u64, count as u32).content, value[offset..offset + count]);
    }
    assert_eq!(client.read(handle, value.len() as u64 - 5, 100).content, value[value.len() - 5..]);
    for offset in [value.len() as u64, u64::MAX] {
        let response = client.read(handle, offset, u32::MAX);
        assert_eq!((response.status, response.content.len()), (0, 0));
    }
    assert_eq!(client.write(handle, b"x").status, BAD_HANDLE);
    let written = client.create("long");
    assert_eq!(client.read(written, 0, 1).status, BAD_HANDLE);
    assert_eq!(client.read(99, 0, 1).status, BAD_HANDLE);
}

#[test]
fn a_stop_ends_idle_and_writing_clients_at_once() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home, &["--size", "64MiB"]);
    let mut idle = server.connect();
    let mut writer = server.connect();
    idle.put("page", b"stored");
    let handle = writer.create("page");
    assert_eq!(writer.write(handle, b"unfinished").status, 0);
    assert_eq!(server.stop(), Some(0));
    assert!(idle.is_ended() && writer.is_ended());
    let server = Server::start(&home, &[]);
    assert_eq!(server.connect().get("page"), b"stored");
}
