//! Requests for which no memory is left are refused, and nobody waits for a client that stands still.

use larder_proxy::Outcome;

use crate::support::{Connection, Fixture, Gate, Received, Reply, eventually};

/// Memory for the smallest memory cache and a few exchanges, in bytes.
const EXCHANGE_BYTES: u64 = (1 << 20) + (192 << 10);
/// More requests than that.
const REQUEST_COUNT: usize = 24;

fn limited(answer: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Fixture {
    Fixture::without_store_with(answer, |config| config.exchange_bytes = Some(EXCHANGE_BYTES))
}

/// Sends more requests than there is memory for, and returns their connections and how many were refused.
fn overload(fixture: &Fixture) -> (Vec<Connection>, usize) {
    let refused = || usize::try_from(fixture.proxy.stats().outcome(Outcome::Failed)).unwrap();
    let before = fixture.origin.count();
    let mut connections: Vec<_> = (0..REQUEST_COUNT).map(|_| fixture.connect()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        connection.send(format!("GET /{number} HTTP/1.1\r\nHost: site.example\r\n\r\n"));
        eventually("it waits or is refused", || fixture.origin.count() - before + refused() == number + 1);
    }
    (connections, refused())
}

#[test]
fn requests_without_memory_are_told_to_come_back_while_hits_from_memory_are_served() {
    let gate = Gate::default();
    let opened = gate.clone();
    let fixture = limited(move |received, _| match received.target.as_str() {
        "/kept" => Reply::ok(&["Cache-Control: max-age=60"], "kept"),
        _ => Reply::default().wait(&opened).send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"),
    });
    assert_eq!(fixture.get_hit("/kept", &[]).text(), "kept");
    let (mut connections, refused) = overload(&fixture);
    assert!((1..REQUEST_COUNT - 2).contains(&refused), "{refused} of {REQUEST_COUNT}");
    assert_eq!(fixture.get("/kept", &[]).text(), "kept");
    for mut connection in connections.drain(REQUEST_COUNT - refused..) {
        let told = connection.read_response("GET");
        assert_eq!((told.status, told.field("retry-after")), (503, Some("1")));
    }
    gate.open();
    for mut connection in connections {
        assert_eq!(connection.read_response("GET").text(), "late");
    }
    eventually("there is memory again", || fixture.get("/next", &[]).status == 200);
}

#[test]
fn responses_that_do_not_end_take_memory_but_no_place_in_a_queue() {
    let gate = Gate::default();
    let opened = gate.clone();
    let fixture = limited(move |_, _| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 8\r\n\r\n";
        Reply::default().send(format!("{head}late")).wait(&opened).send("late")
    });
    let mut connections: Vec<_> = (0..REQUEST_COUNT).map(|_| fixture.connect()).collect();
    let heads = connections.iter_mut().map(|connection| {
        connection.send("GET /long HTTP/1.1\r\nHost: site.example\r\n\r\n");
        connection.read_head().status
    });
    let refused = heads.filter(|status| *status == 503).count();
    assert!((1..REQUEST_COUNT - 2).contains(&refused), "{refused} of {REQUEST_COUNT}");
    assert_eq!(fixture.get("/another", &[]).status, 503);
    gate.open();
    drop(connections);
    eventually("there is memory again", || fixture.get("/another", &[]).status == 200);
}

#[test]
fn http2_connection_without_memory_is_told_that_nothing_was_processed() {
    let fixture = Fixture::without_store_with(
        |_, _| Reply::ok(&[], "x"),
        |config| {
            // Memory for a connection, but not for the state of HTTP/2.
            config.exchange_bytes = Some((1 << 20) + (16 << 10));
        },
    );
    let mut connection = fixture.connect();
    connection.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    let settings_and_goaway = connection.read_exact(26);
    assert_eq!(settings_and_goaway[3], 4);
    assert_eq!(settings_and_goaway[9..], *b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b");
    assert!(connection.is_closed());
}
