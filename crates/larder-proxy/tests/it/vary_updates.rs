//! A Vary that arrives later, with a 304, a response to HEAD or a new response, selects from then on (RFC 9111 4.1,
//! 4.3.4). Otherwise one client's page would be another's hit.

use crate::support::{Fixture, Gate, Received, Reply, eventually};

/// Makes a response stale on arrival.
const STALE: &str = "Age: 100";

fn who(received: &Received) -> &str {
    received.field("cookie").unwrap_or("nobody")
}

/// Starts an origin whose page differs for each client, and which states that only when the page is validated.
fn tells_late(first_vary: &'static str, body: impl Fn(&str) -> String + Send + Sync + 'static) -> Fixture {
    Fixture::new(move |received, number| {
        let tag = format!("ETag: \"{}\"", who(received));
        let same = received.field("if-none-match") == tag.strip_prefix("ETag: ");
        match (number, same || received.method == "HEAD") {
            (0, _) => Reply::ok(&["Cache-Control: max-age=10", STALE, &tag, first_vary], body(who(received))),
            (_, true) if received.method == "HEAD" => {
                Reply::head("200 OK", &["Cache-Control: max-age=60", "Vary: A, Cookie", &tag])
            }
            (_, true) => Reply::status("304 Not Modified", &["Cache-Control: max-age=60", "Vary: A, Cookie", &tag], ""),
            (_, false) => Reply::ok(&["Cache-Control: max-age=60", "Vary: A, Cookie", &tag], body(who(received))),
        }
    })
}

#[test]
fn vary_that_a_304_or_an_answer_to_head_brings_is_obeyed() {
    for (vary, method) in [("Vary: A", "GET"), ("Vary: A", "HEAD"), ("X: no vary", "GET"), ("X: no vary", "HEAD")] {
        let fixture = tells_late(vary, str::to_owned);
        let alice = ["A: 1", "Cookie: alice"];
        let bob = ["A: 1", "Cookie: bob"];
        assert_eq!(fixture.get("/", &alice).text(), "alice");
        assert_eq!(fixture.connect().request(method, "/", &alice).status, 200);
        let bobs = fixture.get("/", &bob);
        assert_eq!((bobs.is_hit(), bobs.text().as_str()), (false, "bob"), "{vary} {method}");
        for (asker, text) in [(alice, "alice"), (bob, "bob")] {
            let hit = fixture.get_hit("/", &asker);
            assert_eq!(hit.text(), text, "{vary} {method}");
            assert_eq!(hit.field("vary"), Some("A, Cookie"), "{vary} {method}");
        }
        assert_eq!(fixture.origin.count(), 3, "the page was keyed anew, not dropped: {vary} {method}");
    }
}

#[test]
fn long_page_that_varies_on_more_than_was_known_is_not_kept_as_it_was() {
    let fixture = tells_late("Vary: A", |who| who.repeat(400_000));
    let alice = ["Cookie: alice"];
    let bob = ["Cookie: bobby"];
    fixture.get("/", &alice);
    assert!(fixture.get("/", &alice).text().starts_with("alice"), "it was confirmed for her");
    assert!(fixture.get("/", &bob).text().starts_with("bobby"));
    assert!(fixture.get_hit("/", &alice).text().starts_with("alice"));
}

#[test]
fn one_who_waits_for_a_confirmation_that_is_not_for_him_gets_his_own() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |received, number| {
        let who = who(received);
        let tag = format!("ETag: \"{who}\"");
        match number {
            0 => Reply::ok(&["Cache-Control: max-age=60", &tag], who),
            1 => Reply::default().wait(&held).send(
                "HTTP/1.1 304 Not Modified\r\nETag: \"alice\"\r\nCache-Control: max-age=60\r\nVary: Cookie\r\n\r\n",
            ),
            _ => Reply::ok(&["Cache-Control: max-age=60", "Vary: Cookie", &tag], who),
        }
    });
    fixture.get("/", &["Cookie: alice"]);
    fixture.get_hit("/", &["Cookie: alice"]);
    // Neither requires a response newer than the fetch in progress.
    let alice = ["Cookie: alice", "Cache-Control: min-fresh=99"];
    let bob = ["Cookie: bob", "Cache-Control: min-fresh=99"];
    std::thread::scope(|scope| {
        let alice = scope.spawn(|| fixture.get("/", &alice).text());
        eventually("hers is with the origin", || fixture.origin.count() == 2);
        let others: Vec<_> = (0..4).map(|_| scope.spawn(|| fixture.get("/", &bob).text())).collect();
        eventually("the others wait", || fixture.proxy.stats().collapsed_requests == 4);
        gate.open();
        assert_eq!(alice.join().unwrap(), "alice");
        for other in others {
            assert_eq!(other.join().unwrap(), "bob");
        }
    });
    assert_eq!(fixture.get_hit("/", &["Cookie: alice"]).text(), "alice");
    assert_eq!(fixture.get_hit("/", &["Cookie: bob"]).text(), "bob");
}

#[test]
fn vary_that_comes_with_a_validation_in_the_background_is_obeyed() {
    let fixture = Fixture::new(|received, number| {
        let who = who(received);
        let tag = format!("ETag: \"{who}\"");
        match number {
            0 => Reply::ok(&["Cache-Control: max-age=10, stale-while-revalidate=600", STALE, &tag], who),
            1 => Reply::status("304 Not Modified", &["Cache-Control: max-age=60", "Vary: Cookie", &tag], ""),
            _ => Reply::ok(&["Cache-Control: max-age=60", "Vary: Cookie", &tag], who),
        }
    });
    fixture.get("/", &["Cookie: alice"]);
    assert_eq!(fixture.get("/", &["Cookie: alice"]).text(), "alice");
    eventually("it was validated", || fixture.get("/", &["Cookie: alice"]).field("vary") == Some("Cookie"));
    assert_eq!(fixture.get("/", &["Cookie: bob"]).text(), "bob");
    assert_eq!(fixture.get_hit("/", &["Cookie: alice"]).text(), "alice");
}

#[test]
fn response_that_varies_otherwise_takes_the_place_of_the_one_it_replaces() {
    for vary in ["X: no vary", "Vary: A"] {
        let fixture = Fixture::new(move |received, number| {
            let vary = if number == 0 { vary } else { "Vary: A, Cookie" };
            Reply::ok(&["Cache-Control: max-age=60", vary], format!("{} {number}", who(received)))
        });
        fixture.get("/", &["Cookie: alice"]);
        fixture.get_hit("/", &["Cookie: alice"]);
        assert_eq!(fixture.get("/", &["Cookie: alice", "Cache-Control: no-cache"]).text(), "alice 1");
        assert_eq!(fixture.get("/", &["Cookie: bob"]).text(), "bob 2", "{vary}");
        assert_eq!(fixture.get_hit("/", &["Cookie: alice"]).text(), "alice 1", "{vary}");
    }
}
