//! Rules that can be observed only end to end, by clause (RFC 9111, RFC 9110).

use larder_proxy::ProxyConfig;

use crate::support::{Fixture, Gate, Received, Reply, Response, eventually, request_text};

/// Makes a response stale on arrival.
const STALE: &str = "Age: 100";

#[test]
fn newer_response_that_is_not_stored_leaves_the_older_one() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&["Cache-Control: max-age=60"], "old"),
        _ => Reply::ok(&["Cache-Control: no-store"], "new"),
    });
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    assert_eq!(fixture.get("/", &["Cache-Control: no-cache"]).text(), "new");
    assert_eq!(fixture.get_hit("/", &[]).text(), "old");
}

#[test]
fn stale_response_is_validated_before_a_condition_is_answered() {
    let fixture = Fixture::new(|received, _| match received.field("if-none-match") {
        Some("\"v1\"") => Reply::status("304 Not Modified", &["ETag: \"v1\"", "Cache-Control: max-age=60"], ""),
        _ => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\""], "hello"),
    });
    fixture.get("/", &[]);
    let answer = fixture.get("/", &["If-None-Match: \"v0\", \"v1\""]);
    assert_eq!((answer.status, answer.field("etag"), answer.body.len()), (304, Some("\"v1\""), 0));
    assert_eq!(fixture.origin.received()[1].field("if-none-match"), Some("\"v1\""));
    assert_eq!(fixture.get_hit("/", &[]).text(), "hello");
}

#[test]
fn validating_request_keeps_the_selecting_fields() {
    let fixture = Fixture::new(|received, number| {
        let variant = received.field("foo").unwrap_or("none").to_owned();
        match number {
            0 => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\"", "Vary: Foo"], variant),
            _ => Reply::status("304 Not Modified", &["Cache-Control: max-age=60", "ETag: \"v1\""], ""),
        }
    });
    fixture.get("/", &["Foo: 1"]);
    assert_eq!(fixture.get("/", &["Foo: 1"]).text(), "1");
    let validating = &fixture.origin.received()[1];
    assert_eq!((validating.field("foo"), validating.field("if-none-match")), (Some("1"), Some("\"v1\"")));
}

#[test]
fn interim_response_is_not_stored_and_the_final_one_is() {
    let fixture = Fixture::new(|_, _| {
        let hints = Reply::head("103 Early Hints", &["Link: </a.css>; rel=preload", "X-Hint: yes"]);
        hints.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello")
    });
    let mut connection = fixture.connect();
    let response = connection.request_with_interim("GET", "/", &[]).1;
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    let hit = fixture.get_hit("/", &[]);
    assert_eq!((hit.status, hit.field("link"), hit.field("x-hint")), (200, None, None));
    assert_eq!(fixture.origin.count(), 1);
}

/// Fields that `no-cache` and `private` name.
const OWN: [&str; 3] =
    ["Cache-Control: max-age=10, no-cache=\"set-cookie\", private=\"x-user\"", "Set-Cookie: a=b", "X-User: 7"];

fn own_fields(response: &Response) -> (Option<&str>, Option<&str>) {
    (response.field("set-cookie"), response.field("x-user"))
}

#[test]
fn fields_that_are_one_clients_own_go_to_the_one_who_asked() {
    let fixture = Fixture::new(|received, _| {
        let fields = [&OWN[..], &["Age: 5", "ETag: \"v1\"", "X-All: yes"]].concat();
        match received.field("range") {
            Some(_) => {
                Reply::status("206 Partial Content", &[&fields[..], &["Content-Range: bytes 0-4/5"]].concat(), "hello")
            }
            None => Reply::ok(&fields, "hello"),
        }
    });
    for (target, fields) in [("/whole", &[][..]), ("/part", &["Range: bytes=2-3"])] {
        let first = fixture.get(target, fields);
        assert_eq!(own_fields(&first), (Some("a=b"), Some("7")), "{first:?}");
        let hit = fixture.get_hit(target, fields);
        assert_eq!((own_fields(&hit), hit.field("x-all")), ((None, None), Some("yes")));
    }
    let head = fixture.connect().request("HEAD", "/whole", &["Cache-Control: no-cache"]);
    assert_eq!(own_fields(&head), (Some("a=b"), Some("7")), "{head:?}");
    assert_eq!(own_fields(&fixture.get_hit("/whole", &[])), (None, None));
}

#[test]
fn fields_of_a_confirmation_that_are_one_clients_own_go_to_the_one_who_asked() {
    let fixture = Fixture::new(|received, _| match received.field("if-none-match") {
        Some(_) => Reply::status("304 Not Modified", &[&OWN[..], &["ETag: \"v1\""]].concat(), ""),
        None => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\""], "hello"),
    });
    fixture.get("/", &[]);
    let confirmed = fixture.get("/", &[]);
    assert_eq!((confirmed.text().as_str(), own_fields(&confirmed)), ("hello", (Some("a=b"), Some("7"))));
    assert_eq!(own_fields(&fixture.get_hit("/", &[])), (None, None));
}

#[test]
fn those_who_wait_for_a_fetch_do_not_get_what_is_the_first_askers_own() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| {
        let reply = Reply::default().wait(&held);
        reply.send(format!("HTTP/1.1 200 OK\r\n{}\r\nContent-Length: 2\r\n\r\nok", OWN.join("\r\n")))
    });
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..5).map(|_| scope.spawn(|| fixture.get("/", &[]))).collect();
        eventually("all but one wait", || fixture.proxy.stats().collapsed_requests == 4);
        gate.open();
        let answers: Vec<_> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
        assert!(answers.iter().all(|answer| answer.text() == "ok"));
        assert_eq!(answers.iter().filter(|answer| own_fields(answer) == (Some("a=b"), Some("7"))).count(), 1);
        assert_eq!(answers.iter().filter(|answer| own_fields(answer) == (None, None)).count(), 4);
    });
}

#[test]
fn targeted_field_rules_what_is_stored_and_is_passed_on() {
    let fixture = Fixture::new(|received, _| match received.target.as_str() {
        "/kept" => Reply::ok(&["CDN-Cache-Control: max-age=60", "Cache-Control: no-store"], "kept"),
        _ => Reply::ok(&["CDN-Cache-Control: no-store", "Cache-Control: max-age=60"], "passed"),
    });
    fixture.get("/kept", &[]);
    let hit = fixture.get_hit("/kept", &[]);
    assert_eq!((hit.text().as_str(), hit.field("cdn-cache-control")), ("kept", Some("max-age=60")));
    fixture.get("/passed", &[]);
    assert!(!fixture.get("/passed", &[]).is_hit());
    assert_eq!(fixture.origin.count(), 3);
}

#[test]
fn targeted_fields_are_those_of_the_settings() {
    let names = [http::HeaderName::from_static("site-cache-control")];
    let fixture = Fixture::with(
        |_, number| {
            let ruling = if number == 0 { "Site-Cache-Control: max-age=60" } else { "CDN-Cache-Control: max-age=60" };
            Reply::ok(&[ruling, "Cache-Control: no-store"], number.to_string())
        },
        |config| config.policy.cache.http.targets = larder_http::TargetList::new(names),
    );
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    fixture.get("/other", &[]);
    assert!(!fixture.get("/other", &[]).is_hit());
}

/// Stale on arrival, and to be served so for a while.
const STALE_MEANWHILE: &str = "Cache-Control: max-age=10, stale-while-revalidate=1000";

#[test]
fn stale_response_is_served_at_once_and_validated_behind_once() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, number| match number {
        0 => Reply::ok(&[STALE_MEANWHILE, STALE, "ETag: \"v0\""], "old"),
        _ => Reply::default()
            .wait(&held)
            .send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 3\r\n\r\nnew"),
    });
    fixture.get("/", &[]);
    eventually("the stale response is served", || fixture.get("/", &["X-Mark: 1"]).is_hit());
    eventually("the origin is asked behind", || fixture.origin.count() == 2);
    for _ in 0..5 {
        let stale = fixture.get("/", &["X-Mark: 1"]);
        assert_eq!(stale.text(), "old");
        assert!(stale.cache_status().ends_with("detail=stale-while-revalidate"), "{stale:?}");
        assert!(stale.field("age").and_then(|age| age.parse::<u64>().ok()) >= Some(100), "{stale:?}");
    }
    assert_eq!(fixture.origin.count(), 2);
    let behind = &fixture.origin.received()[1];
    assert_eq!((behind.field("x-mark"), behind.field("if-none-match")), (Some("1"), Some("\"v0\"")));
    gate.open();
    eventually("the new response is served", || fixture.get("/", &[]).text() == "new");
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn what_validation_behind_brings_counts_even_if_it_is_not_stored() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&[STALE_MEANWHILE, STALE], "old"),
        _ => Reply::ok(&["Cache-Control: no-cache"], "new"),
    });
    fixture.get("/", &[]);
    eventually("the origin's new answer reaches the client", || fixture.get("/", &[]).text() == "new");
    assert_eq!(fixture.get("/", &[]).text(), "new");
}

#[test]
fn stale_response_past_its_window_is_validated_first() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&["Cache-Control: max-age=10, stale-while-revalidate=80", STALE], "old"),
        _ => Reply::ok(&["Cache-Control: max-age=60"], "new"),
    });
    fixture.get("/", &[]);
    assert_eq!(fixture.get("/", &[]).text(), "new");
}

/// Returns the parts of a multipart/byteranges response: Content-Range and bytes.
fn parts_of(response: &Response) -> Vec<(String, Vec<u8>)> {
    let kind = response.field("content-type").expect("there is a type");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect("the type is multipart");
    let mut parts = Vec::new();
    let mut rest = &response.body[..];
    loop {
        let line = format!("--{boundary}\r\n");
        rest = rest.strip_prefix(line.as_bytes()).expect("a part begins with the boundary");
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("a part has a head");
        let head = String::from_utf8(rest[..end].to_vec()).expect("a part's head is text");
        let range = head.lines().find_map(|line| line.strip_prefix("Content-Range: ")).expect("a part has a range");
        let (first, last) = range["bytes ".len()..].split_once('/').and_then(|(span, _)| span.split_once('-')).unwrap();
        let len = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        rest = &rest[end + 4..];
        parts.push((range.to_owned(), rest[..len].to_vec()));
        rest = rest[len..].strip_prefix(b"\r\n").expect("a line end follows a part");
        if rest == format!("--{boundary}--\r\n").as_bytes() {
            return parts;
        }
    }
}

#[test]
fn several_ranges_come_in_one_response_from_whole_bodies_and_from_chunks() {
    for len in [10_000, 3 << 20] {
        let body: Vec<u8> = (0..len).map(|at: usize| (at / 7 + at % 251) as u8).collect();
        let sent = body.clone();
        let fixture = Fixture::new(move |_, _| {
            Reply::ok(&["Cache-Control: max-age=60", "Content-Type: text/x", "ETag: \"a\""], &sent)
        });
        fixture.get("/", &[]);
        fixture.get_hit("/", &[]);
        let far = len - 1000;
        let range = format!("Range: bytes={far}-{}, 0-4, -5", far + 99);
        let response = fixture.get("/", &[&range]);
        assert_eq!((response.status, response.complete), (206, true), "{response:?}");
        assert_eq!(response.field("content-range"), None);
        let expected = [(far, far + 99), (0, 4), (len - 5, len - 1)]
            .map(|(first, last)| (format!("bytes {first}-{last}/{len}"), body[first..=last].to_vec()));
        assert_eq!(parts_of(&response), expected);
        assert_eq!(
            fixture.get("/", &["Range: bytes=0-1, 2-3"]).field("content-range"),
            Some(&*format!("bytes 0-3/{len}"))
        );
        assert_eq!(fixture.origin.count(), 1);
    }
}

#[test]
fn answer_to_head_confirms_or_drops_the_stored_get() {
    let fixture = Fixture::new(|received, number| match (received.method.as_str(), received.target.as_str()) {
        ("HEAD", "/same") => {
            Reply::head("200 OK", &["Cache-Control: max-age=60", "ETag: \"a\"", "X-New: 1", "Content-Length: 3"])
        }
        ("HEAD", _) => Reply::head("200 OK", &["Cache-Control: max-age=60", "ETag: \"b\"", "Content-Length: 3"]),
        _ => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"a\""], format!("{number:03}")),
    });
    let mut connection = fixture.connect();
    for target in ["/same", "/other"] {
        let first = connection.request("GET", target, &[]).text();
        eventually("the response is stored", || {
            let answer = connection.request("HEAD", target, &["Cache-Control: only-if-cached, max-stale"]);
            answer.status == 200
        });
        assert_eq!(connection.request("HEAD", target, &[]).status, 200);
        let after = connection.request("GET", target, &["Cache-Control: max-stale"]);
        if target == "/same" {
            assert_eq!((after.is_hit(), after.text(), after.field("x-new")), (true, first, Some("1")));
        } else {
            assert!(!after.is_hit() && after.text() != first, "{after:?}");
        }
    }
}

#[test]
fn response_to_post_that_stands_for_its_target_answers_later_gets() {
    let fixture = Fixture::new(|received, _| match (received.method.as_str(), received.target.as_str()) {
        ("POST", "/own") => Reply::ok(&["Cache-Control: max-age=60", "Content-Location: /own"], "posted"),
        ("POST", _) => Reply::ok(&["Cache-Control: max-age=60"], "posted"),
        _ => Reply::ok(&["Cache-Control: no-store"], "gotten"),
    });
    for (target, expected) in [("/own", "posted"), ("/other", "gotten")] {
        let mut connection = fixture.connect();
        connection.send(request_text("POST", target, &["Content-Length: 3"]) + "x=1");
        assert_eq!(connection.read_response("POST").text(), "posted");
        let later = fixture.get(target, &[]);
        assert_eq!((later.text().as_str(), later.is_hit()), (expected, target == "/own"));
    }
}

#[test]
fn confirmed_response_whose_new_fields_forbid_storing_is_dropped() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"a\""], "first"),
        1 => Reply::status("304 Not Modified", &["Cache-Control: no-store", "ETag: \"a\""], ""),
        _ => Reply::ok(&["Cache-Control: no-store"], "later"),
    });
    fixture.get("/", &[]);
    assert_eq!(fixture.get("/", &[]).text(), "first");
    eventually("the response is forgotten", || fixture.get("/", &["Cache-Control: max-stale"]).text() == "later");
}

#[test]
fn interim_response_is_passed_on_before_the_final_one_is_there() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |received, _| {
        let cached = if received.target == "/stored" { "max-age=60" } else { "no-store" };
        let hints = Reply::head("103 Early Hints", &["Link: </a.css>; rel=preload", "Connection: X-Hop", "X-Hop: 1"]);
        let last = format!("HTTP/1.1 200 OK\r\nCache-Control: {cached}\r\nContent-Length: 5\r\n\r\nhello");
        hints.send("HTTP/1.1 102 Processing\r\n\r\n").wait(&held).send(last)
    });
    let mut connections = [fixture.connect(), fixture.connect()];
    for (connection, target) in connections.iter_mut().zip(["/stored", "/passed"]) {
        connection.send(request_text("GET", target, &[]));
        let hints = connection.read_head();
        assert_eq!((hints.status, hints.field("link")), (103, Some("</a.css>; rel=preload")));
        assert_eq!((hints.field("x-hop"), hints.field("connection")), (None, None));
        assert_eq!(connection.read_head().status, 102);
    }
    gate.open();
    for connection in &mut connections {
        let last = connection.read_response("GET");
        assert_eq!((last.status, last.text().as_str(), last.complete), (200, "hello", true));
    }
    assert_eq!(fixture.get_hit("/stored", &[]).field("link"), None);
}

#[test]
fn client_of_http_1_0_gets_no_interim_response() {
    let fixture = Fixture::new(|_, _| {
        let last = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5\r\n\r\nhello";
        Reply::head("103 Early Hints", &["Link: </a.css>; rel=preload"]).send(last)
    });
    let mut connection = fixture.connect();
    connection.send("GET / HTTP/1.0\r\nHost: site.example\r\n\r\n");
    let response = connection.read_response("GET");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
}

#[test]
fn variant_is_chosen_by_the_language_that_is_preferred() {
    let normalized = |config: &mut ProxyConfig| config.policy.cache.http.normalize_language = true;
    let handle = |received: &Received, _| {
        let languages = received.field("accept-language").unwrap_or_default();
        let tag = if languages.contains("de") { "de" } else { "en" };
        let fields = ["Cache-Control: max-age=60", "Vary: Accept-Language", &format!("Content-Language: {tag}")];
        Reply::ok(&fields, tag)
    };
    let fixture = Fixture::with(handle, normalized);
    fixture.get("/", &["Accept-Language: en"]);
    fixture.get("/", &["Accept-Language: en, de"]);
    fixture.get_hit("/", &["Accept-Language: en, de"]);
    for accepted in ["fr;q=0.5, de;q=1.0", "DE", "de, it;q=0.9"] {
        let chosen = fixture.get("/", &[&format!("Accept-Language: {accepted}")]);
        assert_eq!((chosen.is_hit(), chosen.text().as_str()), (true, "de"), "{accepted}");
    }
    assert_eq!(fixture.origin.count(), 2);
    let fixture = fixture.restart_with(normalized);
    assert!(fixture.get("/", &["Accept-Language: fr;q=0.1, en"]).is_hit(), "the store keeps what leads there");
    for accepted in ["it, de", "it;q=0.9, fr", "de;q=0, it"] {
        assert!(!fixture.get("/", &[&format!("Accept-Language: {accepted}")]).is_hit(), "{accepted}");
    }
}
