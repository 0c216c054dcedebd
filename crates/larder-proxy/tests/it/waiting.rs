//! Requests that wait for a slow origin. In the meantime, their connections keep no buffers.

use crate::support::{Connection, Fixture, Gate, Received, Reply, Response, eventually, request_text};

/// Starts a proxy without a store. The origin responds to everything below `/slow` once the gate is open.
fn fixture(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> (Fixture, Gate) {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::without_store(move |received, _| {
        if received.target.starts_with("/slow") {
            held.wait();
        }
        reply(received)
    });
    (fixture, gate)
}

fn unstored(received: &Received) -> Reply {
    Reply::ok(&["Cache-Control: no-store"], &received.target)
}

fn send(fixture: &Fixture, method: &str, fields: &[&str]) -> Connection {
    let mut client = fixture.connect();
    client.send(request_text(method, "/slow", fields));
    client
}

fn parked(fixture: &Fixture, count: u64) {
    eventually("the requests wait", || fixture.proxy.stats().exchanges_parked == count);
}

fn text_of(response: &Response) -> (u16, String, bool) {
    (response.status, response.text(), response.complete)
}

#[test]
fn response_after_a_long_wait_is_framed_as_its_request_demands() {
    let (fixture, gate) = fixture(|received| match received.method.as_str() {
        "HEAD" => Reply::head("200 OK", &["Cache-Control: no-store", "Content-Length: 5"]),
        _ => unstored(received),
    });
    let mut get = send(&fixture, "GET", &[]);
    let mut head = send(&fixture, "HEAD", &[]);
    let mut last = send(&fixture, "GET", &["Connection: close"]);
    parked(&fixture, 3);
    gate.open();
    let response = get.read_response("GET");
    assert_eq!((text_of(&response), response.field("connection")), ((200, "/slow".into(), true), None));
    let response = head.read_response("HEAD");
    assert_eq!((response.status, response.field("content-length")), (200, Some("5")));
    // Both connections continue.
    for client in [&mut get, &mut head] {
        assert_eq!(text_of(&client.request("GET", "/quick", &[])), (200, "/quick".into(), true));
    }
    assert_eq!((text_of(&last.read_response("GET")), last.is_closed()), ((200, "/slow".into(), true), true));
    parked(&fixture, 0);
    assert_eq!(fixture.origin.count(), 5, "no request is sent again");
}

#[test]
fn trailers_reach_a_client_that_has_waited_for_them() {
    let (fixture, gate) = fixture(|_| {
        let fields = ["Cache-Control: no-store", "Transfer-Encoding: chunked", "Trailer: T"];
        Reply::head("200 OK", &fields).send("2\r\nok\r\n0\r\nT: 1\r\n\r\n")
    });
    let mut client = send(&fixture, "GET", &["TE: trailers", "Connection: close, TE"]);
    parked(&fixture, 1);
    gate.open();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut client.reader, &mut text).unwrap();
    assert!(text.ends_with("0\r\nt: 1\r\n\r\n"), "{text}");
}

#[test]
fn next_request_may_come_while_the_first_one_waits() {
    let (fixture, gate) = fixture(unstored);
    let mut client = send(&fixture, "GET", &[]);
    parked(&fixture, 1);
    client.send(request_text("GET", "/next", &[]) + &request_text("GET", "/last", &[]));
    gate.open();
    for target in ["/slow", "/next", "/last"] {
        assert_eq!(text_of(&client.read_response("GET")), (200, target.into(), true));
    }
}

#[test]
fn client_that_ends_its_side_while_it_waits_is_answered() {
    let (fixture, gate) = fixture(unstored);
    let mut client = send(&fixture, "GET", &[]);
    parked(&fixture, 1);
    client.end_sending();
    // Both workers turn after that, so the end is seen before the response.
    for _ in 0..16 {
        assert_eq!(fixture.get("/quick", &[]).status, 200);
    }
    gate.open();
    assert_eq!((text_of(&client.read_response("GET")), client.is_closed()), ((200, "/slow".into(), true), true));
    parked(&fixture, 0);
}

#[test]
fn request_that_waits_is_abandoned_soon_after_its_client_has_left() {
    let (fixture, gate) = fixture(unstored);
    let client = send(&fixture, "GET", &[]);
    parked(&fixture, 1);
    drop(client);
    parked(&fixture, 0);
    eventually("its connection has ended", || fixture.proxy.stats().connections_open == 0);
    gate.open();
    assert_eq!(fixture.get("/slow", &[]).status, 200);
}

#[test]
fn interim_response_reaches_a_client_that_waits() {
    let early = Gate::default();
    let late = Gate::default();
    let gates = (early.clone(), late.clone());
    let fixture = Fixture::without_store(move |_, _| {
        let hints = Reply::default().wait(&gates.0).send("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n");
        hints.wait(&gates.1).send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    });
    let mut client = send(&fixture, "GET", &[]);
    parked(&fixture, 1);
    early.open();
    let hints = client.read_head();
    assert_eq!((hints.status, hints.field("link")), (103, Some("<a>")));
    late.open();
    assert_eq!(text_of(&client.read_response("GET")), (200, "ok".into(), true));
}

#[test]
fn drain_lets_requests_that_wait_finish() {
    let (fixture, gate) = fixture(unstored);
    let mut client = send(&fixture, "GET", &[]);
    parked(&fixture, 1);
    let Fixture { proxy, .. } = fixture;
    let stopping = std::thread::spawn(move || proxy.shutdown(std::time::Duration::from_secs(20)));
    gate.open();
    assert_eq!((text_of(&client.read_response("GET")), client.is_closed()), ((200, "/slow".into(), true), true));
    stopping.join().unwrap();
}
