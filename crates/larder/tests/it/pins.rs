//! Checks that pinned responses are there when the uplink is down, and that pins do not fill the store.

use crate::{
    origin::{Origin, body_of},
    ports::free_address,
    process::{Larder, refused, said},
};
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::mpsc,
    thread,
};
use tempfile::TempDir;

const SITE: &str = "http://www.example.test";

/// Starts a proxy of this user, on the default store, in front of `origin`.
fn start(home: &TempDir, origin: &Origin, flags: &[&str]) -> Larder {
    let origin = format!("http://{}", origin.address);
    Larder::start(home, &[&["--size", "64MiB", "--memory-cache", "1MB", "--origin", &origin], flags].concat())
}

/// Entries short and long, one of them in chunks.
fn wanted(prefix: &str) -> Vec<String> {
    let short = (0..20).map(|number| format!("/keep/{prefix}/{number}?bytes={}", 1_000 + 3_000 * number));
    short.chain([format!("/keep/{prefix}/film?bytes=2500000")]).collect()
}

/// Stores more than the whole store has room for. Each response is requested twice, so that it is admitted.
fn turn_over(larder: &Larder, round: u32) {
    for number in 0..160 {
        let path = format!("/other/{round}/{number}?bytes=700000");
        (0..2).for_each(|_| assert_eq!(larder.get(&path).status, 200));
    }
}

#[test]
fn what_is_pinned_survives_turnovers_and_a_kill() {
    for policy in ["log", "log-clock"] {
        let home = TempDir::new().unwrap();
        let origin = Origin::start();
        let larder = start(&home, &origin, &["--policy", policy]);
        let before = wanted("before");
        let after = wanted("after");
        before.iter().for_each(|path| assert_eq!(larder.get(path).status, 200));
        assert_eq!(larder.get("/else?bytes=700000").status, 200);
        let pattern = format!("{SITE}/keep/*");
        // The client receives the end of a long response shortly before the store has it.
        assert!((0..1000).any(|_| before.last().is_some_and(|film| larder.get(film).is_hit())), "it is stored");
        let told = said(&home, &["pin", &pattern]);
        assert!(
            told.starts_with("pinned 21 responses, 3.09 MB; ")
                && told.contains(" of at most ")
                && told.contains(" are pinned"),
            "{told}"
        );
        after.iter().for_each(|path| assert_eq!(larder.get(path).status, 200));
        let all: Vec<&String> = before.iter().chain(&after).collect();
        let are_all_hits = |larder: &Larder, when: &str| {
            let asked = origin.count();
            for path in &all {
                let response = larder.get(path);
                assert!(response.is_hit(), "{policy}, {when}: {path}: {:?}", response.field("cache-status"));
                assert_eq!(response.body, body_of(path), "{policy}, {when}");
            }
            assert_eq!(origin.count(), asked, "{policy}, {when}");
        };
        (1..=2).for_each(|round| turn_over(&larder, round));
        are_all_hits(&larder, "turned over twice");
        let other = larder.get("/else?bytes=700000");
        assert!(!other.is_hit(), "{policy} evicts what is not pinned: {:?}", other.field("cache-status"));
        larder.signal(Signal::KILL);
        drop(larder);
        let record = home.path().join("cache/larder/store.larder.pinned");
        assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
        let larder = start(&home, &origin, &[]);
        are_all_hits(&larder, "killed");
        (3..=4).for_each(|round| turn_over(&larder, round));
        are_all_hits(&larder, "killed and turned over twice");
        let listed = said(&home, &["pin"]);
        assert!(listed.contains(&format!("42    6.18 MB  {pattern}")), "{listed}");
        let explained = said(&home, &["explain", &format!("{SITE}{}", before[0])]);
        assert!(explained.contains("pinned   yes"), "{explained}");
        assert!(said(&home, &["unpin", &pattern]).starts_with("0 B of at most "));
        assert_eq!(larder.stop(), Some(0));
    }
}

/// Serves a long body of unknown length at `/keep/film`, whose second half waits until it is released for the first time,
/// and short bodies elsewhere.
fn start_two_piece_origin() -> (SocketAddr, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (let_go, wait) = mpsc::channel();
    thread::spawn(move || {
        let mut wait = Some(wait);
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            connection
                .write_all(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nConnection: close\r\n\r\n")
                .unwrap();
            if !head[0].contains("/keep/film") {
                connection.write_all(&vec![b'c'; 700_000]).unwrap();
                continue;
            }
            // A store that is slow for others' sake gives up the first response. A later one comes at once.
            let wait = wait.take();
            thread::spawn(move || {
                connection.write_all(&vec![b'a'; FIRST_PIECE]).unwrap();
                wait.into_iter().for_each(|wait| wait.recv().unwrap());
                connection.write_all(&vec![b'b'; SECOND_PIECE]).unwrap();
            });
        }
    });
    (address, let_go)
}

const FIRST_PIECE: usize = 2_500_000;
const SECOND_PIECE: usize = 1_000_000;

/// Guards against a pin that `larder pin` reported, and that the next start does not know.
#[test]
fn pin_that_cannot_be_recorded_is_reported_and_can_be_repeated() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let record = home.path().join("cache/larder/store.larder.pinned");
    // A directory in the place of the file cannot be written by any user.
    fs::create_dir_all(&record).unwrap();
    let larder = start(&home, &origin, &[]);
    assert!((0..1000).any(|_| larder.get("/keep/1").is_hit()));
    let pattern = format!("{SITE}/keep/*");
    let told = refused(&home, &["pin", &pattern], 1);
    assert!(told.contains("lasts until the proxy stops") && told.contains("store.larder.pinned"), "{told}");
    fs::remove_dir(&record).unwrap();
    assert!(said(&home, &["pin", &pattern]).starts_with("pinned 1 response, "));
    larder.signal(Signal::KILL);
    drop(larder);
    let larder = start(&home, &origin, &[]);
    let listed = said(&home, &["pin"]);
    assert!(listed.trim_start().starts_with("1 ") && listed.contains(&pattern), "{listed}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn long_response_that_arrives_while_it_is_pinned_is_pinned_whole() {
    let home = TempDir::new().unwrap();
    let (origin, let_go) = start_two_piece_origin();
    let origin = format!("http://{origin}");
    let larder = Larder::start(&home, &["--size", "64MiB", "--memory-cache", "1MB", "--origin", &origin]);
    let mut client = TcpStream::connect(larder.address).unwrap();
    client.write_all(b"GET /keep/film HTTP/1.1\r\nHost: www.example.test\r\n\r\n").unwrap();
    client.read_exact(&mut vec![0; FIRST_PIECE]).unwrap();
    said(&home, &["pin", &format!("{SITE}/keep/*")]);
    let_go.send(()).unwrap();
    let is_listed = || said(&home, &["pin"]).trim_start().starts_with("1     3.5 MB");
    assert!((0..1000).any(|_| larder.get("/keep/film").is_hit() && is_listed()), "it is stored whole, and pinned");
    (1..=2).for_each(|round| turn_over(&larder, round));
    let film = larder.get("/keep/film");
    assert!(film.is_hit(), "{:?}", film.field("cache-status"));
    assert_eq!(film.body.len(), FIRST_PIECE + SECOND_PIECE);
    assert!(is_listed());
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn what_would_take_more_than_its_share_is_refused_with_figures_and_nothing_is_pinned() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &["--tune", "pin_share=0.05"]);
    (0..40).for_each(|number| assert_eq!(larder.get(&format!("/keep/{number}?bytes=100000")).status, 200));
    assert!(said(&home, &["pin", &format!("{SITE}/keep/1*")]).starts_with("pinned 11 responses"));
    let told = refused(&home, &["pin", SITE], 1);
    assert!(told.contains("nothing was pinned: the matching responses have 40"), "{told}");
    let json = said(&home, &["pin", "--json"]);
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), lines[0]["responses"].as_u64(), lines[1]["responses"].as_u64()), (2, Some(11), Some(11)));
    assert!(said(&home, &["unpin", "--all"]).starts_with("0 B of at most "));
    assert_eq!(said(&home, &["pin"]).lines().count(), 1);
    // A purged response is no longer kept, and is pinned again when it is fetched again.
    said(&home, &["pin", &format!("{SITE}/keep/7*")]);
    said(&home, &["purge", &format!("{SITE}/keep/7?bytes=100000")]);
    let listed = |count: &str| said(&home, &["pin"]).trim_start().starts_with(&format!("{count} "));
    assert!(listed("0"), "its room is free");
    larder.get("/keep/7?bytes=100000");
    assert!(listed("1"));
}

#[test]
fn bad_input_is_told_and_nothing_is_pinned() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    assert!(refused(&home, &["pin", "--admin", &nobody(), SITE], 1).contains("cannot connect to the admin listener"));
    let larder = start(&home, &origin, &[]);
    let list = home.path().join("list");
    fs::write(&list, "# wanted\n\nhttp://a.example/*\nftp://b.example/\n").unwrap();
    for (source, told) in [
        ("http://a b/", "one word of ASCII"),
        ("ftp://a.example/", "must begin with http://"),
        ("http://", "has no host"),
        (list.to_str().unwrap(), "line 4: not a URL pattern"),
    ] {
        let found = refused(&home, &["pin", source], 2);
        assert!(found.contains(told), "{source}: {found}");
    }
    let missing = home.path().join("none").to_str().unwrap().to_owned();
    assert!(refused(&home, &["pin", &missing], 1).contains(&format!("cannot read the list {missing}")));
    assert!(refused(&home, &["unpin", SITE], 1).contains("not pinned: http://www.example.test/*"));
    assert!(refused(&home, &["unpin"], 2).contains("missing: "));
    assert!(said(&home, &["pin", SITE]).starts_with("pinned, but no stored response matches yet"));
    assert_eq!(larder.stop(), Some(0));
    for flags in [&["--disk", "none"][..], &["--policy", "squid", "--disk"]] {
        let store = home.path().join("another").to_str().unwrap().to_owned();
        let flags: Vec<&str> = flags.iter().copied().chain((flags.len() > 2).then_some(&*store)).collect();
        let origin = format!("http://{}", origin.address);
        let sized: &[&str] = if flags.len() > 2 { &["--size", "64MiB"] } else { &[] };
        let larder = Larder::start(&home, &[&["--origin", &origin], sized, &flags[..]].concat());
        let told = refused(&home, &["pin", SITE], 1);
        assert!(told.contains("has no store on disk") || told.contains("does not support pins; log and"), "{told}");
        assert_eq!(larder.stop(), Some(0));
    }
}

/// Returns an address on which nothing listens.
fn nobody() -> String {
    free_address().to_string()
}
