//! Checks that memory that a burst of clients used returns to the system.

use crate::{origin::Origin, process::Larder};
use std::{
    fs,
    io::Write,
    net::TcpStream,
    sync::{Arc, RwLock, mpsc},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Number of requests that wait at once, and the bytes of each one's fields.
const WAITING: usize = 200;
const FIELD_BYTES: usize = 50_000;
/// The promise in docs/explanation/semantics.md, section 5.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(10);

#[test]
#[cfg_attr(not(feature = "jemalloc"), ignore = "the C library's allocator keeps it")]
fn memory_of_a_burst_is_given_back_within_10_seconds() {
    let home = TempDir::new().unwrap();
    let (asked, was_asked) = mpsc::channel();
    let gate = Arc::new(RwLock::new(()));
    let origin = format!("http://{}", Origin::start_gated(asked, Arc::clone(&gate)).address);
    // Idle connections to the origin keep their buffers.
    let config = home.path().join("larder.toml");
    fs::write(&config, "[limits]\norigin_idle_connections = 1\n").unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--disk", "none", "--memory-cache", "1MB", "--origin", &origin];
    let larder = Larder::start(&home, &flags);
    let request = |number| {
        let mut connection = TcpStream::connect(larder.address).unwrap();
        let field = "x".repeat(FIELD_BYTES / 10);
        let fields: String = (0..10).map(|name| format!("X-{name}: {field}\r\n")).collect();
        connection.write_all(format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n").as_bytes()).unwrap();
        connection
    };
    assert_eq!(larder.get("/first").status, 200);
    was_asked.recv().unwrap();
    let before = larder.resident_bytes();

    let closed = gate.write().unwrap();
    let burst: Vec<TcpStream> = (0..WAITING).map(request).collect();
    burst.iter().for_each(|_| was_asked.recv().unwrap());
    let during = larder.resident_bytes() - before;
    assert!(during >= WAITING * FIELD_BYTES, "it took {during} bytes, which is not even the fields");
    drop((burst, closed));

    let end = Instant::now() + GIVEN_BACK_WITHIN;
    loop {
        let kept = larder.resident_bytes().saturating_sub(before);
        if kept <= during / 4 {
            return;
        }
        assert!(Instant::now() < end, "{kept} bytes of {during} are kept");
        thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn memory_of_the_whole_process_is_divided_and_the_parts_are_printed() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let origin = format!("http://{}", origin.address);
    let started = |flags: &[&str]| {
        let larder = Larder::start(&home, &[flags, &["--origin", &origin, "--workers", "1"]].concat());
        let lines = larder.start_lines.clone();
        assert_eq!(larder.stop(), Some(0));
        lines.lines().find_map(|line| Some(line.trim().strip_prefix("memory ")?.trim().to_owned())).unwrap()
    };
    let memory = started(&["--disk", "none", "--memory", "64MB"]);
    assert!(memory.starts_with("64 MB in all: ") && memory.ends_with(" memory cache"), "{memory}");
    let memory = started(&["--disk", "none", "--memory", "64MB", "--memory-cache", "5MB"]);
    assert!(memory.ends_with(", 5 MB memory cache"), "{memory}");
    let memory = started(&["--size", "64MiB", "--memory", "64MB"]);
    assert!(memory.contains(" index, ") && memory.contains(" read buffers, "), "{memory}");
    let memory = started(&["--disk", "none", "--memory-cache", "5MB"]);
    assert!(memory.ends_with(", 5 MB memory cache"), "{memory}");
}

#[test]
fn memory_that_nobody_gave_is_a_part_of_what_is_free_and_the_reason_is_printed() {
    let home = TempDir::new().unwrap();
    let larder = Larder::start(&home, &["--size", "1GB", "--memory", "auto"]);
    let lines: Vec<_> = larder.start_lines.lines().filter(|line| line.starts_with("  memory ")).collect();
    let [parts, reason] = lines[..] else { panic!("not two lines in {}", larder.start_lines) };
    assert!(parts.contains(" in all: ") && parts.ends_with(" memory cache"), "{parts}");
    assert!(reason.contains("auto: ") && reason.ends_with(" free; it shrinks while memory is short"), "{reason}");
    assert_eq!(larder.stop(), Some(0));
    let usual = Larder::start(&home, &[]);
    assert!(usual.start_lines.contains("  memory   auto: "), "{}", usual.start_lines);
}

impl Larder {
    /// Returns the resident memory of the process.
    fn resident_bytes(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
    }
}
