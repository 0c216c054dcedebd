//! The operator's rules and hosts, as clients and origins see them.

use std::time::Duration;

use larder_http::{
    Rules, Ruling,
    rules::{MatchTexts, Rule},
};
use larder_proxy::{HostSent, OriginUrl, ProxyConfig};

use crate::support::{Fixture, Reply, eventually};

/// A rule for paths of this form, with a lifetime of a minute.
fn rule(name: &str, path: &str, ignored: &[&str]) -> Rule {
    let mut ruling = Ruling { name: name.into(), fresh: Some(Duration::from_mins(1)), ..Ruling::default() };
    ignored.iter().for_each(|word| ruling.ignored.add(word).unwrap());
    Rule::new(&MatchTexts { paths: vec![path.into()], ..MatchTexts::default() }, ruling).unwrap()
}

fn with_rules(reply: Reply, rules: Vec<Rule>) -> Fixture {
    Fixture::with(move |_, _| reply.clone(), |config| config.rules = Rules::new(rules))
}

#[test]
fn rule_gives_a_lifetime_to_what_has_none_and_only_where_it_is_meant() {
    let fixture = with_rules(Reply::ok(&["Content-Type: text/plain"], "x"), vec![rule("jars", "/**/*.jar", &[])]);
    assert!(fixture.get("/a/b.jar?1", &[]).cache_status().contains("stored"));
    let hit = fixture.get_hit("/a/b.jar?1", &[]);
    assert_eq!((hit.text().as_str(), hit.field("larder-ruling")), ("x", None));
    fixture.get("/a/b.txt", &[]);
    fixture.get("/a/b.txt", &[]);
    assert_eq!(fixture.origin.count(), 3);
}

#[test]
fn reload_is_answered_from_the_cache_where_a_rule_ignores_it() {
    let reply = Reply::ok(&["Cache-Control: max-age=60"], "x");
    let fixture = with_rules(reply, vec![rule("a", "/a", &["client no-cache"])]);
    for path in ["/a", "/b"] {
        fixture.get(path, &[]);
        fixture.get_hit(path, &[]);
    }
    assert!(fixture.get("/a", &["Cache-Control: no-cache"]).is_hit());
    assert!(!fixture.get("/b", &["Cache-Control: no-cache"]).is_hit());
}

#[test]
fn cookies_that_a_rule_ignores_go_to_the_first_asker_alone() {
    let reply = Reply::ok(&["Set-Cookie: session=first"], "x");
    let fixture = with_rules(reply, vec![rule("a", "/a", &["set-cookie"])]);
    assert_eq!(fixture.get("/a", &[]).field("set-cookie"), Some("session=first"));
    assert_eq!(fixture.get_hit("/a", &[]).field("set-cookie"), None);
    assert!(!fixture.get("/b", &[]).cache_status().contains("stored"), "no rule, not stored");
}

#[test]
fn private_responses_stay_private_under_a_lifetime() {
    let reply = Reply::ok(&["Cache-Control: private"], "x");
    let fixture = with_rules(reply, vec![rule("a", "/**", &[])]);
    fixture.get("/a", &[]);
    assert!(!fixture.get("/a", &[]).is_hit());
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn origin_cannot_say_what_is_the_operators_to_say() {
    let reply = Reply::ok(&["Cache-Control: private", "Larder-Ruling: rule=\"x\", fresh=60, private"], "x");
    let fixture = with_rules(reply, Vec::new());
    let first = fixture.get("/a", &[]);
    assert_eq!(first.field("larder-ruling"), None);
    fixture.get("/a", &[]);
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn rule_that_is_gone_no_longer_counts_once_the_response_was_confirmed() {
    let fixture = Fixture::with(
        |received, _| match received.field("if-none-match") {
            Some(_) => Reply::status("304 Not Modified", &["ETag: \"a\""], ""),
            None => Reply::ok(&["ETag: \"a\"", "Cache-Control: max-age=0"], "x"),
        },
        |config| config.rules = Rules::new(vec![rule("a", "/a", &[])]),
    );
    fixture.get("/a", &[]);
    fixture.get_hit("/a", &[]);
    let fixture = fixture.restart();
    assert!(fixture.get("/a", &[]).is_hit(), "what was stored under the rule stays as it is");
    fixture.get("/a", &["Cache-Control: no-cache"]);
    eventually("the origin is asked each time", || {
        let before = fixture.origin.count();
        fixture.get("/a", &[]);
        fixture.origin.count() > before
    });
}

/// The Host that an origin gets for a request to `site.example`.
fn host_at_origin(host: HostSent) -> String {
    let change = |config: &mut ProxyConfig| {
        config.default_origin = config.default_origin.take().map(|url: OriginUrl| url.with_host(host));
    };
    let fixture = Fixture::with(|received, _| Reply::ok(&[], received.field("host").unwrap()), change);
    fixture.get("/", &[]).text().replace(&fixture.origin.address.to_string(), "origin")
}

#[test]
fn origin_gets_the_host_that_it_is_to_get() {
    assert_eq!(host_at_origin(HostSent::ByScheme), "site.example");
    assert_eq!(host_at_origin(HostSent::Client), "site.example");
    assert_eq!(host_at_origin(HostSent::Origin), "origin");
    assert_eq!(host_at_origin(HostSent::Named("inner.example".parse().unwrap())), "inner.example");
}
