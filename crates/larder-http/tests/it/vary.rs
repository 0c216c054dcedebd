//! Selecting among variants (RFC 9111 4.1, RFC 9110 12.5.5).

use http::HeaderMap;
use larder_http::{
    Settings, VaryMarker, VaryRule,
    key::{KeyError, primary_key, variant_key},
    vary::{RULE_COUNT_MAX, SELECTING_COUNT_MAX},
};
use proptest::prelude::*;

use crate::support::{Response, fields};

/// Returns whether the response to the first request answers the second. Selecting fields and keys must agree.
fn is_same_variant(vary: &str, first: &str, second: &str) -> bool {
    is_same_variant_with(&Settings::default(), vary, first, second)
}

fn is_same_variant_with(settings: &Settings, vary: &str, first: &str, second: &str) -> bool {
    let rule = VaryRule::from_fields(&fields(vary));
    let first = fields(first);
    let second = fields(second);
    let selecting = rule.select(&first, settings).expect("the rule is not *");
    let key = |request: &HeaderMap| variant_key(b"P", &rule, request, settings).expect("the request is short");
    let matches = selecting.matches(&second, settings);
    assert_eq!(matches, key(&first) == key(&second), "selecting fields and keys must agree");
    matches
}

#[test]
fn variant_is_reused_when_the_named_field_matches_only() {
    assert!(is_same_variant("Vary: Foo", "Foo: 1", "Foo: 1"));
    assert!(!is_same_variant("Vary: Foo", "Foo: 1", "Foo: 2"));
    assert!(!is_same_variant("Vary: Foo", "Foo: 1", ""));
    assert!(!is_same_variant("Vary: Foo", "", "Foo: 1"));
    assert!(!is_same_variant("Vary: Foo", "", "Foo:"));
    assert!(is_same_variant("Vary: Foo", "", ""));
    assert!(is_same_variant("Vary: foo", "FOO: 1", "Foo: 1"));
}

#[test]
fn fields_not_named_do_not_matter() {
    assert!(is_same_variant("Vary: Foo", "Foo: 1\nOther: 2", "Other: 3\nFoo: 1"));
    assert!(is_same_variant("", "Foo: 1", "Foo: 2"));
}

#[test]
fn all_of_several_named_fields_must_match() {
    for vary in ["Vary: Foo, Bar, Baz", "Vary: Baz,Foo\nVary: Bar"] {
        let stored = "Foo: 1\nBar: a\nBaz: 789";
        assert!(is_same_variant(vary, stored, "Baz: 789\nFoo: 1\nBar: a"), "{vary}");
        for other in ["Foo: 2\nBar: a\nBaz: 789", "Foo: 1\nBar: abcd\nBaz: 789", "Foo: 1\nBar: a\nBaz: 1", "Foo: 1", ""]
        {
            assert!(!is_same_variant(vary, stored, other), "{vary} {other}");
        }
        assert!(is_same_variant(vary, "Foo: 1\nBaz: 2", "Baz: 2\nFoo: 1"), "{vary}");
    }
}

#[test]
fn what_a_request_tells_of_its_target_is_selecting_and_its_client_is_not() {
    let selecting = |request: &str| {
        let rule = VaryRule::for_exchange(&fields(request), &HeaderMap::new());
        rule.select(&fields(request), &Settings::default()).expect("the rule is not *")
    };
    let settings = Settings::default();
    for (stored, asking, expected) in [
        ("", "Forwarded: for=a;host=b", true),
        ("Forwarded: for=a", "", true),
        ("Forwarded: for=a;host=b", "", false),
        ("Forwarded: for=a;host=b", "Forwarded: for=c; HOST=b", true),
        ("Forwarded: for=a;host=b", "Forwarded: for=a;host=c", false),
        ("Forwarded: for=a;host=b", "Forwarded: for=a;proto=b", false),
        ("Forwarded: for=a;host=b, for=c", "Forwarded: for=a\nForwarded: host=b", true),
        ("Forwarded: host=b;proto=c", "Forwarded: host=c;proto=b", false),
        ("Forwarded: for=\";host=b\"", "", true),
        ("Forwarded: for=\"a", "", false),
        ("Forwarded: for=\"a", "Forwarded: for=\"b", false),
        ("X-Forwarded-Host: b", "", false),
        ("X-Forwarded-For: b", "", true),
    ] {
        assert_eq!(selecting(stored).matches(&fields(asking), &settings), expected, "{stored} | {asking}");
        assert!(selecting(stored).cover_what_is_told(&fields(stored)), "{stored}");
    }
    assert!(!selecting("").cover_what_is_told(&fields("Forwarded: host=b")));
    assert!(selecting("").cover_what_is_told(&fields("Forwarded: for=b\nX-Forwarded-For: b")));
    assert!(!selecting("X-Forwarded-Host: a").cover_what_is_told(&fields("X-Forwarded-Proto: b")));
    let stands_for_no_field = VaryRule::from_fields(&fields("Vary: !forwarded-target"));
    assert_eq!(stands_for_no_field, VaryRule::Star);
}

#[test]
fn values_do_not_run_into_each_other() {
    assert!(!is_same_variant("Vary: Foo, Bar", "Foo: ab\nBar: c", "Foo: a\nBar: bc"));
    assert!(!is_same_variant("Vary: Foo, Bar", "Foo: x", "Bar: x"));
}

#[test]
fn star_never_matches_in_any_shape() {
    for vary in [
        "Vary: *",
        "Vary: *, *",
        "Vary: *\nVary: *",
        "Vary: , *",
        "Vary:\nVary: *",
        "Vary: *, Foo",
        "Vary: Foo, *",
        "Vary: Foo\nVary: *",
        "Vary: fo o",
        "Vary: \"Foo\"",
    ] {
        let rule = VaryRule::from_fields(&fields(vary));
        assert_eq!(rule, VaryRule::Star, "{vary}");
        assert_eq!(rule.select(&HeaderMap::new(), &Settings::default()), None, "{vary}");
        assert_eq!(variant_key(b"P", &rule, &HeaderMap::new(), &Settings::default()), Err(KeyError::Star), "{vary}");
        let response = Response::new(&format!("Cache-Control: max-age=3600\n{vary}"));
        assert_eq!(response.refusal(), Some(larder_http::Reason::VaryStar), "{vary}");
    }
}

#[test]
fn rule_of_too_many_fields_is_star() {
    let named = |count: usize| {
        let names: Vec<_> = (0..count).map(|index| format!("X-{index}")).collect();
        VaryRule::from_fields(&fields(&format!("Vary: {}", names.join(", "))))
    };
    assert!(matches!(named(SELECTING_COUNT_MAX), VaryRule::Fields(_)));
    assert_eq!(named(SELECTING_COUNT_MAX + 1), VaryRule::Star);
}

#[test]
fn order_and_repetition_of_names_make_no_new_rule() {
    let rule = |vary: &str| VaryRule::from_fields(&fields(vary));
    assert_eq!(rule("Vary: Foo, bar"), rule("Vary: BAR\nVary: foo, Bar,"));
    assert!(rule("Vary: ,").is_empty());
    assert!(!rule("Vary: *").is_empty());
}

#[test]
fn repeated_lines_equal_one_line_with_commas() {
    assert!(is_same_variant("Vary: Foo", "Foo: 1\nFoo: 2", "Foo: 1, 2"));
    assert!(!is_same_variant("Vary: Foo", "Foo: 1\nFoo: 2", "Foo: 2\nFoo: 1"));
}

#[test]
fn white_space_around_commas_does_not_matter_outside_quotes() {
    assert!(is_same_variant("Vary: Foo", "Foo: 1,2", "Foo: 1 , \t2"));
    assert!(!is_same_variant("Vary: Foo", "Foo: 1 2", "Foo: 12"));
    assert!(!is_same_variant("Vary: Foo", "Foo: \"1, 2\"", "Foo: \"1,2\""));
    assert!(!is_same_variant("Vary: Foo", "Foo: \"\\\"1, 2\"", "Foo: \"\\\"1,2\""));
    assert!(is_same_variant("Vary: Foo", "Foo: \"1\" , 2", "Foo: \"1\",2"));
}

#[test]
fn accept_language_is_compared_as_it_comes_unless_the_settings_say_otherwise() {
    let vary = "Vary: Accept-Language";
    assert!(!is_same_variant(vary, "Accept-Language: en, fr", "Accept-Language: fr, en"));
    assert!(!is_same_variant(vary, "Accept-Language: en", "Accept-Language: EN"));
    assert!(is_same_variant(vary, "Accept-Language: en,fr", "Accept-Language: en, fr"));
    let normal = Settings { normalize_language: true, ..Settings::default() };
    let is_same = |first: &str, second: &str| is_same_variant_with(&normal, vary, first, second);
    assert!(is_same("Accept-Language: en, de;q=0.5", "Accept-Language: EN,DE; q=0.5"));
    assert!(!is_same("Accept-Language: en, fr", "Accept-Language: fr, en"), "order may matter");
    assert!(!is_same("Accept-Language: en, de", "Accept-Language: en"));
    assert!(!is_same("Accept-Language: en;q=0.5", "Accept-Language: en;q=0.6"));
    assert!(!is_same_variant_with(&normal, "Vary: Foo", "Foo: en", "Foo: EN"));
}

#[test]
fn nothing_but_equal_octets_match_when_the_settings_say_so() {
    let exact = Settings { normalize_vary: false, ..Settings::default() };
    assert!(is_same_variant_with(&exact, "Vary: Foo", "Foo: 1, 2", "Foo: 1, 2"));
    assert!(!is_same_variant_with(&exact, "Vary: Foo", "Foo: 1, 2", "Foo: 1,2"));
    assert!(!is_same_variant_with(&exact, "Vary: Accept-Language", "Accept-Language: en", "Accept-Language: EN"));
}

#[test]
fn stored_head_knows_the_request_it_was_stored_for() {
    let head = Response::new("Cache-Control: max-age=60\nVary: Foo").answering("Foo: 1").head();
    assert!(head.matches(&fields("Foo: 1"), &Settings::default()));
    assert!(!head.matches(&fields("Foo: 2"), &Settings::default()));
    assert_eq!(head.selecting().rule(), VaryRule::from_fields(&fields("Vary: foo")));
}

#[test]
fn key_with_overlong_selecting_fields_is_refused() {
    let rule = VaryRule::from_fields(&fields("Vary: Foo"));
    let request = fields(&format!("Foo: {}", "x".repeat(20_000)));
    assert_eq!(variant_key(b"P", &rule, &request, &Settings::default()), Err(KeyError::TooLong));
}

#[test]
fn variants_of_different_resources_or_rules_have_different_keys() {
    let settings = Settings::default();
    let request = fields("Foo: 1\nBar: 1");
    let key = |path: &str, vary: &str| {
        let primary = primary_key("http", "a.example", path).expect("the path is a path");
        variant_key(&primary, &VaryRule::from_fields(&fields(vary)), &request, &settings).expect("the key is short")
    };
    assert_ne!(key("/1", "Vary: Foo"), key("/2", "Vary: Foo"));
    assert_ne!(key("/1", "Vary: Foo"), key("/1", "Vary: Bar"));
    assert_ne!(key("/1", "Vary: Foo"), key("/1", "Vary: Foo, Bar"));
}

#[test]
fn marker_lists_the_newest_rules_first_and_forgets_the_oldest() {
    let rule = |name: &str| VaryRule::from_fields(&fields(&format!("Vary: {name}")));
    let marker = ["a", "b", "c"].iter().fold(VaryMarker::default(), |marker, name| marker.with(rule(name)));
    assert_eq!(marker.rules(), [rule("c"), rule("b"), rule("a")]);
    let marker = marker.with(rule("a"));
    assert_eq!(marker.rules(), [rule("a"), rule("c"), rule("b")]);
    let marker = marker.with(rule("d")).with(rule("e"));
    assert_eq!(marker.rules(), [rule("e"), rule("d"), rule("a"), rule("c")]);
    assert_eq!(marker.rules().len(), RULE_COUNT_MAX);
}

proptest! {
    #[test]
    fn a_request_matches_the_response_it_got(
        lines in proptest::collection::vec("[a-c,\" \\\\]{0,8}", 0..3),
        language in "[a-cA-C,; =0.5]{0,12}",
        normalize_vary in any::<bool>(),
        normalize_language in any::<bool>(),
    ) {
        let settings = Settings { normalize_vary, normalize_language, ..Settings::default() };
        let mut request = String::new();
        for line in &lines {
            request += &format!("Foo: {line}\n");
        }
        request += &format!("Accept-Language: {language}");
        let rule = VaryRule::from_fields(&fields("Vary: foo, accept-language"));
        let request = fields(&request);
        let selecting = rule.select(&request, &settings).expect("the rule is not *");
        prop_assert!(selecting.matches(&request, &settings));
    }

    #[test]
    fn words_that_differ_never_match(first in "[a-z \",]{0,8}", second in "[a-z \",]{0,8}") {
        // The normal form may drop white space and nothing else.
        let letters = |text: &str| -> String { text.chars().filter(|letter| *letter != ' ').collect() };
        prop_assume!(letters(&first) != letters(&second));
        let is_same = is_same_variant("Vary: Foo", &format!("Foo: {first}"), &format!("Foo: {second}"));
        prop_assert!(!is_same);
    }
}
