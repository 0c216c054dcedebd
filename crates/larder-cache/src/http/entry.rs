//! Stored responses, and the markers that lead to a resource's variants.
//!
//! Owns: the decoded head, and the body or its place. Invariant: head and body belong to one representation. A whole
//! body has exactly the length that its head states.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use larder_http::{BodyPlace, Settings, StoredHead, Timestamp, VaryMarker, key};

pub use crate::{chunk_format::CHUNK_BYTES, random};

/// A stored response, with its head and its short body in memory.
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
    /// Number of purges that were already applied to this entry.
    judged_count: AtomicU64,
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
        Self { head, body, judged_count }
    }

    /// Creates a response from the head and the body that were packed together. A body in chunks is not among them.
    #[inline]
    pub(super) fn unpacked(head: StoredHead, body: Bytes) -> Self {
        let body = match head.body() {
            BodyPlace::Whole { .. } => EntryBody::Whole(body),
            BodyPlace::Chunks { len, representation } => EntryBody::Chunks { len, representation },
        };
        Self::new(head, body)
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
        Self::new(head, body)
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
/// Number of fields that are sent in addition to the stored ones: Age, Via and Cache-Status.
pub const ADDED_FIELD_COUNT: usize = 3;
