//! Reads directives that are targeted at caches like this one, such as CDN-Cache-Control (RFC 9213). Each field is a
//! structured dictionary (RFC 9651).
//!
//! A valid, non-empty field replaces Cache-Control and Expires; any other field is ignored. A lifetime that is not an
//! integer makes the field malformed, and a negative one counts as zero. The last value of a repeated key counts, as in
//! every dictionary. Unknown parameters and directives are skipped. Cost: one lookup if there is no such field;
//! otherwise the dictionary is parsed.

use std::sync::Arc;

use http::HeaderName;
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::{
    cache_control::{ResponseDirectives, withhold},
    fields::Fields,
    steps,
};

/// The field for all caches that serve an origin (RFC 9213 3).
pub(crate) const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// The fields and directives that are addressed to this cache. By default, the directives for shared caches and
/// CDN-Cache-Control.
///
/// ```
/// use http::{HeaderMap, HeaderName};
/// use larder_http::{TargetList, cache_control::ResponseDirectives};
///
/// // This cache also obeys a field of its own, before CDN-Cache-Control.
/// let names = ["example-cache-control", "cdn-cache-control"].map(HeaderName::from_static);
/// let mut fields = HeaderMap::new();
/// fields.insert("cache-control", "max-age=60".parse()?);
/// fields.insert("example-cache-control", "max-age=3600".parse()?);
/// let directives = ResponseDirectives::from_fields(&fields, &TargetList::new(names));
/// assert_eq!(directives.max_age, Some(3600));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetList(Arc<TargetedFields>);

/// The content of a [`TargetList`]. All stored heads in memory share it.
#[derive(Debug, PartialEq, Eq)]
struct TargetedFields {
    /// The target list of RFC 9213 2.1, the strongest field first.
    names: Box<[HeaderName]>,
    is_private: bool,
}

impl TargetList {
    /// Creates the list of a shared cache with these fields. If `names` is empty, only Cache-Control and Expires count.
    pub fn new(names: impl Into<Box<[HeaderName]>>) -> Self {
        Self(Arc::new(TargetedFields { names: names.into(), is_private: false }))
    }

    /// Creates the list of a private cache, which serves one user. No field is targeted at it, and the directives for
    /// shared caches do not count: `private`, `s-maxage` and `proxy-revalidate` (RFC 9111 5.2.2).
    pub fn private() -> Self {
        Self(Arc::new(TargetedFields { names: Box::new([]), is_private: true }))
    }

    /// Returns whether a field with this name is targeted at the cache.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.0.names.iter().any(|targeted| targeted.as_str().as_bytes() == name)
    }

    /// Returns whether the cache is private.
    pub fn is_private(&self) -> bool {
        self.0.is_private
    }
}

impl Default for TargetList {
    fn default() -> Self {
        Self::new([CDN_CACHE_CONTROL])
    }
}

/// Returns the directives of the first field in the list that is valid and not empty.
pub fn directives(fields: &impl Fields, targets: &TargetList) -> Option<ResponseDirectives> {
    targets.0.names.iter().find_map(|name| directives_of(fields, name))
}

fn directives_of(fields: &impl Fields, name: &HeaderName) -> Option<ResponseDirectives> {
    let lines: Vec<&[u8]> = fields.values_of(name).collect();
    if lines.is_empty() {
        return None;
    }
    steps::take(lines.iter().map(|line| line.len()).sum());
    let dictionary: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut found = ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
    for (key, value) in &dictionary {
        apply(&mut found, key.as_str(), value).ok()?;
    }
    Some(found)
}

/// The error for a directive whose value has the wrong type.
struct WrongType;

fn apply(found: &mut ResponseDirectives, key: &str, value: &ListEntry) -> Result<(), WrongType> {
    match key {
        "max-age" => found.max_age = Some(seconds(value)?),
        "s-maxage" => found.s_maxage = Some(seconds(value)?),
        "stale-while-revalidate" => found.stale_while_revalidate = Some(seconds(value)?),
        "stale-if-error" => found.stale_if_error = Some(seconds(value)?),
        "no-store" => found.no_store = is_set(value),
        "no-cache" => found.no_cache = is_set(value) && !withholds(value, found),
        "private" => found.private = is_set(value) && !withholds(value, found),
        "public" => found.public = is_set(value),
        "must-revalidate" => found.must_revalidate = is_set(value),
        "proxy-revalidate" => found.proxy_revalidate = is_set(value),
        "must-understand" => found.must_understand = is_set(value),
        _ => {}
    }
    Ok(())
}

fn seconds(value: &ListEntry) -> Result<u32, WrongType> {
    match value {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::Integer(secs) => {
                let secs = i64::from(secs).max(0).unsigned_abs();
                Ok(u32::try_from(secs).unwrap_or(u32::MAX))
            }
            _ => Err(WrongType),
        },
        ListEntry::InnerList(_) => Err(WrongType),
    }
}

/// Returns whether a directive without argument is set. Only an explicit false value clears it.
fn is_set(value: &ListEntry) -> bool {
    !matches!(value, ListEntry::Item(item) if matches!(item.bare_item, BareItem::Boolean(false)))
}

/// Withholds the fields that the value lists. Returns false if the value is not a string of field names.
fn withholds(value: &ListEntry, found: &mut ResponseDirectives) -> bool {
    match value {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::String(names) => withhold(names.as_str().as_bytes(), &mut found.withheld),
            _ => false,
        },
        ListEntry::InnerList(_) => false,
    }
}
