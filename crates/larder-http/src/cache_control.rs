//! Parses the Cache-Control directives of requests and responses, and Pragma (RFC 9111 5.2, 5.4).
//!
//! The parser handles lists and quoted strings: a directive's name inside another directive's quoted string is not a
//! directive. A malformed value gets the stricter reading: a lifetime counts as zero, and an argument of `private` or
//! `no-cache` that is not a quoted list of field names counts as absent. If a directive is repeated with different
//! values, the first counts (4.2.1). A valid field that is targeted at this cache replaces Cache-Control
//! ([`crate::targeted`]).
//!
//! Cost: one pass over the field. It allocates only if field names are listed.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CACHE_CONTROL, Entry, PRAGMA},
};

use crate::{
    decimal::parse_seconds,
    facts::Facts,
    fields::{NameFilter, strip_hop_by_hop},
    list::{self, is_token, trim},
    steps,
    targeted::TargetList,
};

/// A directive of Cache-Control and its argument, as written in the field. Use it for directives that
/// [`ResponseDirectives`] does not know.
///
/// ```
/// use larder_http::cache_control::{Argument, Directive, directives};
///
/// let found: Vec<_> = directives(b"max-age=60, immutable").collect();
/// assert_eq!(found[1], Directive { name: b"immutable", argument: Argument::Absent });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive<'a> {
    /// The directive's name as received. It may contain octets that no token allows.
    pub name: &'a [u8],
    /// The argument after the name.
    pub argument: Argument<'a>,
}

/// The argument of a [`Directive`]. The forms are distinguished because `private="set-cookie"` means less than
/// `private`.
///
/// ```
/// use larder_http::cache_control::{Argument, directives};
///
/// let argument = |line| directives(line).next().expect("a directive").argument;
/// assert_eq!(argument(b"max-age=60").seconds(), Some(60));
/// assert_eq!(argument(b"private=\"set-cookie\""), Argument::Quoted(b"set-cookie"));
/// assert_eq!(argument(b"max-age = 60"), Argument::Malformed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument<'a> {
    /// The directive has no argument.
    Absent,
    /// The argument is a token, as in `max-age=60`.
    Token(&'a [u8]),
    /// The argument is a quoted string: the octets between the quotes, with escapes unresolved.
    Quoted(&'a [u8]),
    /// The argument has any other form, including one with white space around `=`.
    Malformed,
}

/// The directives of a response that concern this cache.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::{TargetList, cache_control::ResponseDirectives};
///
/// let mut fields = HeaderMap::new();
/// fields.insert("cache-control", "s-maxage=60, stale-if-error=600".parse()?);
/// let directives = ResponseDirectives::from_fields(&fields, &TargetList::default());
/// assert_eq!(directives.s_maxage, Some(60));
/// assert_eq!(directives.stale_if_error, Some(600));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `max-age` in seconds; zero when malformed.
    pub max_age: Option<u32>,
    /// `s-maxage` in seconds; zero when malformed.
    pub s_maxage: Option<u32>,
    /// `stale-while-revalidate` in seconds (RFC 5861 3).
    pub stale_while_revalidate: Option<u32>,
    /// `stale-if-error` in seconds (RFC 5861 4).
    pub stale_if_error: Option<u32>,
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache` for the whole response.
    pub no_cache: bool,
    /// `private` for the whole response.
    pub private: bool,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// The fields that `no-cache` and `private` name. They are not stored, but the rest of the response may be.
    pub withheld: Vec<HeaderName>,
    /// Whether the directives come from a targeted field, such as CDN-Cache-Control. If so, Expires is ignored (RFC
    /// 9213 2.1).
    pub targeted: bool,
    /// A lifetime that an operator's rule sets, in seconds from the receipt of the response. It overrides every other
    /// lifetime.
    pub(crate) fresh_after_receipt: Option<u32>,
    /// Upper bound on the freshness lifetime, in seconds after receipt, from the redirects that led to this response.
    pub(crate) fresh_within: Option<u32>,
    /// Whether a redirect that led to this response forbids serving it stale.
    pub(crate) chain_forbids_stale: bool,
    /// Whether an operator's rule tells the cache to ignore a client's demand for validation, such as `no-cache`.
    pub ignores_client: bool,
    /// Whether a client's reload (`no-cache`) is obeyed even though a rule ignores the client's other directives.
    pub(crate) obeys_reload: bool,
    /// Whether the body was checked against its digest when it was stored.
    pub is_verified: bool,
    /// Whether the response is a web page under the URL of a file that never changes, such as a network's login page.
    pub(crate) contradicts_url: bool,
    /// Whether an operator's rule allows serving the response stale although the response forbids it.
    pub(crate) ignores_must_revalidate: bool,
    /// Whether an operator's rule allows sharing the response although its request carried credentials.
    pub(crate) ignores_authorization: bool,
    /// Whether the origin must permit each client before the client receives the response.
    pub checks_authorization: bool,
    /// Whether requests with a Cookie are exempt from the lifetime that an operator's rule sets.
    pub(crate) excludes_cookies: bool,
    /// Identifies the rule that set these directives; 0 for a rule without conditions on the request, or none. See
    /// [`Ruling::conditions`](crate::Ruling::conditions).
    pub(crate) conditions: u64,
}

/// The directives of a request.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::cache_control::RequestDirectives;
///
/// let mut fields = HeaderMap::new();
/// fields.insert("cache-control", "max-stale, only-if-cached".parse()?);
/// let directives = RequestDirectives::from_fields(&fields);
/// assert!(directives.only_if_cached);
/// assert_eq!(directives.max_stale, Some(u32::MAX));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `max-age` in seconds; zero when malformed.
    pub max_age: Option<u32>,
    /// `min-fresh` in seconds.
    pub min_fresh: Option<u32>,
    /// `max-stale` in seconds. Without an argument it is `u32::MAX`: any staleness is accepted.
    pub max_stale: Option<u32>,
    /// `stale-if-error` in seconds (RFC 5861 4); zero when malformed.
    pub stale_if_error: Option<u32>,
    /// `no-cache`.
    pub no_cache: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
    /// `Pragma: no-cache`. It counts only if there is no Cache-Control (RFC 9111 5.4).
    pub pragma_no_cache: bool,
}

impl ResponseDirectives {
    /// Returns the directives for this cache, as changed by an operator's rule (see [`crate::ruling`]).
    ///
    /// The first valid field in `targets` provides them (RFC 9213 2.1). If there is none, Cache-Control does.
    pub fn from_fields(fields: &HeaderMap, targets: &TargetList) -> Self {
        Facts::of(fields, targets).directives
    }

    /// Adds the directives of a line of Cache-Control.
    pub(crate) fn add_line(&mut self, line: &[u8], targets: &TargetList) {
        for directive in directives(line) {
            if !(targets.is_private() && directive.is_for_shared_caches()) {
                self.apply(&directive);
            }
        }
    }

    /// Returns whether the response must not be served once it is stale (RFC 9111 4.2.4; for `s-maxage` 5.2.2.10).
    pub(crate) fn forbids_stale(&self) -> bool {
        let forbids =
            self.must_revalidate || self.proxy_revalidate || self.s_maxage.is_some() || self.chain_forbids_stale;
        self.no_cache || (forbids && !self.ignores_must_revalidate)
    }

    /// Returns whether the directives permit sharing the response, its Set-Cookie included: `public`, or a lifetime for
    /// shared caches.
    pub(crate) fn are_for_all(&self) -> bool {
        self.public || self.s_maxage.is_some() || (self.targeted && self.max_age.is_some())
    }

    fn apply(&mut self, directive: &Directive<'_>) {
        let argument = directive.argument;
        let is = |name: &str| directive.name.eq_ignore_ascii_case(name.as_bytes());
        if is("max-age") {
            self.max_age.get_or_insert(argument.seconds().unwrap_or(0));
        } else if is("s-maxage") {
            self.s_maxage.get_or_insert(argument.seconds().unwrap_or(0));
        } else if is("stale-while-revalidate") {
            self.stale_while_revalidate.get_or_insert(argument.seconds().unwrap_or(0));
        } else if is("stale-if-error") {
            self.stale_if_error.get_or_insert(argument.seconds().unwrap_or(0));
        } else if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache |= !argument.withholds(&mut self.withheld);
        } else if is("private") {
            self.private |= !argument.withholds(&mut self.withheld);
        } else if is("public") {
            self.public = true;
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand = true;
        }
    }
}

impl RequestDirectives {
    /// Returns the directives of a request's Cache-Control field. If it is absent, returns those of the Pragma field.
    pub fn from_fields(fields: &HeaderMap) -> Self {
        Self::of_named(fields, NameFilter::of(fields))
    }

    /// Returns the same as [`RequestDirectives::from_fields`]. `names` are the names of the fields.
    pub fn of_named(fields: &HeaderMap, names: NameFilter) -> Self {
        const NAMES: NameFilter = NameFilter::of_names(&["cache-control", "pragma"]);
        let mut found = Self::default();
        if !names.may_have_any(NAMES) {
            return found;
        }
        let lines = fields.get_all(CACHE_CONTROL).iter();
        lines.flat_map(|line| directives(line.as_bytes())).for_each(|directive| found.apply(&directive));
        found.pragma_no_cache = !fields.contains_key(CACHE_CONTROL) && list::has_token(fields, &PRAGMA, "no-cache");
        found
    }

    /// Returns these directives with `no-cache` alone, or with none if the request also says `no-store`.
    ///
    /// `no-cache` is a reload, which repairs a stored response. A client that says `no-store` as well wants nothing
    /// stored, so it does not ask for a repair. Maven sends both with every request.
    pub(crate) fn reload_alone(&self) -> Self {
        let no_cache = self.no_cache && !self.no_store;
        let pragma_no_cache = self.pragma_no_cache;
        Self { no_cache, pragma_no_cache, ..Self::default() }
    }

    /// Removes `no-store` and `no-cache` from a request's fields, and keeps the other directives.
    pub fn drop_no_store(fields: &mut HeaderMap) {
        drop_directives(fields, &["no-store", "no-cache"]);
        // It would count again without Cache-Control.
        fields.remove(PRAGMA);
    }

    /// Limits the age of the stored response that a request accepts, by adding `max-age` to its Cache-Control.
    ///
    /// A lower limit that the request already has stays. A request whose Pragma demands validation stays unchanged:
    /// next to Cache-Control, Pragma would no longer count (RFC 9111 5.4).
    pub fn limit_age(fields: &mut HeaderMap, secs: u32) {
        let own = Self::from_fields(fields);
        if own.pragma_no_cache || own.max_age.is_some_and(|own_secs| own_secs <= secs) {
            return;
        }
        drop_directives(fields, &["max-age"]);
        let value = HeaderValue::try_from(format!("max-age={secs}")).expect("digits are visible ASCII");
        fields.append(CACHE_CONTROL, value);
    }

    fn apply(&mut self, directive: &Directive<'_>) {
        let argument = directive.argument;
        let is = |name: &str| directive.name.eq_ignore_ascii_case(name.as_bytes());
        if is("max-age") {
            self.max_age.get_or_insert(argument.seconds().unwrap_or(0));
        } else if is("min-fresh") {
            self.min_fresh.get_or_insert(argument.seconds().unwrap_or(0));
        } else if is("max-stale") {
            let accepted = if argument == Argument::Absent { Some(u32::MAX) } else { argument.seconds() };
            self.max_stale.get_or_insert(accepted.unwrap_or(0));
        } else if is("stale-if-error") {
            self.stale_if_error.get_or_insert(argument.seconds().unwrap_or(0));
        } else if is("no-cache") {
            self.no_cache = true;
        } else if is("no-store") {
            self.no_store = true;
        } else if is("only-if-cached") {
            self.only_if_cached = true;
        }
    }
}

/// Removes directives from all lines of Cache-Control.
fn drop_directives(fields: &mut HeaderMap, names: &[&str]) {
    let is_named =
        |directive: Directive<'_>| names.iter().any(|name| directive.name.eq_ignore_ascii_case(name.as_bytes()));
    let has_name = |element: &&[u8]| directives(element).any(is_named);
    let kept = |line: &HeaderValue| {
        let rest: Vec<&[u8]> = list::elements(line.as_bytes()).filter(|element| !has_name(element)).collect();
        HeaderValue::from_bytes(&rest.join(&b", "[..])).ok().filter(|value| !value.is_empty())
    };
    let lines: Vec<HeaderValue> = fields.get_all(CACHE_CONTROL).iter().filter_map(kept).collect();
    fields.remove(CACHE_CONTROL);
    for line in lines {
        fields.append(CACHE_CONTROL, line);
    }
}

impl Directive<'_> {
    /// Returns whether only a shared cache obeys the directive (RFC 9111 5.2.2.7, 5.2.2.8, 5.2.2.10).
    fn is_for_shared_caches(&self) -> bool {
        ["private", "proxy-revalidate", "s-maxage"].iter().any(|name| self.name.eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl Argument<'_> {
    /// Returns the argument as delta-seconds, quoted or not (RFC 9111 5.2).
    pub fn seconds(&self) -> Option<u32> {
        match self {
            Self::Token(digits) | Self::Quoted(digits) => parse_seconds(digits),
            Self::Absent | Self::Malformed => None,
        }
    }

    /// Adds the field names that a quoted argument lists.
    ///
    /// Returns false and adds nothing if the argument is not such a list, or if it names a field that the cache needs.
    /// The directive then covers the whole response.
    fn withholds(&self, withheld: &mut Vec<HeaderName>) -> bool {
        let Self::Quoted(names) = self else { return false };
        withhold(names, withheld)
    }
}

/// Returns the response fields that `private` and `no-cache` name, without hop-by-hop fields.
///
/// A stored head lacks these fields. Only the client whose request fetched the response receives them (RFC 9111
/// 5.2.2.4, 5.2.2.7).
pub fn first_askers_own(fields: &HeaderMap, targets: &TargetList) -> HeaderMap {
    let withheld = ResponseDirectives::from_fields(fields, targets).withheld;
    if withheld.is_empty() {
        return HeaderMap::new();
    }
    let mut passed = fields.clone();
    strip_hop_by_hop(&mut passed);
    take_withheld(&withheld, &mut passed)
}

/// Moves the fields that `private` and `no-cache` name out of a response's fields.
pub(crate) fn take_withheld(withheld: &[HeaderName], fields: &mut HeaderMap) -> HeaderMap {
    let mut taken = HeaderMap::new();
    for name in withheld {
        if let Entry::Occupied(entry) = fields.entry(name) {
            let (name, values) = entry.remove_entry_mult();
            for value in values {
                taken.append(&name, value);
            }
        }
    }
    taken
}

/// Adds the field names of a list. Returns false and adds nothing in the same cases as [`Argument::withholds`].
pub(crate) fn withhold(names: &[u8], withheld: &mut Vec<HeaderName>) -> bool {
    let parsed: Result<Vec<_>, _> = list::elements(names).map(HeaderName::from_bytes).collect();
    match parsed {
        Ok(names) if !names.is_empty() && !names.iter().any(is_essential) => {
            withheld.extend(names);
            true
        }
        _ => false,
    }
}

/// Returns the directives of one line. A quote that never closes is an ordinary character, so it hides no directive.
///
/// ```
/// # use larder_http::cache_control::{Argument, directives};
/// let mut found = directives(b"max-age=60, private=\"set-cookie\"");
/// let max_age = found.next().expect("two directives");
/// assert_eq!((max_age.name, max_age.argument), (&b"max-age"[..], Argument::Token(b"60")));
/// assert_eq!(max_age.argument.seconds(), Some(60));
/// assert_eq!(found.next().expect("another").argument, Argument::Quoted(b"set-cookie"));
/// ```
pub fn directives(line: &[u8]) -> Directives<'_> {
    Directives { rest: line, quotes_close: true }
}

/// An iterator over the directives of one line of Cache-Control, as [`directives`] returns it.
///
/// ```
/// # use larder_http::cache_control::directives;
/// // A comma inside of quotes separates nothing.
/// let names = directives(b"no-cache=\"a, b\", max-age=60").map(|directive| directive.name);
/// assert!(names.eq([&b"no-cache"[..], b"max-age"]));
/// ```
#[derive(Clone, Debug)]
pub struct Directives<'a> {
    rest: &'a [u8],
    /// False once a quote without a closing quote was found. No later quote can close either, so the parser does not
    /// search again. Otherwise its cost would be quadratic.
    quotes_close: bool,
}

impl<'a> Iterator for Directives<'a> {
    type Item = Directive<'a>;

    fn next(&mut self) -> Option<Directive<'a>> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let name_end = self.rest.iter().position(|byte| matches!(byte, b',' | b'=')).unwrap_or(self.rest.len());
        steps::take(name_end);
        let (name, rest) = self.rest.split_at(name_end);
        self.rest = rest;
        let argument = match rest.strip_prefix(b"=") {
            None => Argument::Absent,
            Some(value) => {
                let spaced = name.ends_with(b" ") || name.ends_with(b"\t") || value.starts_with(b" ");
                let argument = self.take_argument(value);
                if spaced || value.starts_with(b"\t") { Argument::Malformed } else { argument }
            }
        };
        Some(Directive { name: trim(name), argument })
    }
}

impl<'a> Directives<'a> {
    fn take_argument(&mut self, value: &'a [u8]) -> Argument<'a> {
        let quoted = value.trim_ascii_start();
        if quoted.starts_with(b"\"") && self.quotes_close {
            if let Some(length) = quoted_string_length(quoted) {
                let (string, rest) = quoted.split_at(length);
                let after = self.take_until_comma(rest);
                let inner = &string[1..length - 1];
                return if after.is_empty() { Argument::Quoted(inner) } else { Argument::Malformed };
            }
            self.quotes_close = false;
        }
        let token = self.take_until_comma(value);
        if is_token(token) { Argument::Token(token) } else { Argument::Malformed }
    }

    fn take_until_comma(&mut self, value: &'a [u8]) -> &'a [u8] {
        let end = value.iter().position(|byte| *byte == b',').unwrap_or(value.len());
        steps::take(end);
        self.rest = &value[end..];
        trim(&value[..end])
    }
}

/// Returns the length of the quoted string (RFC 9110 5.6.4) at the start of `value`, with its quotes. `None` if it does
/// not close.
pub(crate) fn quoted_string_length(value: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (index, byte) in value.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => {
                steps::take(index);
                return Some(index + 1);
            }
            _ => {}
        }
    }
    steps::take(value.len());
    None
}

/// Returns whether a field frames, selects or dates the response. Without it, a stored response would mean something
/// else.
fn is_essential(name: &HeaderName) -> bool {
    const ESSENTIAL: [&str; 13] = [
        "cache-control",
        "cdn-cache-control",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "date",
        "age",
        "etag",
        "expires",
        "last-modified",
        "transfer-encoding",
        "vary",
    ];
    ESSENTIAL.contains(&name.as_str())
}
