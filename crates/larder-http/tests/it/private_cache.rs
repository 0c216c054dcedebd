//! The rules of a private cache, where they differ from those of a shared one (RFC 9111 1, 3, 3.5, 5.2.2).

use std::collections::BTreeSet;

use http::{HeaderMap, Method};
use larder_http::{Reuse, Settings, Storability, StoredHead, reuse, validate};

use crate::support::{RECEIVED, Response, fields, later_answer};

fn private(lines: &str) -> Response {
    Response { settings: Settings::private(), ..Response::new(lines) }
}

/// Returns the head that a private cache stores.
fn stored(response: &Response) -> StoredHead {
    let Storability::Store { rule, .. } = response.storability() else { panic!("it is stored") };
    let selecting = rule.select(&response.request, &response.settings).expect("it varies by no star");
    let received = larder_http::ReceivedHead {
        status: http::StatusCode::OK,
        fields: response.fields.clone(),
        request_time: RECEIVED,
        response_time: RECEIVED,
    };
    StoredHead::new(received, larder_http::BodyPlace::Whole { len: 1 }, selecting, &response.settings.targets)
}

#[test]
fn private_cache_stores_what_is_for_one_user() {
    for lines in [
        "Cache-Control: private, max-age=60",
        "Cache-Control: Private=\"x-a\", max-age=60\nX-A: b",
        "Cache-Control: max-age=60\nSet-Cookie: a=b",
        "Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT\nSet-Cookie: a=b",
    ] {
        let response = private(lines);
        assert!(response.is_reused(3), "{lines}");
        // Nothing is withheld: the fields that `private` names are the user's own.
        let names = |fields: &HeaderMap| fields.keys().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(names(&stored(&response).fields().to_map()), names(&response.fields), "{lines}");
    }
}

#[test]
fn private_cache_ignores_directives_for_shared_caches() {
    assert!(private("Cache-Control: max-age=60, s-maxage=0").is_reused(3));
    assert!(!private("Cache-Control: s-maxage=60").is_reused(3));
    assert!(private("Cache-Control: max-age=60\nCDN-Cache-Control: no-store").is_reused(3));
    assert!(private("Cache-Control: max-age=1, proxy-revalidate").is_reused_for(3, "Cache-Control: max-stale"));
    assert!(!private("Cache-Control: max-age=1, must-revalidate").is_reused_for(3, "Cache-Control: max-stale"));
}

#[test]
fn private_cache_obeys_directives_for_all_caches() {
    for lines in
        ["Cache-Control: no-store, max-age=60", "Cache-Control: no-cache, max-age=60", "Cache-Control: max-age=0"]
    {
        assert!(!private(lines).is_reused(3), "{lines}");
    }
}

#[test]
fn response_to_credentials_is_reused_for_the_same_credentials_alone() {
    let with_credentials = private("Cache-Control: max-age=60\nETag: \"a\"").answering("Authorization: Basic one");
    let head = stored(&with_credentials);
    let settings = Settings::private();
    assert!(head.matches(&fields("Authorization: Basic one"), &settings));
    assert!(!head.matches(&fields("Authorization: Basic two"), &settings));
    assert!(!head.matches(&HeaderMap::new(), &settings));
    let without = stored(&private("Cache-Control: max-age=60"));
    assert!(without.matches(&HeaderMap::new(), &settings));
    assert!(!without.matches(&fields("Authorization: Basic one"), &settings));
    // A validation keeps them apart.
    let request = fields("Authorization: Basic one");
    let answer = fields("Cache-Control: max-age=60");
    let renewed = validate::freshen(&head, &later_answer(&request, http::StatusCode::NOT_MODIFIED, &answer), &settings);
    assert!(renewed.matches(&request, &settings) && !renewed.matches(&HeaderMap::new(), &settings));
}

#[test]
fn private_cache_serves_stale_in_place_of_an_error_only_where_somebody_says_so() {
    let on_error = |lines: &str, request: &str| {
        let response = private(lines);
        let now = RECEIVED.plus_secs(70);
        match reuse::decide(&Method::GET, &fields(request), &response.head(), now, &response.settings) {
            Reuse::Stale { may_serve_on_error, .. } => may_serve_on_error,
            other => panic!("{lines}: {other:?}"),
        }
    };
    assert!(!on_error("Cache-Control: max-age=60", ""));
    assert!(on_error("Cache-Control: max-age=60, stale-if-error=60", ""));
    assert!(on_error("Cache-Control: max-age=60", "Cache-Control: stale-if-error=60"));
}
