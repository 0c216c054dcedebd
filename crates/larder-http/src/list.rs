//! Splits comma-separated field values (RFC 9110 5.6.1): trims elements, skips empty ones, and joins lines.
//!
//! These functions are for lists of tokens only. Lists whose elements may contain quoted commas have their own parsers
//! ([`crate::cache_control`], [`crate::entity_tag`]).

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{fields::Fields, steps};

/// Iterates over the elements of all lines of one field, in order.
pub(crate) fn tokens<'a, F: Fields>(fields: &'a F, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a, F> {
    fields.values_of(name).flat_map(elements)
}

/// Returns whether a list names `token`, in any case.
pub fn has_token(fields: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(fields, name).any(|found| found.eq_ignore_ascii_case(token.as_bytes()))
}

/// Iterates over the elements of one line.
pub(crate) fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    steps::take(line.len());
    line.split(|byte| *byte == b',').map(trim).filter(|element| !element.is_empty())
}

/// Returns the value of a field that may occur only once. `None` if it is absent or repeated.
pub(crate) fn single<'a>(fields: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut lines = fields.get_all(name).iter();
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

/// Returns the value without surrounding white space (OWS, RFC 9110 5.6.3).
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Returns whether the value is a token (RFC 9110 5.6.2).
pub(crate) fn is_token(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|byte| is_token_byte(*byte))
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_trimmed_and_empty_ones_skipped() {
        let elements: Vec<_> = elements(b" a ,, \tb\t,  , c d").collect();
        assert_eq!(elements, [&b"a"[..], b"b", b"c d"]);
    }

    #[test]
    fn token_is_found_in_every_line_and_whatever_its_case() {
        let mut fields = HeaderMap::new();
        fields.append(http::header::CONNECTION, HeaderValue::from_static("keep-alive, x"));
        assert!(!has_token(&fields, &http::header::CONNECTION, "close"));
        fields.append(http::header::CONNECTION, HeaderValue::from_static("y, Close"));
        assert!(has_token(&fields, &http::header::CONNECTION, "close"));
    }

    #[test]
    fn repeated_field_is_not_single() {
        let mut fields = HeaderMap::new();
        fields.append(http::header::EXPIRES, HeaderValue::from_static("0"));
        assert!(single(&fields, &http::header::EXPIRES).is_some());
        fields.append(http::header::EXPIRES, HeaderValue::from_static("0"));
        assert!(single(&fields, &http::header::EXPIRES).is_none());
    }

    #[test]
    fn tokens_have_no_separators() {
        assert!(is_token(b"max-age"));
        assert!(!is_token(b""));
        assert!(!is_token(b"a b"));
        assert!(!is_token(b"a\"b"));
        assert!(!is_token(b"caf\xe9"));
    }
}
