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

/// A stored response, shared by all requests that it answers.
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
    /// The body, or where it is.
    pub body: EntryBody,
    hits: MemoryHits,
    /// See [`CachedEntry::judged_count`].
    judged_count: AtomicU64,
    /// Whether the body is in another buffer than the head.
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
    /// The whole body.
    Whole(Bytes),
    /// The body is in chunks, each an entry of its own.
    Chunks {
        /// Length of the whole body in bytes.
        len: u64,
        /// The number that distinguishes these bytes from others under the same key.
        representation: u64,
    },
}

/// The entry that leads from a resource to its variants. It is stored under the resource's key, with the rules by which
/// the keys of the variants are made.
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
    /// The rules by which the variants are selected.
    pub rules: VaryMarker,
    /// Part of the variants' keys, new for each marker. Invalidating a resource drops its marker, and no later marker
    /// leads to the old variants.
    pub generation: u64,
    /// Languages of stored variants, newest first, each with the Accept-Language that selects it.
    pub languages: Vec<(Vec<u8>, HeaderValue)>,
}

impl CachedEntry {
    /// Creates a response to which no purges were applied after the ones that its head counts.
    pub fn new(head: StoredHead, body: EntryBody) -> Self {
        let judged_count = AtomicU64::new(head.purge_count());
        Self { head, body, hits: MemoryHits::default(), judged_count, is_split: false }
    }

    /// Creates a response with its whole body. Returns `None` if the body does not match the head.
    pub fn whole(head: StoredHead, body: Bytes) -> Option<Self> {
        let fits = matches!(head.body(), BodyPlace::Whole { len } if len == body.len() as u64);
        fits.then(|| Self::new(head, EntryBody::Whole(body)))
    }

    /// Returns this response with a new head for the same body.
    pub fn with_head(&self, head: StoredHead) -> Self {
        let body = match &self.body {
            EntryBody::Whole(bytes) => EntryBody::Whole(bytes.clone()),
            EntryBody::Chunks { len, representation } => {
                EntryBody::Chunks { len: *len, representation: *representation }
            }
        };
        Self { is_split: self.is_split, ..Self::new(head, body) }
    }

    /// Returns this response with head and body in one buffer, which shares no memory with a longer one.
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

    /// Returns this response with its new head in a buffer of its own.
    ///
    /// Used after a 304, which brings only a head. A short body is copied as by [`Self::detached`]. A long one stays
    /// where it is, because copying it would cost more than all other work of the 304.
    pub fn with_detached_head(self) -> Self {
        if self.body_len() < LONG_BODY_BYTES || matches!(self.body, EntryBody::Chunks { .. }) {
            return self.detached();
        }
        Self { head: self.head.packed(iter::empty()).0, is_split: true, ..self }
    }

    /// Returns this response after a soft purge: stale since `moment`, and judged by `judged_count` purges.
    pub fn stale_since(&self, moment: Timestamp, judged_count: u64) -> Self {
        let stale = self.with_head(self.head.clone().stale_since(moment));
        stale.note_judged(judged_count);
        stale
    }

    /// Returns this response as one that must be validated before it is used.
    pub fn unconfirmed(&self) -> Self {
        self.with_head(self.head.clone().unconfirmed())
    }

    /// Returns the number of purges that were already applied to this entry.
    pub fn judged_count(&self) -> u64 {
        self.judged_count.load(Relaxed)
    }

    /// Records that `purge_count` purges were applied to this entry.
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

    /// Returns the counter of hits from memory.
    pub fn hits(&self) -> &MemoryHits {
        &self.hits
    }

    /// Returns the memory of a [`CachedEntry::detached`] entry in bytes: that of the entry, of the buffer with its head
    /// and body, of the buffer's count, and of the names of its selecting fields.
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

    /// Returns the memory of a response whose head and body have `octets_len` bytes, and which does not vary.
    pub fn weight_of(octets_len: usize) -> u64 {
        let parts = [size_of::<Self>() + COUNTS_BYTES, octets_len, BUFFER_COUNT_BYTES];
        parts.map(allocated_bytes).iter().sum()
    }
}

/// Returns the memory that the allocator takes for `len` bytes. The allocator has four sizes between two powers of two.
fn allocated_bytes(len: usize) -> u64 {
    let step = (len.next_power_of_two() / 8).max(16);
    len.next_multiple_of(step) as u64
}

impl ResourceMarker {
    /// Creates a marker for a response that varies by `rule`, based on the previous marker.
    pub fn including(rule: larder_http::VaryRule, before: Option<&Arc<Self>>) -> Self {
        match before {
            Some(before) => {
                let languages = before.languages.clone();
                Self { rules: before.rules.with(rule), generation: before.generation, languages }
            }
            None => Self { rules: VaryMarker::new(rule), generation: random(), languages: Vec::new() },
        }
    }

    /// Returns this marker with a link from a language to the variant that `accepted` selects. `None` if the link
    /// exists.
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

    /// Encodes everything in the marker except its rules.
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

    /// Decodes a marker from its rules and the output of [`ResourceMarker::encode_rest`]. Returns `None` for malformed
    /// input.
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

    /// Returns the key of the variant that a request with these fields selects, or `None` if there is none.
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

/// The Cache-Status field (RFC 9211).
pub static CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
/// Most languages in a marker.
const LANGUAGE_COUNT_MAX: usize = 16;
/// Longest Accept-Language that a marker keeps, in bytes.
const ACCEPTED_SIZE_MAX: usize = 512;
/// Shortest body that is not copied when its response gets a new head.
const LONG_BODY_BYTES: u64 = 16 << 10;
/// Memory of the two reference counts of a shared entry.
const COUNTS_BYTES: usize = 16;
/// Memory of the reference count and the location of a shared buffer.
const BUFFER_COUNT_BYTES: usize = 24;
/// Memory of the name of a selecting field, and of the location of its value.
const SELECTING_BYTES: usize = size_of::<(HeaderName, Option<Bytes>)>();
/// Number of fields that are sent in addition to the stored ones: Age, Via, Cache-Status.
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
