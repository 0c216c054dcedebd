//! Reads the tags of responses from `Surrogate-Key` and `Cache-Tag`. One purge can remove all responses with a tag.
//!
//! Fastly separates tags by spaces. Cloudflare separates them by commas and ignores case. Here both characters separate
//! tags in both fields, and case is ignored. Every tag that either vendor would find is found, so a purge may remove
//! too much but never too little.

use http::HeaderName;

use crate::fields::Fields;

/// The fields that list tags.
pub static TAG_FIELDS: [HeaderName; 2] =
    [HeaderName::from_static("surrogate-key"), HeaderName::from_static("cache-tag")];
/// Maximum length, in bytes, of a tag that a purge can name.
pub const TAG_SIZE_MAX: usize = 1024;

/// Returns the tags in these fields as written. A value that is not UTF-8 has none.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::tags::tags_of;
///
/// let mut fields = HeaderMap::new();
/// fields.insert("surrogate-key", "product-7 front-page".parse()?);
/// assert_eq!(tags_of(&fields).collect::<Vec<_>>(), ["product-7", "front-page"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tags_of(fields: &impl Fields) -> impl Iterator<Item = &str> {
    let lines = TAG_FIELDS.iter().flat_map(|name| fields.values_of(name));
    lines.filter_map(|line| std::str::from_utf8(line).ok()).flat_map(split_tags)
}

/// Returns the tags of a list.
pub fn split_tags(list: &str) -> impl Iterator<Item = &str> {
    list.split([' ', ',', '\t']).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn both_fields_list_tags_separated_by_spaces_or_commas() {
        let mut fields = HeaderMap::new();
        for (name, value) in
            [("surrogate-key", "a  b\tc"), ("surrogate-key", "d"), ("cache-tag", ",e , f,,g:1"), ("x-tag", "h")]
        {
            fields.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value));
        }
        fields.append("cache-tag", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(tags_of(&fields).collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f", "g:1"]);
        assert_eq!(tags_of(&HeaderMap::new()).count() + split_tags(" ,\t").count(), 0);
    }
}
