//! The head of a stored response: everything that a shared cache stores besides the body.
//!
//! The head holds the status, the end-to-end fields, the times of request and response, and the place of the body.
//! Everything that reuse needs is derived from them once. `encoding` has the byte format, `lines` the octets that are
//! sent. Invariants: the fields contain no Age, which is kept as a number and added to the age, no hop-by-hop field,
//! and always a valid Date. Derived values agree with the fields.

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{AGE, AUTHORIZATION, DATE, ETAG},
};

use crate::{
    SelectingFields, Settings, Timestamp, VaryMarker,
    cache_control::take_withheld,
    date::format_http_date,
    entity_tag::EntityTag,
    facts::Facts,
    fields::{Fields as _, is_hop_by_hop, strip_hop_by_hop},
    freshness::{Freshness, Receipt},
    ruling::Ruling,
    targeted::TargetList,
};

mod encoding;
mod lines;
mod packed;
mod reader;
mod short;

pub use crate::codec::DecodeError;
pub use lines::StoredFields;

/// Largest number of fields in a stored head.
pub(crate) const FIELD_COUNT_MAX: usize = 512;
/// Largest total length of the names and values of a stored head's fields, in bytes.
pub(crate) const FIELDS_SIZE_MAX: usize = 64 << 10;

/// The entry that is stored under a primary or variant key: a response, or the rules that lead to its variants.
///
/// ```
/// use larder_http::{Head, TargetList, VaryMarker, VaryRule};
///
/// let marker = VaryMarker::new(VaryRule::Fields([http::header::ACCEPT_LANGUAGE].into()));
/// let entry = Head::decode(marker.encode().into(), &TargetList::default())?;
/// assert_eq!(entry, Head::VaryMarker(marker));
/// # Ok::<(), larder_http::DecodeError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "taken apart as soon as it is decoded; a box would be one more allocation a hit"
)]
pub enum Head {
    /// A response.
    Response(StoredHead),
    /// The rules that lead to the resource's variants.
    VaryMarker(VaryMarker),
}

/// The place of a stored response's body. A body longer than one entry of the store is in chunks.
///
/// ```
/// use larder_http::BodyPlace;
///
/// assert_eq!(BodyPlace::Whole { len: 1000 }.len(), 1000);
/// assert_eq!(BodyPlace::Chunks { len: 1 << 30, representation: 7 }.len(), 1 << 30);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPlace {
    /// The body is in the same entry as the head.
    Whole {
        /// The body's length in bytes.
        len: u64,
    },
    /// The body is in entries of its own, one for each chunk.
    Chunks {
        /// Length of the whole body in bytes.
        len: u64,
        /// A number that identifies this representation. It is part of the keys of its chunks.
        representation: u64,
    },
}

/// A response's head as it was received, from which a [`StoredHead`] is made.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp, fields::Fields};
///
/// let now = Timestamp::from_secs(1_800_000_000);
/// let fields = HeaderMap::from_iter([(http::header::CONNECTION, "keep-alive".parse()?)]);
/// let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// let stored = StoredHead::new(received, BodyPlace::Whole { len: 0 }, Default::default(), &TargetList::default());
/// assert_eq!(stored.fields().first(&http::header::CONNECTION), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReceivedHead {
    /// The response's status.
    pub status: StatusCode,
    /// The response's fields, with or without hop-by-hop fields.
    pub fields: HeaderMap,
    /// When the request was sent.
    pub request_time: Timestamp,
    /// The time at which the head was received.
    pub response_time: Timestamp,
}

/// The facts in the fields of a received response that its stored head needs.
///
/// [`storable::decide`](crate::storable::decide) returns it for a response that may be stored, so that
/// [`StoredHead::split`](crate::StoredHead::split) need not read the fields again.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode, header::CACHE_CONTROL};
/// use larder_http::{
///     BodyPlace, ReceivedHead, Settings, Storability, StoredHead, Timestamp,
///     storable::{self, Exchange},
/// };
///
/// let (now, settings) = (Timestamp::from_secs(1_800_000_000), Settings::default());
/// let fields = HeaderMap::from_iter([(CACHE_CONTROL, "max-age=60".parse()?)]);
/// let exchange = Exchange {
///     method: &Method::GET,
///     request_fields: &HeaderMap::new(),
///     status: StatusCode::OK,
///     response_fields: &fields,
///     request_time: now,
///     response_time: now,
/// };
/// let Storability::Store { rule, facts, .. } = storable::decide(&exchange, &settings) else { panic!("it is fresh") };
/// let selecting = rule.select(&HeaderMap::new(), &settings).expect("it does not vary");
/// let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// let place = BodyPlace::Whole { len: 0 };
/// let (head, _) = StoredHead::split(received, Some(facts), place, selecting, &settings.targets);
/// assert_eq!(head.freshness().lifetime_millis(&settings), 60_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFacts {
    receipt: Receipt,
    derived: DerivedFacts,
    /// Whether there is an Age.
    has_age: bool,
    /// Whether there is a valid Date.
    has_date: bool,
    /// The names of the fields that `private` and `no-cache` name.
    withheld: Vec<HeaderName>,
}

impl ReceivedFacts {
    /// Keeps what was read from the fields of a response, and derived from it.
    pub(crate) fn new(receipt: Receipt, facts: Facts<'_>, derived: DerivedFacts) -> Self {
        Self {
            receipt,
            derived,
            has_age: facts.has_age(),
            has_date: facts.date(receipt.response_time).is_some(),
            withheld: facts.directives.withheld,
        }
    }
}

impl ReceivedHead {
    /// Reads the fields. `answered_cookie` says that the request had a Cookie that selects no variant.
    fn facts(&self, answered_cookie: bool, targets: &TargetList) -> ReceivedFacts {
        let facts = Facts::of(&self.fields, targets);
        let Self { status, request_time, response_time, .. } = *self;
        let age_secs = facts.age_secs();
        let receipt = Receipt { status, age_secs, request_time, response_time, answered_cookie };
        let derived = DerivedFacts::of(&receipt, &facts);
        ReceivedFacts::new(receipt, facts, derived)
    }
}

/// A stored response's head.
///
/// ```
/// # use http::{HeaderMap, StatusCode};
/// use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList};
/// # let mut fields = HeaderMap::new();
/// # fields.insert("cache-control", "max-age=60".parse()?);
/// # fields.insert("etag", "\"v1\"".parse()?);
/// # let now = larder_http::Timestamp::from_secs(1_800_000_000);
/// let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// let body = BodyPlace::Whole { len: 1000 };
/// let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
///
/// // The bytes are what a store keeps. A head that is read again has its freshness parsed.
/// let read = StoredHead::decode(stored.encode().into(), &TargetList::default())?;
/// assert_eq!(read.body().len(), 1000);
/// assert!(read.has_validator());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct StoredHead {
    fields: StoredFields,
    age_secs: u32,
    request_time: Timestamp,
    body: BodyPlace,
    selecting: SelectingFields,
    freshness: Freshness,
    has_entity_tag: bool,
    /// See [`StoredHead::purge_count`].
    purge_count: u64,
    /// The targeted fields that the directives of this head, and of later updates, are read from.
    targets: TargetList,
}

impl StoredHead {
    /// Creates the head to store for a received response (RFC 9111 3.1).
    ///
    /// Hop-by-hop fields, and those that `private` and `no-cache` name, are left out. A valid Date is added if it is
    /// missing (RFC 9110 6.6.1).
    pub fn new(mut received: ReceivedHead, body: BodyPlace, selecting: SelectingFields, targets: &TargetList) -> Self {
        strip_hop_by_hop(&mut received.fields);
        Self::split(received, None, body, selecting, targets).0
    }

    /// Creates the head to store for a received response without hop-by-hop fields, and also returns the fields that
    /// `private` and `no-cache` name. Only the client whose request fetched the response receives them (RFC 9111
    /// 5.2.2.4, 5.2.2.7).
    ///
    /// `facts` are those that the decision to store the response returned. `None` if the fields have changed since.
    pub fn split(
        received: ReceivedHead,
        facts: Option<ReceivedFacts>,
        body: BodyPlace,
        selecting: SelectingFields,
        targets: &TargetList,
    ) -> (Self, HeaderMap) {
        let answered_cookie = selecting.answered_cookie();
        let known = facts.filter(|facts| facts.receipt.answered_cookie == answered_cookie);
        let facts = known.unwrap_or_else(|| received.facts(answered_cookie, targets));
        let ReceivedHead { mut fields, response_time, .. } = received;
        debug_assert!(!fields.keys().any(is_hop_by_hop), "the fields are end-to-end");
        let ReceivedFacts { receipt, mut derived, has_age, has_date, withheld } = facts;
        if has_age {
            fields.remove(AGE);
        }
        if !has_date {
            fields.insert(DATE, format_http_date(response_time));
        }
        let own = take_withheld(&withheld, &mut fields);
        let fields = StoredFields::of(&fields);
        if !own.is_empty() {
            // One of them may have been a field with directives. A stored head is read again without it.
            derived = DerivedFacts::of(&receipt, &Facts::of_stored(&fields, fields.ruling_text(), targets));
        }
        (Self::from_parts(&receipt, fields, selecting, targets, derived).with_body(body), own)
    }

    /// Returns this head with another body.
    pub fn with_body(self, body: BodyPlace) -> Self {
        Self { body, ..self }
    }

    /// Returns this head with `purge_count`, the number of purges that had been made when the response was requested.
    pub fn after_purges(self, purge_count: u64) -> Self {
        Self { purge_count, ..self }
    }

    /// Returns this head, stale from `moment` on because of a soft purge, whatever its fields say.
    ///
    /// The purge is not stored with the head. Each lookup finds it again.
    pub fn stale_since(self, moment: Timestamp) -> Self {
        let freshness = self.freshness.stale_since(moment);
        Self { freshness, ..self }
    }

    /// Returns this head, changed so that it must be validated before every use, whatever its fields say.
    ///
    /// Used while purges of other nodes that may concern the response are not known yet.
    pub fn unconfirmed(self) -> Self {
        let mut freshness = self.freshness;
        // A response that says no-cache itself has the same reason as ever.
        freshness.is_unconfirmed = !freshness.no_cache;
        freshness.no_cache = true;
        Self { freshness, ..self }
    }

    /// Returns this head for requests with a Cookie that are exempt from the lifetime of an operator's rule: with the
    /// lifetime that the origin states. `None` if the rule ignores the origin's directives against sharing.
    pub fn for_cookies(&self) -> Option<Self> {
        let ruling = self.fields.ruling().unwrap_or_default();
        if ruling.ignored.private || ruling.ignored.no_store || ruling.ignored.set_cookie {
            return None;
        }
        let fields = self.fields.with_ruling(&ruling.for_cookies());
        let receipt = Receipt {
            status: self.status(),
            age_secs: self.age_secs,
            request_time: self.request_time,
            response_time: self.response_time(),
            answered_cookie: self.selecting.answered_cookie(),
        };
        let derived = DerivedFacts::of(&receipt, &Facts::of_stored(&fields, fields.ruling_text(), &self.targets));
        let selecting = self.selecting.clone();
        let head = Self::from_parts(&receipt, fields, selecting, &self.targets, derived).with_body(self.body);
        let freshness = head.freshness.purged_like(&self.freshness);
        Some(Self { freshness, purge_count: self.purge_count, ..head })
    }

    /// Returns the number of purges that had been made when the response was last fetched or validated.
    ///
    /// Only later purges concern the response. A count tells earlier from later ones even if the clock is set back.
    pub fn purge_count(&self) -> u64 {
        self.purge_count
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.freshness.status
    }

    /// Returns the end-to-end fields as received, without Age and Content-Length.
    pub fn fields(&self) -> &StoredFields {
        &self.fields
    }

    /// Returns the operator's ruling on the response, if there is one.
    pub fn ruling(&self) -> Option<Ruling> {
        self.fields.ruling()
    }

    /// Returns the received Age in seconds.
    pub fn age_secs(&self) -> u32 {
        self.age_secs
    }

    /// Returns the time of the request that fetched or last validated this response.
    pub fn request_time(&self) -> Timestamp {
        self.request_time
    }

    /// Returns the time at which this head was received or last validated.
    pub fn response_time(&self) -> Timestamp {
        self.freshness.response_time
    }

    /// Returns where the body is stored.
    pub fn body(&self) -> BodyPlace {
        self.body
    }

    /// Returns the selecting fields of the request for which the response was stored.
    pub fn selecting(&self) -> &SelectingFields {
        &self.selecting
    }

    /// Returns whether a request has the selecting fields for which the response was stored (RFC 9111 4.1).
    ///
    /// In a private cache, a request with credentials matches only a response that was stored for these credentials.
    pub fn matches(&self, request_fields: &HeaderMap, settings: &Settings) -> bool {
        let is_for_user = settings.targets.is_private() && request_fields.contains_key(AUTHORIZATION);
        (!is_for_user || self.selecting.has(&AUTHORIZATION)) && self.selecting.matches(request_fields, settings)
    }

    /// Returns the response's freshness.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// Returns the entity tag, if it is well-formed.
    pub fn entity_tag(&self) -> Option<EntityTag<'_>> {
        EntityTag::parse(self.entity_tag_value()?)
    }

    /// Returns whether the origin can validate the response (RFC 9111 4.3.1).
    pub fn has_validator(&self) -> bool {
        self.has_entity_tag || self.freshness.last_modified.is_some()
    }

    /// Returns the first moment at which the response is not fresh.
    pub fn fresh_until(&self, settings: &Settings) -> Timestamp {
        let left = self.freshness.lifetime_millis(settings).saturating_sub(self.freshness.initial_age_millis);
        self.response_time().plus_millis(left)
    }

    pub(crate) fn targets(&self) -> &TargetList {
        &self.targets
    }

    pub(crate) fn entity_tag_value(&self) -> Option<&[u8]> {
        if self.has_entity_tag { self.fields.first(&ETAG) } else { None }
    }

    /// Creates a head with an empty body.
    fn from_parts(
        receipt: &Receipt,
        fields: StoredFields,
        selecting: SelectingFields,
        targets: &TargetList,
        derived: DerivedFacts,
    ) -> Self {
        let DerivedFacts { freshness, has_entity_tag } = derived;
        Self {
            age_secs: receipt.age_secs,
            request_time: receipt.request_time,
            body: BodyPlace::Whole { len: 0 },
            selecting,
            freshness,
            has_entity_tag,
            purge_count: 0,
            targets: targets.clone(),
            fields,
        }
    }
}

/// The values of a stored head that follow from its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DerivedFacts {
    pub(crate) freshness: Freshness,
    pub(crate) has_entity_tag: bool,
}

impl DerivedFacts {
    pub(crate) fn of(receipt: &Receipt, facts: &Facts<'_>) -> Self {
        Self { freshness: Freshness::new(receipt, facts), has_entity_tag: facts.has_entity_tag() }
    }
}

impl BodyPlace {
    /// Returns the length of the whole body in bytes.
    pub fn len(&self) -> u64 {
        match *self {
            Self::Whole { len } | Self::Chunks { len, .. } => len,
        }
    }

    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
