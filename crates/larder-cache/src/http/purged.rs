//! Applies purges to stored responses, which have them by URL and by the tags in their fields.

use std::borrow::Cow;

use larder_http::{StoredHead, Timestamp, key::KeyOf, tags::tags_of};

use super::entry::CachedEntry;
use crate::{
    chunk_format::split_chunk_key,
    purges::{PurgeVerdict, Purges, host_of_url},
};

impl Purges {
    /// Returns what all purges so far mean for the response under this key.
    pub fn judge(&self, entry: &CachedEntry, key: &[u8]) -> PurgeVerdict {
        let latest = self.latest();
        if entry.judged_count() >= latest && entry.head.purge_count() <= latest {
            return PurgeVerdict::Stands;
        }
        let verdict = self.judge_head(&entry.head, key);
        if verdict == PurgeVerdict::Stands {
            entry.note_judged(latest);
        }
        verdict
    }

    /// Returns what all purges so far mean for a response with this head, stored under this key.
    pub fn judge_head<'a>(&self, head: &'a StoredHead, key: &'a [u8]) -> PurgeVerdict {
        let tags = || Box::new(tags_of(head.fields()).map(Cow::Borrowed)) as Box<dyn Iterator<Item = _>>;
        self.judge_entry(head.purge_count(), || url_of(key), tags)
    }

    /// Returns whether a purge after the first `seen_count` may concern the response under this key. A purge of any tag
    /// may, because the response's tags are not given.
    pub fn may_concern_key(&self, key: &[u8], seen_count: u64) -> bool {
        self.latest() > seen_count && self.may_concern(url_of(key), seen_count)
    }

    /// Returns the time of the last purge that may concern the resource with this key. A purge of any tag may. `None`
    /// if there was none.
    pub fn last_at(&self, key: &[u8]) -> Option<Timestamp> {
        let last_at_ms = (self.latest() > 0).then(|| self.last_at_ms(url_of(key))).flatten();
        last_at_ms.map(Timestamp::from_millis)
    }
}

/// Returns the URL in a key of a response or of a chunk, or an empty string if the key has none.
pub(super) fn url_of(key: &[u8]) -> &str {
    KeyOf::parse(split_chunk_key(key).0).and_then(|of| of.url()).unwrap_or_default()
}

/// Returns the host of the URL in a key, in the form that site purges use.
pub(crate) fn host_of_key(key: &[u8]) -> &str {
    host_of_url(url_of(key))
}
