//! At stake: a machine that has less than usual, on which Larder starts and then fails in a way that nobody expects.
//! `tests/real/platform.sh` tries what only root can take away.

use crate::{origin::Origin, process::Larder};
use std::{
    io::{Read, Write},
    net::TcpStream,
};
use tempfile::TempDir;

#[test]
fn clients_leave_descriptors_for_origins_where_few_files_may_be_open() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let url = format!("http://{}", origin.address);
    let larder = Larder::start_with_files(&home, 256, &["--disk", "none", "--origin", &url]);
    let lines = &larder.start_lines;
    assert!(lines.contains("warning  78 clients may connect instead of 16384"), "{lines}");
    let mut clients: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(larder.address).unwrap()).collect();
    // The last one is refused, with or without a response, so the first ones are served by now.
    let mut refusal = Vec::new();
    let _ = clients[299].read_to_end(&mut refusal);
    assert!(!refusal.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&refusal));
    clients[0].write_all(b"GET /a HTTP/1.1\r\nHost: www.example.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    clients[0].read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}
