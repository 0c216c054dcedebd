//! Cookies: one client's session never reaches another through the cache, unless the response or the operator permits
//! sharing it (RFC 9111 7.3).

use std::time::Duration;

use larder_http::{
    Rules, Ruling,
    rules::{MatchTexts, Rule},
};
use larder_proxy::ProxyConfig;

use crate::support::{Fixture, Received, Reply, Response};

/// A day before any Date.
const MODIFIED: &str = "Last-Modified: Tue, 15 Nov 1994 12:45:26 GMT";
/// Makes a response stale on arrival.
const STALE: &str = "Age: 100";

fn session(number: usize) -> String {
    format!("Set-Cookie: session={number}")
}

#[test]
fn session_cookie_reaches_the_client_it_was_made_for_alone() {
    for control in ["X: nothing", "Cache-Control: max-age=60", "Cache-Control: no-cache"] {
        let fixture = Fixture::new(move |_, number| Reply::ok(&[control, MODIFIED, &session(number)], "page"));
        for number in 0..3 {
            let page = fixture.get("/", &[]);
            let own = format!("session={number}");
            assert_eq!((page.is_hit(), page.field("set-cookie")), (false, Some(own.as_str())), "{control}");
        }
    }
}

#[test]
fn cookie_that_is_for_everybody_is_stored() {
    for control in ["Cache-Control: public, max-age=60", "Cache-Control: s-maxage=60"] {
        let fixture = Fixture::new(move |_, number| Reply::ok(&[control, &session(number)], "page"));
        fixture.get("/", &[]);
        assert_eq!(fixture.get_hit("/", &[]).field("set-cookie"), Some("session=0"), "{control}");
    }
}

#[test]
fn cookie_is_stored_as_anything_else_where_the_operator_says_so() {
    let handle = |_: &Received, number| Reply::ok(&["Cache-Control: max-age=60", &session(number)], "page");
    let fixture = Fixture::with(handle, |config| config.policy.cache.http.store_set_cookie = true);
    fixture.get("/", &[]);
    assert_eq!(fixture.get_hit("/", &[]).field("set-cookie"), Some("session=0"));
}

#[test]
fn cookie_that_a_304_sets_reaches_the_client_whose_request_brought_it_alone() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\""], "page"),
        _ => {
            let fields = ["Cache-Control: max-age=60", "ETag: \"v1\"", &session(number)];
            Reply::status("304 Not Modified", &fields, "")
        }
    });
    fixture.get("/", &[]);
    assert_eq!(fixture.get("/", &[]).field("set-cookie"), Some("session=1"));
    let hit = fixture.get_hit("/", &[]);
    assert_eq!((hit.text().as_str(), hit.field("set-cookie")), ("page", None));
}

#[test]
fn page_for_a_client_with_a_cookie_is_not_guessed_to_be_for_others() {
    let fixture = Fixture::new(|received, number| {
        let who = received.field("cookie").unwrap_or("nobody").to_owned();
        if number < 2 { Reply::ok(&[MODIFIED], who) } else { Reply::default().close() }
    });
    assert_eq!(fixture.get("/", &["Cookie: alice"]).text(), "alice");
    assert_eq!(fixture.get("/", &["Cookie: bob"]).text(), "bob", "the origin was asked");
    assert_eq!(fixture.get("/", &["Cookie: carol"]).status, 502, "nor is it served stale");
}

/// Gives every response a lifetime.
fn lasting(ignored: &[&str]) -> impl FnOnce(&mut ProxyConfig) {
    let mut ruling = Ruling { name: "pages".into(), fresh: Some(Duration::from_mins(10)), ..Ruling::default() };
    ignored.iter().for_each(|word| ruling.ignored.add(word).unwrap());
    |config| config.rules = Rules::new(vec![Rule::new(&MatchTexts::default(), ruling).unwrap()])
}

/// Checks the case of an application without caching rules of its own, whose operator gives its pages a lifetime.
#[test]
fn lifetime_of_a_rule_is_not_for_a_client_with_a_cookie() {
    for ignored in [&[][..], &["private", "no-store", "set-cookie"]] {
        let handle = |received: &Received, _| {
            let who = received.field("cookie").unwrap_or("nobody").to_owned();
            let fields: &[&str] = if who == "nobody" { &[] } else { &["Cache-Control: private"] };
            Reply::ok(fields, who)
        };
        let fixture = Fixture::with(handle, lasting(ignored));
        // What a client with a cookie gets is not stored, nor does it get what is stored for others.
        assert_eq!(fixture.get("/", &["Cookie: session=ann"]).text(), "session=ann", "{ignored:?}");
        assert_eq!(fixture.get("/", &[]).text(), "nobody", "{ignored:?}");
        assert_eq!(fixture.get_hit("/", &[]).text(), "nobody", "{ignored:?}");
        assert_eq!(fixture.get("/", &["Cookie: session=bob"]).text(), "session=bob", "{ignored:?}");
        assert_eq!(fixture.get_hit("/", &[]).text(), "nobody", "{ignored:?}: and what is stored stays");
    }
}

#[test]
fn lifetime_that_the_origin_states_is_for_clients_with_cookies_too() {
    let handle = |_: &Received, number: usize| Reply::ok(&["Cache-Control: max-age=60"], number.to_string());
    let fixture = Fixture::with(handle, lasting(&[]));
    assert_eq!(fixture.get("/", &[]).text(), "0");
    let ttl = |response: Response| -> u64 {
        let left = response.cache_status().split_once("ttl=").unwrap().1;
        left.split(';').next().unwrap().parse().unwrap()
    };
    assert!(ttl(fixture.get_hit("/", &["Cookie: a=b"])) <= 60);
    assert!(ttl(fixture.get_hit("/", &[])) > 60, "the rule applies to a client without a cookie");
    // What is stored remembers whom its lifetime is for.
    let fixture = fixture.restart();
    assert!(ttl(fixture.get_hit("/", &["Cookie: a=b"])) <= 60);
    assert!(ttl(fixture.get_hit("/", &[])) > 60);
}

#[test]
fn page_for_a_client_without_a_cookie_is_guessed_as_ever() {
    let fixture = Fixture::new(|_, _| Reply::ok(&[MODIFIED], "page"));
    fixture.get("/", &[]);
    assert_eq!(fixture.get_hit("/", &["Cookie: bob"]).text(), "page");
}
