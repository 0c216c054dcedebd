//! Stored responses in memory, and the markers that lead to a resource's variants.
//!
//! Owns: the decoded head, and the body or its place. Invariant: head and body belong to one representation. A whole
//! body has exactly the length that its head states.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use larder_http::{BodyPlace, Settings, StoredHead, Timestamp, VaryMarker, key};
use larder_store::MemoryHits;

pub use crate::{chunk_format::CHUNK_BYTES, random};

/// A stored response in memory. All requests that it answers share it.
///
/// ```
/// use larder_cache::http::entry::CachedEntry;
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp};
///
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let (status, fields) = (http::StatusCode::OK, http::HeaderMap::new());
/// # let received = ReceivedHead { status, fields, request_time: now, response_time: now };
/// # let place = BodyPlace::Whole { len: 5 };
/// # let head = StoredHead::new(received, place, Default::default(), &TargetList::default());
/// // `head` announces 5 bytes, so only such a body belongs to it.
/// assert!(CachedEntry::whole(head.clone(), "hello, world".into()).is_none());
/// let entry = CachedEntry::whole(head, "hello".into()).expect("5 bytes");
/// assert_eq!(entry.body_len(), 5);
/// ```
pub struct CachedEntry {
    /// The stored head.
    pub head: StoredHead,
    /// The body, or how its chunks are found.
    pub body: EntryBody,
    hits: MemoryHits,
    /// Number of purges that were already applied to this entry.
    judged_count: AtomicU64,
    /// Whether head and body are in two buffers, not in one.
    is_split: bool,
}

/// The body of a stored response: its bytes, or the number by which its chunks are found.
///
/// ```
/// use larder_cache::http::entry::EntryBody;
///
/// fn len(body: &EntryBody) -> u64 {
///     match body {
///         EntryBody::Whole(bytes) => bytes.len() as u64,
///         EntryBody::Chunks { len, .. } => *len,
///     }
/// }
///
/// assert_eq!(len(&EntryBody::Whole("hello".into())), 5);
/// assert_eq!(len(&EntryBody::Chunks { len: 1 << 30, representation: 7 }), 1 << 30);
/// ```
pub enum EntryBody {
    /// The whole body in memory.
    Whole(Bytes),
    /// The body is in chunks, each of which is an entry of its own.
    Chunks {
        /// Length of the whole body in bytes.
        len: u64,
        /// The number that distinguishes this body from others that are, or were, stored under the same key.
        representation: u64,
    },
}

/// The entry that leads from a resource to its variants. It is stored under the resource's key, and contains the rules
/// by which the variants' keys are made.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header::ACCEPT_LANGUAGE};
/// use larder_cache::http::entry::ResourceMarker;
/// use larder_http::{Settings, VaryRule};
///
/// let rule = VaryRule::Fields([ACCEPT_LANGUAGE].into());
/// let marker = ResourceMarker::including(rule.clone(), None);
/// let key = |language| {
///     let fields = HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(language))]);
///     marker.variant_key(b"Phttps://site.example/", &rule, &fields, &Settings::default())
/// };
/// assert_eq!(key("de"), key("de"));
/// assert_ne!(key("de"), key("en"));
/// ```
pub struct ResourceMarker {
    /// The rules that say by which request fields the origin selects variants.
    pub rules: VaryMarker,
    /// A random number in the keys of the variants. Invalidating a resource drops its marker; the next marker has
    /// another number, and so does not lead to the old variants.
    pub generation: u64,
    /// Languages of stored variants, newest first, each with the Accept-Language value that selects its variant.
    pub languages: Vec<(Vec<u8>, HeaderValue)>,
}

impl CachedEntry {
    /// Creates a response from a head and a body. The purges that the head counts are already applied to it.
    pub fn new(head: StoredHead, body: EntryBody) -> Self {
        let judged_count = AtomicU64::new(head.purge_count());
        Self { head, body, hits: MemoryHits::default(), judged_count, is_split: false }
    }

    /// Creates a response with its whole body. Returns `None` if the body does not match the head.
    pub fn whole(head: StoredHead, body: Bytes) -> Option<Self> {
        let fits = matches!(head.body(), BodyPlace::Whole { len } if len == body.len() as u64);
        fits.then(|| Self::new(head, EntryBody::Whole(body)))
    }

    /// Returns a copy of this response with a new head and the same body.
    pub fn with_head(&self, head: StoredHead) -> Self {
        let body = match &self.body {
            EntryBody::Whole(bytes) => EntryBody::Whole(bytes.clone()),
            EntryBody::Chunks { len, representation } => {
                EntryBody::Chunks { len: *len, representation: *representation }
            }
        };
        Self { is_split: self.is_split, ..Self::new(head, body) }
    }

    /// Returns this response with its head and body copied into one buffer. It no longer keeps a longer buffer in
    /// memory.
    pub fn detached(self) -> Self {
        let (head, body) = match self.body {
            EntryBody::Whole(bytes) => {
                let (head, body) = self.head.packed(iter::once(&bytes[..]));
                (head, EntryBody::Whole(body))
            }
            body @ EntryBody::Chunks { .. } => (self.head.packed(iter::empty()).0, body),
        };
        Self { head, body, is_split: false, ..self }
    }

    /// Returns this response with its head copied into a buffer of its own.
    ///
    /// Used after a 304, which brings only a new head. A short body is copied, too, as by [`Self::detached`]. A long
    /// body stays where it is, because copying it would cost more than all other work for the 304.
    pub fn with_detached_head(self) -> Self {
        if self.body_len() < LONG_BODY_BYTES || matches!(self.body, EntryBody::Chunks { .. }) {
            return self.detached();
        }
        Self { head: self.head.packed(iter::empty()).0, is_split: true, ..self }
    }

    /// Returns a copy of this response after a soft purge: stale since `moment`. `judged_count` purges have been
    /// applied to the copy.
    pub fn stale_since(&self, moment: Timestamp, judged_count: u64) -> Self {
        let stale = self.with_head(self.head.clone().stale_since(moment));
        stale.note_judged(judged_count);
        stale
    }

    /// Returns a copy of this response that must be validated before it is used.
    pub fn unconfirmed(&self) -> Self {
        self.with_head(self.head.clone().unconfirmed())
    }

    /// Returns the number of purges that were already applied to this entry.
    pub fn judged_count(&self) -> u64 {
        self.judged_count.load(Relaxed)
    }

    /// Records that the first `purge_count` purges were applied to this entry.
    pub fn note_judged(&self, purge_count: u64) {
        self.judged_count.fetch_max(purge_count, Relaxed);
    }

    /// Returns the length of the whole body in bytes.
    pub fn body_len(&self) -> u64 {
        match &self.body {
            EntryBody::Whole(bytes) => bytes.len() as u64,
            EntryBody::Chunks { len, .. } => *len,
        }
    }

    /// Returns the counter of the requests that this response answered from memory.
    pub fn hits(&self) -> &MemoryHits {
        &self.hits
    }

    /// Returns how many bytes a [`CachedEntry::detached`] entry takes: itself, the buffer with its head and body, the
    /// buffer's reference count, and the names of its selecting fields.
    pub fn weight(&self) -> u64 {
        let body_len = match &self.body {
            EntryBody::Whole(bytes) => bytes.len(),
            EntryBody::Chunks { .. } => 0,
        };
        let selecting = self.head.selecting().iter().len() * SELECTING_BYTES;
        let octets_len = self.head.octets_len();
        // The buffer of a split body still has an older head.
        let own_head =
            if self.is_split { [octets_len, BUFFER_COUNT_BYTES].map(allocated_bytes).iter().sum() } else { 0 };
        Self::weight_of(octets_len + body_len) + allocated_bytes(selecting) + own_head
    }

    /// Returns how many bytes a detached response takes if its head and body have `octets_len` bytes, and it does not
    /// vary.
    pub fn weight_of(octets_len: usize) -> u64 {
        let parts = [size_of::<Self>() + COUNTS_BYTES, octets_len, BUFFER_COUNT_BYTES];
        parts.map(allocated_bytes).iter().sum()
    }
}

/// Returns how many bytes the allocator takes for `len` bytes. It has four sizes from one power of two to the next.
fn allocated_bytes(len: usize) -> u64 {
    let step = (len.next_power_of_two() / 8).max(16);
    len.next_multiple_of(step) as u64
}

impl ResourceMarker {
    /// Creates a marker for variants that are selected by `rule`, in addition to those of the marker `before`.
    pub fn including(rule: larder_http::VaryRule, before: Option<&Arc<Self>>) -> Self {
        match before {
            Some(before) => {
                let languages = before.languages.clone();
                Self { rules: before.rules.with(rule), generation: before.generation, languages }
            }
            None => Self { rules: VaryMarker::new(rule), generation: random(), languages: Vec::new() },
        }
    }

    /// Returns a copy of this marker that also leads from `language` to the variant that the Accept-Language value
    /// `accepted` selects. `None` if nothing is to be added.
    pub fn with_language(&self, language: &[u8], accepted: &HeaderValue) -> Option<Self> {
        let known = self.languages.iter().any(|(known, leading)| known == language && leading == accepted);
        if known || accepted.len() > ACCEPTED_SIZE_MAX {
            return None;
        }
        let mut languages = vec![(language.to_vec(), accepted.clone())];
        let others = self.languages.iter().filter(|(other, _)| other != language);
        languages.extend(others.take(LANGUAGE_COUNT_MAX - 1).cloned());
        Some(Self { rules: self.rules.clone(), generation: self.generation, languages })
    }

    /// Encodes everything in the marker except for its rules.
    pub fn encode_rest(&self) -> Bytes {
        let mut rest = self.generation.to_le_bytes().to_vec();
        for (language, accepted) in &self.languages {
            for part in [language, accepted.as_bytes()] {
                let len = u16::try_from(part.len()).expect("both have bounds");
                rest.extend_from_slice(&len.to_le_bytes());
                rest.extend_from_slice(part);
            }
        }
        rest.into()
    }

    /// Decodes a marker from its rules and the output of [`ResourceMarker::encode_rest`]. Returns `None` if that output
    /// is malformed.
    pub fn decode(rules: VaryMarker, rest: &[u8]) -> Option<Self> {
        let (generation, mut rest) = rest.split_first_chunk()?;
        let mut languages = Vec::new();
        while !rest.is_empty() {
            let language = take_sized(&mut rest)?;
            let accepted = HeaderValue::from_bytes(take_sized(&mut rest)?).ok()?;
            languages.push((language.to_vec(), accepted));
        }
        let generation = u64::from_le_bytes(*generation);
        (languages.len() <= LANGUAGE_COUNT_MAX).then_some(Self { rules, generation, languages })
    }

    /// Returns the key of the variant that `rule` selects for a request with these fields. `None` if no variant can be
    /// selected.
    pub fn variant_key(
        &self,
        primary: &[u8],
        rule: &larder_http::VaryRule,
        request_fields: &HeaderMap,
        settings: &Settings,
    ) -> Option<Vec<u8>> {
        let mut key = key::variant_key(primary, rule, request_fields, settings).ok()?;
        key.extend_from_slice(&self.generation.to_le_bytes());
        Some(key)
    }
}

fn take_sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let (part, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *rest = after;
    Some(part)
}

/// The name of the Cache-Status field (RFC 9211).
pub static CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
/// Maximum number of languages in a marker.
const LANGUAGE_COUNT_MAX: usize = 16;
/// Maximum length of an Accept-Language value in a marker, in bytes.
const ACCEPTED_SIZE_MAX: usize = 512;
/// Minimum length in bytes of a body that is not copied when its response gets a new head.
const LONG_BODY_BYTES: u64 = 16 << 10;
/// Memory in bytes of the two reference counts of a shared entry.
const COUNTS_BYTES: usize = 16;
/// Memory in bytes of a shared buffer's reference count and location.
const BUFFER_COUNT_BYTES: usize = 24;
/// Memory in bytes of a selecting field's name and the location of its value.
const SELECTING_BYTES: usize = size_of::<(HeaderName, Option<Bytes>)>();
/// Number of fields that are sent in addition to the stored ones: Age, Via and Cache-Status.
pub const ADDED_FIELD_COUNT: usize = 3;

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use larder_http::{ReceivedHead, SelectingFields, TargetList};

    use super::*;

    fn head(len: u64, tag: &str) -> StoredHead {
        let now = Timestamp::from_secs(1_800_000_000);
        let fields = [(http::header::ETAG, tag.parse().unwrap())].into_iter().collect();
        let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
        StoredHead::new(received, BodyPlace::Whole { len }, SelectingFields::default(), &TargetList::default())
    }

    #[test]
    fn new_head_leaves_a_long_body_where_it_is() {
        for (len, is_moved) in [(LONG_BODY_BYTES - 1, true), (LONG_BODY_BYTES, false)] {
            let body = vec![7; len as usize].into();
            let before = CachedEntry::whole(head(len, "\"1\""), body).unwrap().detached();
            let renewed = before.with_head(head(len, "\"22\"")).with_detached_head();
            let (EntryBody::Whole(old), EntryBody::Whole(new)) = (&before.body, &renewed.body) else { panic!() };
            assert_eq!(old, new);
            assert_eq!(old.as_ptr() != new.as_ptr(), is_moved, "{len} bytes");
            assert_eq!(renewed.weight() > before.weight() + 32, !is_moved, "its second buffer is charged");
            assert_eq!(
                renewed.detached().weight(),
                CachedEntry::weight_of(head(len, "\"22\"").octets_len() + len as usize)
            );
        }
    }
}
