//! Parses and compares entity tags (RFC 9110 8.8.3).
//!
//! Parsing is strict, but octets above 0x7F are accepted. Comparison is by octets. A value without quotes, or with a
//! lower-case `w/`, is not a tag and equals none.

use crate::steps;

/// A well-formed entity tag.
///
/// ```
/// use larder_http::entity_tag::EntityTag;
///
/// let tag = EntityTag::parse(b"W/\"v1\"").expect("a tag");
/// assert!(tag.weak);
/// assert_eq!(tag.opaque, b"v1");
/// assert_eq!(EntityTag::parse(b"v1"), None);
///
/// // The list of an If-None-Match.
/// assert_eq!(EntityTag::list(b"\"v1\", W/\"v2\"").count(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Whether the tag is weak (`W/`).
    pub weak: bool,
    /// The octets between the quotes.
    pub opaque: &'a [u8],
}

/// An iterator over the tags of a list in If-Match or If-None-Match, as [`EntityTag::list`] returns it. It skips
/// malformed elements.
///
/// ```
/// use larder_http::entity_tag::EntityTag;
///
/// let tags = EntityTag::list(b"\"v1\", v2, W/\"v3\"").map(|tag| tag.opaque);
/// assert!(tags.eq([&b"v1"[..], b"v3"]));
/// ```
#[derive(Clone, Debug)]
pub struct EntityTags<'a> {
    rest: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Parses a value that consists of one entity tag.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (tag, rest) = Self::parse_prefix(value)?;
        rest.is_empty().then_some(tag)
    }

    /// Iterates over the tags in a list and skips malformed elements.
    pub fn list(value: &'a [u8]) -> EntityTags<'a> {
        EntityTags { rest: value }
    }

    /// Returns whether the tags are equal and neither is weak (RFC 9110 8.8.3.2).
    pub(crate) fn matches_strongly(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Returns whether the tags are equal, weak or not (RFC 9110 8.8.3.2).
    pub(crate) fn matches_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }

    fn parse_prefix(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, quoted) = match value.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let inner = quoted.strip_prefix(b"\"")?;
        let end = inner.iter().position(|byte| *byte == b'"');
        steps::take(end.unwrap_or(inner.len()));
        let end = end?;
        let opaque = &inner[..end];
        let rest = &inner[end + 1..];
        let valid = opaque.iter().all(|byte| matches!(byte, 0x21 | 0x23..=0x7e | 0x80..));
        valid.then_some((Self { weak, opaque }, rest))
    }
}

impl<'a> Iterator for EntityTags<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        loop {
            while let [b' ' | b'\t' | b',', rest @ ..] = self.rest {
                self.rest = rest;
            }
            if self.rest.is_empty() {
                return None;
            }
            let parsed = EntityTag::parse_prefix(self.rest);
            let after = parsed.map_or(self.rest, |(_, rest)| rest);
            let end = after.iter().position(|byte| *byte == b',').unwrap_or(after.len());
            steps::take(end);
            let between = after[..end].trim_ascii();
            self.rest = &after[end..];
            if let Some((tag, _)) = parsed
                && between.is_empty()
            {
                return Some(tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn opaques(value: &[u8]) -> Vec<&[u8]> {
        EntityTag::list(value).map(|tag| tag.opaque).collect()
    }

    #[test]
    fn comparisons_follow_the_table_of_rfc_9110_8_8_3_2() {
        let tag = |text: &'static str| EntityTag::parse(text.as_bytes()).unwrap();
        for (left, right, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            assert_eq!(tag(left).matches_strongly(&tag(right)), strong, "{left} {right}");
            assert_eq!(tag(left).matches_weakly(&tag(right)), weak, "{left} {right}");
        }
    }

    #[test]
    fn malformed_tags_are_no_tags() {
        for bad in [&b"abc"[..], b"w/\"abc\"", b"W\"abc\"", b"W/abc", b"\"abc", b"abc\"", b"\"a b\"", b"\"abc\"x", b""]
        {
            assert_eq!(EntityTag::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn octets_above_0x7f_and_backslashes_are_ordinary() {
        assert_eq!(EntityTag::parse(b"\"\xfc\\\"").unwrap().opaque, b"\xfc\\");
    }

    #[test]
    fn list_keeps_commas_inside_tags_and_skips_malformed_elements() {
        assert_eq!(opaques(b"\"a,b\" , W/\"c\",,\"d\""), [&b"a,b"[..], b"c", b"d"]);
        assert_eq!(opaques(b"bare, \"a\"x, w/\"b\", \"c\""), [&b"c"[..]]);
    }

    proptest! {
        #[test]
        fn no_list_panics_or_hangs(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(EntityTag::list(&value).count() <= value.len());
        }
    }
}
