//! Purges by URL, prefix, site and tag, hard and soft, of every kind of stored response in every place. Guards against
//! a response that is served although it was reported purged.

use std::fs;

use larder_proxy::ProxyConfig;
use larder_store::Policy;

use crate::support::{Ailment, Connection, Fixture, Gate, Received, Reply, eventually};

const LONG_BYTES: usize = (2 << 20) + 5;
const URL: &str = "http://site.example";

/// The stored responses: target, and additional request field.
const STORED: [(&str, &str); 7] = [
    ("/a/short", "X-Kind: 1"),
    ("/a/varies", "X-Kind: 1"),
    ("/a/varies", "X-Kind: 2"),
    ("/a/long", "X-Kind: 1"),
    ("/b/part", "Range: bytes=3-5"),
    ("/b/gone", "X-Kind: 1"),
    ("/b/short?q=1", "X-Kind: 1"),
];

/// Answers for the origin. The last part of the path selects the kind of response.
fn answer(received: &Received, number: usize) -> Reply {
    let path = received.target.as_str();
    let kind = received.target.rsplit('/').next().unwrap();
    let tags = if path.starts_with("/a/") { "Surrogate-Key: a all-of-it" } else { "Cache-Tag: B, all-of-it" };
    let vary = if kind == "varies" { "Vary: X-Kind" } else { "X-Other: 1" };
    let fields = ["Cache-Control: max-age=600", "ETag: \"1\"", tags, vary];
    if received.field("if-none-match").is_some() {
        return Reply::status("304 Not Modified", &fields, "");
    }
    match (kind, received.field("range")) {
        ("gone", _) => Reply::status("404 Not Found", &fields, format!("gone {number}")),
        ("long", _) => Reply::ok(&fields, vec![b'x'; LONG_BYTES]),
        ("part", Some("bytes=3-5")) => {
            Reply::status("206 Partial Content", &[&fields[..], &["Content-Range: bytes 3-5/10"]].concat(), "345")
        }
        _ => Reply::ok(&fields, format!("{path} {number}")),
    }
}

fn with_admin(config: &mut ProxyConfig) {
    config.admin = Some("127.0.0.1:0".parse().unwrap());
}

fn purge(fixture: &Fixture, target: &str, fields: &[&str]) -> u16 {
    Connection::open_admin(fixture.proxy.admin_addr().unwrap()).request("PURGE", target, fields).status
}

fn is_served(fixture: &Fixture, (target, field): (&str, &str)) -> bool {
    let asked = fixture.origin.count();
    let response = fixture.get(target, &[field]);
    assert!([200, 206, 404].contains(&response.status) && response.complete, "{target}: {}", response.status);
    let was_asked = fixture.origin.count() > asked;
    assert_eq!(response.is_hit(), !was_asked, "{target}: {}", response.cache_status());
    !was_asked
}

fn store_all(fixture: &Fixture) {
    for (target, field) in STORED {
        fixture.get_hit(target, &[field]);
    }
}

/// Returns purges, each with the responses in [`STORED`] that it affects.
fn purges() -> Vec<(String, Vec<&'static str>, [bool; 7])> {
    let a = [true, true, true, true, false, false, false];
    let b = [false, false, false, false, true, true, true];
    let all = [true; 7];
    let one = |place: usize| std::array::from_fn(|at| at == place);
    let url = |path: &str| format!("{URL}{path}");
    vec![
        (url("/a/short"), vec![], one(0)),
        (url("/a/varies"), vec![], [false, true, true, false, false, false, false]),
        (url("/b/part"), vec!["Purge-Scope: url"], one(4)),
        (url("/b/*"), vec![], b),
        (url("/b/short?q"), vec!["Purge-Scope: prefix"], one(6)),
        (url("/a/varie"), vec!["Purge-Scope: prefix"], [false, true, true, false, false, false, false]),
        (url("/c/*"), vec![], [false; 7]),
        (url("/"), vec!["Purge-Scope: site"], all),
        ("https://site.example:8/".into(), vec!["Purge-Scope: site"], all),
        ("http://other.example/".into(), vec!["Purge-Scope: site"], [false; 7]),
        (url("/"), vec!["Surrogate-Key: none a"], a),
        ("/".into(), vec!["Cache-Tag: none, b"], b),
        (url("/"), vec!["Surrogate-Key: All-Of-It"], all),
        (url("/"), vec!["Surrogate-Key: all-of-i of-it"], [false; 7]),
        (url("/"), vec!["Purge-Scope: all"], all),
    ]
}

/// Runs each purge on all responses, and checks which are still served.
fn check_purges(fixture: &Fixture, mode: &str, name: &str) {
    for (target, fields, concerned) in purges() {
        store_all(fixture);
        let fields: Vec<&str> = fields.into_iter().chain([mode]).collect();
        assert_eq!(purge(fixture, &target, &fields), 200, "{name}: {target} {fields:?}");
        // For two variants of a resource, the first request may restore the marker for both, so they are checked
        // together.
        let served = STORED.map(|stored| is_served(fixture, stored));
        assert_eq!(served, concerned.map(|is_concerned| !is_concerned), "{name}: {target} {fields:?}");
    }
}

#[test]
fn each_purge_concerns_its_own_in_memory_and_on_disk() {
    let in_memory = Fixture::with(answer, |config| {
        with_admin(config);
        config.hot_bytes = 256 << 20;
    });
    check_purges(&in_memory, "Purge-Mode: hard", "in memory");
    check_purges(&in_memory, "Purge-Mode: soft", "in memory");
    let without_store = Fixture::with_options(
        |_| {},
        answer,
        |config| {
            with_admin(config);
            config.hot_bytes = 0;
        },
    );
    check_purges(&without_store, "Purge-Mode: hard", "on disk");
    check_purges(&without_store, "Fastly-Soft-Purge: 1", "on disk");
}

/// Checks policies that store entries in another way than the log.
#[test]
fn purges_hold_in_stores_of_every_policy() {
    for policy in Policy::all() {
        let fixture = Fixture::with_policy(policy, answer, |config| {
            with_admin(config);
            config.hot_bytes = 0;
        });
        let stored = STORED[0];
        for (fields, mode) in [
            (["Surrogate-Key: a"], "Purge-Mode: hard"),
            (["Surrogate-Key: a"], "Purge-Mode: soft"),
            (["Purge-Scope: prefix"], "Purge-Mode: hard"),
        ] {
            fixture.get_hit(stored.0, &[stored.1]);
            assert_eq!(purge(&fixture, &format!("{URL}/a/"), &[fields[0], mode]), 200, "{}", policy.name);
            assert!(!is_served(&fixture, stored), "{} {fields:?} {mode}", policy.name);
        }
    }
}

#[test]
fn proxy_without_a_store_purges_what_is_in_memory() {
    let fixture = Fixture::without_store_with(answer, with_admin);
    for mode in ["Purge-Mode: hard", "Purge-Mode: soft"] {
        for stored in [STORED[0], STORED[5]] {
            fixture.get_hit(stored.0, &[stored.1]);
            assert_eq!(purge(&fixture, "/", &["Surrogate-Key: all-of-it", mode]), 200);
            assert!(!is_served(&fixture, stored));
        }
    }
}

#[test]
fn softly_purged_response_is_validated_once_and_is_fresh_again() {
    let fixture = Fixture::with(answer, with_admin);
    let body = fixture.get_hit("/a/short", &[]).text();
    assert_eq!(purge(&fixture, "/", &["Surrogate-Key: a", "Purge-Mode: soft"]), 200);
    let validated = fixture.get("/a/short", &[]);
    assert_eq!((validated.status, validated.text()), (200, body.clone()));
    assert_eq!(fixture.origin.received().last().unwrap().field("if-none-match"), Some("\"1\""));
    let asked = fixture.origin.count();
    assert_eq!(fixture.get_hit("/a/short", &[]).text(), body);
    assert_eq!(fixture.origin.count(), asked);
    // After a hard purge there is no validation, because the old response is unusable.
    assert_eq!(purge(&fixture, "/", &["Surrogate-Key: a"]), 200);
    assert_ne!(fixture.get("/a/short", &[]).text(), body);
    assert_eq!(fixture.origin.received().last().unwrap().field("if-none-match"), None);
}

#[test]
fn softly_purged_response_serves_as_stale_where_it_says_so() {
    let fixture = Fixture::with(
        |received, number| match (received.target.as_str(), number) {
            ("/meanwhile", _) => Reply::ok(
                &["Cache-Control: max-age=600, stale-while-revalidate=60", "Surrogate-Key: k"],
                format!("{number}"),
            ),
            (_, 0 | 1) => Reply::ok(&["Cache-Control: max-age=600, stale-if-error=60", "Surrogate-Key: k"], "good"),
            _ => Reply::status("503 Service Unavailable", &[], "bad"),
        },
        with_admin,
    );
    fixture.get_hit("/on-error", &[]);
    let before = fixture.get_hit("/meanwhile", &[]).text();
    assert_eq!(purge(&fixture, "/", &["Surrogate-Key: k", "Purge-Mode: soft"]), 200);
    let stale = fixture.get("/meanwhile", &[]);
    assert_eq!((stale.text(), stale.is_hit()), (before.clone(), true), "{}", stale.cache_status());
    eventually("it was validated behind", || fixture.get("/meanwhile", &[]).text() != before);
    let failed = fixture.get("/on-error", &[]);
    assert_eq!((failed.status, failed.text()), (200, "good".to_owned()), "{}", failed.cache_status());
    // A hard purge leaves nothing to serve if the origin fails.
    assert_eq!(purge(&fixture, "/", &["Surrogate-Key: k"]), 200);
    assert_eq!(fixture.get("/on-error", &[]).status, 503);
}

/// Guards against an outdated page that is stored by a fetch in progress, or returned to a request sent after the
/// purge.
#[test]
fn fetch_that_began_before_a_purge_is_neither_stored_nor_joined_after_it() {
    let ways: [(&str, &[&str]); 8] = [
        ("http://site.example/slow", &[]),
        ("http://site.example/", &["Purge-Scope: site"]),
        ("/", &["Purge-Scope: all"]),
        ("http://site.example/slow", &["Purge-Mode: soft"]),
        ("http://site.example/s*", &[]),
        ("http://site.example/", &["Purge-Scope: site", "Purge-Mode: soft"]),
        ("/", &["Surrogate-Key: k"]),
        ("/", &["Surrogate-Key: k", "Purge-Mode: soft"]),
    ];
    for (target, fields) in ways {
        let gate = Gate::default();
        let held = gate.clone();
        let fixture = Fixture::with(
            move |_, number| {
                let head = ["Cache-Control: max-age=600", "Surrogate-Key: k", "Content-Length: 3"];
                let reply = Reply::head("200 OK", &head).send("v=");
                if number == 0 { reply.wait(&held).send("0") } else { reply.send("1") }
            },
            with_admin,
        );
        std::thread::scope(|scope| {
            let before = scope.spawn(|| fixture.get("/slow", &[]).text());
            eventually("it is with the origin", || fixture.origin.count() == 1);
            assert_eq!(purge(&fixture, target, fields), 200);
            // Two at once: the second joins the first one's fetch or finds its response.
            let others = [(); 2].map(|()| scope.spawn(|| fixture.get("/slow", &[]).text()));
            others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), "v=1", "{target} {fields:?}"));
            gate.open();
            assert_eq!(before.join().unwrap(), "v=0");
        });
        assert_eq!(fixture.get_hit("/slow", &[]).text(), "v=1", "{target} {fields:?}");
        assert_eq!(fixture.origin.count(), 2, "{target} {fields:?}");
    }
}

/// Guards against an outdated page that is stored while its purge is acknowledged.
#[test]
fn response_whose_commit_meets_a_purge_is_not_served_after_it() {
    let ways: [(&str, &[&str]); 5] = [
        ("http://site.example/race", &[]),
        ("http://site.example/r*", &[]),
        ("http://site.example/", &["Purge-Scope: site"]),
        ("/", &["Purge-Scope: all"]),
        ("/", &["Surrogate-Key: k"]),
    ];
    let fixture = Fixture::with(
        |_, number| Reply::ok(&["Cache-Control: max-age=600", "Surrogate-Key: k"], format!("{number}")),
        with_admin,
    );
    for round in 0..500 {
        let (target, fields) = ways[round % ways.len()];
        let count = fixture.origin.count();
        std::thread::scope(|scope| {
            scope.spawn(|| fixture.get("/race", &[]));
            eventually("it is with the origin", || fixture.origin.count() > count);
            let asked = fixture.origin.count();
            assert_eq!(purge(&fixture, target, fields), 200);
            let served: usize = fixture.get("/race", &[]).text().parse().unwrap();
            assert!(served >= asked, "{round}: {target} {fields:?}: {served} of {asked}");
        });
        // The response that is stored now is removed, so that the next round fetches.
        assert_eq!(purge(&fixture, "/", &["Purge-Scope: all"]), 200);
    }
}

/// Guards against a store that is lost because of purges that concern nothing in it.
#[test]
fn twenty_thousand_purges_of_other_tags_lose_no_stored_response() {
    let fixture = Fixture::with(
        |received, _| {
            let fields = ["Cache-Control: max-age=600", "ETag: \"1\"", "Surrogate-Key: k"];
            match received.field("if-none-match") {
                Some(_) => Reply::status("304 Not Modified", &fields, ""),
                None => Reply::ok(&fields, received.target.clone()),
            }
        },
        with_admin,
    );
    let targets: Vec<String> = (0..300).map(|number| format!("/page/{number}")).collect();
    targets.iter().for_each(|target| drop(fixture.get_hit(target, &[])));
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    for first in (0..20_000).step_by(200) {
        let tags: Vec<String> = (first..first + 200).map(|number| format!("t{number}")).collect();
        let answered = admin.request("PURGE", "/", &[&format!("Surrogate-Key: {}", tags.join(" "))]);
        assert_eq!(answered.status, 200);
    }
    for target in &targets {
        let count = fixture.origin.count();
        let response = fixture.get(target, &[]);
        assert_eq!(response.text(), *target);
        let asked = fixture.origin.received();
        assert!(asked[count..].iter().all(|asked| asked.field("if-none-match").is_some()), "{target} was lost");
        assert!(fixture.get_hit(target, &[]).is_hit());
    }
    // What is purged by its own tag is gone, as before.
    assert_eq!(purge(&fixture, "/", &["Surrogate-Key: k"]), 200);
    let count = fixture.origin.count();
    fixture.get(&targets[0], &[]);
    assert!(fixture.origin.received()[count].field("if-none-match").is_none());
}

#[test]
fn purges_hold_over_a_restart_and_what_is_fetched_after_them_stays() {
    let fixture = Fixture::with(answer, with_admin);
    store_all(&fixture);
    assert_eq!(purge(&fixture, "/", &["Surrogate-Key: a"]), 200);
    assert_eq!(purge(&fixture, "/", &["Cache-Tag: b", "Purge-Mode: soft"]), 200);
    // It was fetched after the purge, which does not affect it.
    fixture.get_hit(STORED[0].0, &[STORED[0].1]);
    let fixture = fixture.restart_with(with_admin);
    assert!(is_served(&fixture, STORED[0]));
    STORED[1..].iter().for_each(|stored| assert!(!is_served(&fixture, *stored), "{stored:?}"));
    store_all(&fixture);
    let fixture = fixture.restart_with(with_admin);
    STORED.iter().for_each(|stored| assert!(is_served(&fixture, *stored), "{stored:?}"));
    // The count continues, so this purge is later than all stored responses.
    assert_eq!(purge(&fixture, "/", &["Surrogate-Key: all-of-it"]), 200);
    STORED.iter().for_each(|stored| assert!(!is_served(&fixture, *stored), "{stored:?}"));
}

/// Guards against a purged page that is back because the list of purges is lost.
#[test]
fn store_whose_list_of_purges_is_lost_or_damaged_is_emptied() {
    for damage in ["lost", "damaged", "another's"] {
        let fixture = Fixture::with(answer, with_admin);
        let record = fixture.state_file("purges");
        store_all(&fixture);
        assert_eq!(purge(&fixture, "/", &["Surrogate-Key: a"]), 200);
        let fixture = fixture.restart_with(|config| {
            with_admin(config);
            match damage {
                "lost" => fs::remove_file(&record).unwrap(),
                "damaged" => {
                    fs::write(&record, fs::read_to_string(&record).unwrap().replace(" tag a", " tag c")).unwrap()
                }
                _ => {
                    let other = Fixture::with(answer, with_admin);
                    assert_eq!(purge(&other, "/", &["Surrogate-Key: a"]), 200);
                    fs::copy(other.state_file("purges"), &record).unwrap();
                }
            }
        });
        STORED.iter().for_each(|stored| assert!(!is_served(&fixture, *stored), "{damage}: {stored:?}"));
        // Once, and not at each start.
        store_all(&fixture);
        let fixture = fixture.restart_with(with_admin);
        STORED.iter().for_each(|stored| assert!(is_served(&fixture, *stored), "{damage}: {stored:?}"));
    }
}

/// Guards against an operator who is told that a response is purged, while the next start serves it again.
#[test]
fn purge_that_cannot_be_put_on_record_is_refused_and_counts_all_the_same() {
    let fixture = Fixture::with(answer, with_admin);
    let record = fixture.state_file("purges");
    store_all(&fixture);
    fs::create_dir(&record).unwrap();
    for (target, fields) in
        [("/", ["Surrogate-Key: a", "X: 1"]), ("http://site.example/b/", ["Purge-Scope: prefix", "Purge-Mode: soft"])]
    {
        assert_eq!(purge(&fixture, target, &fields), 503);
    }
    for _ in 0..2 {
        STORED.iter().for_each(|stored| assert!(!is_served(&fixture, *stored), "{stored:?}"));
    }
    fs::remove_dir(&record).unwrap();
    assert_eq!(purge(&fixture, "/", &["Surrogate-Key: c"]), 200);
    // Responses fetched in between may be older than the recorded purge.
    store_all(&fixture);
    let fixture = fixture.restart_with(with_admin);
    STORED.iter().for_each(|stored| assert!(is_served(&fixture, *stored), "{stored:?}"));
}

#[test]
fn purge_beside_a_device_that_fails_is_refused_until_it_can_be_told_which_list_is_its_own() {
    for ailment in [Ailment::Full, Ailment::ReadOnly, Ailment::Dead, Ailment::Hung] {
        let (fixture, device) = Fixture::ailing(answer, with_admin);
        let _recovering = device.recovering();
        fixture.get_hit("/a/short", &[]);
        device.set(ailment);
        assert_eq!(purge(&fixture, "/", &["Surrogate-Key: a"]), 503, "{ailment:?}");
        let asked = fixture.origin.count();
        fixture.get("/a/short", &[]);
        assert!(fixture.origin.count() > asked, "{ailment:?}");
        device.set(Ailment::Nothing);
        eventually("a purge works again", || purge(&fixture, "/", &["Surrogate-Key: a"]) == 200);
        fixture.get_hit("/a/short", &[]);
    }
}

#[test]
fn what_no_purge_is_is_told() {
    let fixture = Fixture::with(answer, with_admin);
    let cases: [(&str, &[&str], &str); 9] = [
        ("/a", &[], "whole URL"),
        ("/a*", &[], "whole URL"),
        ("ftp://a/", &["Purge-Scope: prefix"], "whole URL"),
        (URL, &["Purge-Scope: page"], "url, prefix, site, tag or all"),
        (URL, &["Purge-Scope: tag"], "needs tags in Surrogate-Key"),
        (URL, &["Purge-Scope: site", "Cache-Tag: a"], "either Purge-Scope or tags"),
        (URL, &["Surrogate-Key: , "], "contains no tag"),
        (URL, &[&format!("Surrogate-Key: {}", "x".repeat(2000))], "at most 1024 bytes"),
        (URL, &["Purge-Mode: gentle"], "hard or soft"),
    ];
    for (target, fields, told) in cases {
        let answered = Connection::open_admin(fixture.proxy.admin_addr().unwrap()).request("PURGE", target, fields);
        assert_eq!(answered.status, 400, "{target} {fields:?}");
        assert!(answered.text().contains(told), "{target} {fields:?}: {}", answered.text());
    }
}
