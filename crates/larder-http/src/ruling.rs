//! An operator's ruling on a response, which overrides the origin.
//!
//! RFC 9111 leaves lifetimes and obedience to the operator, and RFC 9213 1 describes such a gateway's own control. This
//! module has the properties that a rule can change, and the field that carries them with a received response.
//! [`crate::rules`] finds the rule.
//!
//! Invariants: the caller ensures that the field never comes from an origin and never goes to a client ([`FIELD`]).
//! Whatever a rule does not name stays as the origin says, above all `private`, `no-store`, cookies and credentials.
//! Cost: one lookup for a response without a rule. Otherwise a short dictionary is parsed when the head is created or
//! decoded.

use std::{fmt::Write as _, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, header::SET_COOKIE};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::{cache_control::ResponseDirectives, chain::Chain, fields::unusual_lines};

/// The internal field that carries a ruling with a response until it is stored. It is never received from an origin or
/// sent to a client.
pub const FIELD: HeaderName = HeaderName::from_static("larder-ruling");

/// The overrides of a rule for its responses. `Default` overrides nothing.
///
/// ```
/// use larder_http::Ruling;
/// use std::time::Duration;
///
/// let releases = Ruling { name: "releases".to_owned(), immutable: true, ..Ruling::default() };
/// let fresh = Some(Duration::from_secs(600));
/// let listings = Ruling { name: "listings".to_owned(), fresh, ..Ruling::default() };
/// assert!(releases.gives_lifetime() && listings.gives_lifetime());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// The rule's name, for explanations.
    pub name: String,
    /// Whether the response is never stored.
    pub is_never_stored: bool,
    /// Time after receipt for which the response is fresh. It overrides the response's own lifetime and `no-cache`.
    pub fresh: Option<Duration>,
    /// Whether the response never changes. It is then fresh for a year unless `fresh` is set. A client can only force a
    /// validation by a reload, and only if the body was not checked against a digest.
    pub immutable: bool,
    /// Time after the lifetime during which the response is served while it is validated (RFC 5861 3).
    pub stale_while_revalidate: Option<Duration>,
    /// Time after the lifetime during which the response may replace an error of its origin (RFC 5861 4).
    pub stale_if_error: Option<Duration>,
    /// The parts of the request and the response that are ignored.
    pub ignored: IgnoredParts,
    /// The redirects that the proxy follows itself, so that the target's response answers the request.
    pub following: RedirectPolicy,
    /// Request fields on which the response varies, in addition to those in its Vary.
    pub varies: Vec<HeaderName>,
    /// Maximum length of a body to store, in bytes. A longer body is passed on without storing it.
    pub size_max: Option<u64>,
    /// Whether a fetch continues after all its clients have left. `None`: only if the body is short or almost complete.
    pub finishes_abandoned: Option<bool>,
    /// Whether the response to a request with credentials is stored for others. The origin must then permit each
    /// client.
    pub checks_authorization: bool,
    /// Whether the body is checked against the digest in its URL. The body of an immutable response is checked in any
    /// case.
    pub checks_digest: bool,
    /// Whether git's POST requests are answered from the cache.
    ///
    /// Packs are cached by the objects that they contain. References are requested from the origin each time; stored
    /// references are served only while the origin is unavailable.
    pub caches_git: bool,
    /// Identifies the rule among those with conditions on the request; 0 if the rule has no such conditions.
    /// [`Rule::new`](crate::rules::Rule::new) determines this number; the operator does not set it.
    pub conditions: u64,
    /// Whether the request had credentials. The proxy determines this; the operator does not set it.
    pub answers_credentials: bool,
    /// Whether the body is stored only if it matches a known digest. The proxy determines this; the operator does not
    /// set it.
    pub is_verified: bool,
    /// Whether the response is a web page in place of a file that never changes, such as a captive portal's. Determined
    /// by [`crate::rules`]; the operator does not set it.
    pub contradicts_url: bool,
    /// The redirects that led to the response, if some were followed. The proxy determines this; the operator does not
    /// set it.
    pub chain: Option<Chain>,
}

/// The redirects that a cache follows itself, so that the response of the last target answers the request.
///
/// ```
/// use larder_http::{redirects::may_follow, ruling::RedirectPolicy};
///
/// let (from, to) = ("https://a.example/".parse()?, "http://a.example/".parse()?);
/// assert!(!may_follow(&from, &to, RedirectPolicy::Safe));
/// assert!(may_follow(&from, &to, RedirectPolicy::All));
/// # Ok::<(), http::uri::InvalidUri>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedirectPolicy {
    /// No redirects: the client receives them.
    #[default]
    None,
    /// Redirects that do not lead from `https` to `http`.
    Safe,
    /// All redirects.
    All,
}

/// The parts of a request or response that a rule ignores.
///
/// ```
/// use larder_http::ruling::{IgnoredParts, UnknownWord};
///
/// let mut ignored = IgnoredParts::default();
/// ignored.add("no-store")?;
/// assert!(ignored.no_store && !ignored.private);
/// assert_eq!(ignored.add("everything"), Err(UnknownWord));
/// # Ok::<(), UnknownWord>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredParts {
    /// The client's Cache-Control and Pragma, so that the client cannot force the validation of a fresh response.
    pub client_directives: bool,
    /// The credentials of the request, so that clients with other credentials, or with none, may receive the response.
    pub authorization: bool,
    /// The cookies of the request, so that the rule's lifetime applies to requests with a Cookie, too.
    pub cookie: bool,
    /// The cookie that the response sets, so that the response is stored without it. Only the first client receives the
    /// cookie.
    pub set_cookie: bool,
    /// The response's `no-store`, so that the response is stored.
    pub no_store: bool,
    /// The response's `private`, so that other clients may receive it.
    pub private: bool,
    /// The response's `must-revalidate` and similar directives, so that the response may be served stale.
    pub must_revalidate: bool,
    /// Names in the response's Vary that select no variant.
    pub vary: Vec<HeaderName>,
}

/// The error for a word that names no part of a request or response that a rule can ignore. [`IgnoredParts::WORDS`]
/// lists the valid words, for the message to the operator.
///
/// ```
/// use larder_http::ruling::{IgnoredParts, UnknownWord};
///
/// assert_eq!(IgnoredParts::default().add("everything"), Err(UnknownWord));
/// assert!(IgnoredParts::WORDS.contains(&"set-cookie"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord;

impl IgnoredParts {
    /// The words that [`Self::add`] accepts.
    pub const WORDS: &'static [&'static str] = &[
        "client no-cache",
        "authorization",
        "cookie",
        "set-cookie",
        "no-store",
        "private",
        "must-revalidate",
        "vary: FIELD",
    ];

    /// Adds the part that `word` names.
    ///
    /// # Errors
    /// `word` is none of [`Self::WORDS`].
    pub fn add(&mut self, word: &str) -> Result<(), UnknownWord> {
        match word {
            "client no-cache" => self.client_directives = true,
            "authorization" => self.authorization = true,
            "cookie" => self.cookie = true,
            "set-cookie" => self.set_cookie = true,
            "no-store" => self.no_store = true,
            "private" => self.private = true,
            "must-revalidate" => self.must_revalidate = true,
            _ => {
                let name = word.strip_prefix("vary:").ok_or(UnknownWord)?.trim();
                self.vary.push(name.parse().map_err(|_| UnknownWord)?);
            }
        }
        Ok(())
    }
}

impl Ruling {
    /// Returns whether the ruling affects how a request is handled before its response is known.
    pub(crate) fn says_something_before(&self) -> bool {
        self.checks_authorization
            || self.checks_digest
            || self.caches_git
            || self.is_never_stored
            || self.ignores_client()
    }

    /// Returns whether the ruling sets a lifetime.
    pub fn gives_lifetime(&self) -> bool {
        self.fresh.is_some() || self.immutable
    }

    /// Returns whether requests with a Cookie are exempt from the ruling's lifetime.
    pub(crate) fn excludes_cookies(&self) -> bool {
        self.gives_lifetime() && !self.ignored.cookie
    }

    /// Returns the ruling for a request whose Cookie the rule does not ignore. It has no lifetime, and does not ignore
    /// the origin's directives against sharing.
    pub(crate) fn for_cookies(&self) -> Self {
        let ignored = IgnoredParts { private: false, no_store: false, set_cookie: false, ..self.ignored.clone() };
        Self { fresh: None, immutable: false, ignored, ..self.clone() }
    }

    /// Returns whether clients' cache directives are ignored.
    pub fn ignores_client(&self) -> bool {
        self.ignored.client_directives || self.immutable
    }

    /// Stores this ruling in a response's [`FIELD`], in place of any other.
    pub fn put(&self, fields: &mut HeaderMap) {
        fields.insert(FIELD, self.to_value());
    }

    /// Returns the ruling as the value of [`FIELD`]: a dictionary (RFC 9651 3.2).
    ///
    /// # Panics
    /// If [`is_name`] is false for the rule's name.
    pub fn to_value(&self) -> HeaderValue {
        assert!(is_name(&self.name), "a rule's name is checked when the rule is made");
        let mut text = format!("rule=\"{}\"", self.name);
        let mut flag = |name: &str, is_set: bool| {
            if is_set {
                text.push_str(", ");
                text.push_str(name);
            }
        };
        flag("never", self.is_never_stored);
        flag("immutable", self.immutable);
        flag("client-directives", self.ignored.client_directives);
        flag("authorization", self.ignored.authorization);
        flag("cookie", self.ignored.cookie);
        flag("set-cookie", self.ignored.set_cookie);
        flag("no-store", self.ignored.no_store);
        flag("private", self.ignored.private);
        flag("must-revalidate", self.ignored.must_revalidate);
        flag("follow", self.following != RedirectPolicy::None);
        flag("follow-to-http", self.following == RedirectPolicy::All);
        flag("check-authorization", self.checks_authorization);
        flag("check-digest", self.checks_digest);
        flag("git", self.caches_git);
        flag("credentials", self.answers_credentials);
        flag("verified", self.is_verified);
        flag("page", self.contradicts_url);
        if let Some(finishes) = self.finishes_abandoned {
            text.push_str(if finishes { ", finish" } else { ", finish=?0" });
        }
        if self.conditions != 0 {
            write!(text, ", conditions={}", self.conditions).expect("a string takes what is written to it");
        }
        if let Some(size) = self.size_max {
            write!(text, ", size-max={}", size.min(INTEGER_MAX)).expect("a string takes what is written to it");
        }
        let times = [
            ("fresh", self.fresh),
            ("while-revalidate", self.stale_while_revalidate),
            ("on-error", self.stale_if_error),
        ];
        for (name, time) in times.into_iter().filter_map(|(name, time)| Some((name, time?))) {
            write!(text, ", {name}={}", seconds_of(time)).expect("a string takes what is written to it");
        }
        for (name, fields) in [("vary", &self.ignored.vary), ("varies", &self.varies)] {
            if !fields.is_empty() {
                let names: Vec<&str> = fields.iter().map(HeaderName::as_str).collect();
                write!(text, ", {name}=\"{}\"", names.join(" ")).expect("a string takes what is written to it");
            }
        }
        if let Some(chain) = &self.chain {
            write!(text, ", {}", chain.to_members()).expect("a string takes what is written to it");
        }
        HeaderValue::try_from(text).expect("names of rules and fields are characters that a field may have")
    }

    /// Returns the ruling in a response's fields. `None` if they hold none, or if it cannot be parsed.
    #[inline]
    pub fn of(fields: &HeaderMap) -> Option<Self> {
        Self::parse(unusual_lines(fields, FIELD).next()?)
    }

    /// Returns the ruling in the value of [`FIELD`]. `None` if it is empty or cannot be parsed.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        if value.is_empty() {
            return None;
        }
        let dictionary: Dictionary = Parser::new(value).parse().ok()?;
        let mut ruling = Self::default();
        for (key, value) in &dictionary {
            let ListEntry::Item(item) = value else { continue };
            ruling.read(key.as_str(), &item.bare_item);
        }
        ruling.chain = Chain::of_members(&dictionary);
        Some(ruling)
    }

    fn read(&mut self, key: &str, value: &BareItem) {
        match (key, value) {
            ("rule", BareItem::String(name)) => name.as_str().clone_into(&mut self.name),
            ("never", _) => self.is_never_stored = true,
            ("immutable", _) => self.immutable = true,
            ("client-directives", _) => self.ignored.client_directives = true,
            ("authorization", _) => self.ignored.authorization = true,
            ("cookie", _) => self.ignored.cookie = true,
            ("set-cookie", _) => self.ignored.set_cookie = true,
            ("no-store", _) => self.ignored.no_store = true,
            ("private", _) => self.ignored.private = true,
            ("must-revalidate", _) => self.ignored.must_revalidate = true,
            ("follow", _) if self.following == RedirectPolicy::None => self.following = RedirectPolicy::Safe,
            ("follow-to-http", _) => self.following = RedirectPolicy::All,
            ("fresh", BareItem::Integer(secs)) => self.fresh = seconds(i64::from(*secs)),
            ("while-revalidate", BareItem::Integer(secs)) => self.stale_while_revalidate = seconds(i64::from(*secs)),
            ("on-error", BareItem::Integer(secs)) => self.stale_if_error = seconds(i64::from(*secs)),
            ("vary", BareItem::String(names)) => self.ignored.vary = field_names(names.as_str()),
            ("varies", BareItem::String(names)) => self.varies = field_names(names.as_str()),
            ("check-authorization", _) => self.checks_authorization = true,
            ("check-digest", _) => self.checks_digest = true,
            ("git", _) => self.caches_git = true,
            ("credentials", _) => self.answers_credentials = true,
            ("verified", _) => self.is_verified = true,
            ("page", _) => self.contradicts_url = true,
            ("finish", BareItem::Boolean(finishes)) => self.finishes_abandoned = Some(*finishes),
            ("conditions", BareItem::Integer(mark)) => self.conditions = u64::try_from(i64::from(*mark)).unwrap_or(0),
            ("size-max", BareItem::Integer(size)) => self.size_max = u64::try_from(i64::from(*size)).ok(),
            _ => {}
        }
    }

    /// Applies this ruling to a response's directives.
    pub(crate) fn apply(&self, directives: &mut ResponseDirectives) {
        let ignored = &self.ignored;
        directives.no_store &= !ignored.no_store;
        directives.private &= !ignored.private;
        directives.ignores_client |= self.ignores_client();
        directives.obeys_reload = !self.ignored.client_directives && !self.is_verified;
        directives.is_verified = self.is_verified;
        directives.contradicts_url = self.contradicts_url;
        directives.ignores_must_revalidate |= ignored.must_revalidate;
        directives.ignores_authorization |= ignored.authorization || self.checks_authorization;
        directives.checks_authorization |= self.checks_authorization && self.answers_credentials;
        directives.excludes_cookies |= self.excludes_cookies();
        directives.conditions = self.conditions;
        if ignored.set_cookie && !directives.withheld.contains(&SET_COOKIE) {
            directives.withheld.push(SET_COOKIE);
        }
        if let Some(chain) = &self.chain {
            chain.apply(directives);
        }
        if let Some(fresh) = self.fresh.or(self.immutable.then_some(YEAR)) {
            directives.fresh_after_receipt = Some(seconds_of(fresh));
            directives.fresh_within = None;
            directives.no_cache = false;
        }
        if let Some(window) = self.stale_while_revalidate {
            directives.stale_while_revalidate = Some(seconds_of(window));
        }
        if let Some(window) = self.stale_if_error {
            directives.stale_if_error = Some(seconds_of(window));
        }
        if self.is_never_stored {
            (directives.no_store, directives.must_understand) = (true, false);
        }
    }
}

/// Returns whether a text is a valid rule name: printable, short enough, and without characters that need escaping.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(|octet| (b' '..=b'~').contains(&octet) && octet != b'"' && octet != b'\\')
}

/// Returns a duration in whole seconds, at most the largest value of a directive (RFC 9111 1.2.2).
fn seconds_of(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).map_or(SECONDS_MAX, |secs| secs.min(SECONDS_MAX))
}

fn field_names(text: &str) -> Vec<HeaderName> {
    text.split(' ').filter_map(|name| name.parse().ok()).collect()
}

fn seconds(secs: i64) -> Option<Duration> {
    u64::try_from(secs).ok().map(Duration::from_secs)
}

/// The largest integer of a structured field (RFC 9651 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;
/// Maximum length of a rule's name, in bytes.
const NAME_LEN_MAX: usize = 200;
/// The largest number of seconds in a directive.
const SECONDS_MAX: u32 = 1 << 31;
/// Lifetime of a response that never changes.
const YEAR: Duration = Duration::from_hours(365 * 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruling_is_read_as_it_was_written() {
        let mut ignored = IgnoredParts::default();
        for word in IgnoredParts::WORDS {
            ignored.add(&word.replace("FIELD", "user-agent")).unwrap();
        }
        ignored.add("vary: Accept-Language").unwrap();
        let full = Ruling {
            name: "debs of 'the' mirror, 50%".into(),
            is_never_stored: true,
            fresh: Some(Duration::from_mins(10)),
            immutable: true,
            stale_while_revalidate: Some(Duration::from_secs(5)),
            stale_if_error: Some(Duration::ZERO),
            ignored,
            following: RedirectPolicy::All,
            varies: vec![http::header::ACCEPT],
            size_max: Some(1 << 30),
            finishes_abandoned: Some(false),
            checks_authorization: true,
            checks_digest: true,
            caches_git: true,
            answers_credentials: true,
            is_verified: true,
            contradicts_url: true,
            conditions: 77,
            chain: Some(Chain { fresh_secs: 5, forbids_stale: true, is_storable: false, first_to: 76, led_to: 77 }),
        };
        let finishing = Ruling { finishes_abandoned: Some(true), ..full.clone() };
        for ruling in [full, finishing, Ruling { name: "a".into(), ..Ruling::default() }] {
            let mut fields = HeaderMap::new();
            ruling.put(&mut fields);
            assert_eq!(Ruling::of(&fields), Some(ruling));
        }
        assert_eq!(Ruling::of(&HeaderMap::new()), None);
    }

    #[test]
    fn what_nobody_wrote_is_no_ruling_or_says_nothing() {
        for text in ["", "rule=(", "\"", "fresh=99999999999999999999"] {
            let fields = HeaderMap::from_iter([(FIELD, HeaderValue::from_static(text))]);
            assert!(Ruling::of(&fields).is_none_or(|ruling| ruling == Ruling::default()), "{text}");
        }
        let fields = HeaderMap::from_iter([(FIELD, HeaderValue::from_static("fresh=-5, vary=7, rule=x, more=(1 2)"))]);
        assert_eq!(Ruling::of(&fields), Some(Ruling::default()));
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for word in ["", "cookies", "vary", "vary: a b", "No-Store"] {
            assert_eq!(IgnoredParts::default().add(word), Err(UnknownWord), "{word}");
        }
    }

    #[test]
    fn names_that_a_field_cannot_hold_are_none() {
        for name in ["", "a\nb", "a\"b", "a\\b", "\u{e9}", &"x".repeat(NAME_LEN_MAX + 1)] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("npm: tarballs"));
    }
}
