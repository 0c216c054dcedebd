//! Finds out cheaply that a head lacks a field, so that most searches for absent fields can be skipped.

use http::{HeaderMap, HeaderName};

/// The lengths of the names in a head: one bit for each length, and one bit for all long names.
///
/// Rules look up many fields that most heads lack. Nearly always no name in the head has the length of the wanted name,
/// so the lookup, which hashes the name, can be skipped.
///
/// ```
/// use http::{HeaderMap, header};
/// use larder_http::fields::NameLengths;
///
/// let mut fields = HeaderMap::new();
/// fields.insert(header::ACCEPT, "*/*".parse()?);
/// let names = NameLengths::of(&fields);
/// assert!(names.may_have(&header::ACCEPT));
/// assert!(!names.may_have(&header::IF_NONE_MATCH));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameLengths(u64);

impl NameLengths {
    /// The lengths to assume for a head whose names are unknown: the head may have every field.
    pub const ANY: Self = Self(u64::MAX);

    /// Returns the lengths of the names in a head.
    pub fn of(fields: &HeaderMap) -> Self {
        fields.keys().map(|name| name.as_str().len()).collect()
    }

    /// Returns whether the head may have a field with this name.
    #[inline]
    pub fn may_have(self, name: &HeaderName) -> bool {
        self.0 & bit(name.as_str().len()) != 0
    }
}

impl FromIterator<usize> for NameLengths {
    fn from_iter<I: IntoIterator<Item = usize>>(lengths: I) -> Self {
        Self(lengths.into_iter().fold(0, |bits, len| bits | bit(len)))
    }
}

const fn bit(len: usize) -> u64 {
    1 << if len < 63 { len } else { 63 }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn present_field_is_never_ruled_out_and_others_mostly_are() {
        let long = HeaderName::try_from("x".repeat(200)).unwrap();
        let present = [header::RANGE, header::IF_NONE_MATCH, long];
        let fields: HeaderMap = present.iter().map(|name| (name.clone(), HeaderValue::from_static("1"))).collect();
        let names = NameLengths::of(&fields);
        assert!(present.iter().all(|name| names.may_have(name) && NameLengths::ANY.may_have(name)));
        assert!(!names.may_have(&header::COOKIE) && !NameLengths::default().may_have(&header::RANGE));
    }
}
