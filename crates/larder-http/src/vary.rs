//! Selects among the variants of one resource (RFC 9111 4.1, RFC 9110 12.5.5).
//!
//! A resource whose responses vary has a [`VaryMarker`] under its primary key. The marker lists the most recent rules.
//! Each variant is stored under a key made of the rule and the request's selecting fields.
//!
//! Fields are compared in a normal form: lines are joined with commas, and every comma outside quotes has the same
//! white space around it. If the operator asks for it, Accept-Language is compared without case and white space.
//! Selecting fields also record whether the request had a Cookie on which the response does not vary, because that
//! restricts heuristics (see `freshness`). Cost: matching compares octets, and allocates only if they differ from the
//! stored normal form.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT_LANGUAGE, COOKIE, FORWARDED, VARY},
};

use crate::{
    Settings,
    cache_control::quoted_string_length,
    facts::Facts,
    list,
    ruling::Ruling,
    steps,
    telling::{FORWARDED_TARGET, is_identity, is_telling},
};

/// Largest number of selecting fields in a rule. A response that names more counts as `Vary: *`.
pub const SELECTING_COUNT_MAX: usize = 16;
/// Largest number of rules in a marker. Adding one more drops the oldest rule, and its variants are lost.
pub const RULE_COUNT_MAX: usize = 4;

/// The fields on which a response varies.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::{Settings, VaryRule};
///
/// let mut response = HeaderMap::new();
/// response.insert("vary", "Accept-Language".parse()?);
/// let rule = VaryRule::from_fields(&response);
///
/// // The stored response matches requests with the same value, and no others.
/// let mut request = HeaderMap::new();
/// request.insert("accept-language", "de".parse()?);
/// let selecting = rule.select(&request, &Settings::default()).expect("it is not `*`");
/// assert!(selecting.matches(&request, &Settings::default()));
/// assert!(!selecting.matches(&HeaderMap::new(), &Settings::default()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VaryRule {
    /// The named request fields, sorted and without duplicates. If empty, every request matches.
    Fields(Box<[HeaderName]>),
    /// The response varies on something outside the request, so no request ever matches.
    Star,
}

/// The selecting fields of the request whose response was stored: sorted by name, in normal form.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::{Settings, VaryRule};
///
/// let rule = VaryRule::Fields([http::header::ACCEPT_LANGUAGE].into());
/// let request = |value: &'static str| HeaderMap::from_iter([(http::header::ACCEPT_LANGUAGE, value.parse().unwrap())]);
/// let stored = rule.select(&request("de,  en"), &Settings::default()).expect("the rule is not `*`");
/// assert!(stored.matches(&request("de, en"), &Settings::default()), "white space does not count");
/// assert!(!stored.matches(&request("en, de"), &Settings::default()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectingFields {
    fields: Vec<(HeaderName, Option<Bytes>)>,
    answered_cookie: bool,
}

/// The rules of one resource's stored variants, newest first.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::{VaryMarker, VaryRule};
///
/// let rule = |vary: &str| -> Result<VaryRule, Box<dyn std::error::Error>> {
///     let mut fields = HeaderMap::new();
///     fields.insert("vary", vary.parse()?);
///     Ok(VaryRule::from_fields(&fields))
/// };
/// // The origin began to vary on the language.
/// let marker = VaryMarker::new(rule("accept-encoding")?).with(rule("accept-language")?);
/// assert_eq!(marker.rules(), [rule("accept-language")?, rule("accept-encoding")?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaryMarker(Vec<VaryRule>);

impl VaryRule {
    /// Returns the rule of a response's Vary field.
    ///
    /// A `*`, or an element that is not a field name, makes it [`VaryRule::Star`]. An operator's rule may ignore or add
    /// elements.
    pub fn from_fields(response_fields: &HeaderMap) -> Self {
        let names: Result<Vec<_>, _> = list::tokens(response_fields, &VARY).map(parse_name).collect();
        let Ok(mut names) = names else { return Self::Star };
        if let Some(ruling) = Ruling::of(response_fields) {
            names.retain(|name| !ruling.ignored.vary.contains(name));
            names.extend(ruling.varies);
        }
        Self::from_names(names)
    }

    /// Returns the same as [`VaryRule::from_fields`]. Skips the search for Vary if the facts about the response say
    /// that it has none.
    pub(crate) fn of(facts: &Facts<'_>, response_fields: &HeaderMap) -> Self {
        if facts.varies { Self::from_fields(response_fields) } else { Self::Fields(Box::default()) }
    }

    /// Returns the rule for storing a response: its own Vary, and the request fields of [`crate::telling`].
    ///
    /// So a response to a request with such a field never answers a request without it.
    pub fn for_exchange(request_fields: &HeaderMap, response_fields: &HeaderMap) -> Self {
        Self::from_fields(response_fields).with_told(request_fields)
    }

    /// Returns this rule with those fields of the request added that [`crate::telling`] lists.
    pub(crate) fn with_told(self, request_fields: &HeaderMap) -> Self {
        let told: Vec<_> = told(request_fields).cloned().collect();
        if told.is_empty() { self } else { self.and(&Self::from_names(told)) }
    }

    /// Returns a rule with the fields of both rules.
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Fields(names), Self::Fields(others)) => Self::from_names([&names[..], &others[..]].concat()),
            _ => Self::Star,
        }
    }

    /// Returns whether the response does not vary, so that every request matches.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Fields(names) if names.is_empty())
    }

    /// Returns whether all fields on which the response varies name a user (see [`crate::telling::IDENTITY_FIELDS`]).
    pub fn is_of_users(&self) -> bool {
        matches!(self, Self::Fields(names) if !names.is_empty() && names.iter().all(is_identity))
    }

    /// Returns the request's selecting fields under this rule. `None` if the rule is `*`.
    pub fn select(&self, request_fields: &HeaderMap, settings: &Settings) -> Option<SelectingFields> {
        let Self::Fields(names) = self else { return None };
        let selected = names.iter().map(|name| {
            let value = normal_form(name, request_fields, settings);
            (name.clone(), value.map(Bytes::from))
        });
        let answered_cookie = request_fields.contains_key(COOKIE) && !names.contains(&COOKIE);
        Some(SelectingFields { fields: selected.collect(), answered_cookie })
    }

    pub(crate) fn from_names(mut names: Vec<HeaderName>) -> Self {
        names.sort_unstable_by(|left, right| left.as_str().cmp(right.as_str()));
        names.dedup();
        if names.len() > SELECTING_COUNT_MAX { Self::Star } else { Self::Fields(names.into()) }
    }
}

impl SelectingFields {
    /// Returns whether a request has these selecting fields (RFC 9111 4.1), and has no identity field (see
    /// [`crate::telling::IDENTITY_FIELDS`]) that is missing from them.
    pub fn matches(&self, request_fields: &HeaderMap, settings: &Settings) -> bool {
        let names_other_user = || request_fields.keys().any(|name| is_identity(name) && !self.has(name));
        let is_selected = self.fields.iter().all(|(name, stored)| {
            let Some(stored) = stored else { return !is_in(request_fields, name) };
            // Most requests have exactly the stored octets, and normalizing a normal form does not change it.
            list::single(request_fields, name).is_some_and(|value| value.as_bytes() == stored)
                || normal_form(name, request_fields, settings).is_some_and(|value| value == *stored)
        });
        is_selected && !names_other_user()
    }

    /// Returns whether these fields include every field of the request that [`crate::telling`] lists.
    ///
    /// If they do not, the response may have been made for this request alone, so it must not change anything for
    /// others.
    pub fn cover_what_is_told(&self, request_fields: &HeaderMap) -> bool {
        told(request_fields).all(|name| self.has(name))
    }

    /// Returns whether these fields include every field of a rule.
    pub fn cover(&self, rule: &VaryRule) -> bool {
        matches!(rule, VaryRule::Fields(names) if names.iter().all(|name| self.has(name)))
    }

    /// Returns the selecting fields of a stored response after a 304 confirmed it for this request (RFC 9111 4.1,
    /// 4.3.4).
    ///
    /// If these fields already cover `rule`, they are returned unchanged. Otherwise the 304 has a wider Vary, and the
    /// request's values of the additional fields are added. `None` if no request can match. Invariant: a request that
    /// matches the result also matches `self`.
    pub fn renewed(&self, rule: &VaryRule, request_fields: &HeaderMap, settings: &Settings) -> Option<Self> {
        if self.cover(rule) {
            return Some(self.clone());
        }
        let selected = self.rule().and(rule).select(request_fields, settings)?;
        let answered_cookie = self.answered_cookie && !selected.has(&COOKIE);
        Some(Self { answered_cookie, ..selected })
    }

    /// Returns whether the request had a Cookie that is not a selecting field. The response may then be meant for its
    /// client alone, even if it does not say so.
    pub fn answered_cookie(&self) -> bool {
        self.answered_cookie
    }

    /// Iterates over names and values. The value is `None` for a field that the request did not have.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&HeaderName, Option<&Bytes>)> {
        self.fields.iter().map(|(name, value)| (name, value.as_ref()))
    }

    /// Returns the rule by which these fields were selected.
    pub fn rule(&self) -> VaryRule {
        VaryRule::Fields(self.fields.iter().map(|(name, _)| name.clone()).collect())
    }

    pub(crate) fn has(&self, name: &HeaderName) -> bool {
        self.fields.iter().any(|(selecting, _)| selecting == name)
    }

    /// Returns the parts to store. If the request had a Cookie that is not a selecting field, an additional part
    /// records this under a name that no field can have.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&HeaderName, Option<&Bytes>)> {
        self.iter().chain(self.answered_cookie.then_some((&ANSWERED_COOKIE, None)))
    }

    /// Restores the selecting fields from their [`SelectingFields::parts`].
    pub(crate) fn from_parts(mut parts: Vec<(HeaderName, Option<Bytes>)>) -> Self {
        let count = parts.len();
        parts.retain(|(name, _)| *name != ANSWERED_COOKIE);
        Self { answered_cookie: parts.len() < count, fields: parts }
    }
}

impl VaryMarker {
    /// Creates a marker with one rule.
    pub fn new(rule: VaryRule) -> Self {
        Self(vec![rule])
    }

    /// Returns this marker with `rule` as the newest.
    pub fn with(&self, rule: VaryRule) -> Self {
        let older = self.0.iter().filter(|known| **known != rule).take(RULE_COUNT_MAX - 1).cloned();
        let mut rules = Vec::with_capacity(RULE_COUNT_MAX);
        rules.extend(older);
        rules.insert(0, rule);
        Self(rules)
    }

    /// Returns the rules, newest first.
    pub fn rules(&self) -> &[VaryRule] {
        &self.0
    }

    pub(crate) fn from_rules(rules: Vec<VaryRule>) -> Self {
        Self(rules)
    }
}

fn parse_name(element: &[u8]) -> Result<HeaderName, ()> {
    match HeaderName::from_bytes(element) {
        Ok(name) if element != b"*" && name != FORWARDED_TARGET && name != ANSWERED_COOKIE => Ok(name),
        _ => Err(()),
    }
}

/// Iterates over the names of the request's fields that are listed in [`crate::telling`].
fn told(fields: &HeaderMap) -> impl Iterator<Item = &HeaderName> {
    fields.keys().filter_map(|name| match name {
        name if is_telling(name) || is_identity(name) => Some(name),
        &FORWARDED => forwarded_target(fields).map(|_| &FORWARDED_TARGET),
        _ => None,
    })
}

fn is_in(fields: &HeaderMap, name: &HeaderName) -> bool {
    if *name == FORWARDED_TARGET { forwarded_target(fields).is_some() } else { fields.contains_key(name) }
}

/// Returns the normal form of a request field. `None` if the request lacks it.
fn normal_form(name: &HeaderName, fields: &HeaderMap, settings: &Settings) -> Option<Vec<u8>> {
    if *name == FORWARDED_TARGET {
        return forwarded_target(fields);
    }
    steps::take(fields.get_all(name).iter().map(|line| line.len()).sum());
    fields.contains_key(name).then(|| {
        if settings.normalize_language && *name == ACCEPT_LANGUAGE {
            return languages(fields);
        }
        let mut joined = Vec::new();
        for (index, line) in fields.get_all(name).iter().enumerate() {
            if index > 0 {
                joined.extend_from_slice(SEPARATOR);
            }
            if settings.normalize_vary {
                push_tightened(&mut joined, line.as_bytes())
            } else {
                joined.extend(line.as_bytes())
            }
        }
        joined
    })
}

/// Returns the `host` and `proto` parameters of Forwarded, in their order. `None` if there are none.
///
/// If a quote is not closed (RFC 7239 4), the remainder of the line is returned unparsed, because an origin may
/// interpret it in any way.
fn forwarded_target(fields: &HeaderMap) -> Option<Vec<u8>> {
    let mut told = Vec::new();
    for line in fields.get_all(FORWARDED) {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let Some(len) = forwarded_pair_length(rest) else {
                told.extend_from_slice(rest);
                break;
            };
            let (pair, after) = rest.split_at(len);
            rest = after.get(1..).unwrap_or_default();
            let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len()));
            let name = list::trim(name).to_ascii_lowercase();
            if matches!(name.as_slice(), b"host" | b"proto") {
                told.extend_from_slice(&name);
                told.extend_from_slice(value);
                told.push(b';');
            }
        }
    }
    (!told.is_empty()).then_some(told)
}

/// Returns the length up to the next `;` or `,` outside quotes. `None` if quotes do not close.
fn forwarded_pair_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b';' | b',' => break,
            b'"' => at += quoted_string_length(&text[at..])?,
            _ => at += 1,
        }
    }
    Some(at)
}

/// Returns the language ranges of a request in lower case, without white space. Their order is kept: many origins
/// choose the first among ranges of equal weight.
fn languages(fields: &HeaderMap) -> Vec<u8> {
    let tighten = |range: &[u8]| -> Vec<u8> {
        range.iter().filter(|byte| !byte.is_ascii_whitespace()).map(u8::to_ascii_lowercase).collect()
    };
    list::tokens(fields, &ACCEPT_LANGUAGE).map(tighten).collect::<Vec<_>>().join(SEPARATOR)
}

/// Appends a line. Outside quotes, each comma is followed by one space, and other white space around it is dropped.
fn push_tightened(joined: &mut Vec<u8>, line: &[u8]) {
    let line_start = joined.len();
    let mut quoted = false;
    let mut escaped = false;
    let mut after_comma = true;
    for byte in line {
        match byte {
            b' ' | b'\t' if after_comma => continue,
            b',' if !quoted => {
                while joined.len() > line_start && matches!(joined.last(), Some(b' ' | b'\t')) {
                    joined.pop();
                }
            }
            b'"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = quoted && *byte == b'\\' && !escaped;
        after_comma = !quoted && *byte == b',';
        if after_comma { joined.extend_from_slice(SEPARATOR) } else { joined.push(*byte) }
    }
}

/// Separator of elements in normal form. Nearly all clients send this separator, so their values need no rewriting.
const SEPARATOR: &[u8] = b", ";
/// The name of the stored part that records that the request had a Cookie that is not a selecting field.
static ANSWERED_COOKIE: HeaderName = HeaderName::from_static("!answered-cookie");
