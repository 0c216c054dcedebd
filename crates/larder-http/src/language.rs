//! Selects a stored variant by language (RFC 9111 4.1, RFC 9110 12.5.4, 8.5).
//!
//! If a request prefers one language above all others, a variant in exactly that language answers it, and the rest of
//! its Accept-Language is ignored. Prefixes and languages of equal weight are left to the origin, because only the
//! origin knows which variant it would choose. Cost: one pass over the field, one allocation.

use http::{
    HeaderMap,
    header::{ACCEPT_LANGUAGE, CONTENT_LANGUAGE},
};

use crate::{
    fields::Fields,
    list::{self, trim},
};

/// Returns the one language that a request prefers, in lower case. `None` if it names no language, or several of equal
/// weight.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::language::preferred;
///
/// let mut fields = HeaderMap::new();
/// fields.insert("accept-language", "de-CH, de;q=0.8, en;q=0.5".parse()?);
/// assert_eq!(preferred(&fields).as_deref(), Some(&b"de-ch"[..]));
/// fields.insert("accept-language", "de, en".parse()?);
/// assert_eq!(preferred(&fields), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn preferred(request_fields: &HeaderMap) -> Option<Vec<u8>> {
    let mut best: Option<(u16, &[u8])> = None;
    let mut is_tie = false;
    for element in list::tokens(request_fields, &ACCEPT_LANGUAGE) {
        let mut parts = element.split(|byte| *byte == b';');
        let range = trim(parts.next()?);
        let weight = parts.next().map_or(Some(WEIGHT_MAX), |weight| parse_weight(trim(weight)))?;
        if parts.next().is_some() || !(is_tag(range) || range == b"*") {
            return None;
        }
        match best {
            Some((heaviest, _)) if weight < heaviest => {}
            Some((heaviest, known)) if weight == heaviest => is_tie |= !known.eq_ignore_ascii_case(range),
            _ => (best, is_tie) = (Some((weight, range)), false),
        }
    }
    best.filter(|(weight, range)| *weight > 0 && !is_tie && *range != b"*").map(|(_, range)| range.to_ascii_lowercase())
}

/// Returns the one language of a response, in lower case. `None` if it names no language or several.
pub fn of_response(response_fields: &impl Fields) -> Option<Vec<u8>> {
    let mut tags = list::tokens(response_fields, &CONTENT_LANGUAGE);
    let tag = tags.next().filter(|tag| is_tag(tag))?;
    tags.next().is_none().then(|| tag.to_ascii_lowercase())
}

fn is_tag(tag: &[u8]) -> bool {
    !tag.is_empty() && tag.len() <= TAG_SIZE_MAX && tag.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Parses a weight and returns it in thousandths (RFC 9110 12.4.2).
fn parse_weight(parameter: &[u8]) -> Option<u16> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, fraction) = match value {
        [whole] => (*whole, &[][..]),
        [whole, b'.', fraction @ ..] => (*whole, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let thousandths =
        (0..3).fold(0, |sum, place| sum * 10 + u16::from(fraction.get(place).map_or(0, |digit| digit - b'0')));
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(WEIGHT_MAX),
        _ => None,
    }
}

/// Maximum length, in bytes, of a language tag that is compared.
pub const TAG_SIZE_MAX: usize = 35;
const WEIGHT_MAX: u16 = 1000;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_heaviest_language_is_preferred_unless_another_weighs_as_much() {
        for (accepted, expected) in [
            ("fr;q=0.5, de;q=1.0", Some("de")),
            ("DE", Some("de")),
            ("en;q=0.8, de-AT , *;q=0.1", Some("de-at")),
            ("de, DE;q=1", Some("de")),
            ("en, de", None),
            ("*", None),
            ("de;q=0", None),
            ("de;q=2", None),
            ("de;q=0.5555", None),
            ("de;level=1", None),
            ("de; q=0.001, en;q=0", Some("de")),
            ("", None),
        ] {
            let fields = [(ACCEPT_LANGUAGE, HeaderValue::from_static(accepted))].into_iter().collect();
            assert_eq!(preferred(&fields), expected.map(|tag| tag.as_bytes().to_vec()), "{accepted}");
        }
    }

    #[test]
    fn response_in_one_language_names_it() {
        for (named, expected) in
            [("de", Some("de")), ("de-CH", Some("de-ch")), ("de, en", None), ("", None), ("d e", None)]
        {
            let fields: HeaderMap = [(CONTENT_LANGUAGE, HeaderValue::from_static(named))].into_iter().collect();
            assert_eq!(of_response(&fields), expected.map(|tag| tag.as_bytes().to_vec()), "{named}");
        }
    }
}
