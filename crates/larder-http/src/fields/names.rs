//! Finds out cheaply that a head lacks a field, so that most searches for absent fields can be skipped.

use http::{HeaderMap, HeaderName};

/// The names in a head, reduced to 64 bits: each name sets one bit.
///
/// Rules look up many fields that most heads lack. The bit of an absent field is nearly always clear, so the lookup,
/// which hashes the name, can be skipped.
///
/// ```
/// use http::{HeaderMap, header};
/// use larder_http::fields::NameFilter;
///
/// let mut fields = HeaderMap::new();
/// fields.insert(header::ACCEPT, "*/*".parse()?);
/// let names = NameFilter::of(&fields);
/// assert!(names.may_have(&header::ACCEPT));
/// assert!(!names.may_have(&header::IF_NONE_MATCH));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameFilter(u64);

impl NameFilter {
    /// The filter to assume for a head whose names are unknown: the head may have every field.
    pub const ANY: Self = Self(u64::MAX);

    /// The filter of the fields that frame a body.
    pub const FRAMING: Self = Self::of_names(&["content-length", "transfer-encoding"]);

    /// Returns the filter of a head.
    pub fn of(fields: &HeaderMap) -> Self {
        fields.keys().map(HeaderName::as_str).collect()
    }

    /// Returns the filter of some names, given in lower case, to test for all of them at once.
    pub const fn of_names(names: &[&str]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < names.len() {
            bits |= bit(names[index]);
            index += 1;
        }
        Self(bits)
    }

    /// Returns whether the head may have a field with one of the names in `names`.
    #[inline]
    pub const fn may_have_any(self, names: Self) -> bool {
        self.0 & names.0 != 0
    }

    /// Returns whether the head may have a field with this name.
    #[inline]
    pub fn may_have(self, name: &HeaderName) -> bool {
        self.0 & bit(name.as_str()) != 0
    }
}

impl<'a> FromIterator<&'a str> for NameFilter {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        Self(names.into_iter().fold(0, |bits, name| bits | bit(name)))
    }
}

/// Returns the bit of a name in any case. The length and the outer letters distinguish nearly all names of a usual
/// head.
#[inline]
const fn bit(name: &str) -> u64 {
    let name = name.as_bytes();
    let (Some(first), Some(last)) = (name.first(), name.last()) else { return 0 };
    1 << ((name.len() + 33 * (*first | CASE) as usize + 3 * (*last | CASE) as usize) % 64)
}

/// The bit in which the upper case of a letter differs from its lower case.
const CASE: u8 = 0x20;

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn present_field_is_never_ruled_out_and_others_mostly_are() {
        let long = HeaderName::try_from("x".repeat(200)).unwrap();
        let present = [header::RANGE, header::IF_NONE_MATCH, long];
        let fields: HeaderMap = present.iter().map(|name| (name.clone(), HeaderValue::from_static("1"))).collect();
        let names = NameFilter::of(&fields);
        assert!(present.iter().all(|name| names.may_have(name) && NameFilter::ANY.may_have(name)));
        assert!(!names.may_have(&header::COOKIE) && !NameFilter::of(&HeaderMap::new()).may_have(&header::RANGE));
        assert_eq!(NameFilter::from_iter(["RaNGe"]), NameFilter::from_iter(["range"]));
        assert!(names.may_have_any(NameFilter::of_names(&["cookie", "range"])));
        assert!(!names.may_have_any(NameFilter::of_names(&["cookie", "via"])));
    }

    #[test]
    fn browsers_head_rules_out_the_fields_that_it_lacks() {
        let names = "host connection sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform upgrade-insecure-requests user-agent \
                     accept sec-fetch-site sec-fetch-mode sec-fetch-user sec-fetch-dest referer accept-encoding \
                     accept-language cookie";
        let names: NameFilter = names.split(' ').collect();
        for absent in [
            header::AUTHORIZATION,
            header::CACHE_CONTROL,
            header::CONTENT_LENGTH,
            header::EXPECT,
            header::IF_MATCH,
            header::IF_MODIFIED_SINCE,
            header::IF_NONE_MATCH,
            header::RANGE,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
            header::VIA,
        ] {
            assert!(!names.may_have(&absent), "{absent}");
        }
    }
}
