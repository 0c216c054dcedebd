//! Limits on the work and memory that clients can cause over HTTP/2, tested with raw frames.

use std::{
    io::Read as _,
    time::{Duration, Instant},
};

use crate::support::{Connection, Fixture, Gate, Reply, eventually, request_text};

/// An HTTP/2 client that sends exactly the given frames.
pub(crate) struct Raw(Connection);

impl Raw {
    /// Connects with these settings.
    pub(crate) fn open(fixture: &Fixture, settings: &[u8]) -> Self {
        let mut raw = Self(fixture.connect());
        raw.0.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        raw.send(SETTINGS, 0, 0, settings);
        raw
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.0.send_if_open(&frame(kind, flags, stream, payload));
    }

    /// Sends a GET on a stream.
    pub(crate) fn ask(&mut self, stream: u32, path: &str) {
        let mut fields = vec![0x82, 0x86, 0x04, path.len() as u8];
        fields.extend_from_slice(path.as_bytes());
        fields.extend_from_slice(b"\x01\x0csite.example");
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &fields);
    }

    /// Reads the next frame: its kind, flags, stream and payload. Returns `None` when the connection has ended.
    fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.reader.read_exact(&mut head).ok()?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)];
        self.0.reader.read_exact(&mut payload).ok()?;
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn floods_of_frames_that_ask_for_nothing_end_the_connection() {
    let fixture = Fixture::with(|_, _| Reply::ok(&[], "x"), |config| config.limits.control_count_max = 200);
    for (kind, stream, payload) in [
        (SETTINGS, 0, &[][..]),
        (PING, 0, &[0; 8]),
        (PRIORITY, 1, &[0, 0, 0, 0, 1]),
        (WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        (DATA, 1, &[]),
    ] {
        let mut raw = Raw::open(&fixture, &[]);
        raw.ask(1, "/");
        while raw.next().is_some_and(|(kind, flags, ..)| kind != DATA || flags & END_STREAM == 0) {}
        let flood = frame(kind, 0, stream, payload);
        (0..600).for_each(|_| raw.0.send_if_open(&flood));
        // The connection ends, although the client would continue.
        while raw.next().is_some() {}
    }
    eventually("they are counted as gone", || fixture.proxy.stats().connections_open == 0);
    assert_eq!(fixture.get("/", &[]).status, 200);
}

#[test]
fn head_over_http2_that_does_not_end_is_ended_as_over_http1() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture =
        Fixture::with(move |_, _| Reply::default().wait(&held), |config| config.limits.header = Duration::from_secs(1));
    let mut idle = Raw::open(&fixture, &[]);
    idle.send(HEADERS, END_STREAM, 1, &[0x82]);
    let mut busy = Raw::open(&fixture, &[]);
    busy.ask(1, "/held");
    eventually("the other request waits", || fixture.origin.count() == 1);
    busy.send(HEADERS, END_STREAM, 3, &[0x82]);
    for mut raw in [idle, busy] {
        // Single bytes do not extend the deadline.
        while raw.next().is_some() {
            raw.send(CONTINUATION, 0, 1, &[]);
        }
    }
    eventually("they are counted as gone", || fixture.proxy.stats().connections_open == 0);
    gate.open();
}

#[test]
fn streams_beyond_the_limit_are_refused_one_by_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::with(
        move |_, _| Reply::default().wait(&held).send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
        |config| config.limits.stream_count_max = 10,
    );
    let mut raw = Raw::open(&fixture, &[]);
    for number in 0..300 {
        raw.ask(2 * number + 1, &format!("/{number}"));
    }
    let mut refused = 0;
    let mut answered = 0;
    while refused + answered < 300 {
        match raw.next().expect("the connection goes on") {
            (RST_STREAM, _, _, why) => {
                assert_eq!(why, REFUSED_STREAM);
                refused += 1;
            }
            (HEADERS, ..) => answered += 1,
            (kind, ..) => assert_ne!(kind, GOAWAY),
        }
        if refused == 290 {
            gate.open();
        }
    }
    assert_eq!((refused, answered), (290, 10));
}

#[test]
fn responses_that_nobody_reads_share_one_budget_and_arrive_once_they_are_read() {
    const COUNT: u32 = 12;
    let body = vec![7; 3 << 20];
    let sent = body.clone();
    let fixture = Fixture::with(
        move |received, _| match received.target.as_str() {
            "/small" => Reply::ok(&[], "x"),
            _ => Reply::ok(&["Cache-Control: max-age=60"], &sent),
        },
        |config| (config.window_bytes, config.worker_count) = (Some(1 << 20), 1),
    );
    // No window for any stream.
    let mut raw = Raw::open(&fixture, &[0, 4, 0, 0, 0, 0]);
    (0..COUNT).for_each(|number| raw.ask(2 * number + 1, &format!("/{number}")));
    eventually("every response has begun to arrive", || {
        fixture.proxy.stats().origin_bytes >= u64::from(COUNT) * (64 << 10)
    });
    // A few at a time, they fill chunks for the store.
    let held_max = (1 << 20) + u64::from(COUNT) * (128 << 10);
    eventually("what was read ahead is in the store", || fixture.proxy.stats().window_bytes <= held_max);
    (0..100).for_each(|_| assert_eq!(fixture.get("/small", &[]).status, 200));
    raw.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    (0..COUNT).for_each(|number| raw.send(WINDOW_UPDATE, 0, 2 * number + 1, &(1_u32 << 24).to_be_bytes()));
    let mut ended = 0;
    let mut received = 0;
    while ended < COUNT {
        let (kind, flags, _, payload) = raw.next().expect("the connection goes on");
        assert!(kind != RST_STREAM && kind != GOAWAY, "{payload:?}");
        if kind == DATA {
            received += payload.len();
            ended += u32::from(flags & END_STREAM != 0);
        }
    }
    assert_eq!(received, COUNT as usize * body.len());
    eventually("nothing is held any more", || fixture.proxy.stats().window_bytes == 0);
}

#[test]
fn connections_to_one_origin_are_bounded_and_who_waits_is_served() {
    const CONNECT: Duration = Duration::from_millis(100);
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::with(
        move |_, _| Reply::default().wait(&held).send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
        |config| {
            config.policy.limits.origin_connection_count_max = 2;
            config.policy.limits.origin_connect = CONNECT;
            config.admin = Some("127.0.0.1:0".parse().unwrap());
        },
    );
    let mut clients: Vec<Connection> = (0..8).map(|_| fixture.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(request_text("GET", &format!("/{number}"), &[]));
    }
    eventually("two have reached the origin", || fixture.origin.count() == 2);
    eventually("the others wait", || fixture.proxy.stats().origin_waits == 6);
    let page = Connection::open_admin(fixture.proxy.admin_addr().unwrap()).request("GET", "/metrics", &[]).text();
    assert!(page.contains("\nlarder_origin_waiting_requests 6\n"), "{page}");
    // Longer than the limit for a connection, but they must not fail while their origin works.
    let since = Instant::now();
    eventually("they wait", || since.elapsed() > 2 * CONNECT);
    assert_eq!((fixture.origin.count(), fixture.origin.connections()), (2, 2));
    gate.open();
    for client in &mut clients {
        assert_eq!(client.read_response("GET").status, 200);
    }
    assert_eq!(fixture.origin.count(), 8);
}

/// Guards against an overloaded proxy that answers no client in time, where it could answer most of them.
#[test]
fn proxy_whose_processor_cannot_keep_up_refuses_some_requests_but_no_hit_from_memory() {
    let fixture = Fixture::without_store_with(
        |_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"),
        // No processor keeps up with this.
        |config| config.limits.lag = Duration::from_nanos(1),
    );
    fixture.get_hit("/kept", &[]);
    let mut number = 0;
    let mut statuses = [0; 2];
    eventually("some requests are refused, and some are not", || {
        number += 1;
        let told = fixture.get(&format!("/{number}"), &["Cache-Control: no-store"]);
        if told.status == 503 {
            assert_eq!(told.field("retry-after"), Some("1"));
            assert!(told.text().contains("overloaded"), "{}", told.text());
        }
        statuses[usize::from(told.status == 503)] += 1;
        statuses[0] > 0 && statuses[1] > 20
    });
    for _ in 0..50 {
        assert!(fixture.get("/kept", &[]).is_hit());
    }
}

#[test]
fn who_waits_too_long_for_a_connection_is_told_to_come_back() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::with(
        move |_, _| Reply::default().wait(&held).send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
        |config| {
            config.policy.limits.origin_connection_count_max = 1;
            config.policy.limits.origin_response = Duration::from_millis(200);
        },
    );
    let mut first = fixture.connect();
    first.send(request_text("GET", "/first", &[]));
    eventually("it has reached the origin", || fixture.origin.count() == 1);
    let told = fixture.get("/second", &[]);
    assert_eq!((told.status, told.field("retry-after")), (503, Some("1")));
    gate.open();
    assert_eq!(first.read_response("GET").text(), "x");
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
