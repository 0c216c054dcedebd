//! Protects hours of download over a slow uplink, if the process is killed in the middle of a long body.

use crate::process::Larder;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};
use tempfile::TempDir;

const MIB: usize = 1 << 20;
const LEN: usize = 8 * MIB;
/// The first response stops here, in the middle of a chunk.
const ARRIVED: usize = 5 * MIB + 300_000;
const TAG: &str = "\"resumed-after-a-kill\"";

/// Returns eight mebibytes, each of which begins with its number.
fn body() -> Vec<u8> {
    let mebibyte = |number: usize| {
        let mut bytes = format!("mebibyte {number} of the body").into_bytes();
        bytes.resize(MIB, b'a' + number as u8);
        bytes
    };
    (0..LEN / MIB).flat_map(mebibyte).collect()
}

/// Starts an origin that supports ranges, and stops in the middle of the whole body. Returns its address and the ranges
/// it receives.
fn start_origin() -> (SocketAddr, Arc<Mutex<Vec<Option<usize>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let noted = Arc::clone(&noted);
            thread::spawn(move || serve(connection.unwrap(), &noted));
        }
    });
    (address, asked)
}

fn serve(mut connection: TcpStream, asked: &Mutex<Vec<Option<usize>>>) {
    let lines = BufReader::new(connection.try_clone().unwrap()).lines();
    let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    if head.is_empty() {
        return;
    }
    let range = head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let first = range.and_then(|range| range.split('-').next()?.parse::<usize>().ok());
    let if_range = head.iter().any(|line| line.to_ascii_lowercase().starts_with("if-range: ") && line.contains(TAG));
    asked.lock().unwrap().push(first);
    let fields = format!("ETag: {TAG}\r\nCache-Control: max-age=3600\r\nAccept-Ranges: bytes\r\nConnection: close\r\n");
    let Some(first) = first.filter(|_| if_range) else {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {LEN}\r\n\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        connection.write_all(&body()[..ARRIVED]).unwrap();
        // The connection is silent from here on, until the other end closes it.
        let _ = connection.read(&mut [0]);
        return;
    };
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\n{fields}Content-Range: bytes {first}-{}/{LEN}\r\nContent-Length: {}\r\n\r\n",
        LEN - 1,
        LEN - first
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(&body()[first..]).unwrap();
}

/// Waits until the store's file contains a text, which shows that it was written.
fn wait_until_stored(store: &Path, text: &str) {
    let has_it = || {
        let bytes = fs::read(store).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    for _ in 0..3000 {
        if has_it() {
            return;
        }
        thread::park_timeout(Duration::from_millis(20));
    }
    panic!("{text} was not written");
}

#[test]
fn what_arrived_of_a_long_download_outlives_a_kill_and_only_the_remainder_is_fetched() {
    let home = TempDir::new().unwrap();
    let (origin, asked) = start_origin();
    let larder = Larder::start_reverse(&home, origin);
    let mut client = TcpStream::connect(larder.address).unwrap();
    client.write_all(b"GET /long HTTP/1.1\r\nHost: www.example.test\r\n\r\n").unwrap();
    let mut received = vec![0; ARRIVED];
    client.read_exact(&mut received).unwrap();
    let store = home.path().join("store.larder");
    for text in [TAG, "mebibyte 0 of the body", "mebibyte 4 of the body"] {
        wait_until_stored(&store, text);
    }
    // Killed.
    drop(larder);
    let larder = Larder::start_reverse(&home, origin);
    let whole = larder.get("/long");
    assert_eq!(whole.status, 200);
    assert!(whole.body.as_bytes() == body(), "{} bytes", whole.body.len());
    // The last mebibyte may have been written incompletely.
    let asked = asked.lock().unwrap().clone();
    assert!(
        [5, 4].iter().any(|&stored| asked == [None, Some(stored * MIB)]),
        "only the remainder is fetched: {asked:?}"
    );
    assert!(larder.get("/long").is_hit());
    assert_eq!(larder.stop(), Some(0));
}
