//! What redirections that were followed say of what they led to, as it stays with a stored response.
//!
//! Owns: the data, its form in a dictionary, and what it changes. Does not: look at redirections, see [`crate::redirects`].

use sfv::{BareItem, Dictionary, ListEntry};

use crate::cache_control::ResponseDirectives;

/// What the redirections that led to a response say of it, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// For how many seconds after its receipt the response can be fresh, by the shortest lifetime of them.
    pub fresh_secs: u32,
    /// Whether one of them may not be used without validation once it is stale.
    pub forbids_stale: bool,
    /// Whether each of them may be stored.
    pub is_storable: bool,
    /// Tells the URL that they led to from others, see [`crate::redirects::mark_of`].
    pub led_to: u64,
}

impl Chain {
    /// Changes what a response's directives say to what they say of what redirections led to.
    pub(crate) fn apply(&self, directives: &mut ResponseDirectives) {
        directives.fresh_within = Some(self.fresh_secs);
        directives.chain_forbids_stale = self.forbids_stale;
        if !self.is_storable {
            (directives.no_store, directives.must_understand) = (true, false);
        }
    }

    /// The members of a dictionary that [`Chain::of_members`] reads.
    pub(crate) fn to_members(self) -> String {
        let flags = [(self.forbids_stale, ", led-strictly"), (!self.is_storable, ", led-by-unstored")];
        let flags: String = flags.into_iter().filter_map(|(is_set, text)| is_set.then_some(text)).collect();
        format!("led-to={}, led-within={}{flags}", self.led_to, self.fresh_secs)
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
        Some(Self {
            fresh_secs: u32::try_from(number("led-within")?).ok()?,
            forbids_stale: member("led-strictly").is_some(),
            is_storable: member("led-by-unstored").is_none(),
            led_to: number("led-to")?,
        })
    }
}
