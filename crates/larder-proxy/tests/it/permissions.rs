//! `authorization = "check"`: which clients receive responses that were fetched with another client's credentials.

use larder_http::{
    Rules, Ruling,
    rules::{MatchTexts, Rule},
    ruling::RedirectPolicy,
};
use larder_proxy::{Mirror, ProxyConfig};

use crate::support::{Fixture, Gate, Received, Reply, Response};

/// The SHA-256 of `body`.
const DIGEST: &str = "sha256:230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5";
const SECRET: &[&str] = &["Cache-Control: max-age=600", "ETag: \"s\"", "Content-Type: text/plain"];
const USER: &str = "Authorization: Bearer user";

/// How an origin refuses a client.
const REFUSALS: [&str; 12] = [
    "301 Moved Permanently",
    "302 Found",
    "303 See Other",
    "307 Temporary Redirect",
    "401 Unauthorized",
    "403 Forbidden",
    "404 Not Found",
    "407 Proxy Authentication Required",
    "500 Internal Server Error",
    "hang",
    "a page",
    "204 No Content",
];

/// Returns the response for a client that the origin refuses.
fn refuse(refusal: &str, received: &Received, gate: &Gate) -> Reply {
    match (received.target.as_str(), received.method.as_str()) {
        ("/users/sign_in", "HEAD") => return Reply::head("200 OK", &["Content-Type: text/html", "Content-Length: 14"]),
        ("/users/sign_in", _) => return Reply::ok(&["Content-Type: text/html"], "please sign in"),
        _ => {}
    }
    match refusal {
        "hang" => Reply::default().wait(gate).close(),
        // For a blob, only the length is reliable.
        "a page" if received.method == "HEAD" && received.target.contains("/blobs/") => {
            Reply::head("200 OK", &["Content-Length: 9"])
        }
        // It has the length of the secret, so only the other fields differ.
        "a page" if received.method == "HEAD" => {
            Reply::head("200 OK", &["Content-Length: 4", "Content-Type: text/html"])
        }
        "a page" if received.target.contains("/blobs/") => Reply::ok(&["Content-Type: text/html"], "some page"),
        "a page" => Reply::ok(&["Content-Type: text/html"], "page"),
        redirect if redirect.starts_with('3') => Reply::status(redirect, &["Location: /users/sign_in"], ""),
        status if received.method == "HEAD" => Reply::head(status, &["Content-Length: 0"]),
        status => Reply::status(status, &[], ""),
    }
}

/// Answers for an origin that sends its secret to one user and refuses all others.
fn guarded(refusal: &'static str, gate: &Gate) -> impl Fn(&Received, usize) -> Reply + Send + Sync + 'static {
    let gate = gate.clone();
    move |received, _| match (received.field("authorization"), received.method.as_str()) {
        (Some("Bearer user"), "HEAD") => Reply::head("200 OK", &[SECRET, &["Content-Length: 4"]].concat()),
        (Some("Bearer user"), _) if received.field("range").is_some() => first_octet(),
        (Some("Bearer user"), _) => Reply::ok(SECRET, "body"),
        _ => refuse(refusal, received, &gate),
    }
}

/// Returns the first octet of the secret.
fn first_octet() -> Reply {
    Reply::status("206 Partial Content", &[SECRET, &["Content-Range: bytes 0-0/4"]].concat(), "b")
}

fn checking(config: &mut ProxyConfig, following: RedirectPolicy, checks_digest: bool) {
    let ruling =
        Ruling { name: "check".into(), checks_authorization: true, following, checks_digest, ..Ruling::default() };
    config.rules = Rules::new(vec![Rule::new(&MatchTexts::default(), ruling).unwrap()]);
    config.policy.limits.origin_response = std::time::Duration::from_millis(300);
}

/// Returns whether a response reveals what only the user may read.
fn leaks(response: &Response) -> bool {
    response.text().contains("body") || response.field("etag") == Some("\"s\"")
}

/// Stores the secret for its user, then requests it as other clients.
fn try_refusal(refusal: &str, fixture: &Fixture, target: &str, gate: &Gate) {
    assert_eq!(fixture.get(target, &[USER]).text(), "body", "{refusal}");
    assert_eq!(fixture.get_hit(target, &[USER]).text(), "body", "{refusal}");
    for fields in [&[][..], &["Authorization: Bearer expired"]] {
        for method in ["GET", "HEAD"] {
            let refused = fixture.connect().request(method, target, fields);
            assert!(!leaks(&refused) && !refused.is_hit(), "{refusal} {fields:?} {method}: {refused:?}");
        }
    }
    gate.open();
    assert!(fixture.get_hit(target, &[USER]).text() == "body", "{refusal}: the user is still served");
}

#[test]
fn none_of_twelve_refusals_is_taken_for_permission() {
    for following in [RedirectPolicy::None, RedirectPolicy::All] {
        for refusal in REFUSALS {
            let gate = Gate::default();
            let fixture = Fixture::with(guarded(refusal, &gate), |config| checking(config, following, false));
            try_refusal(refusal, &fixture, "/secret", &gate);
        }
    }
}

#[test]
fn none_of_twelve_refusals_opens_a_registry_of_containers() {
    for refusal in REFUSALS {
        let gate = Gate::default();
        let fixture = Fixture::with(guarded(refusal, &gate), |config| {
            let origin = format!("{}/v2", config.default_origin.take().unwrap().to_short_string());
            let mirror = Mirror::of_files("/v2", origin.parse().unwrap());
            config.mirrors.push(Mirror { is_registry: true, ..mirror });
            checking(config, RedirectPolicy::Safe, true);
        });
        try_refusal(refusal, &fixture, "/v2/team/app/manifests/latest", &gate);
        try_refusal(refusal, &fixture, &format!("/v2/team/app/blobs/{DIGEST}"), &gate);
    }
}

/// Checks the case of an origin whose rules forbid GET and forget HEAD, or whose gateway answers HEAD from its own
/// cache.
#[test]
fn permission_for_the_head_is_none_for_the_body() {
    for origin_knows_ranges in [false, true] {
        let handle = move |received: &Received, _| match (received.field("authorization"), received.method.as_str()) {
            (_, "HEAD") => Reply::head("200 OK", &[SECRET, &["Content-Length: 4"]].concat()),
            (Some("Bearer user"), _) if origin_knows_ranges && received.field("range").is_some() => first_octet(),
            (Some("Bearer user"), _) => Reply::ok(SECRET, "body"),
            _ => Reply::status("403 Forbidden", &[], ""),
        };
        let fixture = Fixture::with(handle, |config| checking(config, RedirectPolicy::None, false));
        fixture.get("/secret", &[USER]);
        assert_eq!(fixture.get_hit("/secret", &[USER]).text(), "body");
        for fields in [&[][..], &["Authorization: Bearer other"]] {
            let refused = fixture.get("/secret", fields);
            assert!(refused.status == 403 && !leaks(&refused), "{fields:?}: {refused:?}");
            let described = fixture.connect().request("HEAD", "/secret", fields);
            assert_eq!((described.status, described.text().as_str()), (200, ""), "the origin tells its head to all");
        }
        assert!(fixture.get("/secret", &[USER]).is_hit());
        let asked = fixture.origin.received().pop().unwrap();
        assert_eq!((asked.method.as_str(), asked.field("range")), ("GET", Some("bytes=0-0")), "one octet is enough");
    }
}

/// Answers for an origin that redirects its users to the content, with a new signature each time.
fn leading(received: &Received, number: usize) -> Reply {
    let user = received.field("authorization").is_some_and(|user| user.starts_with("Bearer user"));
    match (received.target.split('?').next(), user) {
        (Some("/content"), _) if received.method == "HEAD" => Reply::status("403 Forbidden", &[], ""),
        (Some("/content"), _) => Reply::ok(SECRET, "body"),
        (_, true) => {
            let location = format!("Location: /content?signature={number}");
            Reply::status("307 Temporary Redirect", &[&location, "Cache-Control: max-age=600"], "")
        }
        _ => Reply::status("302 Found", &["Location: /users/sign_in"], ""),
    }
}

#[test]
fn redirect_to_where_the_stored_response_came_from_is_permission() {
    let fixture = Fixture::with(leading, |config| checking(config, RedirectPolicy::All, false));
    assert_eq!(fixture.get("/secret", &[USER]).text(), "body");
    assert!(fixture.get_hit("/secret", &["Authorization: Bearer user 2"]).is_hit());
    let refused = fixture.get("/secret", &["Authorization: Bearer expired"]);
    assert!(!leaks(&refused), "{refused:?}");
}

#[test]
fn response_that_changed_for_its_user_takes_the_place_of_what_is_stored() {
    let fixture = Fixture::with(
        |received, number| {
            let tag = format!("ETag: \"{}\"", number.min(3));
            match received.method.as_str() {
                "HEAD" => Reply::head("200 OK", &["Cache-Control: max-age=600", &tag]),
                _ => Reply::ok(&["Cache-Control: max-age=600", &tag], "body"),
            }
        },
        |config| checking(config, RedirectPolicy::None, false),
    );
    fixture.get("/secret", &[USER]);
    assert!(!fixture.get("/secret", &[USER]).is_hit(), "the origin describes another by now");
    assert_eq!(fixture.get_hit("/secret", &[USER]).field("etag"), Some("\"3\""));
}
