//! The operator's rules and hosts, as observed by clients and origins.

use std::time::{Duration, Instant};

use larder_http::{
    Rules, Ruling,
    key_rules::{KeyRule, KeyRules},
    rules::{MatchTexts, Rule},
};
use larder_proxy::{HostSent, OriginUrl, ProxyConfig};

use crate::support::{Fixture, Gate, Received, Reply, Response, eventually};

/// Returns a rule for paths of this form, with a lifetime of a minute.
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

/// Checks the case of Maven 3.9, which sends `no-cache, no-store` with every request and would get nothing from the
/// cache.
#[test]
fn clients_no_store_keeps_nothing_out_that_a_rule_gives_to_all() {
    let asks = ["Cache-Control: no-cache, No-Store, max-age=0", "Pragma: no-cache"];
    let origin_saw = Reply::ok(&[], "x");
    let fixture = with_rules(origin_saw, vec![rule("a", "/a", &["client no-cache"])]);
    for path in ["/a", "/b"] {
        fixture.get(path, &asks);
    }
    assert!(fixture.get("/a", &asks).is_hit());
    assert!(!fixture.get("/b", &asks).is_hit());
    let asked: Vec<_> =
        fixture.origin.received().iter().map(|asked| asked.field("cache-control").map(str::to_owned)).collect();
    assert_eq!(asked[..2], [Some("max-age=0".to_owned()), Some("no-cache, No-Store, max-age=0".to_owned())]);
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
    eventually("the origin confirms each time", || {
        let before = fixture.origin.count();
        fixture.get("/a", &[]);
        fixture.origin.count() > before
    });
}

/// Statuses of final responses. A lifetime without `statuses` applies to five of them.
const STATUSES: [u16; 20] =
    [200, 202, 203, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414, 429, 500, 502, 503];

/// Requests each status twice, and returns those served from the cache the second time.
fn kept_statuses(rules: Vec<Rule>) -> Vec<u16> {
    let handle = |received: &Received, _| {
        let status = received.target.trim_start_matches('/').split('/').next().unwrap();
        Reply::status(&format!("{status} Status"), &["Location: ftp://elsewhere.example/"], "x")
    };
    let fixture = Fixture::with(handle, |config| config.rules = Rules::new(rules));
    let is_kept = |status: &u16| {
        let target = format!("/{status}/a.jar");
        fixture.get(&target, &[]);
        let before = fixture.origin.count();
        fixture.get(&target, &["Cache-Control: max-age=0"]);
        fixture.get(&target, &[]);
        fixture.origin.count() == before
    };
    STATUSES.into_iter().filter(is_kept).collect()
}

#[test]
fn errors_and_temporary_redirects_are_asked_for_again_unless_a_rule_names_them() {
    let lasting = |statuses: &[&str], ruling: Ruling| {
        let ruling = Ruling { name: "lasting".into(), ..ruling };
        let statuses = statuses.iter().map(ToString::to_string).collect();
        Rule::new(&MatchTexts { statuses, ..MatchTexts::default() }, ruling).unwrap()
    };
    let immutable = || Ruling { immutable: true, ..Ruling::default() };
    let mut fresh = Ruling { fresh: Some(Duration::from_hours(1)), ..Ruling::default() };
    fresh.ignored.add("client no-cache").unwrap();
    let unnamed = [200, 202, 203, 301, 308];
    assert_eq!(kept_statuses(Vec::new()), [0_u16; 0]);
    assert_eq!(kept_statuses(vec![lasting(&[], immutable())]), unnamed);
    assert_eq!(kept_statuses(vec![lasting(&[], fresh.clone())]), unnamed);
    assert_eq!(kept_statuses(vec![lasting(&["404", "5xx"], immutable())]), [404, 500, 502, 503]);
}

#[test]
fn confirmed_error_gets_no_lifetime_from_a_rule_that_names_none() {
    let handle = |received: &Received, _| match received.field("if-none-match") {
        Some(_) => Reply::status("304 Not Modified", &["ETag: \"a\"", "Cache-Control: max-age=0"], ""),
        None => Reply::status("404 Not Found", &["ETag: \"a\"", "Cache-Control: max-age=0"], "x"),
    };
    let fixture = Fixture::with(handle, said(Ruling { immutable: true, ..Ruling::default() }));
    for asked in 1..=4 {
        assert_eq!(fixture.get("/", &[]).status, 404);
        assert_eq!(fixture.origin.count(), asked);
    }
}

fn said(ruling: Ruling) -> impl FnOnce(&mut ProxyConfig) {
    let ruling = Ruling { name: "said".into(), ..ruling };
    |config| config.rules = Rules::new(vec![Rule::new(&MatchTexts::default(), ruling).unwrap()])
}

#[test]
fn response_varies_by_what_a_rule_names() {
    let ruling = Ruling { varies: vec![http::header::FROM], ..Ruling::default() };
    let handle =
        |received: &Received, _| Reply::ok(&["Cache-Control: max-age=60"], received.field("from").unwrap_or("nobody"));
    let fixture = Fixture::with(handle, said(ruling));
    for from in ["a", "b"] {
        assert_eq!(fixture.get("/", &[&format!("From: {from}")]).text(), from);
    }
    let hit = fixture.get_hit("/", &["From: a"]);
    assert_eq!((hit.text().as_str(), hit.field("vary")), ("a", Some("from")));
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn body_longer_than_a_rule_has_it_is_passed_on() {
    let handle = |received: &Received, _| {
        let lines: &[&str] = &["Cache-Control: max-age=60"];
        match received.target.as_str() {
            "/short" => Reply::ok(lines, "0123456789"),
            _ => Reply::ok(lines, "0123456789a"),
        }
    };
    let fixture = Fixture::with(handle, said(Ruling { size_max: Some(10), ..Ruling::default() }));
    fixture.get("/short", &[]);
    fixture.get_hit("/short", &[]);
    for _ in 0..2 {
        assert_eq!(fixture.get("/long", &[]).text(), "0123456789a");
    }
    assert_eq!(fixture.origin.count(), 3);
}

/// Returns the number of requests to the origin for 4 MiB that the first client abandons after a few bytes and another
/// requests later.
fn fetches_of_what_was_given_up(finishes_abandoned: Option<bool>) -> usize {
    let gate = Gate::default();
    let waiting = gate.clone();
    let handle = move |_: &Received, _| {
        let head = Reply::head("200 OK", &["Cache-Control: max-age=60", "Content-Length: 4194304"]);
        head.send(vec![b'x'; 1024]).wait(&waiting).send(vec![b'x'; (4 << 20) - 1024])
    };
    let fixture = Fixture::with(handle, said(Ruling { finishes_abandoned, ..Ruling::default() }));
    let mut connection = fixture.connect();
    connection.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    connection.read_head();
    drop(connection);
    eventually("the client is gone", || fixture.proxy.stats().connections_open == 0);
    // A client may come back for a second.
    let begun = Instant::now();
    eventually("a fetch that nobody wants has ended", || begun.elapsed() > Duration::from_millis(1_500));
    gate.open();
    // A completed fetch is stored before the next request; an abandoned one leaves nothing.
    eventually("the fetch is over", || fixture.get("/", &[]).is_hit());
    fixture.origin.count()
}

#[test]
fn fetch_that_its_client_gave_up_goes_on_where_a_rule_says_so() {
    assert_eq!(fetches_of_what_was_given_up(Some(true)), 1);
    assert_eq!(fetches_of_what_was_given_up(Some(false)), 2);
}

/// The SHA-256 of `body`.
const DIGEST: &str = "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5";

#[test]
fn body_is_held_to_the_digest_in_its_url() {
    let handle = |received: &Received, number| {
        let lines: &[&str] = &["Cache-Control: max-age=60", "ETag: \"a\""];
        match received.target.as_str() {
            target if target.starts_with("/chunked") && number == 0 => {
                let lines = [lines, &["Transfer-Encoding: chunked"]].concat();
                Reply::head("200 OK", &lines).send("2\r\nbo\r\n2\r\ndx\r\n0\r\n\r\n")
            }
            target if target.starts_with("/wrong") => Reply::ok(lines, "bodx"),
            _ => Reply::ok(lines, "body"),
        }
    };
    let fixture = Fixture::with(handle, said(Ruling { checks_digest: true, ..Ruling::default() }));
    let chunked = format!("/chunked/sha256:{DIGEST}");
    assert!(!fixture.get(&chunked, &[]).complete, "what was sent of it is broken off");
    let right = fixture.get(&chunked, &[]);
    assert!(right.complete && !right.is_hit(), "it was not stored");
    let wrong = format!("/wrong/sha256:{DIGEST}");
    for _ in 0..2 {
        let broken = fixture.get(&wrong, &[]);
        assert!(!broken.complete && !broken.is_hit(), "{broken:?}");
    }
    let part = format!("/part/sha256:{DIGEST}");
    assert_eq!(fixture.get(&part, &["Range: bytes=1-2"]).text(), "body");
    let asked = fixture.origin.received().pop().unwrap();
    assert_eq!(asked.field("range"), Some("bytes=1-2"), "only the whole can be held to its digest");
    fixture.get(&part, &[]);
    assert_eq!(fixture.get_hit(&part, &["Range: bytes=1-2"]).text(), "od");
}

/// Answers for an origin that accepts `Bearer may-...`, and holds the first body back until the gate opens.
fn guarded(gate: &Gate) -> impl Fn(&Received, usize) -> Reply + Send + Sync + 'static {
    let gate = gate.clone();
    move |received, _| {
        if received.target != "/open" {
            match received.field("authorization") {
                None => return Reply::status("401 Unauthorized", &["WWW-Authenticate: Bearer realm=\"r\""], ""),
                Some(token) if !token.starts_with("Bearer may-") => return Reply::status("403 Forbidden", &[], ""),
                Some(_) => {}
            }
        }
        if received.method == "HEAD" {
            return Reply::head("200 OK", &["Content-Length: 10", "Cache-Control: max-age=60"]);
        }
        let head = Reply::head("200 OK", &["Content-Length: 10", "Cache-Control: max-age=60"]);
        head.send("01234").wait(&gate).send("56789")
    }
}

#[test]
fn what_answers_credentials_is_given_to_whom_the_origin_lets_read_it() {
    let gate = Gate::default();
    let fixture = Fixture::with(guarded(&gate), said(Ruling { checks_authorization: true, ..Ruling::default() }));
    let mut first = fixture.connect();
    first.send("GET /secret HTTP/1.1\r\nHost: site.example\r\nAuthorization: Bearer may-a\r\n\r\n");
    first.read_head();
    // During its arrival, and after it is stored.
    for is_stored in [false, true] {
        for (authorization, status) in [("Bearer other", 403), ("Basic YTpi", 403), ("", 401)] {
            let line = format!("Authorization: {authorization}");
            let fields: &[&str] = if authorization.is_empty() { &[] } else { &[&line] };
            let refused = fixture.get("/secret", fields);
            assert_eq!(refused.status, status, "{authorization} {is_stored}");
            assert!(!refused.text().contains("01234"), "{authorization} {is_stored}");
            let head = fixture.connect().request("HEAD", "/secret", fields);
            assert_eq!(head.status, status, "{authorization} {is_stored}");
        }
        gate.open();
        assert_eq!(first_or_hit(&fixture).text(), "0123456789");
    }
    let bodies = |target: &str| {
        let all = fixture.origin.received();
        let is_body = |received: &&Received| received.method == "GET" && received.field("range").is_none();
        all.iter().filter(|received| is_body(received) && received.target == target).count()
    };
    let asked = bodies("/secret");
    assert!(fixture.get("/secret", &["Authorization: Bearer may-b"]).is_hit());
    assert_eq!(bodies("/secret"), asked, "the first octet was enough");
}

fn first_or_hit(fixture: &Fixture) -> Response {
    fixture.get_hit("/secret", &["Authorization: Bearer may-c"])
}

#[test]
fn what_was_given_without_credentials_is_everybodys() {
    let gate = Gate::default();
    gate.open();
    let fixture = Fixture::with(guarded(&gate), said(Ruling { checks_authorization: true, ..Ruling::default() }));
    fixture.get("/open", &[]);
    fixture.get_hit("/open", &[]);
    let asked = fixture.origin.count();
    assert!(fixture.get("/open", &["Authorization: Bearer other"]).is_hit());
    assert_eq!(fixture.origin.count(), asked);
}

/// Returns the Host that an origin receives for a request to `site.example`.
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

/// Returns a rule with a lifetime for requests that meet these conditions.
fn visitors(cookies: &[&str], fields: &[&str], queries: &[&str]) -> Rule {
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    let cookies = owned(cookies);
    let fields = owned(fields);
    let queries = owned(queries);
    let ruling = Ruling { name: "visitors".into(), fresh: Some(Duration::from_mins(10)), ..Ruling::default() };
    Rule::new(&MatchTexts { cookies, fields, queries, ..MatchTexts::default() }, ruling).unwrap()
}

/// Answers with what the request says of its client.
fn personal(received: &Received, _: usize) -> Reply {
    let told = ["cookie", "x-beta"].map(|name| received.field(name).unwrap_or("-"));
    Reply::ok(&["Content-Type: text/html"], format!("{} {}", received.target, told.join(" ")))
}

const WORDPRESS: [&str; 3] = ["!wordpress_logged_in_*", "!wp-postpass_*", "!comment_author_*"];

/// Guards against the page of one who is logged in, served to everybody.
#[test]
fn site_with_logins_is_described_by_conditions() {
    let rules = || Rules::new(vec![visitors(&WORDPRESS, &[], &["!preview", "!s"])]);
    let logins =
        ["wordpress_logged_in_1=ann", "a=b; wp-postpass_1=x", "comment_author_1=bob", "wordpress.logged in_1=c"];
    let is_hit = |fixture: &Fixture, target: &str, fields: &[&str]| fixture.get(target, fields).is_hit();
    let mut fixture = Fixture::with(personal, |config| config.rules = rules());
    for _ in 0..2 {
        for login in logins {
            let cookie = format!("Cookie: {login}");
            let own = fixture.get("/", &[&cookie]);
            assert_eq!((own.text(), own.is_hit()), (format!("/ {login} -"), false));
            assert!(!is_hit(&fixture, "/", &[&cookie]), "{login}: it is not stored");
        }
        // Visitors share a page, whatever other cookies they have.
        assert!(fixture.get_hit("/", &["Cookie: _ga=1"]).text().starts_with("/ "));
        assert!(is_hit(&fixture, "/", &[]) && is_hit(&fixture, "/", &["Cookie: _ga=2; theme=dark"]));
        for target in ["/?preview=true", "/?x=1&prev%69ew", "/?s=term"] {
            assert!(!is_hit(&fixture, target, &[]) && !is_hit(&fixture, target, &[]), "{target}");
        }
        fixture = fixture.restart_with(|config| config.rules = rules());
    }
    // Once the rule is gone, what it made fresh for visitors answers nobody.
    let fixture = fixture.restart();
    assert_eq!(fixture.get("/", &["Cookie: wordpress_logged_in_1=ann"]).text(), "/ wordpress_logged_in_1=ann -");
    assert!(!is_hit(&fixture, "/", &[]));
}

#[test]
fn rule_that_keeps_some_out_of_the_store_keeps_them_from_what_is_stored() {
    let never = Ruling { name: "session".into(), is_never_stored: true, ..Ruling::default() };
    let of_sessions = MatchTexts { cookies: vec!["session".into()], ..MatchTexts::default() };
    let mut others = Ruling { name: "others".into(), fresh: Some(Duration::from_mins(10)), ..Ruling::default() };
    others.ignored.add("cookie").unwrap();
    let rules = vec![Rule::new(&of_sessions, never).unwrap(), Rule::new(&MatchTexts::default(), others).unwrap()];
    let gate = Gate::default();
    let waiting = gate.clone();
    let handle = move |received: &Received, number| {
        let who = received.field("cookie").unwrap_or("-").to_owned();
        // The origin itself would let others have it.
        let head = Reply::head("200 OK", &["Cache-Control: max-age=60", &format!("Content-Length: {}", who.len())]);
        if number == 0 { head.wait(&waiting).send(who) } else { head.send(who) }
    };
    let fixture = Fixture::with(handle, |config| config.rules = Rules::new(rules));
    let mut first = fixture.connect();
    first.send("GET / HTTP/1.1\r\nHost: site.example\r\nCookie: _ga=1\r\n\r\n");
    first.read_head();
    for _ in 0..2 {
        let own = fixture.get("/", &["Cookie: session=ann"]);
        assert_eq!((own.text().as_str(), own.is_hit()), ("session=ann", false));
        gate.open();
        assert_eq!(fixture.get_hit("/", &[]).text(), "_ga=1");
    }
}

#[test]
fn requests_under_different_rules_share_nothing_though_each_may_be_stored() {
    let fixture = Fixture::with(personal, |config| {
        config.rules = Rules::new(vec![visitors(&[], &["X-Beta=yes*"], &[]), visitors(&[], &["!x-beta=yes*"], &[])]);
    });
    for _ in 0..2 {
        for (field, text) in [("X-Beta: yes, please", "/ - yes, please"), ("X-Beta: no", "/ - no")] {
            assert_eq!(fixture.get("/", &[field]).text(), text);
            assert_eq!(fixture.get_hit("/", &[field]).text(), text);
        }
    }
}

#[test]
fn argument_that_the_key_leaves_out_still_counts_in_a_condition() {
    let fixture = Fixture::with(personal, |config| {
        config.rules = Rules::new(vec![visitors(&[], &[], &["!preview"])]);
        let stripped = KeyRule::new(&["http://site.example".to_owned()], &["preview".to_owned()], None).unwrap();
        config.policy.cache.http.key_rules = KeyRules::new(vec![stripped]);
    });
    fixture.get("/a", &[]);
    assert_eq!(fixture.get_hit("/a", &[]).text(), "/a - -");
    assert_eq!(fixture.get("/a?preview=1", &[]).text(), "/a?preview=1 - -");
    assert_eq!(fixture.get_hit("/a", &[]).text(), "/a - -");
}
