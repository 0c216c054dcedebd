//! Redirects that a rule makes the proxy follow: the body is stored under the requested URL, and credentials go to no
//! other host.

use std::{sync::Arc, time::Duration};

use larder_http::{
    Rules, Ruling,
    rules::{MatchTexts, Rule},
    ruling::RedirectPolicy,
};
use larder_proxy::{ProxyConfig, TargetRules};

use crate::support::{Fixture, Origin, Received, Reply};

fn following(ruling: Ruling) -> Rules {
    let ruling = Ruling { name: "follow".into(), following: RedirectPolicy::Safe, ..ruling };
    Rules::new(vec![Rule::new(&MatchTexts::default(), ruling).unwrap()])
}

/// A fixture whose origin redirects to another one, with a rule that follows redirects.
struct Redirected {
    fixture: Fixture,
    other: Arc<Origin>,
}

fn redirected(
    lines: &'static [&'static str],
    handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
    change: impl FnOnce(&mut ProxyConfig),
) -> Redirected {
    let other = Arc::new(Origin::start(handle));
    let address = other.address;
    let redirect = move |received: &Received, _| {
        let location = format!("Location: http://{address}{}", received.target);
        Reply::status("302 Found", &[&[location.as_str()], lines].concat(), "elsewhere")
    };
    let fixture = Fixture::with(redirect, |config| {
        config.rules = following(Ruling::default());
        change(config);
    });
    Redirected { fixture, other }
}

const LASTING: &[&str] = &["Cache-Control: max-age=60"];

fn lasting(_: &Received, _: usize) -> Reply {
    Reply::ok(&["Cache-Control: max-age=60", "ETag: \"a\""], "body")
}

#[test]
fn body_is_kept_under_the_url_that_was_asked_for() {
    let lines = &["Cache-Control: max-age=60", "X-Commit: 12", "Location-Note: x"];
    let Redirected { fixture, other } = redirected(lines, lasting, |_| {});
    let first = fixture.get("/a?b", &[]);
    assert_eq!((first.status, first.text().as_str(), first.field("x-commit")), (200, "body", Some("12")));
    assert!(first.cache_status().contains("stored"), "{}", first.cache_status());
    let hit = fixture.get_hit("/a?b", &[]);
    assert_eq!((hit.text().as_str(), hit.field("x-commit"), hit.field("location")), ("body", Some("12"), None));
    assert_eq!((fixture.origin.count(), other.count(), other.received()[0].target.as_str()), (1, 1, "/a?b"));
    assert_eq!(other.received()[0].field("host"), Some(other.address.to_string().as_str()));
}

#[test]
fn without_a_rule_the_client_gets_the_redirection() {
    let Redirected { fixture, other } = redirected(LASTING, lasting, |config| config.rules = Rules::default());
    assert_eq!((fixture.get("/a", &[]).status, other.count()), (302, 0));
}

#[test]
fn lifetime_of_a_redirection_bounds_that_of_the_body() {
    let handle = |received: &Received, _| match received.field("if-none-match") {
        Some("\"a\"") => Reply::status("304 Not Modified", &["ETag: \"a\""], ""),
        _ => lasting(received, 0),
    };
    let Redirected { fixture, other } = redirected(&[], handle, |_| {});
    fixture.get("/a", &[]);
    let again = fixture.get("/a", &[]);
    assert_eq!((again.status, again.text().as_str()), (200, "body"));
    assert_eq!(fixture.origin.count(), 2, "a redirection without a lifetime is asked for each time");
    let at_first: Vec<bool> =
        fixture.origin.received().iter().map(|received| received.field("if-none-match").is_some()).collect();
    assert_eq!(at_first, [false, false], "the tag is the other's");
    let tags: Vec<Option<String>> =
        other.received().iter().map(|received| received.field("if-none-match").map(str::to_owned)).collect();
    assert_eq!(tags, [None, Some("\"a\"".to_owned())]);
}

#[test]
fn tag_is_not_shown_to_another_url_than_it_is_of() {
    let other = Arc::new(Origin::start(|received, _| match received.field("if-none-match") {
        Some(_) => Reply::status("304 Not Modified", &["ETag: \"same\""], ""),
        None => Reply::ok(&["ETag: \"same\""], received.target.clone()),
    }));
    let address = other.address;
    let handle = move |_: &Received, number| {
        Reply::status("302 Found", &[&format!("Location: http://{address}/version/{number}")], "")
    };
    let fixture = Fixture::with(handle, |config| config.rules = following(Ruling::default()));
    assert_eq!(fixture.get("/a", &[]).text(), "/version/0");
    assert_eq!(fixture.get("/a", &[]).text(), "/version/1");
}

#[test]
fn lifetime_of_a_rule_takes_the_place_of_the_redirections() {
    let rules = following(Ruling { fresh: Some(Duration::from_mins(1)), ..Ruling::default() });
    let Redirected { fixture, other: _other } =
        redirected(&["Cache-Control: no-cache"], lasting, |config| config.rules = rules);
    fixture.get("/a", &[]);
    assert_eq!(fixture.get_hit("/a", &[]).text(), "body");
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn body_behind_a_private_redirection_is_not_kept() {
    let lines = &["Cache-Control: private, max-age=60"];
    let Redirected { fixture, other: _other } = redirected(lines, lasting, |_| {});
    for _ in 0..2 {
        let response = fixture.get("/a", &[]);
        assert_eq!((response.status, response.text().as_str()), (200, "body"));
        assert!(response.cache_status().contains("fwd") && !response.cache_status().contains("stored"));
    }
}

#[test]
fn another_origin_gets_nothing_that_says_who_asks() {
    let Redirected { fixture, other } = redirected(LASTING, lasting, |_| {});
    let fields = ["Authorization: Bearer x", "Cookie: a=b", "X-Api-Key: k", "Accept: text/plain", "Referer: http://s/"];
    assert_eq!(fixture.get("/a", &fields).status, 200);
    let got = &other.received()[0];
    for name in ["authorization", "cookie", "x-api-key", "referer"] {
        assert_eq!(got.field(name), None, "{name}");
        assert!(fixture.origin.received()[0].field(name).is_some(), "{name}");
    }
    assert_eq!(got.field("accept"), Some("text/plain"));
    assert!(!fixture.get("/a", &fields[1..]).is_hit(), "what was led to by credentials is not for others");
}

#[test]
fn own_origin_gets_all_on_the_way() {
    let handle = |received: &Received, _| match received.target.as_str() {
        "/a/b" => Reply::status("307 Temporary Redirect", &["Location: c?d"], ""),
        "/a/c?d" => Reply::status("301 Moved Permanently", &["Location: http://site.example/e"], ""),
        target => Reply::ok(&[], format!("{target} {:?}", received.field("authorization"))),
    };
    let fixture = Fixture::with(handle, |config| config.rules = following(Ruling::default()));
    assert_eq!(fixture.get("/a/b", &["Authorization: Basic YTpi"]).text(), "/e Some(\"Basic YTpi\")");
}

#[test]
fn redirections_without_end_are_an_error() {
    let handle = |_: &Received, _| Reply::status("302 Found", &["Location: /a"], "");
    let fixture = Fixture::with(handle, |config| config.rules = following(Ruling::default()));
    assert_eq!(fixture.get("/a", &[]).status, 502);
    assert_eq!(fixture.origin.count(), 9);
}

#[test]
fn redirections_lead_nowhere_that_clients_may_not_go() {
    let closed = |config: &mut ProxyConfig| config.targets = TargetRules::default();
    let Redirected { fixture, other } = redirected(LASTING, lasting, closed);
    let refused = fixture.get("/a", &[]);
    assert_eq!((refused.status, other.count()), (403, 0));
    assert!(refused.text().contains("a loopback address"), "{}", refused.text());
}

#[test]
fn ranges_and_heads_are_followed_too() {
    let handle = |received: &Received, _| match received.field("range") {
        Some(_) => Reply::status("206 Partial Content", &["Content-Range: bytes 0-1/4", "ETag: \"a\""], "bo"),
        None => lasting(received, 0),
    };
    let Redirected { fixture, other: _other } = redirected(LASTING, handle, |_| {});
    let part = fixture.get("/a", &["Range: bytes=0-1"]);
    assert_eq!((part.status, part.text().as_str()), (206, "bo"));
    let head = fixture.connect().request("HEAD", "/b", &[]);
    assert_eq!((head.status, head.field("content-length")), (200, Some("4")));
}
