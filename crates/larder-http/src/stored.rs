//! A stored response's head: what a shared cache keeps beside the body.
//!
//! Owns the status, the end-to-end fields, both times and where the body lies; derives from them, once,
//! all that reuse needs. Not the body, and not where the entry is; its bytes are in `encoding`.
//! Invariant: the fields hold no Age (it is kept as a number and counted into the age), no hop-by-hop
//! field and always a valid Date; what is derived always agrees with the fields.

use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{AGE, DATE, ETAG},
};

use crate::{
    Selecting, Settings, Timestamp, VaryMarker,
    cache_control::ResponseDirectives,
    date::{format_http_date, parse_http_date},
    entity_tag::EntityTag,
    fields::{detach, strip_hop_by_hop},
    freshness::{Freshness, Receipt, received_age},
    list::single,
    targeted::TargetList,
};

mod encoding;

pub use crate::codec::DecodeError;

/// Most fields a stored head may have.
pub const FIELD_COUNT_MAX: usize = 512;
/// Most bytes the names and values of a stored head's fields may have together.
pub const FIELDS_SIZE_MAX: usize = 64 << 10;

/// What lies under a primary or variant key.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "taken apart as soon as it is decoded; a box would be one more allocation a hit"
)]
pub enum Head {
    /// A response.
    Response(StoredHead),
    /// The rules by which the resource's variants are found.
    VaryMarker(VaryMarker),
}

/// Where a stored response's body lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPlace {
    /// In the same entry.
    Whole {
        /// Its length in bytes.
        len: u64,
    },
    /// In entries of its own, one for each chunk.
    Chunks {
        /// Length of the whole in bytes.
        len: u64,
        /// Names this representation's chunks in [`crate::key::chunk_key`].
        representation: u64,
    },
}

/// A response's head as it was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its status.
    pub status: StatusCode,
    /// Its fields, hop-by-hop ones included or not.
    pub fields: HeaderMap,
    /// When the request for it was sent.
    pub request_time: Timestamp,
    /// When it was received.
    pub response_time: Timestamp,
}

/// A stored response's head.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredHead {
    status: StatusCode,
    fields: HeaderMap,
    age_secs: u32,
    request_time: Timestamp,
    body: BodyPlace,
    selecting: Selecting,
    freshness: Freshness,
    has_entity_tag: bool,
    /// See [`StoredHead::purge_count`].
    purge_count: u64,
    /// What its fields were, and those of its updates will be, read by.
    targets: TargetList,
}

impl StoredHead {
    /// The head to store for a received response (RFC 9111 3.1): without hop-by-hop fields, without the
    /// fields that `private` and `no-cache` name, with a valid Date (RFC 9110 6.6.1).
    pub fn new(received: Received, body: BodyPlace, selecting: Selecting, targets: &TargetList) -> Self {
        let Received { status, mut fields, request_time, response_time } = received;
        strip_hop_by_hop(&mut fields);
        let age_secs = received_age(&fields);
        fields.remove(AGE);
        let date = single(&fields, &DATE).and_then(|date| parse_http_date(date.as_bytes(), response_time));
        if date.is_none() {
            fields.insert(DATE, format_http_date(response_time));
        }
        let directives = ResponseDirectives::from_fields(&fields, targets);
        for name in &directives.withheld {
            fields.remove(name);
        }
        let answered_cookie = selecting.answered_cookie();
        let receipt = Receipt { status, age_secs, request_time, response_time, answered_cookie };
        Self::from_parts(&receipt, fields, body, selecting, targets)
    }

    /// This head, in memory of its own: see [`crate::fields::detach`].
    pub fn detached(mut self) -> Self {
        detach(&mut self.fields);
        self
    }

    /// This head with the body elsewhere.
    pub fn with_body(self, body: BodyPlace) -> Self {
        Self { body, ..self }
    }

    /// This head, of a response that was asked for after so many purges.
    pub fn after_purges(self, purge_count: u64) -> Self {
        Self { purge_count, ..self }
    }

    /// This head, of a response that is stale from `moment` on whatever else it says of its freshness, because it was purged softly.
    /// That is not stored with it: whoever finds it again finds out again.
    pub fn stale_since(self, moment: Timestamp) -> Self {
        let freshness = self.freshness.stale_since(moment);
        Self { freshness, ..self }
    }

    /// How many purges there had been when the origin was asked for it, or last confirmed it. A count, as a clock may be set back.
    pub fn purge_count(&self) -> u64 {
        self.purge_count
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The end-to-end fields as received, without Age.
    pub fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    /// The fields, for a caller that needs nothing else any more.
    pub fn into_fields(self) -> HeaderMap {
        self.fields
    }

    /// The Age that it was received with, in seconds.
    pub fn age_secs(&self) -> u32 {
        self.age_secs
    }

    /// When the request was sent that this head was received, or last validated, by.
    pub fn request_time(&self) -> Timestamp {
        self.request_time
    }

    /// When this head was received or last validated.
    pub fn response_time(&self) -> Timestamp {
        self.freshness.response_time
    }

    /// Where the body lies.
    pub fn body(&self) -> BodyPlace {
        self.body
    }

    /// The selecting fields of the request it was stored for.
    pub fn selecting(&self) -> &Selecting {
        &self.selecting
    }

    /// Whether the request's selecting fields are those it was stored for (RFC 9111 4.1).
    pub fn matches(&self, request_fields: &HeaderMap, settings: &Settings) -> bool {
        self.selecting.matches(request_fields, settings)
    }

    /// What it says about its own freshness.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// The well-formed entity tag, if there is one.
    pub fn entity_tag(&self) -> Option<EntityTag<'_>> {
        EntityTag::parse(self.entity_tag_value()?.as_bytes())
    }

    /// Whether the origin can be asked if it still holds (RFC 9111 4.3.1).
    pub fn has_validator(&self) -> bool {
        self.has_entity_tag || self.freshness.last_modified.is_some()
    }

    /// The first moment it is not fresh any more.
    pub fn fresh_until(&self, settings: &Settings) -> Timestamp {
        let left = self.freshness.lifetime_millis(settings).saturating_sub(self.freshness.initial_age_millis);
        self.response_time().plus_millis(left)
    }

    pub(crate) fn targets(&self) -> &TargetList {
        &self.targets
    }

    pub(crate) fn entity_tag_value(&self) -> Option<&HeaderValue> {
        if self.has_entity_tag { self.fields.get(ETAG) } else { None }
    }

    fn from_parts(
        receipt: &Receipt,
        fields: HeaderMap,
        body: BodyPlace,
        selecting: Selecting,
        targets: &TargetList,
    ) -> Self {
        let directives = ResponseDirectives::from_fields(&fields, targets);
        let has_entity_tag = single(&fields, &ETAG).is_some_and(|tag| EntityTag::parse(tag.as_bytes()).is_some());
        Self {
            status: receipt.status,
            age_secs: receipt.age_secs,
            request_time: receipt.request_time,
            body,
            selecting,
            freshness: Freshness::new(receipt, &fields, &directives),
            has_entity_tag,
            purge_count: 0,
            targets: targets.clone(),
            fields,
        }
    }
}

impl BodyPlace {
    /// Length of the whole body in bytes.
    pub fn len(&self) -> u64 {
        match *self {
            Self::Whole { len } | Self::Chunks { len, .. } => len,
        }
    }

    /// Whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
