//! Guards against a socket that strangers can use, or another program's file that is removed.

use super::server::Server;
use crate::process::refused;
use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
};
use tempfile::TempDir;

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_owner_may_connect_unless_others_are_permitted() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home, &["--size", "64MiB"]);
    assert_eq!(mode(&server.socket), 0o600);
    assert_eq!(mode(&home.path().join("values")), 0o700);
    let socket = server.socket.clone();
    assert_eq!(server.stop(), Some(0));
    assert!(!socket.exists(), "the socket stays after the end");
    let server = Server::start(&home, &["--socket-mode", "660"]);
    assert_eq!(mode(&server.socket), 0o660);
    refused(&home, &["store", "serve", "values", "--socket-mode", "060"], 2);
}

#[test]
fn the_socket_of_a_killed_server_is_replaced_and_no_other_file() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home, &["--size", "64MiB"]);
    server.connect().put("page", b"bytes");
    let store = home.path().join("values");
    let socket = server.socket.clone();
    let at = |path: &std::path::Path| path.to_str().unwrap().to_owned();

    let told = refused(&home, &["store", "serve", &at(&store)], 1);
    assert!(told.contains("in use"), "{told}");
    let other = at(&home.path().join("other"));
    let told = refused(&home, &["store", "serve", &other, "--size", "64MiB", "--socket", &at(&socket)], 1);
    assert!(told.contains("another process listens"), "{told}");
    server.connect().get("page");
    server.kill();
    assert!(socket.exists());

    let server = Server::start(&home, &[]);
    server.connect();
    // A later server's socket stays when this one ends.
    fs::remove_file(&socket).unwrap();
    let _later = UnixListener::bind(&socket).unwrap();
    assert_eq!(server.stop(), Some(0));
    assert!(socket.exists());

    let file = home.path().join("file");
    fs::write(&file, "precious").unwrap();
    let told = refused(&home, &["store", "serve", &at(&store), "--socket", &at(&file)], 1);
    assert!(told.contains("not a socket"), "{told}");
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_store_of_another_size_or_policy_is_refused_as_it_is() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home, &["--size", "64MiB"]);
    server.connect().put("page", b"bytes");
    assert_eq!(server.stop(), Some(0));
    let store = home.path().join("values");
    for flags in [["--size", "128MiB"], ["--policy", "esp"], ["--memory", "1MiB"]] {
        let told = refused(&home, &[&["store", "serve", store.to_str().unwrap()], &flags[..]].concat(), 1);
        assert!(told.contains("cannot open the store"), "{told}");
    }
    assert_eq!(Server::start(&home, &[]).connect().get("page"), b"bytes");
}
