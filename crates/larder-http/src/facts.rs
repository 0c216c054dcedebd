//! Finds the fields of a response that the caching rules read, in one pass over its head.
//!
//! Owns: the places of these fields, and the directives for this cache. Invariant: a fact is what a search for the
//! field would find, so that every rule reads the same response. Cost: one pass, in which a field that no rule reads
//! takes a few comparisons. A search takes a hash of the name, and most fields that rules ask for are absent. Dates are
//! parsed only for rules that need them.

use http::HeaderMap;

use crate::{
    Timestamp,
    cache_control::ResponseDirectives,
    date::parse_http_date,
    decimal::parse_seconds,
    entity_tag::EntityTag,
    fields::Fields,
    list::trim,
    ruling::Ruling,
    targeted::{self, TargetList},
};

/// The facts for this cache in the fields of a response.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    /// The directives for this cache, as changed by an operator's rule.
    pub(crate) directives: ResponseDirectives,
    /// The first line of Age.
    age: Option<&'a [u8]>,
    date: SingleField<'a>,
    last_modified: SingleField<'a>,
    expires: SingleField<'a>,
    entity_tag: SingleField<'a>,
    /// Whether there is a Set-Cookie.
    pub(crate) sets_cookie: bool,
    /// Whether the response has a Vary, or an operator's ruling that may add one.
    pub(crate) varies: bool,
    /// Sum of the lengths of all names and values, in bytes.
    pub(crate) size_bytes: usize,
}

/// A field that may occur only once.
#[derive(Clone, Copy, Debug, Default)]
struct SingleField<'a> {
    first: Option<&'a [u8]>,
    is_repeated: bool,
}

impl<'a> Facts<'a> {
    /// Reads the fields of a received response. `targets` lists the targeted fields that the cache obeys.
    pub(crate) fn of(fields: &'a HeaderMap, targets: &TargetList) -> Self {
        let (facts, ruling) = Self::read(fields, targets);
        facts.under(ruling)
    }

    /// Reads the fields of a stored response like [`Facts::of`], and applies the ruling that was stored with it.
    pub(crate) fn of_stored(fields: &'a impl Fields, ruling: &[u8], targets: &TargetList) -> Self {
        let (facts, _) = Self::read(fields, targets);
        facts.under(Some(ruling))
    }

    /// Reads the fields. Also returns the operator's ruling if one of the fields holds it.
    fn read(fields: &'a impl Fields, targets: &TargetList) -> (Self, Option<&'a [u8]>) {
        let mut facts = Self::default();
        let mut is_targeted = false;
        let mut ruled = None;
        for (name, value) in fields.lines() {
            facts.size_bytes += name.len() + value.len();
            match name {
                b"age" => _ = facts.age.get_or_insert(value),
                b"cache-control" => facts.directives.add_line(value, targets),
                b"date" => facts.date.add(value),
                b"etag" => facts.entity_tag.add(value),
                b"expires" => facts.expires.add(value),
                b"last-modified" => facts.last_modified.add(value),
                b"set-cookie" => facts.sets_cookie = true,
                b"vary" => facts.varies = true,
                b"larder-ruling" => _ = ruled.get_or_insert(value),
                _ => is_targeted |= targets.has(name),
            }
        }
        if is_targeted && let Some(targeted) = targeted::directives(fields, targets) {
            facts.directives = targeted;
        }
        (facts, ruled)
    }

    /// Returns these facts after applying the operator's ruling, if there is one.
    fn under(mut self, ruling: Option<&[u8]>) -> Self {
        if let Some(ruling) = ruling.and_then(Ruling::parse) {
            ruling.apply(&mut self.directives);
            self.varies = true;
        }
        self
    }

    /// Returns the received Age in seconds (RFC 9111 5.1). The first value counts; an invalid value is ignored.
    pub(crate) fn age_secs(&self) -> u32 {
        let Some(line) = self.age else { return 0 };
        let first = line.split(|byte| *byte == b',').next().unwrap_or_default();
        parse_seconds(trim(first)).unwrap_or(0)
    }

    /// Returns whether the response has an Age field.
    pub(crate) fn has_age(&self) -> bool {
        self.age.is_some()
    }

    /// Returns the value of Date if it is valid. The time of receipt, `received`, determines the century of a two-digit
    /// year.
    pub(crate) fn date(&self, received: Timestamp) -> Option<Timestamp> {
        self.date.parse(received)
    }

    /// Returns Last-Modified, like [`Facts::date`].
    pub(crate) fn last_modified(&self, received: Timestamp) -> Option<Timestamp> {
        self.last_modified.parse(received)
    }

    /// Returns whether there is an Expires, valid or not.
    pub(crate) fn has_expires(&self) -> bool {
        self.expires.first.is_some()
    }

    /// Returns Expires, like [`Facts::date`].
    pub(crate) fn expires(&self, received: Timestamp) -> Option<Timestamp> {
        self.expires.parse(received)
    }

    /// Returns whether there is a well-formed entity tag.
    pub(crate) fn has_entity_tag(&self) -> bool {
        self.entity_tag.value().is_some_and(|tag| EntityTag::parse(tag).is_some())
    }
}

impl<'a> SingleField<'a> {
    fn add(&mut self, value: &'a [u8]) {
        self.is_repeated = self.first.is_some();
        self.first = self.first.or(Some(value));
    }

    /// Returns the value. `None` if the field is absent or repeated.
    fn value(self) -> Option<&'a [u8]> {
        self.first.filter(|_| !self.is_repeated)
    }

    fn parse(self, received: Timestamp) -> Option<Timestamp> {
        parse_http_date(self.value()?, received)
    }
}
