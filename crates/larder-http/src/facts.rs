//! Finds the fields that the caching rules read, in one pass over the head of a response, and one over its request.
//!
//! Owns: the places of these fields, and the directives for this cache. Invariant: a fact is what a search for the
//! field would find, so that every rule reads the same message. Cost: one pass, in which a field that no rule reads
//! takes a few comparisons. A search takes a hash of the name, and most fields that rules ask for are absent. Dates are
//! parsed only for rules that need them.

use http::{
    HeaderMap,
    header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, PRAGMA},
};

use crate::{
    DecodeError, Timestamp,
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
    /// The first line with the operator's ruling.
    ruling: Option<&'a [u8]>,
    /// Whether one of the fields is targeted at this cache.
    is_targeted: bool,
    /// Whether there is a Set-Cookie.
    pub(crate) sets_cookie: bool,
    /// Whether the response has a Vary, or an operator's ruling that may add one.
    pub(crate) varies: bool,
    /// Sum of the lengths of all names and values, in bytes.
    pub(crate) size_bytes: usize,
}

/// The facts in the fields of a request that decide which clients may get its response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestFacts {
    /// Whether there is an Authorization.
    pub(crate) has_credentials: bool,
    /// Whether there is a Cookie.
    pub(crate) has_cookie: bool,
    /// Whether there is a Cache-Control or a Pragma.
    pub(crate) has_directives: bool,
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
        let mut facts = Self::default();
        fields.lines().for_each(|(name, value)| facts.add(name, value, targets));
        facts.complete(fields, facts.ruling, targets);
        facts
    }

    /// Reads the fields of a stored response like [`Facts::of`], and applies the ruling that was stored with it.
    pub(crate) fn of_stored(fields: &'a impl Fields, ruling: &[u8], targets: &TargetList) -> Self {
        let mut facts = Self::default();
        fields.lines().for_each(|(name, value)| facts.add(name, value, targets));
        facts.complete(fields, Some(ruling), targets);
        facts
    }

    /// Reads the fields of a stored response like [`Facts::of_stored`]. `lines` checks the lines of `fields` in the
    /// same pass.
    pub(crate) fn of_unchecked(
        fields: &'a impl Fields,
        lines: impl Iterator<Item = Result<(&'a [u8], &'a [u8]), DecodeError>>,
        ruling: &[u8],
        targets: &TargetList,
    ) -> Result<Self, DecodeError> {
        let mut facts = Self::default();
        for line in lines {
            let (name, value) = line?;
            facts.add(name, value, targets);
        }
        facts.complete(fields, Some(ruling), targets);
        Ok(facts)
    }

    /// Takes the facts out of one line.
    #[inline]
    fn add(&mut self, name: &'a [u8], value: &'a [u8], targets: &TargetList) {
        self.size_bytes += name.len() + value.len();
        match name {
            b"age" => _ = self.age.get_or_insert(value),
            b"cache-control" => self.directives.add_line(value, targets),
            b"date" => self.date.add(value),
            b"etag" => self.entity_tag.add(value),
            b"expires" => self.expires.add(value),
            b"last-modified" => self.last_modified.add(value),
            b"set-cookie" => self.sets_cookie = true,
            b"vary" => self.varies = true,
            b"larder-ruling" => _ = self.ruling.get_or_insert(value),
            _ => self.is_targeted |= targets.has(name),
        }
    }

    /// Determines the directives after all lines were added: those of a targeted field, or of Cache-Control, as changed
    /// by the operator's ruling.
    fn complete(&mut self, fields: &impl Fields, ruling: Option<&[u8]>, targets: &TargetList) {
        if self.is_targeted
            && let Some(targeted) = targeted::directives(fields, targets)
        {
            self.directives = targeted;
        }
        if let Some(ruling) = ruling.and_then(Ruling::parse) {
            ruling.apply(&mut self.directives);
            self.varies = true;
        }
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

impl RequestFacts {
    /// Reads the fields of a request.
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let mut facts = Self::default();
        for name in fields.keys() {
            facts.has_credentials |= *name == AUTHORIZATION;
            facts.has_cookie |= *name == COOKIE;
            facts.has_directives |= *name == CACHE_CONTROL || *name == PRAGMA;
        }
        facts
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

#[cfg(test)]
mod tests {
    use http::{
        HeaderName, HeaderValue,
        header::{AGE, DATE, ETAG, EXPIRES, LAST_MODIFIED, SET_COOKIE, VARY},
    };
    use proptest::{collection::vec, prop_assert_eq, proptest, sample::select};

    use super::*;
    use crate::list::single;

    static NAMES: [HeaderName; 12] = [
        AGE,
        AUTHORIZATION,
        CACHE_CONTROL,
        COOKIE,
        DATE,
        ETAG,
        EXPIRES,
        LAST_MODIFIED,
        PRAGMA,
        SET_COOKIE,
        VARY,
        HeaderName::from_static("x-other"),
    ];

    proptest! {
        #[test]
        fn fact_is_what_a_search_finds(lines in vec((select(&NAMES[..]), "[a-c]?"), 0..8)) {
            let mut fields = HeaderMap::new();
            for (name, value) in &lines {
                fields.append(name.clone(), HeaderValue::from_str(value).unwrap());
            }
            let facts = Facts::of(&fields, &TargetList::default());
            let of = |field: SingleField<'_>| field.value().map(<[u8]>::to_vec);
            let found = |name| single(&fields, &name).map(|value| value.as_bytes().to_vec());
            let singles = [facts.date, facts.entity_tag, facts.expires, facts.last_modified].map(of);
            prop_assert_eq!(singles, [DATE, ETAG, EXPIRES, LAST_MODIFIED].map(found));
            prop_assert_eq!(facts.age, fields.get(AGE).map(HeaderValue::as_bytes));
            prop_assert_eq!(facts.has_expires(), fields.contains_key(EXPIRES));
            prop_assert_eq!((facts.sets_cookie, facts.varies), (fields.contains_key(SET_COOKIE), fields.contains_key(VARY)));
            let RequestFacts { has_credentials, has_cookie, has_directives } = RequestFacts::of(&fields);
            prop_assert_eq!((has_credentials, has_cookie), (fields.contains_key(AUTHORIZATION), fields.contains_key(COOKIE)));
            prop_assert_eq!(has_directives, fields.contains_key(CACHE_CONTROL) || fields.contains_key(PRAGMA));
        }
    }
}
