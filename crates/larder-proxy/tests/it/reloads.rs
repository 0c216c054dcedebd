//! Reloads: a request that demands a response no older than itself does not receive one requested before it (RFC 9111
//! 5.2.1.1, 5.2.1.4, 5.4).

use crate::support::{Fixture, Gate, Received, Reply, eventually};

/// Starts an origin that numbers its responses, and holds those with these numbers back until their gates open.
fn held(gates: [(usize, &Gate); 2], fields: &'static str) -> Fixture {
    let gates = gates.map(|(number, gate)| (number, gate.clone()));
    Fixture::new(move |_: &Received, number| {
        let reply = gates.iter().filter(|(held, _)| *held == number);
        let reply = reply.fold(Reply::default(), |reply, (_, gate)| reply.wait(gate));
        let body = number.to_string();
        reply.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    })
}

#[test]
fn reload_does_not_join_a_fetch_that_began_before_it() {
    for field in ["Cache-Control: no-cache", "Cache-Control: max-age=0", "Pragma: no-cache"] {
        let first = Gate::default();
        let none = Gate::default();
        let fixture = held([(0, &first), (usize::MAX, &none)], "Cache-Control: max-age=60");
        std::thread::scope(|scope| {
            let plain = scope.spawn(|| fixture.get("/", &[]).text());
            eventually("the first is with the origin", || fixture.origin.count() == 1);
            let reloaded = fixture.get("/", &[field]);
            assert_eq!((reloaded.text().as_str(), reloaded.is_hit()), ("1", false), "{field}");
            first.open();
            assert_eq!(plain.join().unwrap(), "0");
        });
    }
}

#[test]
fn reloads_that_wait_share_one_request_that_began_after_them() {
    let first = Gate::default();
    let second = Gate::default();
    let fixture = held([(0, &first), (1, &second)], "Cache-Control: max-age=60\r\nETag: \"a\"");
    std::thread::scope(|scope| {
        let reload = || fixture.get("/", &["Cache-Control: no-cache"]).text();
        let one = scope.spawn(reload);
        eventually("the first is with the origin", || fixture.origin.count() == 1);
        let others: Vec<_> = (0..5).map(|_| scope.spawn(reload)).collect();
        eventually("all but one wait for another", || fixture.proxy.stats().collapsed_requests == 4);
        assert_eq!(fixture.origin.count(), 1);
        first.open();
        assert_eq!(one.join().unwrap(), "0");
        eventually("that is with the origin", || fixture.origin.count() == 2);
        second.open();
        for other in others {
            assert_eq!(other.join().unwrap(), "1");
        }
    });
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn who_bounds_the_age_is_not_answered_by_what_comes_older() {
    let first = Gate::default();
    let none = Gate::default();
    let fixture = held([(0, &first), (usize::MAX, &none)], "Cache-Control: max-age=600\r\nAge: 100");
    std::thread::scope(|scope| {
        let plain = scope.spawn(|| fixture.get("/", &[]).text());
        eventually("the first is with the origin", || fixture.origin.count() == 1);
        let bounded = scope.spawn(|| fixture.get("/", &["Cache-Control: max-age=50"]).text());
        let accepting = scope.spawn(|| fixture.get("/", &["Cache-Control: max-age=500"]).text());
        eventually("both wait", || fixture.proxy.stats().collapsed_requests == 2);
        first.open();
        assert_eq!((plain.join().unwrap().as_str(), accepting.join().unwrap().as_str()), ("0", "0"));
        assert_eq!(bounded.join().unwrap(), "1");
    });
}
