//! Set-Cookie and Cookie (RFC 9111 7.3): no client gets another client's session because of a guessed lifetime.

use larder_http::{Reason, StoredHead};

use crate::support::{DAY_SECS, Response, date, fields};

fn modified_a_day_ago(more: &str) -> Response {
    Response::new(&format!("Last-Modified: {}\n{more}", date(-DAY_SECS)))
}

#[test]
fn set_cookie_is_stored_only_with_what_is_for_everybody() {
    for control in ["public, max-age=60", "s-maxage=60", "max-age=5, s-maxage=60"] {
        let response = Response::new(&format!("Cache-Control: {control}\nSet-Cookie: a=b"));
        assert!(response.is_reused(3), "{control}");
        assert_eq!(response.head().fields().to_map()["set-cookie"], "a=b");
    }
    assert!(Response::new("CDN-Cache-Control: max-age=60\nSet-Cookie: a=b").is_reused(3));
    for control in ["max-age=60", "must-revalidate, max-age=60", "no-cache", "stale-while-revalidate=9"] {
        let response = modified_a_day_ago(&format!("Cache-Control: {control}\nETag: \"a\"\nSet-Cookie: a=b"));
        assert_eq!(response.refusal(), Some(Reason::SetCookie), "{control}");
    }
    assert_eq!(modified_a_day_ago("Set-Cookie: a=b").refusal(), Some(Reason::SetCookie));
    let expires = format!("Expires: {}\nSet-Cookie: a=b", date(60));
    assert_eq!(Response::new(&expires).refusal(), Some(Reason::SetCookie));
}

#[test]
fn set_cookie_that_is_withheld_does_not_hinder() {
    let response = Response::new("Cache-Control: max-age=60, private=\"Set-Cookie\"\nSet-Cookie: a=b");
    assert!(response.is_reused(3) && !response.head().fields().to_map().contains_key("set-cookie"));
}

#[test]
fn set_cookie_is_stored_as_anything_else_where_the_operator_says_so() {
    let mut response = Response::new("Cache-Control: max-age=60\nSet-Cookie: a=b");
    response.settings.store_set_cookie = true;
    assert!(response.is_reused(3));
    let mut guessed = modified_a_day_ago("Set-Cookie: a=b");
    guessed.settings.store_set_cookie = true;
    assert!(!guessed.is_reused(0), "not by a guess");
    guessed.settings.heuristic_with_cookies = true;
    assert!(guessed.is_reused(3));
}

#[test]
fn nothing_is_guessed_for_what_sets_a_cookie_or_answered_one() {
    assert!(!modified_a_day_ago("Cache-Control: public\nSet-Cookie: a=b").is_reused(0));
    let answered = modified_a_day_ago("").answering("Cookie: a=b");
    assert_eq!(answered.refusal(), None);
    assert!(!answered.is_reused(0), "validated each time");
    assert!(!answered.is_reused_for(0, "Cache-Control: max-stale"), "and never served stale");
    assert!(modified_a_day_ago("Cache-Control: public").answering("Cookie: a=b").is_reused(3), "told");
    let varying = modified_a_day_ago("Vary: Cookie").answering("Cookie: a=b");
    assert!(varying.is_reused_for(3, "Cookie: a=b"), "told, and only for the same cookie");
    let mut trusted = modified_a_day_ago("").answering("Cookie: a=b");
    trusted.settings.heuristic_with_cookies = true;
    assert!(trusted.is_reused(3));
}

#[test]
fn cookie_does_not_hinder_what_has_a_lifetime_of_its_own() {
    let response = Response::new("Cache-Control: max-age=3600").answering("Cookie: c=d");
    assert!(response.is_reused_for(3, "Cookie: e=f"));
    assert!(modified_a_day_ago("").is_reused_for(3, "Cookie: e=f"), "nor does a later client's");
}

#[test]
fn that_a_cookie_was_answered_is_stored_with_the_head() {
    for request in ["", "Cookie: a=b", "Cookie: a=b\nFoo: 1"] {
        let head = modified_a_day_ago("Vary: Foo").answering(request).head();
        let again = StoredHead::decode(head.encode().into(), &Default::default()).expect("it was just encoded");
        assert_eq!(again, head);
        assert_eq!(again.selecting().answered_cookie(), request.contains("Cookie"), "{request}");
        assert_eq!(again.selecting().iter().len(), 1);
        assert!(again.matches(&fields(request), &Default::default()));
    }
}
