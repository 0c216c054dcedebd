//! The constraints that redirects impose on the final response if the proxy follows them for a client. They are stored
//! with that response.

use sfv::{BareItem, Dictionary, ListEntry};

use crate::cache_control::ResponseDirectives;

/// The combined constraints of all redirects that led to a response. A cache that follows redirects itself stores them
/// with the final response, which may not be fresh for longer than the redirects are.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode, Uri};
/// use larder_http::{Settings, Timestamp, redirects, storable::Exchange};
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let nothing = HeaderMap::new();
///
/// let url: Uri = "https://a.example/latest".parse()?;
/// let mut fields = HeaderMap::new();
/// fields.insert("location", "/1.2".parse()?);
/// fields.insert("cache-control", "no-store".parse()?);
/// let redirect = Exchange {
///     method: &Method::GET,
///     request_fields: &nothing,
///     status: StatusCode::FOUND,
///     response_fields: &fields,
///     request_time: now,
///     response_time: now,
/// };
/// let target = redirects::target(&url, redirect.status, &fields).expect("a redirect");
/// let chain = redirects::through(None, &redirect, &target, &Settings::default());
/// assert!(!chain.is_storable);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The shortest freshness lifetime among the redirects, in seconds after the receipt of the response.
    pub fresh_secs: u32,
    /// Whether at least one of the redirects must be validated before use once it is stale.
    pub(crate) forbids_stale: bool,
    /// Whether every redirect may be stored.
    pub is_storable: bool,
    /// The hash ([`crate::redirects::mark_of`]) of the URL that the first redirect names.
    pub first_to: u64,
    /// The hash ([`crate::redirects::mark_of`]) of the URL that the last redirect names. If there was only one
    /// redirect, it equals `first_to`.
    pub led_to: u64,
}

impl Chain {
    /// Restricts a response's directives by the constraints of the redirects.
    pub(crate) fn apply(&self, directives: &mut ResponseDirectives) {
        directives.fresh_within = Some(self.fresh_secs);
        directives.chain_forbids_stale = self.forbids_stale;
        if !self.is_storable {
            (directives.no_store, directives.must_understand) = (true, false);
        }
    }

    /// Returns the dictionary members that [`Chain::of_members`] reads.
    pub(crate) fn to_members(self) -> String {
        let flags = [(self.forbids_stale, ", led-strictly"), (!self.is_storable, ", led-by-unstored")];
        let flags: String = flags.into_iter().filter_map(|(is_set, text)| is_set.then_some(text)).collect();
        format!("led-first={}, led-to={}, led-within={}{flags}", self.first_to, self.led_to, self.fresh_secs)
    }

    pub(crate) fn of_members(dictionary: &Dictionary) -> Option<Self> {
        let member = |name: &str| dictionary.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value);
        let number = |name: &str| match member(name)? {
            ListEntry::Item(item) => match &item.bare_item {
                BareItem::Integer(number) => u64::try_from(i64::from(*number)).ok(),
                _ => None,
            },
            ListEntry::InnerList(_) => None,
        };
        let led_to = number("led-to")?;
        Some(Self {
            // Older entries lack the first mark. Most chains have only one redirect, so the last mark stands in for it.
            first_to: number("led-first").unwrap_or(led_to),
            fresh_secs: u32::try_from(number("led-within")?).ok()?,
            forbids_stale: member("led-strictly").is_some(),
            is_storable: member("led-by-unstored").is_none(),
            led_to,
        })
    }
}
