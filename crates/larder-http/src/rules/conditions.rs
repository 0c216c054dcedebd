//! Conditions on named values of a request: its cookies, its fields, and the arguments of its query.
//!
//! Owns: the syntax of a condition. Invariant: a value that a program behind the origin may read under another name is
//! compared under that name too, so that a client cannot get past a condition by spelling a name in another way. Cost:
//! one comparison for each condition and value.

use std::borrow::Cow;

use http::{HeaderMap, header::COOKIE};

use super::{BadRule, MatchTexts, bad};

/// Conditions on one kind of named values, such as cookies. If there are none, every request meets them.
#[derive(Clone, Debug, Default)]
pub(super) struct NamedConditions {
    /// At least one value must match one of these patterns, unless the list is empty.
    wanted: Vec<NamedPattern>,
    /// No value may match one of these patterns.
    refused: Vec<NamedPattern>,
}

/// A pattern for a name and, unless any value matches, for its value.
#[derive(Clone, Debug)]
struct NamedPattern {
    name: Wildcard,
    value: Option<Wildcard>,
}

/// A text in which `*` stands for any octets: the pieces between the stars.
#[derive(Clone, Debug)]
struct Wildcard(Vec<Box<[u8]>>);

/// A kind of named values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedKind {
    Cookie,
    Field,
    Query,
}

/// Checks a condition: `NAME` or `NAME=VALUE`, or with `!` in front for the opposite.
pub(super) fn check(text: &str) -> Result<(), BadRule> {
    parse(text, NamedKind::Cookie).map(drop)
}

impl NamedConditions {
    /// Parses conditions.
    pub(super) fn new(texts: &[String], kind: NamedKind) -> Result<Self, BadRule> {
        let mut conditions = Self::default();
        for text in texts {
            let (is_refused, pattern) = parse(text, kind)?;
            if is_refused { &mut conditions.refused } else { &mut conditions.wanted }.push(pattern);
        }
        Ok(conditions)
    }

    /// Returns whether there are no conditions.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.refused.is_empty()
    }

    /// Returns whether a request's cookies meet the conditions.
    pub(super) fn are_met_by_cookies(&self, fields: &HeaderMap) -> bool {
        let pairs = || {
            let lines = fields.get_all(COOKIE).iter().map(http::HeaderValue::as_bytes);
            lines.flat_map(|line| line.split(|octet| *octet == b';')).map(|pair| split(pair.trim_ascii(), b'='))
        };
        self.is_empty() || self.are_met(pairs().map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value))))
    }

    /// Returns whether a request's fields meet the conditions.
    pub(super) fn are_met_by_fields(&self, fields: &HeaderMap) -> bool {
        let pairs = || fields.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        self.is_empty() || self.are_met(pairs().map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value))))
    }

    /// Returns whether the arguments of a path's query meet the conditions. Their names and values are decoded.
    pub(super) fn are_met_by_query(&self, path: &str) -> bool {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let pairs = || query.as_bytes().split(|octet| b"&;".contains(octet)).map(|pair| split(pair, b'='));
        self.is_empty() || self.are_met(pairs().map(|(name, value)| (unescaped(name), unescaped(value))))
    }

    fn are_met<'a>(&self, values: impl Iterator<Item = (Cow<'a, [u8]>, Cow<'a, [u8]>)>) -> bool {
        let mut is_wanted = self.wanted.is_empty();
        for (name, value) in values.filter(|(name, _)| !name.is_empty()) {
            let alias = as_variable(&name);
            let is = |pattern: &NamedPattern| pattern.is(&name, &value) || pattern.is(&alias, &value);
            if self.refused.iter().any(is) {
                return false;
            }
            is_wanted = is_wanted || self.wanted.iter().any(is);
        }
        is_wanted
    }
}

impl NamedPattern {
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        self.name.is(name) && self.value.as_ref().is_none_or(|pattern| pattern.is(value))
    }
}

impl Wildcard {
    fn new(text: &str) -> Self {
        Self(text.split('*').map(|piece| piece.as_bytes().into()).collect())
    }

    fn is(&self, text: &[u8]) -> bool {
        let [first, middle @ .., last] = &self.0[..] else { return *self.0[0] == *text };
        let Some(mut rest) = text.strip_prefix(&**first) else { return false };
        for piece in middle.iter().filter(|piece| !piece.is_empty()) {
            let Some(at) = rest.windows(piece.len()).position(|window| *window == **piece) else { return false };
            rest = &rest[at + piece.len()..];
        }
        rest.ends_with(last)
    }
}

impl MatchTexts {
    /// Returns a number that identifies the rule among all rules with conditions on the request. It stays the same
    /// after a restart, and is 0 for a rule without such conditions.
    pub(super) fn mark_of_conditions(&self) -> u64 {
        let Self { hosts, paths, methods, statuses, types, cookies, fields, queries } = self;
        if [cookies, fields, queries].into_iter().all(Vec::is_empty) {
            return 0;
        }
        let lists = [hosts, paths, methods, statuses, types, cookies, fields, queries];
        let octets = lists
            .into_iter()
            .flat_map(|list| list.iter().flat_map(|text| text.bytes().chain([TEXT_END])).chain([LIST_END]));
        // FNV-1a. The result is an integer of a structured field.
        let mark = octets
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, octet| (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3));
        (mark & MARK_MAX).max(1)
    }
}

/// Octets that occur in no condition, so that they can mark the ends of texts and lists.
const TEXT_END: u8 = 0xfe;
const LIST_END: u8 = 0xff;
/// The largest number that [`MatchTexts::mark_of_conditions`] returns.
const MARK_MAX: u64 = (1 << 49) - 1;

/// Parses a condition. Returns its pattern, and true if no value may match it.
fn parse(text: &str, kind: NamedKind) -> Result<(bool, NamedPattern), BadRule> {
    let (is_refused, pattern) = text.strip_prefix('!').map_or((false, text), |pattern| (true, pattern));
    let (name, value) = pattern.split_once('=').map_or((pattern, None), |(name, value)| (name, Some(value)));
    let is_name = !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_graphic() && !b"!;&".contains(&octet));
    if !is_name || text.len() > CONDITION_BYTES_MAX {
        return Err(bad("a name, NAME=VALUE, or one of these after `!`, each with `*` for any characters", text));
    }
    // Names of fields have no case.
    let name = if kind == NamedKind::Field { name.to_ascii_lowercase() } else { name.to_owned() };
    Ok((is_refused, NamedPattern { name: Wildcard::new(&name), value: value.map(Wildcard::new) }))
}

fn split(pair: &[u8], at: u8) -> (&[u8], &[u8]) {
    let name_end = pair.iter().position(|octet| *octet == at).unwrap_or(pair.len());
    (pair[..name_end].trim_ascii(), pair.get(name_end + 1..).unwrap_or_default().trim_ascii())
}

/// Decodes a part of a query that is encoded as in HTML forms.
fn unescaped(part: &[u8]) -> Cow<'_, [u8]> {
    if !part.iter().any(|octet| b"%+".contains(octet)) {
        return Cow::Borrowed(part);
    }
    let mut octets = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((octet, after)) = rest.split_first() {
        let (octet, after) = match (octet, after) {
            (b'+', _) => (b' ', after),
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), after)
            }
            _ => (*octet, after),
        };
        octets.push(octet);
        rest = after;
    }
    Cow::Owned(octets)
}

/// Returns the value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        letter => (letter | 0x20) - b'a' + 10,
    }
}

/// Returns the variable name that PHP derives from the name of a cookie or an argument.
fn as_variable(name: &[u8]) -> Cow<'_, [u8]> {
    let name = name.trim_ascii_start();
    if !name.iter().any(|octet| b". [".contains(octet)) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.iter().map(|octet| if b". [".contains(octet) { b'_' } else { *octet }).collect())
}

/// Maximum length of a condition, in bytes.
const CONDITION_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn conditions(texts: &[&str], kind: NamedKind) -> NamedConditions {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        NamedConditions::new(&texts, kind).unwrap()
    }

    #[test]
    fn cookies_are_compared_one_by_one() {
        for (texts, cookies, is_met) in [
            (&["session"][..], &["a=b; session=c"][..], true),
            (&["session"], &["a=session"], false),
            (&["session"], &["Session=c"], false),
            (&["session"], &["sessions=c"], false),
            (&["session"], &[], false),
            (&["session"], &["a=b", "session"], true),
            (&["!session"], &[], true),
            (&["!session"], &["a=b;session=c"], false),
            (&["wp_*", "beta=1"], &["beta=1"], true),
            (&["wp_*", "beta=1"], &["beta=2; wp_=x"], true),
            (&["wp_*", "beta=1"], &["beta=2"], false),
            (&["wp_*", "!wp_x"], &["wp_a=1; wp_x=2"], false),
            (&["!wordpress_logged_in_*"], &["wordpress_test=1; a=2"], true),
            (&["!wordpress_logged_in_*"], &["wordpress.logged in_1=ann"], false),
            (&["a=*b*c"], &["a=xbyc"], true),
            (&["a=*b*c"], &["a=xcyb"], false),
            (&["a="], &["a="], true),
            (&["a="], &["a=b"], false),
        ] {
            let mut fields = HeaderMap::new();
            for line in cookies {
                fields.append(COOKIE, HeaderValue::from_str(line).unwrap());
            }
            let conditions = conditions(texts, NamedKind::Cookie);
            assert_eq!(conditions.are_met_by_cookies(&fields), is_met, "{texts:?} {cookies:?}");
        }
    }

    #[test]
    fn arguments_are_compared_as_programs_read_them() {
        for (texts, path, is_met) in [
            (&["!preview"][..], "/a", true),
            (&["!preview"], "/a?", true),
            (&["!preview"], "/preview?x=preview", true),
            (&["!preview"], "/a?preview=true", false),
            (&["!preview"], "/a?x=1&preview", false),
            (&["!preview"], "/a?x=1;prev%69ew", false),
            (&["!s"], "/a?s=", false),
            (&["q=a b"], "/a?q=a+b", true),
            (&["q=a b"], "/a?q=a%20b", true),
            (&["!a_b"], "/a?a.b=1", false),
            (&["!a_b"], "/a?+a%20b=1", false),
        ] {
            assert_eq!(conditions(texts, NamedKind::Query).are_met_by_query(path), is_met, "{texts:?} {path}");
        }
    }

    #[test]
    fn names_of_fields_have_no_case_and_their_values_have() {
        let fields = HeaderMap::from_iter([(http::header::USER_AGENT, HeaderValue::from_static("A Mobile B"))]);
        for (text, is_met) in [
            ("User-Agent=*Mobile*", true),
            ("user-agent=*mobile*", false),
            ("!USER-AGENT=*Mobile*", false),
            ("user-*", true),
            ("!x-beta", true),
            ("x-beta", false),
        ] {
            assert_eq!(conditions(&[text], NamedKind::Field).are_met_by_fields(&fields), is_met, "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in ["", "!", "=a", "!=a", "!!a", "a b", "a;b", "\u{e9}", &"x".repeat(CONDITION_BYTES_MAX + 1)] {
            assert!(check(text).is_err(), "{text}");
        }
        for text in ["a", "*", "a*b=c d", "!a=*"] {
            assert!(check(text).is_ok(), "{text}");
        }
    }
}
