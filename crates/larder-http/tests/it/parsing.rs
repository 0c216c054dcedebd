//! Parsing Cache-Control and Age (RFC 9111 1.2.2, 4.2.1, 5.1, 5.2, RFC 9110 5.6).

use http::{HeaderMap, header::CACHE_CONTROL};
use larder_http::{
    TargetList,
    cache_control::{Argument, RequestDirectives, ResponseDirectives, directives},
};
use proptest::prelude::*;

use crate::support::{fields, is_reused};

#[test]
fn directive_inside_anothers_quoted_string_is_none() {
    assert!(!is_reused("Cache-Control: extension=\"max-age=3600\", max-age=1"));
    assert!(!is_reused("Cache-Control: max-age=1, extension=\"max-age=3600\""));
    assert!(is_reused("Cache-Control: extension=\"max-age=1, no-store\", max-age=3600"));
    assert!(is_reused("Cache-Control: max-age=3600, extension=\"a\\\", no-store, private\""));
}

#[test]
fn quote_that_does_not_close_hides_nothing() {
    assert!(!is_reused("Cache-Control: max-age=3600, extension=\"a, no-store"));
    assert!(!is_reused("Cache-Control: max-age=3600\", no-store"));
    assert!(!is_reused("Cache-Control: a\"b, no-store, max-age=3600, c\"d"));
}

#[test]
fn leading_zeros_are_fine() {
    assert!(is_reused("Cache-Control: max-age=003600"));
    assert!(!is_reused("Cache-Control: max-age=0001"));
}

#[test]
fn double_quoted_number_is_accepted() {
    assert!(is_reused("Cache-Control: max-age=\"3600\""));
    assert!(is_reused("Cache-Control: s-maxage=\"3600\", max-age=0"));
}

#[test]
fn malformed_number_makes_the_response_stale() {
    let malformed = [
        "max-age='3600'",
        "max-age =3600",
        "max-age= 3600",
        "max-age = 3600",
        "max-age=3600.0",
        "max-age=3600.5",
        "max-age=a3600",
        "max-age=3600a",
        "max-age=",
        "max-age",
        "max-age=\"3600",
        "max-age=\"3600\"x",
        "max-age=\"36\\00\"",
        "max-age=36 00",
        "s-maxage=abc, max-age=3600",
    ];
    for directives in malformed {
        assert!(!is_reused(&format!("Cache-Control: {directives}")), "{directives}");
    }
}

#[test]
fn first_of_two_different_max_ages_counts() {
    assert!(!is_reused("Cache-Control: max-age=1, max-age=3600"));
    assert!(!is_reused("Cache-Control: max-age=1\nCache-Control: max-age=3600"));
    assert!(is_reused("Cache-Control: max-age=3600, max-age=3600"));
}

#[test]
fn age_that_is_no_number_is_ignored() {
    for age in ["abc", "-7200", "7200.0", "0.5", "7200;foo=bar", "7200 0", "", "'7200'", "7200a", "\"7200\""] {
        assert!(is_reused(&format!("Cache-Control: max-age=3600\nAge: {age}")), "{age}");
    }
}

#[test]
fn age_around_31_bits_is_very_old_and_does_not_wrap() {
    for age in ["2147483647", "2147483648", "2147483649", "4294967296", "99999999999999999999999"] {
        assert!(!is_reused(&format!("Cache-Control: max-age=3600\nAge: {age}")), "{age}");
    }
}

#[test]
fn first_of_several_ages_counts() {
    for (ages, reused) in [
        ("Age: 7200, 0", false),
        ("Age: 0, 7200", true),
        ("Age: 7200\nAge: 0", false),
        ("Age: 0\nAge: 7200", true),
        ("Age: 7200, 7200", false),
        ("Age: 10\nAge: 10", true),
    ] {
        assert_eq!(is_reused(&format!("Cache-Control: max-age=3600\n{ages}")), reused, "{ages}");
    }
}

#[test]
fn directives_are_read_with_their_arguments_as_they_stand() {
    let line = b" no-cache=\"a, b\",, Max-Age=5 ,public, x=\"q\\\"r\" , y= z";
    let read: Vec<_> = directives(line).map(|directive| (directive.name, directive.argument)).collect();
    let expected = [
        (&b"no-cache"[..], Argument::Quoted(b"a, b")),
        (b"Max-Age", Argument::Token(b"5")),
        (b"public", Argument::Absent),
        (b"x", Argument::Quoted(b"q\\\"r")),
        (b"y", Argument::Malformed),
    ];
    assert_eq!(read, expected);
}

#[test]
fn many_quotes_that_do_not_close_are_read_in_linear_time() {
    // A quadratic parser would take minutes for this line.
    let line = format!("Cache-Control: {}", "a=\"\\".repeat(500_000));
    assert_eq!(ResponseDirectives::from_fields(&fields(&line), &TargetList::default()), ResponseDirectives::default());
}

#[test]
fn extensions_of_rfc_5861_are_read() {
    let read = ResponseDirectives::from_fields(
        &fields("Cache-Control: stale-while-revalidate=30, stale-if-error=\"60\", max-age=1"),
        &TargetList::default(),
    );
    assert_eq!((read.stale_while_revalidate, read.stale_if_error), (Some(30), Some(60)));
}

proptest! {
    #[test]
    fn no_line_panics_or_yields_more_directives_than_octets(line in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(directives(&line).count() <= line.len());
    }

    #[test]
    fn no_line_of_directives_like_text_panics(line in "([a-z-]{1,8}(= ?\"?[a-z0-9,\\\\\"-]{0,6}\"?)?[, ]{1,2}){0,6}") {
        let fields = fields(&format!("Cache-Control: {line}"));
        ResponseDirectives::from_fields(&fields, &TargetList::default());
        RequestDirectives::from_fields(&fields);
    }

    #[test]
    fn directives_between_well_formed_ones_are_all_seen(secs in any::<u32>(), text in "[a-z ,=]{0,20}") {
        let lines = format!("Cache-Control: a=\"{text}\", max-age={secs}, b=\"{text}\", no-store");
        let read = ResponseDirectives::from_fields(&fields(&lines), &TargetList::default());
        prop_assert_eq!(read.max_age, Some(secs));
        prop_assert!(read.no_store);
    }
}

#[test]
fn no_store_is_taken_out_of_a_request_with_its_reload_and_nothing_else() {
    for (line, rest) in [
        ("no-store", None),
        ("no-cache, NO-STORE ,max-age=0", Some("max-age=0")),
        ("a=\"x, no-store\", no-store", Some("a=\"x, no-store\"")),
        ("no-store=1, min-fresh=5", Some("min-fresh=5")),
    ] {
        let mut fields = HeaderMap::from_iter([(CACHE_CONTROL, line.parse().unwrap())]);
        fields.insert(http::header::PRAGMA, "no-cache".parse().unwrap());
        RequestDirectives::drop_no_store(&mut fields);
        assert_eq!(fields.get(CACHE_CONTROL).map(|value| value.to_str().unwrap()), rest, "{line}");
        let RequestDirectives { no_store, no_cache, pragma_no_cache, .. } = RequestDirectives::from_fields(&fields);
        assert!(!no_store && !no_cache && !pragma_no_cache, "{line}");
    }
}

#[test]
fn limit_of_an_age_replaces_a_higher_one_and_keeps_the_rest() {
    for (lines, expected) in [
        (&[][..], &["max-age=5"][..]),
        (&["max-age=9, no-transform", "MAX-AGE=7"], &["no-transform", "max-age=5"]),
        (&["max-age=5"], &["max-age=5"]),
        (&["no-cache", "max-age=0"], &["no-cache", "max-age=0"]),
    ] {
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append(CACHE_CONTROL, line.parse().unwrap());
        }
        RequestDirectives::limit_age(&mut fields, 5);
        assert_eq!(fields.get_all(CACHE_CONTROL).iter().collect::<Vec<_>>(), expected, "{lines:?}");
    }
    let mut reload = HeaderMap::from_iter([(http::header::PRAGMA, "no-cache".parse().unwrap())]);
    RequestDirectives::limit_age(&mut reload, 5);
    assert!(!reload.contains_key(CACHE_CONTROL), "a parent would not see the reload");
}
