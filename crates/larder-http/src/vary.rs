//! Selecting among the variants of one resource (RFC 9111 4.1, RFC 9110 12.5.5).
//!
//! A resource whose responses vary has a [`VaryMarker`] under its primary key, which lists the rules seen
//! last, and each variant under a key made of the rule and the request's selecting fields. Fields are
//! compared in a normal form: lines joined with a comma, the same white space around all commas outside
//! quotes; if the operator says so, Accept-Language also without case and white space. Selecting fields also say whether
//! the request had a Cookie that selects nothing, for what may be guessed about such a response (see `freshness`).
//! Cost: matching compares octets and allocates only when they differ from the stored normal form.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT_LANGUAGE, COOKIE, FORWARDED, VARY},
};

use crate::{
    Settings,
    cache_control::quoted_string_length,
    list,
    ruling::Ruling,
    telling::{FORWARDED_TARGET, is_telling},
};

/// Most selecting fields of one rule; a response that names more is taken as `*`.
pub const SELECTING_COUNT_MAX: usize = 16;
/// Most rules a marker lists; an older one is forgotten, and its variants with it.
pub const RULE_COUNT_MAX: usize = 4;

/// What a response says it varies on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VaryRule {
    /// The named request fields: sorted, each once. None of them: every request matches.
    Fields(Box<[HeaderName]>),
    /// Something outside the request: no request ever matches.
    Star,
}

/// The selecting fields of the request a response was stored for, sorted by name, in normal form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selecting {
    fields: Vec<(HeaderName, Option<Bytes>)>,
    answered_cookie: bool,
}

/// The rules of one resource's stored variants, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaryMarker(Vec<VaryRule>);

impl VaryRule {
    /// The rule of a response's Vary field. A `*` anywhere among its elements, or an element that names no
    /// field, makes it [`VaryRule::Star`]. What an operator's rule does not heed of it is left out, and
    /// what it names besides is in it.
    pub fn from_fields(response_fields: &HeaderMap) -> Self {
        let names: Result<Vec<_>, _> = list::tokens(response_fields, &VARY).map(parse_name).collect();
        let Ok(mut names) = names else { return Self::Star };
        if let Some(ruling) = Ruling::of(response_fields) {
            names.retain(|name| !ruling.ignored.vary.contains(name));
            names.extend(ruling.varies);
        }
        Self::from_names(names)
    }

    /// The rule for storing the answer to a request: the response's own, and with it the fields of the request that tell its
    /// origin what it is about (see [`crate::telling`]), so that they change what is stored for nobody but those who send
    /// them too.
    pub fn for_exchange(request_fields: &HeaderMap, response_fields: &HeaderMap) -> Self {
        let rule = Self::from_fields(response_fields);
        let told: Vec<_> = told(request_fields).cloned().collect();
        if told.is_empty() { rule } else { rule.and(&Self::from_names(told)) }
    }

    /// The rule that names what either of the two names.
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Fields(names), Self::Fields(others)) => Self::from_names([&names[..], &others[..]].concat()),
            _ => Self::Star,
        }
    }

    /// Whether every request matches: the response does not vary.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Fields(names) if names.is_empty())
    }

    /// The request's selecting fields under this rule; none under `*`.
    pub fn select(&self, request_fields: &HeaderMap, settings: &Settings) -> Option<Selecting> {
        let Self::Fields(names) = self else { return None };
        let selected = names.iter().map(|name| {
            let value = normal_form(name, request_fields, settings);
            (name.clone(), value.map(Bytes::from))
        });
        let answered_cookie = request_fields.contains_key(COOKIE) && !names.contains(&COOKIE);
        Some(Selecting { fields: selected.collect(), answered_cookie })
    }

    pub(crate) fn from_names(mut names: Vec<HeaderName>) -> Self {
        names.sort_unstable_by(|left, right| left.as_str().cmp(right.as_str()));
        names.dedup();
        if names.len() > SELECTING_COUNT_MAX { Self::Star } else { Self::Fields(names.into()) }
    }
}

impl Selecting {
    /// Whether a request's selecting fields are these (RFC 9111 4.1).
    pub fn matches(&self, request_fields: &HeaderMap, settings: &Settings) -> bool {
        self.fields.iter().all(|(name, stored)| {
            let Some(stored) = stored else { return !is_in(request_fields, name) };
            // The usual request repeats the stored octets, and a normal form is its own normal form.
            list::single(request_fields, name).is_some_and(|value| value.as_bytes() == stored)
                || normal_form(name, request_fields, settings).is_some_and(|value| value == *stored)
        })
    }

    /// Whether a request tells its origin nothing (see [`crate::telling`]) that these do not say. What one that tells more is
    /// answered may be made for it, and changes nothing for others.
    pub fn cover_what_is_told(&self, request_fields: &HeaderMap) -> bool {
        told(request_fields).all(|name| self.has(name))
    }

    /// Whether all that a rule names is among these.
    pub fn cover(&self, rule: &VaryRule) -> bool {
        matches!(rule, VaryRule::Fields(names) if names.iter().all(|name| self.has(name)))
    }

    /// These, or where they do not cover a rule, what of a request is selecting under both: the stored response they belong to
    /// was confirmed for that request, and varies by more than was known (RFC 9111 4.1, 4.3.4). None if no request could
    /// ever match. Invariant: a request that matches the new ones matches these.
    pub fn renewed(&self, rule: &VaryRule, request_fields: &HeaderMap, settings: &Settings) -> Option<Self> {
        if self.cover(rule) {
            return Some(self.clone());
        }
        let selected = self.rule().and(rule).select(request_fields, settings)?;
        let answered_cookie = self.answered_cookie && !selected.has(&COOKIE);
        Some(Self { answered_cookie, ..selected })
    }

    /// Whether the request had a Cookie, which is not among these: the response may be made for its client alone, though
    /// nothing says so.
    pub fn answered_cookie(&self) -> bool {
        self.answered_cookie
    }

    /// Names and values; no value for a field the request did not have.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&HeaderName, Option<&Bytes>)> {
        self.fields.iter().map(|(name, value)| (name, value.as_ref()))
    }

    /// The rule these fields were selected by.
    pub fn rule(&self) -> VaryRule {
        VaryRule::Fields(self.fields.iter().map(|(name, _)| name.clone()).collect())
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.fields.iter().any(|(selecting, _)| selecting == name)
    }

    /// All there is to store of them. That there was a Cookie stands among the fields, under a name that no field has.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&HeaderName, Option<&Bytes>)> {
        self.iter().chain(self.answered_cookie.then_some((&ANSWERED_COOKIE, None)))
    }

    /// The selecting fields of these [`Selecting::parts`].
    pub(crate) fn from_parts(mut parts: Vec<(HeaderName, Option<Bytes>)>) -> Self {
        let count = parts.len();
        parts.retain(|(name, _)| *name != ANSWERED_COOKIE);
        Self { answered_cookie: parts.len() < count, fields: parts }
    }
}

impl VaryMarker {
    /// A marker for one rule.
    pub fn new(rule: VaryRule) -> Self {
        Self(vec![rule])
    }

    /// This marker with `rule` as the newest.
    pub fn with(&self, rule: VaryRule) -> Self {
        let older = self.0.iter().filter(|known| **known != rule).take(RULE_COUNT_MAX - 1).cloned();
        let mut rules = Vec::with_capacity(RULE_COUNT_MAX);
        rules.extend(older);
        rules.insert(0, rule);
        Self(rules)
    }

    /// The rules, newest first.
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

/// What a request tells its origin, field by field.
fn told(fields: &HeaderMap) -> impl Iterator<Item = &HeaderName> {
    let target = forwarded_target(fields).map(|_| &FORWARDED_TARGET);
    fields.keys().filter(|name| is_telling(name)).chain(target)
}

fn is_in(fields: &HeaderMap, name: &HeaderName) -> bool {
    if *name == FORWARDED_TARGET { forwarded_target(fields).is_some() } else { fields.contains_key(name) }
}

/// The value of a request field as it is compared; none when the request does not have it.
fn normal_form(name: &HeaderName, fields: &HeaderMap, settings: &Settings) -> Option<Vec<u8>> {
    if *name == FORWARDED_TARGET {
        return forwarded_target(fields);
    }
    fields.contains_key(name).then(|| {
        if settings.normalise_language && *name == ACCEPT_LANGUAGE {
            return languages(fields);
        }
        let mut joined = Vec::new();
        for (index, line) in fields.get_all(name).iter().enumerate() {
            if index > 0 {
                joined.extend_from_slice(SEPARATOR);
            }
            if settings.normalise_vary {
                push_tightened(&mut joined, line.as_bytes())
            } else {
                joined.extend(line.as_bytes())
            }
        }
        joined
    })
}

/// The hosts and schemes that Forwarded names, in their order; none when it names none. A field that is not of the form
/// of RFC 7239 4 counts with all it has, whatever an origin may see in it.
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

/// Length of what comes before the next `;` or `,` that is not in quotes; none when quotes do not close.
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

/// Language ranges in lower case and without white space. In the order they came in: between ranges of equal weight it is
/// the first that many origins choose.
fn languages(fields: &HeaderMap) -> Vec<u8> {
    let tighten = |range: &[u8]| -> Vec<u8> {
        range.iter().filter(|byte| !byte.is_ascii_whitespace()).map(u8::to_ascii_lowercase).collect()
    };
    list::tokens(fields, &ACCEPT_LANGUAGE).map(tighten).collect::<Vec<_>>().join(SEPARATOR)
}

/// Appends a line with one space after each comma outside quotes and no other white space around it.
fn push_tightened(joined: &mut Vec<u8>, line: &[u8]) {
    let line_start = joined.len();
    let (mut quoted, mut escaped, mut after_comma) = (false, false, true);
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

/// What stands between elements in normal form: what nearly all clients send, so that their values are in
/// normal form as they come.
const SEPARATOR: &[u8] = b", ";
/// Says in a stored head that the request had a Cookie.
static ANSWERED_COOKIE: HeaderName = HeaderName::from_static("!answered-cookie");
