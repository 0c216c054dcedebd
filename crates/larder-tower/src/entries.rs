//! Stored responses as values of the cache below.
//!
//! The value under a resource's key is a response's head, or the list of the resource's variants. A short body is in
//! the same value as its head; a long one is a value of its own, so that a validation rewrites only the head.
//!
//! Invariant: removing the value under a resource's key removes all of its variants, because their keys contain a
//! number that only this value has. A response whose fetch began before the removal becomes visible nowhere.

use crate::target::Target;
use bytes::{Bytes, BytesMut};
use http::header::AUTHORIZATION;
use larder_cache::{Cache, Error, Result, Value, ValueWriter};
use larder_http::{BodyPlace, Head, Settings, StoredHead, VaryMarker, VaryRule, key};
use std::hash::{BuildHasher, RandomState};

/// A stored response.
pub(crate) struct StoredResponse {
    pub(crate) head: StoredHead,
    pub(crate) body: StoredBody,
}

/// The body of a stored response.
#[derive(Clone)]
pub(crate) enum StoredBody {
    /// The body, which was stored with its head.
    Inline(Bytes),
    /// The body in a value of its own.
    Separate(Value),
}

/// The stored responses of one resource, as a request found them.
pub(crate) struct Lookup {
    /// Created before the resource was read, so that it notices later removals.
    writer: Option<ValueWriter>,
    variants: Option<Variants>,
    pub(crate) response: Option<StoredResponse>,
}

/// The variants of a resource.
#[derive(Clone)]
struct Variants {
    /// Part of the key of each variant.
    series: u64,
    marker: VaryMarker,
}

/// A response that is about to be stored.
pub(crate) struct EntryWrite {
    cache: Cache,
    resource: Vec<u8>,
    writer: ValueWriter,
    place: EntryPlace,
    head: StoredHead,
}

/// A body that was stored on its own.
pub(crate) struct StoredLongBody {
    cache: Cache,
    key: Vec<u8>,
}

/// The place of a response's head.
enum EntryPlace {
    /// The key of the resource.
    Resource,
    /// The key of a variant. `variants` is set if the list of variants must be written first.
    Variant { key: Vec<u8>, variants: Option<Variants> },
}

/// Longest body that is stored with its head, in bytes.
pub(crate) const INLINE_BYTES_MAX: u64 = 32 << 10;
/// Longest key that is used, in bytes. The cache below adds a few bytes.
const KEY_BYTES_MAX: usize = 16_000;
const KIND_RESPONSE: u8 = b'R';
const KIND_VARIANTS: u8 = b'M';

impl Lookup {
    /// Looks for the response of a request. A failure of the cache below counts as a miss.
    pub(crate) async fn new(cache: &Cache, settings: &Settings, target: &Target) -> Self {
        let writer = cache.entry(&target.key).writer().ok();
        let mut lookup = Self { writer, variants: None, response: None };
        if let Err(error) = lookup.find(cache, settings, target).await {
            tracing::debug!(%error, "the cache could not be read");
        }
        lookup
    }

    /// Returns whether other variants of the resource are stored.
    pub(crate) fn has_variants(&self) -> bool {
        self.variants.is_some()
    }

    /// Returns a hash of the keys under which the response of a request may be, and of its credentials. Equal requests
    /// have equal hashes, if they found the same variants.
    pub(crate) fn fetch_key(&self, hasher: &RandomState, settings: &Settings, target: &Target) -> u64 {
        let rules = self.variants.iter().flat_map(|variants| variants.marker.rules());
        let keys: Vec<_> =
            rules.map(|rule| key::variant_key(&target.key, rule, &target.fields, settings).ok()).collect();
        hasher.hash_one((&target.key, keys, target.fields.get(AUTHORIZATION)))
    }

    async fn find(&mut self, cache: &Cache, settings: &Settings, target: &Target) -> Result<()> {
        match read_entry(cache, settings, &target.key, &target.key).await? {
            Some(Entry::Response(found)) => {
                self.response = Some(*found).filter(|found| found.head.matches(&target.fields, settings));
            }
            Some(Entry::Variants(variants)) => {
                self.response = find_variant(cache, settings, target, &variants).await?;
                self.variants = Some(variants);
            }
            None => {}
        }
        Ok(())
    }

    /// Prepares to store a response with this head. Returns `None` if it has no place.
    pub(crate) fn write(
        self,
        cache: &Cache,
        settings: &Settings,
        target: &Target,
        head: StoredHead,
    ) -> Option<EntryWrite> {
        let place = self.place(settings, target, &head.selecting().rule())?;
        let resource = target.key.clone();
        Some(EntryWrite { cache: cache.clone(), resource, writer: self.writer?, place, head })
    }

    fn place(&self, settings: &Settings, target: &Target, rule: &VaryRule) -> Option<EntryPlace> {
        if target.key.len() > KEY_BYTES_MAX {
            return None;
        }
        if rule.is_empty() {
            return Some(EntryPlace::Resource);
        }
        let variants = match &self.variants {
            Some(Variants { series, marker }) => Variants { series: *series, marker: marker.with(rule.clone()) },
            None => Variants { series: getrandom::u64().ok()?, marker: VaryMarker::new(rule.clone()) },
        };
        let key = variant_key(settings, target, rule, variants.series)?;
        let is_known = self.variants.as_ref().is_some_and(|known| known.marker.rules().contains(rule));
        Some(EntryPlace::Variant { key, variants: (!is_known).then_some(variants) })
    }
}

impl EntryWrite {
    /// Creates a writer for a body that is stored on its own. Returns the body's number, too.
    pub(crate) fn body_writer(&self) -> Result<(ValueWriter, u64)> {
        let no_number = |error: getrandom::Error| Error::Invalid(format!("the system has no random numbers: {error}"));
        let representation = getrandom::u64().map_err(no_number)?;
        let writer = self.cache.entry(body_key(&self.resource, representation)).writer()?;
        Ok((writer, representation))
    }

    /// Returns a body that was stored by a writer of [`Self::body_writer`], which had this number.
    pub(crate) fn long_body(&self, representation: u64) -> StoredLongBody {
        StoredLongBody { cache: self.cache.clone(), key: body_key(&self.resource, representation) }
    }

    /// Returns the head, whose body has no length yet.
    pub(crate) fn head(&self) -> &StoredHead {
        &self.head
    }

    /// Stores the response with a body that is stored with the head. Returns whether it became visible.
    pub(crate) async fn finish_inline(mut self, body: Bytes) -> Result<bool> {
        self.head = self.head.with_body(BodyPlace::Whole { len: body.len() as u64 });
        self.finish(body).await
    }

    /// Stores the response with a body that was stored before. Returns whether it became visible.
    pub(crate) async fn finish_separate(mut self, len: u64, representation: u64) -> Result<bool> {
        self.head = self.head.with_body(BodyPlace::Chunks { len, representation });
        self.finish(Bytes::new()).await
    }

    /// Stores the response with the body that a stored response has.
    pub(crate) async fn finish_with(self, body: &StoredBody) -> Result<bool> {
        let body = match body {
            StoredBody::Inline(bytes) => bytes.clone(),
            StoredBody::Separate(_) => Bytes::new(),
        };
        self.finish(body).await
    }

    async fn finish(self, inline: Bytes) -> Result<bool> {
        let Self { cache, mut writer, place, head, .. } = self;
        let entry = encode_response(&head, &inline);
        match place {
            EntryPlace::Resource => {
                writer.write(entry).await?;
                writer.finish_if_unchanged().await
            }
            EntryPlace::Variant { key, variants } => {
                if let Some(variants) = variants {
                    writer.write(encode_variants(&variants)).await?;
                    if !writer.finish_if_unchanged().await? {
                        return Ok(false);
                    }
                }
                // If the resource was removed since, nothing leads to this key any more.
                cache.entry(&key).insert(entry).await?;
                Ok(true)
            }
        }
    }
}

impl StoredLongBody {
    /// Returns the body, or `None` if it was evicted.
    pub(crate) async fn open(self) -> Result<Option<Value>> {
        self.cache.open(self.key).await
    }
}

impl StoredBody {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Separate(value) => value.len(),
        }
    }
}

/// A value, parsed.
enum Entry {
    Response(Box<StoredResponse>),
    Variants(Variants),
}

async fn find_variant(
    cache: &Cache,
    settings: &Settings,
    target: &Target,
    variants: &Variants,
) -> Result<Option<StoredResponse>> {
    for rule in variants.marker.rules() {
        let Some(key) = variant_key(settings, target, rule, variants.series) else { continue };
        if let Some(Entry::Response(found)) = read_entry(cache, settings, &target.key, &key).await?
            && found.head.matches(&target.fields, settings)
        {
            return Ok(Some(*found));
        }
    }
    Ok(None)
}

/// Reads the value under `key`. A value that cannot be parsed, or whose body is gone, is a miss.
async fn read_entry(cache: &Cache, settings: &Settings, resource: &[u8], key: &[u8]) -> Result<Option<Entry>> {
    if key.len() > KEY_BYTES_MAX {
        return Ok(None);
    }
    let bytes = match cache.open(key).await? {
        Some(value) => match value.bytes().await {
            Err(Error::Gone) => return Ok(None),
            bytes => bytes?,
        },
        None => return Ok(None),
    };
    let (head, inline) = match parse(bytes, settings) {
        Some(ParsedEntry::Response(head, inline)) => (head, inline),
        Some(ParsedEntry::Variants(variants)) => return Ok(Some(Entry::Variants(variants))),
        None => return Ok(None),
    };
    let body = match head.body() {
        BodyPlace::Whole { len } if len == inline.len() as u64 => StoredBody::Inline(inline),
        BodyPlace::Whole { .. } => return Ok(None),
        BodyPlace::Chunks { len, representation } => match cache.open(body_key(resource, representation)).await? {
            Some(value) if value.len() == len => StoredBody::Separate(value),
            Some(_) | None => return Ok(None),
        },
    };
    Ok(Some(Entry::Response(Box::new(StoredResponse { head, body }))))
}

/// A value, parsed, without the body that is stored on its own.
#[expect(clippy::large_enum_variant, reason = "taken apart as soon as it is parsed")]
enum ParsedEntry {
    Response(StoredHead, Bytes),
    Variants(Variants),
}

fn parse(mut bytes: Bytes, settings: &Settings) -> Option<ParsedEntry> {
    let kind = *bytes.first()?;
    match kind {
        KIND_RESPONSE => {
            let len = u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?) as usize;
            let end = len.checked_add(5).filter(|end| *end <= bytes.len())?;
            let inline = bytes.split_off(end);
            let head = StoredHead::decode(bytes.slice(5..), &settings.targets).ok()?;
            Some(ParsedEntry::Response(head, inline))
        }
        KIND_VARIANTS => {
            let series = u64::from_le_bytes(*bytes.get(1..)?.first_chunk()?);
            match Head::decode(bytes.slice(9..), &settings.targets).ok()? {
                Head::VaryMarker(marker) => Some(ParsedEntry::Variants(Variants { series, marker })),
                Head::Response(_) => None,
            }
        }
        _ => None,
    }
}

fn encode_response(head: &StoredHead, inline: &Bytes) -> Bytes {
    let head = head.encode();
    let mut bytes = BytesMut::with_capacity(5 + head.len() + inline.len());
    bytes.extend_from_slice(&[KIND_RESPONSE]);
    let len = u32::try_from(head.len()).expect("a head has a bound far below 4 GiB");
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(inline);
    bytes.freeze()
}

fn encode_variants(variants: &Variants) -> Bytes {
    let marker = variants.marker.encode();
    [&[KIND_VARIANTS][..], &variants.series.to_le_bytes(), &marker].concat().into()
}

/// Returns the key of the variant for the target's fields, or `None` if it is too long.
fn variant_key(settings: &Settings, target: &Target, rule: &VaryRule, series: u64) -> Option<Vec<u8>> {
    let mut key = key::variant_key(&target.key, rule, &target.fields, settings).ok()?;
    key.extend_from_slice(&series.to_le_bytes());
    (key.len() <= KEY_BYTES_MAX).then_some(key)
}

/// Returns the key of a body that is stored on its own.
fn body_key(resource: &[u8], representation: u64) -> Vec<u8> {
    key::chunk_key(resource, representation, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, StatusCode, header::CACHE_CONTROL};
    use larder_http::{ReceivedHead, SelectingFields, Timestamp};

    fn head() -> StoredHead {
        let fields = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("max-age=60"))]);
        let time = Timestamp::from_secs(1_800_000_000);
        let received = ReceivedHead { status: StatusCode::OK, fields, request_time: time, response_time: time };
        let body = BodyPlace::Whole { len: 4 };
        StoredHead::new(received, body, SelectingFields::default(), &Settings::private().targets)
    }

    #[test]
    fn entry_is_read_as_it_was_written() {
        let settings = Settings::private();
        let bytes = encode_response(&head(), &Bytes::from_static(b"body"));
        let Some(ParsedEntry::Response(read, body)) = parse(bytes, &settings) else { panic!("a response") };
        assert_eq!((read, &body[..]), (head(), &b"body"[..]));
        let marker = VaryMarker::new(VaryRule::Fields([http::header::ACCEPT].into()));
        let bytes = encode_variants(&Variants { series: 7, marker: marker.clone() });
        let Some(ParsedEntry::Variants(read)) = parse(bytes, &settings) else { panic!("variants") };
        assert_eq!((read.series, read.marker), (7, marker));
    }

    #[test]
    fn truncated_entry_is_a_miss() {
        let whole = encode_response(&head(), &Bytes::new());
        for len in 0..whole.len() {
            assert!(parse(whole.slice(..len), &Settings::private()).is_none(), "{len}");
        }
    }
}
