//! Guards against one client that uses a school's whole uplink, or a delay that truncates or changes a response. Times
//! are lower bounds only: a response slower than its rate is never a failure here.

use std::{
    num::NonZeroU64,
    time::{Duration, Instant},
};

use larder_proxy::{HostPattern, RateLimit, RateSharing};

use crate::support::{Connection, Fixture, Reply};

const RATE: u64 = 40_000;
const BURST: u64 = 4_000;

fn delay(host: &str, shared: RateSharing) -> RateLimit {
    let hosts: Vec<HostPattern> = vec![host.parse().unwrap()];
    let clients = vec!["127.0.0.0/8".parse().unwrap()];
    let rate = NonZeroU64::new(RATE).unwrap();
    RateLimit { name: "slow".to_owned(), clients, hosts, rate, burst_bytes: Some(BURST), shared }
}

/// Returns a body in which every position has a different content.
fn numbered(bytes: usize) -> String {
    (0..).flat_map(|number: u32| format!("{number} ").into_bytes()).take(bytes).map(char::from).collect()
}

/// Returns the minimum time for `bytes` at the configured rate, without the burst and one piece of each response.
fn least(bytes: usize, responses: usize) -> Duration {
    let piece = RATE as usize / 16;
    Duration::from_secs_f64((bytes - BURST as usize - responses * piece) as f64 / RATE as f64)
}

fn slowed(shared: RateSharing) -> Fixture {
    Fixture::with(
        |received, _| match received.target.as_str() {
            "/socket" => Reply::head("101 Switching Protocols", &["Connection: Upgrade", "Upgrade: websocket"])
                .send("hello")
                .echo(),
            _ => Reply::ok(&["Cache-Control: max-age=60"], numbered(20_000)),
        },
        |config| config.rate_limits = vec![delay("slow.example", shared)],
    )
}

fn ask(client: &mut Connection, host: &str) {
    client.send(format!("GET /{host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
}

#[test]
fn misses_and_hits_come_whole_and_no_faster_than_their_rate() {
    let fixture = slowed(RateSharing::Together);
    let start = Instant::now();
    for turn in 1..=3 {
        let mut client = fixture.connect();
        ask(&mut client, "slow.example");
        let response = client.read_response("GET");
        assert_eq!((response.status, response.text().as_bytes()), (200, numbered(20_000).as_bytes()));
        assert!(start.elapsed() >= least(turn * 20_000, turn), "{turn}: {:?}", start.elapsed());
    }
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn those_who_share_a_rate_wait_for_each_other_and_others_do_not() {
    let fixture = slowed(RateSharing::Together);
    let start = Instant::now();
    let mut slow: Vec<Connection> = (0..3).map(|_| fixture.connect()).collect();
    slow.iter_mut().for_each(|client| ask(client, "slow.example"));
    let mut other = fixture.connect();
    ask(&mut other, "www.example");
    assert_eq!(other.read_response("GET").text(), numbered(20_000));
    let before = start.elapsed();
    for client in &mut slow {
        assert_eq!(client.read_response("GET").text(), numbered(20_000));
    }
    assert!(start.elapsed() >= least(60_000, 3), "{:?}", start.elapsed());
    assert!(before < start.elapsed(), "who is not slowed is served first");
}

#[test]
fn what_comes_through_upgrades_is_slowed_too() {
    let fixture = slowed(RateSharing::Client);
    let start = Instant::now();
    let mut client = fixture.connect();
    client.send("GET /socket HTTP/1.1\r\nHost: slow.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.read_head().status, 101);
    assert_eq!(client.read_exact(5), b"hello");
    let bytes = numbered(20_000);
    client.send(bytes.as_bytes());
    assert_eq!(client.read_exact(bytes.len()), bytes.as_bytes());
    assert!(start.elapsed() >= least(20_000, 1), "{:?}", start.elapsed());
}
