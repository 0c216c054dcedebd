//! Guards against a machine that has less than usual, on which Larder starts and then fails in a way that nobody
//! expects. `tests/real/platform.sh` tries what only root can take away.

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
    let clients: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(larder.address).unwrap()).collect();
    // Those that are not served get a 503, or only the end of the connection.
    let answers: Vec<String> = clients.into_iter().map(ask).collect();
    let served_count = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200")).count();
    assert!(served_count > 0, "nobody is served");
    let failed = answers.iter().find(|answer| answer.starts_with("HTTP/1.1 502"));
    assert_eq!(failed, None, "a request found no descriptor for its origin");
}

/// Sends a request and returns what arrives up to the end of the connection.
fn ask(mut client: TcpStream) -> String {
    let mut answer = Vec::new();
    // An error is ignored: a refused connection may be reset.
    let _ = client.write_all(b"GET /a HTTP/1.1\r\nHost: www.example.test\r\nConnection: close\r\n\r\n");
    let _ = client.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}
