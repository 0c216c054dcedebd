//! Guards against a program that sends nonsense, or nothing, and disturbs the others.

use super::{
    BAD_HANDLE, NOT_FOUND,
    server::{Client, Server, content},
};
use std::{io::Write, net::Shutdown};
use tempfile::TempDir;

const INVALID: u8 = 2;
const TOO_MANY: u8 = 4;

/// A server with a value, and a client that must be served whatever others do.
struct Bystander {
    _home: TempDir,
    server: Server,
    client: Client,
}

impl Bystander {
    fn start(flags: &[&str]) -> Self {
        let home = TempDir::new().unwrap();
        let server = Server::start(&home, &[&["--size", "64MiB"], flags].concat());
        let mut client = server.connect();
        client.put("page", &content(1, 2 << 20));
        Self { _home: home, server, client }
    }

    /// Checks that the server is undisturbed, and ends it.
    fn finish(mut self) {
        self.client.put("other", b"bytes");
        assert_eq!(self.client.get("other"), b"bytes");
        assert!(self.client.get("page") == content(1, 2 << 20));
        assert_eq!(self.server.stop(), Some(0));
    }
}

#[test]
fn requests_that_are_not_understood_are_refused_and_the_connection_stays() {
    let bystander = Bystander::start(&[]);
    let mut client = bystander.server.connect();
    let long_key = vec![b'k'; 4097];
    for (operation, fields) in [
        (0, &b""[..]),
        (9, b""),
        (255, b"abc"),
        (1, b""),
        (1, &long_key),
        (2, b"1234567"),
        (2, &[0; 8]),
        (3, &[0; 15]),
        (4, b"123"),
        (5, b""),
        (7, &long_key),
        (8, b"x"),
    ] {
        let response = client.ask(operation, &[fields]);
        assert_eq!(response.status, INVALID, "{operation} {fields:?}");
        assert!(!response.content.is_empty(), "{operation} {fields:?}: no reason");
    }
    assert!(client.get("page") == content(1, 2 << 20));
    bystander.finish();
}

#[test]
fn messages_without_an_end_are_refused_and_the_connection_ends() {
    let bystander = Bystander::start(&[]);
    for length in [0_u32, (1 << 20) + 6, u32::MAX] {
        let mut client = bystander.server.connect();
        client.send(&length.to_le_bytes());
        assert_eq!(client.receive().status, INVALID, "{length}");
        assert!(client.is_ended(), "{length}");
    }
    let mut client = Client::connect_silently(&bystander.server.socket);
    client.send(b"LARDER\x02\x00");
    assert_eq!(client.receive_bytes(8), b"LARDER\x01\x00");
    let refused = client.receive();
    assert_eq!(refused.status, INVALID);
    assert!(String::from_utf8(refused.content).unwrap().contains("use version 1"));
    assert!(client.is_ended());
    let mut client = Client::connect_silently(&bystander.server.socket);
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(client.is_ended());
    bystander.finish();
}

#[test]
fn random_bytes_disturb_nobody() {
    let bystander = Bystander::start(&[]);
    for seed in 0..200 {
        let mut client = bystander.server.connect();
        let mut bytes = content(seed, 300);
        // Half of them are frames of a possible length with a possible operation.
        if seed % 2 == 0 {
            let mut at = 0;
            while at + 5 < bytes.len() {
                let length = u32::from(bytes[at]) % 40 + 1;
                bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
                bytes[at + 4] %= 10;
                at += 4 + length as usize;
            }
        }
        // The server may have ended the connection already.
        let _ = client.stream.write_all(&bytes);
        let _ = client.stream.shutdown(Shutdown::Write);
        assert!(client.is_ended(), "{seed}");
    }
    bystander.finish();
}

#[test]
fn clients_that_stop_in_the_middle_hold_nobody_up() {
    let mut bystander = Bystander::start(&[]);
    let mut stopped = Vec::new();
    for _ in 0..8 {
        // One that sends nothing, one that stops within a request, and one that reads no response.
        stopped.push(Client::connect_silently(&bystander.server.socket));
        let mut client = bystander.server.connect();
        let handle = client.create("page");
        client.send(&(1_u32 << 20).to_le_bytes());
        client.send(&[&[4], &handle.to_le_bytes()[..], &[7; 1000]].concat());
        stopped.push(client);
        let mut client = bystander.server.connect();
        let handle = client.open("page");
        for _ in 0..20 {
            let fields = [&handle.to_le_bytes()[..], &[0; 8], &u32::MAX.to_le_bytes()];
            client.send_request(3, &fields);
        }
        stopped.push(client);
    }
    for number in 0..50 {
        let value = content(number, 30_000);
        bystander.client.put("busy", &value);
        assert_eq!(bystander.client.get("busy"), value);
    }
    bystander.finish();
    assert!(stopped.iter_mut().all(Client::is_ended));
}

/// Guards against 1 MiB of memory for each connection, beyond `--memory`. Writes whose last byte does not arrive are
/// not buffered. Their handle is wrong, so no value takes the bytes.
#[test]
fn requests_that_do_not_end_take_little_memory() {
    const COUNT: u64 = 96;
    let bystander = Bystander::start(&[]);
    let mut clients: Vec<Client> = (0..COUNT).map(|_| bystander.server.connect()).collect();
    let before = bystander.server.resident_bytes();
    let front = [&(5_u32 + (1 << 20)).to_le_bytes()[..], &[4], &77_u32.to_le_bytes()].concat();
    let bytes = vec![7; (1 << 20) - 1];
    for client in &mut clients {
        client.send(&front);
        client.send(&bytes);
    }
    let taken = bystander.server.resident_bytes().saturating_sub(before);
    assert!(taken < COUNT * (256 << 10), "{} KiB for each connection", (taken / COUNT) >> 10);
    for client in &mut clients {
        client.send(b"7");
        assert_eq!(client.receive().status, BAD_HANDLE);
        assert_eq!(client.ask(1, &[b"none"]).status, NOT_FOUND);
    }
    bystander.finish();
}

#[test]
fn a_long_request_that_is_no_write_is_refused_and_the_connection_stays() {
    let bystander = Bystander::start(&[]);
    let mut client = bystander.server.connect();
    for operation in [0, 1, 2, 3, 5, 7, 8, 255] {
        let response = client.ask(operation, &[&vec![b'k'; 1 << 20]]);
        assert_eq!(response.status, INVALID, "{operation}");
    }
    assert!(client.get("page") == content(1, 2 << 20));
    bystander.finish();
}

#[test]
fn connections_handles_and_writers_have_limits_and_come_back() {
    let bystander = Bystander::start(&["--connections", "4"]);
    let mut clients: Vec<Client> = (0..3).map(|_| bystander.server.connect()).collect();
    let mut refused = Client::connect_silently(&bystander.server.socket);
    assert_eq!(refused.receive_bytes(8), b"LARDER\x01\x00");
    let response = refused.receive();
    assert_eq!(response.status, TOO_MANY);
    assert!(String::from_utf8(response.content).unwrap().contains("--connections"));
    assert!(refused.is_ended());

    let handles: Vec<u32> = (0..64).map(|_| clients[0].open("page")).collect();
    assert_eq!(clients[0].ask(1, &[b"page"]).status, TOO_MANY);
    assert_eq!(clients[0].close(handles[0]).status, 0);
    clients[0].open("page");

    drop(clients);
    bystander.finish();
}

/// Begins to write a value. Returns the status.
fn begin_value(client: &mut Client) -> u8 {
    client.ask(2, &[&u64::MAX.to_le_bytes(), b"new"]).status
}

/// Guards against two programs that hold all unfinished values, so that nobody else can write.
#[test]
fn a_connection_has_its_share_of_unfinished_values_and_no_more() {
    let mut bystander = Bystander::start(&[]);
    let mut clients: Vec<Client> = (0..16).map(|_| bystander.server.connect()).collect();
    for client in &mut clients[..2] {
        (0..8).for_each(|_| assert_eq!(begin_value(client), 0));
        assert_eq!(begin_value(client), TOO_MANY);
    }
    for client in &mut clients[2..] {
        while begin_value(client) == 0 {}
    }
    assert_eq!(begin_value(&mut bystander.client), 0, "the first value of a connection has a place of its own");
    assert_eq!(begin_value(&mut bystander.client), TOO_MANY, "all shared places are taken");
    drop(clients);
    // The server notices in its own time that they are gone.
    let mut tries = (0..1000).map(|_| begin_value(&mut bystander.client));
    assert!(tries.any(|status| status == 0), "the places of clients that are gone stay taken");
    bystander.finish();
}

/// Guards against a few programs that keep values open for reading, so that nobody else can read or write.
#[test]
fn a_connection_can_read_and_write_a_value_whatever_the_others_hold_open() {
    let mut bystander = Bystander::start(&[]);
    let mut clients: Vec<Client> = (0..17).map(|_| bystander.server.connect()).collect();
    for client in &mut clients {
        while client.ask(1, &[b"page"]).status == 0 {}
    }
    bystander.client.open("page");
    assert_eq!(begin_value(&mut bystander.client), 0);
    assert_eq!(bystander.client.ask(1, &[b"page"]).status, TOO_MANY, "all shared places are taken");
    drop(clients);
    // Places of closed connections come back one after the other, but each connection has some of its own.
    bystander.client = bystander.server.connect();
    bystander.finish();
}
