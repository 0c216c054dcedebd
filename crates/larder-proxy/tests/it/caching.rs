//! Which responses are stored (RFC 9111 3, 4.1, 4.4).

use larder_http::key_rules::{KeyRule, KeyRules};
use larder_store::{StoreOptions, TuningValue};

use crate::support::{Connection, Fixture, Gate, Received, Reply, eventually};

/// Sends a request twice, and returns the number of requests to the origin.
fn origin_requests(reply: Reply, fields: &'static [&'static str]) -> usize {
    let fixture = Fixture::new(move |_, _| reply.clone());
    let first = fixture.get("/", fields);
    let second = fixture.get("/", fields);
    assert!(first.complete && second.complete);
    assert_eq!(first.body, second.body);
    fixture.origin.count()
}

#[test]
fn fresh_response_is_served_from_the_cache() {
    let fixture = Fixture::new(|_, _| {
        Reply::ok(&["Cache-Control: max-age=60", "Content-Type: text/plain", "X-Unknown: kept"], "hello")
    });
    let first = fixture.get("/a", &[]);
    assert_eq!((first.status, first.text().as_str()), (200, "hello"));
    assert!(first.cache_status().starts_with("fwd=uri-miss"), "{first:?}");
    assert_eq!(first.field("age"), None);
    let second = fixture.get_hit("/a", &[]);
    assert_eq!((second.status, second.text().as_str()), (200, "hello"));
    assert_eq!(second.field("x-unknown"), Some("kept"));
    assert!(second.field("age").is_some_and(|age| age.parse::<u64>().is_ok()), "{second:?}");
    assert_eq!(second.field("content-length"), Some("5"));
    assert!(second.field("date").is_some());
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn other_target_or_host_is_another_resource() {
    let fixture = Fixture::new(|received, _| {
        Reply::ok(&["Cache-Control: max-age=60"], format!("{} {}", received.field("host").unwrap(), received.target))
    });
    assert_eq!(fixture.get("/a?1", &[]).text(), "site.example /a?1");
    assert_eq!(fixture.get("/a?2", &[]).text(), "site.example /a?2");
    let mut connection = fixture.connect();
    connection.send("GET /a?1 HTTP/1.1\r\nHost: other.example\r\n\r\n");
    assert_eq!(connection.read_response("GET").text(), "other.example /a?1");
}

#[test]
fn no_store_and_private_are_not_stored() {
    assert_eq!(origin_requests(Reply::ok(&["Cache-Control: no-store, max-age=60"], "x"), &[]), 2);
    assert_eq!(origin_requests(Reply::ok(&["Cache-Control: private, max-age=60"], "x"), &[]), 2);
    assert_eq!(origin_requests(Reply::ok(&[], "x"), &[]), 2);
    assert_eq!(origin_requests(Reply::ok(&["Cache-Control: max-age=60", "Vary: *"], "x"), &[]), 2);
    assert_eq!(origin_requests(Reply::ok(&["Cache-Control: max-age=60"], "x"), &["Cache-Control: no-store"]), 2);
}

#[test]
fn authorized_response_is_shared_only_when_it_says_so() {
    let plain = Reply::ok(&["Cache-Control: max-age=60"], "x");
    assert_eq!(origin_requests(plain, &["Authorization: Basic eDp5"]), 2);
    let public = Reply::ok(&["Cache-Control: max-age=60, public"], "x");
    assert_eq!(origin_requests(public, &["Authorization: Basic eDp5"]), 1);
}

#[test]
fn variants_live_side_by_side_and_survive_a_restart() {
    let fixture = Fixture::new(|received, _| {
        let language = received.field("accept-language").unwrap_or("none").to_owned();
        Reply::ok(&["Cache-Control: max-age=60", "Vary: Accept-Language"], language)
    });
    for language in ["en", "de", "fr"] {
        assert_eq!(fixture.get("/", &[&format!("Accept-Language: {language}")]).text(), language);
    }
    assert_eq!(fixture.get("/", &[]).text(), "none");
    for language in ["en", "de", "fr"] {
        assert_eq!(fixture.get_hit("/", &[&format!("Accept-Language: {language}")]).text(), language);
    }
    assert_eq!(fixture.origin.count(), 4);
    let fixture = fixture.restart();
    for language in ["en", "de", "fr"] {
        let response = fixture.get("/", &[&format!("Accept-Language: {language}")]);
        assert!(response.is_hit(), "{response:?}");
        assert_eq!(response.text(), language);
    }
}

#[test]
fn stored_responses_survive_a_restart() {
    let fixture = Fixture::new(|received, _| Reply::ok(&["Cache-Control: max-age=600"], &received.target));
    for number in 0..20 {
        fixture.get(&format!("/{number}"), &[]);
    }
    for number in 0..20 {
        fixture.get_hit(&format!("/{number}"), &[]);
    }
    let fixture = fixture.restart();
    for number in 0..20 {
        let response = fixture.get(&format!("/{number}"), &[]);
        assert!(response.is_hit(), "{response:?}");
        assert_eq!(response.text(), format!("/{number}"));
    }
    assert_eq!(fixture.origin.count(), 20);
}

#[test]
fn memory_alone_caches_when_there_is_no_store() {
    let fixture = Fixture::without_store(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"));
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn full_memory_without_store_takes_a_response_at_its_second_request() {
    let handle = |_: &Received, _| Reply::ok(&["Cache-Control: max-age=600"], "x".repeat(10_000));
    let fixture = Fixture::without_store_with(handle, |config| config.hot_bytes = 1 << 20);
    let mut connection = fixture.connect();
    let mut is_said = |target: &str| connection.request("GET", target, &[]).cache_status().ends_with("; stored");
    assert!(is_said("/first"), "there is room");
    (0..1000).for_each(|number| _ = is_said(&format!("/once/{number}")));
    let targets: Vec<_> = (0..20).map(|number| format!("/twice/{number}")).collect();
    // A key may have the mark of another one.
    assert!(targets.iter().filter(|target| is_said(target)).count() < 10);
    let again = targets.iter().filter(|target| is_said(target));
    assert!(again.count() > 10, "a second request is admitted");
}

#[test]
fn unsafe_method_invalidates_what_it_names() {
    let fixture = Fixture::new(|received, number| match received.method.as_str() {
        "POST" => Reply::status("201 Created", &["Location: /list"], ""),
        _ => Reply::ok(&["Cache-Control: max-age=600"], number.to_string()),
    });
    let item = fixture.get("/item", &[]);
    let list = fixture.get("/list", &[]);
    let other = fixture.get("/other", &[]);
    for (target, first) in [("/item", &item), ("/list", &list), ("/other", &other)] {
        assert_eq!(fixture.get_hit(target, &[]).body, first.body);
    }
    let mut connection = fixture.connect();
    connection.send("POST /item HTTP/1.1\r\nHost: site.example\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(connection.read_response("POST").status, 201);
    assert_eq!(fixture.origin.received().last().unwrap().body, b"abc");
    assert_ne!(fixture.get("/item", &[]).body, item.body);
    assert_ne!(fixture.get("/list", &[]).body, list.body);
    assert_eq!(fixture.get("/other", &[]).body, other.body);
}

/// RFC 4918 9.8, 9.9. Guards against a mounted folder whose old files are still there after others took their place.
#[test]
fn move_or_copy_invalidates_its_destination_and_what_lies_below() {
    for (method, status, dropped) in [
        ("MOVE", "204 No Content", &["/a", "/a/x", "/b", "/b/x", "/b/y/z"][..]),
        ("COPY", "201 Created", &["/a", "/b", "/b/x", "/b/y/z"]),
        ("MOVE", "200 OK", &["/a"]),
        ("COPY", "409 Conflict", &[]),
    ] {
        let fixture = Fixture::new(move |received, number| match received.method.as_str() {
            "GET" => Reply::ok(&["Cache-Control: max-age=600"], number.to_string()),
            _ => Reply::status(status, &[], ""),
        });
        let targets = ["/a", "/a/x", "/b", "/b/x", "/b/y/z", "/bx", "/"];
        let stored = targets.map(|target| {
            fixture.get(target, &[]);
            fixture.get_hit(target, &[]).text()
        });
        fixture.connect().request(method, "/a", &["Destination: http://site.example/b", "Content-Length: 0"]);
        for (target, stored) in targets.iter().zip(stored) {
            let is_dropped = fixture.get(target, &[]).text() != stored;
            assert_eq!(is_dropped, dropped.contains(target), "{method} {status} {target}");
        }
    }
}

#[test]
fn invalidated_variants_do_not_come_back_with_a_new_marker() {
    let fixture = Fixture::new(|received, number| match received.method.as_str() {
        "DELETE" => Reply::status("204 No Content", &[], ""),
        _ => Reply::ok(&["Cache-Control: max-age=600", "Vary: Accept-Language"], number.to_string()),
    });
    let german = fixture.get("/", &["Accept-Language: de"]);
    fixture.get("/", &["Accept-Language: en"]);
    fixture.get_hit("/", &["Accept-Language: de"]);
    fixture.get_hit("/", &["Accept-Language: en"]);
    assert_eq!(fixture.connect().request("DELETE", "/", &[]).status, 204);
    fixture.get("/", &["Accept-Language: en"]);
    fixture.get_hit("/", &["Accept-Language: en"]);
    assert_ne!(fixture.get("/", &["Accept-Language: de"]).body, german.body);
}

#[test]
fn failed_unsafe_method_invalidates_nothing() {
    let fixture = Fixture::new(|received, _| match received.method.as_str() {
        "POST" => Reply::status("500 Internal Server Error", &[], ""),
        _ => Reply::ok(&["Cache-Control: max-age=600"], "x"),
    });
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    assert_eq!(fixture.connect().request("POST", "/", &["Content-Length: 0"]).status, 500);
    assert!(fixture.get("/", &[]).is_hit());
}

#[test]
fn fetch_that_began_before_an_invalidation_is_not_stored_after_it() {
    let begun = Gate::default();
    let finish = Gate::default();
    let tell = begun.clone();
    let held = finish.clone();
    let fixture = Fixture::new(move |received, number| match received.method.as_str() {
        "PUT" => Reply::status("204 No Content", &[], ""),
        _ if number == 0 => {
            tell.open();
            Reply::head("200 OK", &["Cache-Control: max-age=600", "Content-Length: 3"]).wait(&held).send("old")
        }
        _ => Reply::ok(&["Cache-Control: max-age=600"], "new"),
    });
    let mut early = fixture.connect();
    early.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    begun.wait();
    assert_eq!(fixture.connect().request("PUT", "/", &["Content-Length: 0"]).status, 204);
    // A request sent after the change does not join the fetch that began before it.
    assert_eq!(fixture.get("/", &[]).text(), "new");
    finish.open();
    assert_eq!(early.read_response("GET").text(), "old");
    for _ in 0..20 {
        assert_eq!(fixture.get("/", &[]).text(), "new");
    }
}

#[test]
fn head_is_answered_from_a_stored_get_and_never_stored() {
    let fixture = Fixture::new(|received, _| {
        let body = if received.method == "HEAD" { "" } else { "hello" };
        Reply::head("200 OK", &["Cache-Control: max-age=60", "Content-Length: 5"]).send(body)
    });
    let head = fixture.connect().request("HEAD", "/", &[]);
    assert_eq!((head.status, head.field("content-length")), (200, Some("5")));
    assert_eq!(fixture.connect().request("HEAD", "/", &[]).status, 200);
    assert_eq!(fixture.origin.count(), 2);
    assert_eq!(fixture.get("/", &[]).text(), "hello");
    fixture.get_hit("/", &[]);
    let mut connection = fixture.connect();
    let head = connection.request("HEAD", "/", &[]);
    assert!(head.is_hit(), "{head:?}");
    assert_eq!(head.field("content-length"), Some("5"));
    // No body follows the head, so the connection is still in step.
    assert_eq!(connection.request("GET", "/", &[]).text(), "hello");
    assert_eq!(fixture.origin.count(), 3);
}

#[test]
fn chunked_and_close_delimited_bodies_are_stored_whole() {
    let fixture = Fixture::new(|received, _| match received.target.as_str() {
        "/chunked" => Reply::head("200 OK", &["Cache-Control: max-age=60", "Transfer-Encoding: chunked"])
            .send("3\r\nabc\r\n")
            .send("2\r\nde\r\n0\r\n\r\n"),
        _ => Reply::head("200 OK", &["Cache-Control: max-age=60", "Connection: close"]).send("abcde").close(),
    });
    for target in ["/chunked", "/close"] {
        let first = fixture.get(target, &[]);
        assert!(first.complete);
        assert_eq!(first.text(), "abcde");
        let hit = fixture.get_hit(target, &[]);
        assert_eq!((hit.text().as_str(), hit.field("content-length")), ("abcde", Some("5")));
    }
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn only_if_cached_never_reaches_the_origin() {
    let fixture = Fixture::new(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"));
    assert_eq!(fixture.get("/", &["Cache-Control: only-if-cached"]).status, 504);
    assert_eq!(fixture.origin.count(), 0);
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    assert_eq!(fixture.get("/", &["Cache-Control: only-if-cached"]).status, 200);
    let count = fixture.origin.count();
    let long = format!("/{}", "a".repeat(larder_http::key::PRIMARY_KEY_SIZE_MAX));
    for (target, fields) in [
        ("/", &["Cache-Control: only-if-cached, no-store"][..]),
        ("/", &["Cache-Control: only-if-cached", "If-Match: \"other\""]),
        ("/", &["Cache-Control: only-if-cached, max-age=0"]),
        (&long, &["Cache-Control: only-if-cached"]),
    ] {
        assert_eq!(fixture.get(target, fields).status, 504, "{fields:?}");
    }
    assert_eq!(fixture.origin.count(), count);
}

#[test]
fn full_store_and_closed_store_never_fail_a_request() {
    let fixture = Fixture::new(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"));
    let store = fixture.store.clone().unwrap();
    let closing = tokio::runtime::Builder::new_current_thread().build().unwrap();
    closing.block_on(store.close()).unwrap();
    for number in 0..5 {
        let response = fixture.get(&format!("/{number}"), &[]);
        assert_eq!((response.status, response.text().as_str()), (200, "x"));
    }
    eventually("the store's errors are counted", || fixture.proxy.stats().store_errors > 0);
}

#[test]
fn key_rules_join_what_they_name_and_the_origin_gets_what_was_asked() {
    let fixture = Fixture::with(
        |received, _| Reply::ok(&["Cache-Control: max-age=60"], &received.target),
        |config| {
            let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let rule = |urls: &[&str], stripped: &[&str], stands| {
                KeyRule::new(&strings(urls), &strings(stripped), stands).unwrap()
            };
            let mirror = rule(&["http://mirror.example/pub/"], &[], Some("http://site.example/debian"));
            config.policy.cache.http.key_rules =
                KeyRules::new(vec![mirror, rule(&["http://site.example/"], &["utm_*"], None)]);
        },
    );
    assert_eq!(fixture.get("/p?utm_source=a&x=1", &[]).text(), "/p?utm_source=a&x=1");
    assert_eq!(fixture.get_hit("/p?x=1&utm_id=b", &[]).text(), "/p?utm_source=a&x=1");
    assert!(!fixture.get("/p?x=2", &[]).is_hit());
    fixture.get("/debian/a.deb", &[]);
    fixture.get_hit("/debian/a.deb", &[]);
    let mut connection = fixture.connect();
    connection.send("GET /pub/a.deb HTTP/1.1\r\nHost: mirror.example\r\n\r\n");
    let mirrored = connection.read_response("GET");
    assert_eq!((mirrored.is_hit(), mirrored.text().as_str()), (true, "/debian/a.deb"));
    connection.send("GET /pub2/a.deb HTTP/1.1\r\nHost: mirror.example\r\n\r\n");
    assert!(!connection.read_response("GET").is_hit());
}

#[test]
fn cache_status_says_stored_only_of_what_the_store_took() {
    let handle = |received: &Received, _| {
        let len: usize = received.target.rsplit('/').next().unwrap().parse().unwrap();
        Reply::ok(&["Cache-Control: max-age=600"], vec![b'x'; len])
    };
    // May write 12 MB in the first hour, so the store refuses the later long bodies however fast the disk is.
    let limited = |options: &mut StoreOptions| {
        *options = StoreOptions::new(options.path.clone(), 32_000_000);
        options.tuning.set("writes_per_day", TuningValue::Share(9.0)).unwrap();
    };
    let fixture = Fixture::with_options(limited, handle, |config| config.hot_bytes = 0);
    let store = fixture.store.clone().unwrap();
    let mut connection = fixture.connect();
    let mut counts = [0, 0];
    for number in 0..60 {
        let len = if number % 2 == 0 { 20 << 10 } else { 900 << 10 };
        let target = format!("/{number}/{len}");
        let is_said = connection.request("GET", &target, &[]).cache_status().ends_with("; stored");
        counts[usize::from(is_said)] += 1;
        let key = fixture.key(&target);
        if is_said {
            eventually("it is stored", || store.may_contain(&key));
        } else {
            assert!(!store.may_contain(&key), "{target}");
        }
    }
    assert!(counts.iter().all(|count| *count > 10), "refused and stored: {counts:?}");
    let without = Fixture::without_store_with(handle, |config| config.hot_bytes = 0);
    assert_eq!(without.get("/1/10", &[]).cache_status(), "fwd=uri-miss; fwd-status=200");
}

#[test]
fn hit_says_whether_it_came_from_memory_or_disk() {
    let handle = |_: &Received, _| Reply::ok(&["Cache-Control: max-age=600"], "x");
    let fixture = Fixture::with(handle, |config| config.hot_bytes = 0);
    fixture.get("/", &[]);
    assert!(fixture.get_hit("/", &[]).cache_status().ends_with("; detail=disk"));
    let fixture = Fixture::without_store_with(handle, |config| config.pseudonym = Some("9-edge".into()));
    fixture.get("/", &[]);
    let hit = fixture.get_hit("/", &[]);
    assert!(hit.cache_status().ends_with("; detail=memory"), "{hit:?}");
    assert!(hit.field("cache-status").unwrap().starts_with("\"9-edge\"; hit"), "{hit:?}");
}

/// Clients of HTTP/1.1 get the lines of a stored head, others its fields. The two requests may see different times, so
/// the values of Age and `ttl` may differ.
#[test]
fn hit_from_memory_has_the_same_head_for_every_version() {
    let fields =
        ["Cache-Control: max-age=600", "Age: 7", "Cache-Status: inner; hit", "X-A: 1", "X-A: 2", "ETag: \"1\""];
    let fixture = Fixture::without_store_with(move |_, _| Reply::ok(&fields, "hello"), |_| {});
    fixture.get("/", &[]);
    let head = |version: &str| {
        let mut connection = fixture.connect();
        connection.send(format!("GET / {version}\r\nHost: site.example\r\n\r\n"));
        let response = connection.read_response("GET");
        assert_eq!((response.status, response.text().as_str()), (200, "hello"));
        assert!(response.cache_status().starts_with("hit"), "{response:?}");
        let mut fields = response.fields;
        fields.retain(|(name, _)| name != "connection");
        for (name, value) in &mut fields {
            if name == "age" {
                assert!(value.parse::<u64>().unwrap() >= 7, "{value}");
                value.clear();
            }
            if let Some((before, after)) = value.split_once("ttl=") {
                *value = format!("{before}{}", after.trim_start_matches(|digit: char| digit.is_ascii_digit()));
            }
        }
        fields.sort();
        fields
    };
    let lines = head("HTTP/1.1");
    assert_eq!(lines, head("HTTP/1.0"));
    assert_eq!(lines.iter().filter(|(name, _)| ["age", "x-a", "cache-status"].contains(&name.as_str())).count(), 5);
}

/// RFC 9209 2. Checks that the failed node can be identified among several nodes.
#[test]
fn failure_names_the_node_as_cache_status_does() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Fixture::proxy_to(unused, |config| config.pseudonym = Some("9-edge".into()));
    for (request, status, error) in [
        ("GET /a HTTP/1.1\r\nHost: a", 502, "connection_refused"),
        ("GET /a HTTP/1.1\r\nHost: a b", 400, "http_request_error"),
    ] {
        let mut connection = Connection::open(proxy.local_addrs()[0]);
        connection.send(format!("{request}\r\n\r\n"));
        let response = connection.read_response("GET");
        let named = response.field("proxy-status").unwrap_or_default();
        assert_eq!(response.status, status, "{request}");
        assert!(named.starts_with(&format!("\"9-edge\";error={error}")), "{request}: {named}");
    }
}

/// Guards against an outdated response that stays fresh, although the origin has said otherwise.
#[test]
fn head_with_no_store_and_another_entity_tag_outdates_the_stored_response() {
    for (tag, is_kept) in [("\"a\"", true), ("\"b\"", false)] {
        let fixture = Fixture::new(move |received, _| {
            let tag = format!("ETag: {}", if received.method == "HEAD" { tag } else { "\"a\"" });
            let head = Reply::head("200 OK", &["Cache-Control: max-age=600", "Content-Length: 5", &tag]);
            if received.method == "HEAD" { head } else { head.send("hello") }
        });
        fixture.get_hit("/", &[]);
        let head = fixture.connect().request("HEAD", "/", &["Cache-Control: no-store"]);
        assert_eq!((head.status, head.field("etag")), (200, Some(tag)));
        assert_eq!(fixture.get("/", &[]).is_hit(), is_kept, "{tag}");
    }
}
