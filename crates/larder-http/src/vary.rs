//! Selecting among the variants of one resource (RFC 9111 4.1, RFC 9110 12.5.5).
//!
//! A resource whose responses vary has a [`VaryMarker`] under its primary key, which lists the rules seen
//! last, and each variant under a key made of the rule and the request's selecting fields. Fields are
//! compared in a normal form: lines joined with a comma, the same white space around all commas outside
//! quotes, Accept-Language also without case, white space and order.
//! Cost: matching compares octets and allocates only when they differ from the stored normal form.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT_LANGUAGE, FORWARDED, VARY},
};

use crate::{Settings, cache_control::quoted_string_length, list};

/// Most selecting fields of one rule; a response that names more is taken as `*`.
pub const SELECTING_COUNT_MAX: usize = 16;
/// Most rules a marker lists; an older one is forgotten, and its variants with it.
pub const RULE_COUNT_MAX: usize = 4;

/// Request fields by which many origins build their answers though no Vary says so: whom, how and by which method
/// the request "really" is for. Whoever can have such an answer stored for others poisons the cache.
pub static TELLING_FIELDS: [HeaderName; 23] = [
    HeaderName::from_static("front-end-https"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-path"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-protocol"),
    HeaderName::from_static("x-forwarded-scheme"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-ssl"),
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-host"),
    HeaderName::from_static("x-http-host-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-original-host"),
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("x-scheme"),
    HeaderName::from_static("x-url-scheme"),
    FORWARDED_TARGET,
];

/// Stands for what Forwarded (RFC 7239 5.3, 5.4) tells of host and scheme. Its `for` is another for each client and says
/// nothing of the target, so the field as a whole would give each client a variant of its own.
const FORWARDED_TARGET: HeaderName = HeaderName::from_static("!forwarded-target");

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
pub struct Selecting(Vec<(HeaderName, Option<Bytes>)>);

/// The rules of one resource's stored variants, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaryMarker(Vec<VaryRule>);

impl VaryRule {
    /// The rule of a response's Vary field. A `*` anywhere among its elements, or an element that names no
    /// field, makes it [`VaryRule::Star`].
    pub fn from_fields(response_fields: &HeaderMap) -> Self {
        let names: Result<Vec<_>, _> = list::tokens(response_fields, &VARY).map(parse_name).collect();
        names.map_or(Self::Star, Self::from_names)
    }

    /// The rule for storing the answer to a request: the response's own, and with it those of [`TELLING_FIELDS`] that the
    /// request has, so that they change what is stored for nobody but those who send them too.
    pub fn for_exchange(request_fields: &HeaderMap, response_fields: &HeaderMap) -> Self {
        let rule = Self::from_fields(response_fields);
        let Self::Fields(names) = &rule else { return rule };
        let told: Vec<_> = TELLING_FIELDS.iter().filter(|name| is_in(request_fields, name)).cloned().collect();
        if told.is_empty() { rule } else { Self::from_names([names.to_vec(), told].concat()) }
    }

    /// Whether every request matches: the response does not vary.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Fields(names) if names.is_empty())
    }

    /// The request's selecting fields under this rule; none under `*`.
    pub fn select(&self, request_fields: &HeaderMap, settings: &Settings) -> Option<Selecting> {
        let Self::Fields(names) = self else { return None };
        let selected = names.iter().map(|name| {
            let value = normal_form(name, request_fields, settings.normalise_vary);
            (name.clone(), value.map(Bytes::from))
        });
        Some(Selecting(selected.collect()))
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
        self.0.iter().all(|(name, stored)| {
            let Some(stored) = stored else { return !is_in(request_fields, name) };
            // The usual request repeats the stored octets, and a normal form is its own normal form.
            list::single(request_fields, name).is_some_and(|value| value.as_bytes() == stored)
                || normal_form(name, request_fields, settings.normalise_vary).is_some_and(|value| value == *stored)
        })
    }

    /// Whether a request tells its origin nothing of [`TELLING_FIELDS`] that these do not say. What one that tells more is
    /// answered may be made for it, and changes nothing for others.
    pub fn cover_what_is_told(&self, request_fields: &HeaderMap) -> bool {
        let is_selecting = |name: &HeaderName| self.0.iter().any(|(selecting, _)| selecting == name);
        TELLING_FIELDS.iter().all(|name| !is_in(request_fields, name) || is_selecting(name))
    }

    /// Names and values; no value for a field the request did not have.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&HeaderName, Option<&Bytes>)> {
        self.0.iter().map(|(name, value)| (name, value.as_ref()))
    }

    /// The rule these fields were selected by.
    pub fn rule(&self) -> VaryRule {
        VaryRule::Fields(self.0.iter().map(|(name, _)| name.clone()).collect())
    }

    pub(crate) fn from_parts(parts: Vec<(HeaderName, Option<Bytes>)>) -> Self {
        Self(parts)
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
        Ok(name) if element != b"*" && name != FORWARDED_TARGET => Ok(name),
        _ => Err(()),
    }
}

fn is_in(fields: &HeaderMap, name: &HeaderName) -> bool {
    if *name == FORWARDED_TARGET { forwarded_target(fields).is_some() } else { fields.contains_key(name) }
}

/// The value of a request field as it is compared; none when the request does not have it.
fn normal_form(name: &HeaderName, fields: &HeaderMap, normalise: bool) -> Option<Vec<u8>> {
    if *name == FORWARDED_TARGET {
        return forwarded_target(fields);
    }
    fields.contains_key(name).then(|| {
        if normalise && *name == ACCEPT_LANGUAGE {
            return languages(fields);
        }
        let mut joined = Vec::new();
        for (index, line) in fields.get_all(name).iter().enumerate() {
            if index > 0 {
                joined.extend_from_slice(SEPARATOR);
            }
            if normalise { push_tightened(&mut joined, line.as_bytes()) } else { joined.extend(line.as_bytes()) }
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

/// Language ranges in lower case, without white space, sorted: their weights decide, not their order.
fn languages(fields: &HeaderMap) -> Vec<u8> {
    let tighten = |range: &[u8]| -> Vec<u8> {
        range.iter().filter(|byte| !byte.is_ascii_whitespace()).map(u8::to_ascii_lowercase).collect()
    };
    let mut ranges: Vec<_> = list::tokens(fields, &ACCEPT_LANGUAGE).map(tighten).collect();
    ranges.sort_unstable();
    ranges.join(SEPARATOR)
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
