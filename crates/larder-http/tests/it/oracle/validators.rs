//! Validation: the preconditions sent, and the 304s that apply to a stored response. All combinations are tried.

use http::{Method, StatusCode};
use http_cache_semantics::{AfterResponse, BeforeRequest};
use larder_http::{VaryRule, validate};

use super::case::{Case, Message, RECEIVED, date, system_time, to_request};

/// The differences in validation, as listed in `tests/differences.txt`.
pub(super) const NAMES: [&str; 4] =
    ["malformed-validators", "strong-304-for-weak", "304-without-stored-validator", "304-with-another-validator"];

const MODIFIED_SECS: i64 = -864_000;

fn stored_responses() -> Vec<Case> {
    let mut cases = Vec::new();
    for tag in ["", "\"a\"", "W/\"a\""] {
        for modified in ["", &date(MODIFIED_SECS)] {
            let fields = [("etag", tag), ("last-modified", modified)];
            let fields: Vec<_> = fields.into_iter().filter(|(_, value)| !value.is_empty()).collect();
            cases.push(Case { after_secs: 4000, ..Case::new(&["max-age=1"], &fields) });
        }
    }
    cases
}

#[test]
fn preconditions_sent_are_those_of_the_oracle() {
    for case in stored_responses() {
        let head = case.head(&VaryRule::from_fields(&case.response.to_fields()));
        let ours: Vec<_> = validate::request_fields(&head);
        let now = system_time(RECEIVED.plus_secs(4000));
        let later = to_request(Method::GET, &Message::default());
        let BeforeRequest::Stale { request, .. } = case.policy().before_request(&later, now) else {
            panic!("the response is stale: {case:#?}");
        };
        let theirs: Vec<_> = ["if-none-match", "if-modified-since"]
            .into_iter()
            .filter_map(|name| Some((name.parse().ok()?, request.headers.get(name)?.clone())))
            .collect();
        assert_eq!(ours, theirs, "{case:#?}");
    }
}

#[test]
fn malformed_validators_are_not_sent_though_the_oracle_would() {
    let case = Case { after_secs: 4000, ..Case::new(&["max-age=1"], &[("etag", "a"), ("last-modified", "never")]) };
    let head = case.head(&VaryRule::from_fields(&case.response.to_fields()));
    assert_eq!(validate::request_fields(&head), []);
    let later = to_request(Method::GET, &Message::default());
    let before = case.policy().before_request(&later, system_time(RECEIVED.plus_secs(4000)));
    let BeforeRequest::Stale { request, .. } = before else { panic!("the response is stale") };
    assert!(request.headers.contains_key("if-none-match") && request.headers.contains_key("if-modified-since"));
}

/// Returns the name of the difference that a 304 with these validators makes for this stored response, if there is one.
fn listed_difference(stored: &Message, not_modified: &Message) -> Option<&'static str> {
    let of = |message: &Message, name| message.value(name).map(str::to_owned);
    let old_tag = of(stored, "etag");
    let old_modified = of(stored, "last-modified");
    let tag = of(not_modified, "etag");
    let modified = of(not_modified, "last-modified");
    match (tag, modified) {
        (Some(tag), _) if old_tag.as_deref() == Some(&format!("W/{tag}")) => Some("strong-304-for-weak"),
        // The tag differs from the stored one, although the date is the same.
        (Some(tag), modified)
            if tag.starts_with("W/") && old_tag.is_none() && modified.is_some() && modified == old_modified =>
        {
            Some("304-with-another-validator")
        }
        (None, None) if old_tag.is_some() || old_modified.is_some() => Some("304-without-stored-validator"),
        (None, Some(_)) if old_modified.is_none() => Some("304-without-stored-validator"),
        _ => None,
    }
}

#[test]
fn a_304_speaks_of_the_stored_response_as_the_oracle_has_it_but_for_the_listed_differences() {
    let mut seen = Vec::new();
    for case in stored_responses() {
        for tag in ["", "\"a\"", "\"b\"", "W/\"a\"", "W/\"b\""] {
            for modified in ["", &date(MODIFIED_SECS), &date(MODIFIED_SECS + 1)] {
                let fields = [("etag", tag), ("last-modified", modified)];
                let fields: Vec<_> = fields.into_iter().filter(|(_, value)| !value.is_empty()).collect();
                let not_modified = Message::of(&[], &fields);
                let head = case.head(&VaryRule::from_fields(&case.response.to_fields()));
                let ours = validate::selects(&not_modified.to_fields(), &head);
                let mut response = http::Response::new(());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                *response.headers_mut() = not_modified.to_fields();
                let request = to_request(Method::GET, &Message::default());
                let after = case.policy().after_response(&request, &response, system_time(RECEIVED));
                let theirs = matches!(after, AfterResponse::NotModified(..));
                let difference = listed_difference(&case.response, &not_modified);
                assert_eq!(ours != theirs, difference.is_some(), "{case:#?} {not_modified:#?} {ours} {theirs}");
                seen.extend(difference);
            }
        }
    }
    seen.sort_unstable();
    seen.dedup();
    let mut listed = NAMES[1..].to_vec();
    listed.sort_unstable();
    assert_eq!(seen, listed);
}
