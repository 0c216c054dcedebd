//! Response directives (RFC 9111 5.2.2).

use larder_http::{Reason, Reuse};

use crate::support::{Response, date, is_reused};

/// Returns the reason why a response with these directives and every kind of freshness is not stored.
fn refusal(directives: &str) -> Option<Reason> {
    let lines =
        format!("Cache-Control: {directives}\nExpires: {}\nETag: \"a\"\nLast-Modified: {}", date(3600), date(-9));
    Response::new(&lines).refusal()
}

#[test]
fn private_is_not_stored_by_a_shared_cache() {
    for directives in ["private", "PRIVATE, max-age=3600", "s-maxage=10, Private", "public, private"] {
        assert_eq!(refusal(directives), Some(Reason::Private), "{directives}");
    }
}

#[test]
fn private_with_field_names_withholds_just_those_fields() {
    let response = Response::new("Cache-Control: private=\"X-Secret, set-cookie\", max-age=60\nX-Secret: a\nX-Open: b");
    assert_eq!(response.refusal(), None);
    let head = response.head();
    assert!(!head.fields().to_map().contains_key("x-secret"));
    assert!(head.fields().to_map().contains_key("x-open"));
    assert!(response.is_reused(3));
}

#[test]
fn private_with_anything_but_field_names_covers_the_whole_response() {
    for directives in
        ["private=\"\"", "private=\"a b\"", "private=x-a", "private=\"x-a", "private=1", "private= \"x-a\""]
    {
        assert_eq!(refusal(&format!("{directives}, max-age=60")), Some(Reason::Private), "{directives}");
    }
}

#[test]
fn field_names_the_cache_cannot_do_without_cover_the_whole_response() {
    for name in ["cache-control", "ETag", "x-a, Vary", "date", "content-length", "Content-Encoding"] {
        assert_eq!(refusal(&format!("private=\"{name}\", max-age=60")), Some(Reason::Private), "{name}");
        let response = Response::new(&format!("Cache-Control: no-cache=\"{name}\", max-age=60\nETag: \"a\""));
        assert!(!response.is_reused(3), "{name}");
    }
}

#[test]
fn no_store_is_not_stored_whatever_freshness_accompanies_it() {
    for directives in ["no-store", "No-StOrE, max-age=3600", "public, s-maxage=60, no-store", "no-store=\"x\""] {
        assert_eq!(refusal(directives), Some(Reason::NoStore), "{directives}");
    }
}

#[test]
fn no_cache_is_stored_but_never_reused_without_validation() {
    for directives in ["no-cache", "No-CaChE, max-age=3600", "s-maxage=60, no-cache, public"] {
        let lines = format!("Cache-Control: {directives}\nETag: \"a\"\nExpires: {}", date(3600));
        let response = Response::new(&lines);
        assert_eq!(response.refusal(), None, "{directives}");
        let reuse = response.reuse(3, "");
        assert!(
            matches!(
                reuse,
                Reuse::MustValidate { reason: Reason::NoCache, has_validator: true, may_serve_on_error: false, .. }
            ),
            "{directives}: {reuse:?}"
        );
    }
}

#[test]
fn no_cache_without_a_validator_is_not_worth_storing() {
    assert_eq!(Response::new("Cache-Control: no-cache, max-age=3600").refusal(), Some(Reason::NoCache));
    assert_eq!(Response::new("Cache-Control: no-cache").refusal(), Some(Reason::NoCache));
}

#[test]
fn no_cache_with_field_names_allows_reuse_without_those_fields() {
    for names in ["x-a", "x-a, X-B"] {
        let lines = format!("Cache-Control: max-age=3600, no-cache=\"{names}\"\nX-A: 1\nX-B: 2\nX-C: 3");
        let response = Response::new(&lines);
        assert!(response.is_reused(3), "{names}");
        let head = response.head();
        assert!(!head.fields().to_map().contains_key("x-a"));
        assert_eq!(head.fields().to_map().contains_key("x-b"), !names.contains("X-B"));
        assert!(head.fields().to_map().contains_key("x-c"));
    }
}

#[test]
fn must_revalidate_does_not_hinder_reuse_while_fresh() {
    assert!(is_reused("Cache-Control: max-age=3600, must-revalidate"));
    let reuse = Response::new("Cache-Control: max-age=2, must-revalidate\nETag: \"a\"").reuse(3, "");
    assert!(
        matches!(reuse, Reuse::Stale { reason: Reason::MustRevalidate, may_serve_on_error: false, .. }),
        "{reuse:?}"
    );
}

#[test]
fn must_understand_overrides_no_store_for_a_known_status_only() {
    let lines = "Cache-Control: no-store, must-understand, max-age=3600";
    assert!(Response::new(lines).is_reused(3));
    for status in [200, 203, 301, 404, 410, 500, 503] {
        assert!(Response::new(lines).with_status(status).is_reused(3), "{status}");
    }
    for status in [209, 299, 306, 499, 506, 599, 999] {
        assert_eq!(Response::new(lines).with_status(status).refusal(), Some(Reason::MustUnderstand), "{status}");
    }
    let without = Response::new("Cache-Control: must-understand, max-age=3600").with_status(499);
    assert_eq!(without.refusal(), Some(Reason::MustUnderstand));
}

#[test]
fn pragma_in_a_response_has_no_effect() {
    assert!(is_reused("Cache-Control: max-age=3600\nPragma: no-cache"));
    assert!(is_reused(&format!("Expires: {}\nPragma: no-cache", date(3600))));
}

#[test]
fn request_no_store_keeps_the_response_out() {
    let response = Response::new("Cache-Control: max-age=60").answering("Cache-Control: no-store");
    assert_eq!(response.refusal(), Some(Reason::RequestNoStore));
}

#[test]
fn immutable_is_not_validated_while_fresh_unless_the_request_asks_for_it() {
    let response = Response::new("Cache-Control: max-age=60, immutable\nETag: \"a\"");
    assert!(response.is_reused(3));
    assert!(matches!(response.reuse(61, ""), Reuse::Stale { has_validator: true, may_serve_meanwhile: false, .. }));
    for (request, reason) in
        [("Cache-Control: no-cache", Reason::RequestNoCache), ("Cache-Control: max-age=0", Reason::RequestMaxAge)]
    {
        let asked = response.reuse(3, request);
        assert!(matches!(asked, Reuse::MustValidate { reason: found, .. } if found == reason), "{request}: {asked:?}");
    }
    assert!(!Response::new("Cache-Control: immutable").is_reused(3), "it is no lifetime");
}
