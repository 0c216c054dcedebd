//! The operator's rules: which responses they match, and what they override.
//!
//! This module finds the rule for a response. The overrides are in [`Ruling`]. Invariants: only the first matching rule
//! applies. A stored response answers only requests to which its rule applies ([`Rules::agree`]). Cost: a hit pays
//! nothing if no rule has conditions on the request. An origin's response costs a host comparison per rule, then
//! comparisons of path, method, status, type and conditions for the rules that name them.

mod agreement;
mod conditions;
mod patterns;

use globset::GlobMatcher;
use http::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, COOKIE},
};

pub use self::agreement::RuleAgreement;
use self::{
    conditions::{NamedConditions, NamedKind},
    patterns::{ServerPattern, StatusPattern, TypePattern, media_type_pattern, method, path, server, status},
};
use crate::{
    fields::{Fields, media_type},
    ruling::{self, Ruling},
};

/// Rules in order of precedence. Only the first rule that matches a response applies to it.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode};
/// use larder_http::{Ruling, Rules, rules::{MatchTexts, Rule, RuledRequest}};
/// use std::time::Duration;
///
/// // Style sheets are fresh for a day, whatever their server says.
/// let texts = MatchTexts { paths: vec!["/**/*.css".to_owned()], ..MatchTexts::default() };
/// let name = "styles".to_owned();
/// let ruling = Ruling { name, fresh: Some(Duration::from_secs(86_400)), ..Ruling::default() };
/// let rules = Rules::new(vec![Rule::new(&texts, ruling).expect("a valid pattern")]);
///
/// let fields = HeaderMap::new();
/// let request = |path| RuledRequest {
///     method: &Method::GET,
///     scheme: "https",
///     authority: "example.com",
///     path,
///     fields: &fields,
/// };
/// assert!(rules.find(&request("/static/a.css"), StatusCode::OK, &HeaderMap::new()).is_some());
/// assert!(rules.find(&request("/static/a.js"), StatusCode::OK, &HeaderMap::new()).is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules {
    all: Vec<Rule>,
    /// Whether a rule has conditions on the request's cookies, fields or query.
    have_conditions: bool,
}

/// A rule of the operator: the responses that match, and the overrides for them.
///
/// ```
/// use larder_http::{Ruling, rules::{MatchTexts, Rule}};
///
/// let texts = MatchTexts { hosts: vec!["*.example.com".to_owned()], ..MatchTexts::default() };
/// let ruling = Ruling { name: "ours".to_owned(), is_never_stored: true, ..Ruling::default() };
/// assert!(Rule::new(&texts, ruling.clone()).is_ok());
///
/// let texts = MatchTexts { statuses: vec!["6xx".to_owned()], ..MatchTexts::default() };
/// assert_eq!(Rule::new(&texts, ruling).unwrap_err().found, "6xx");
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    matches: RuleMatches,
    ruling: Ruling,
    /// The ruling for errors. They get no lifetime from the rule unless the operator named their status.
    of_errors: Option<Ruling>,
    /// The ruling for web pages that come in place of files that never change. They get no lifetime from the rule
    /// unless the operator named their type.
    of_pages: Option<Ruling>,
    /// The ruling for requests with a Cookie. `None` if the rule treats them like others.
    of_cookies: Option<Ruling>,
}

/// The responses that a rule matches. A property that is not given matches everything.
#[derive(Clone, Debug, Default)]
struct RuleMatches {
    hosts: Vec<ServerPattern>,
    paths: Vec<GlobMatcher>,
    methods: Vec<Method>,
    statuses: Vec<StatusPattern>,
    types: Vec<TypePattern>,
    cookies: NamedConditions,
    fields: NamedConditions,
    queries: NamedConditions,
    test: Option<RequestTest>,
}

/// A test of a request for cases that patterns cannot describe.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode};
/// use larder_http::{Rules, Ruling, rules::{MatchTexts, RequestTest, Rule, RuledRequest}};
///
/// let is_secure: RequestTest = |request| request.scheme == "https";
/// let ruling = Ruling { name: "secure pages".to_owned(), immutable: true, ..Ruling::default() };
/// let rule = Rule::new(&MatchTexts::default(), ruling).expect("valid texts");
/// let rules = Rules::new(vec![rule.only_if(is_secure)]);
/// # let (method, fields) = (&Method::GET, HeaderMap::new());
/// let secure = RuledRequest { method, scheme: "https", authority: "a.example.com", path: "/", fields: &fields };
/// assert!(rules.find(&secure, StatusCode::OK, &fields).is_some());
/// let plain = RuledRequest { scheme: "http", ..secure };
/// assert!(rules.find(&plain, StatusCode::OK, &fields).is_none());
/// ```
pub type RequestTest = fn(&RuledRequest<'_>) -> bool;

/// The responses that a rule matches, as the operator writes them. An empty list matches everything.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode};
/// use larder_http::{Rules, Ruling, rules::{MatchTexts, Rule, RuledRequest}};
///
/// let texts = MatchTexts {
///     hosts: vec!["*.example.com".to_owned()],
///     types: vec!["image/*".to_owned()],
///     ..MatchTexts::default()
/// };
/// let ruling = Ruling { name: "images".to_owned(), immutable: true, ..Ruling::default() };
/// let rules = Rules::new(vec![Rule::new(&texts, ruling).expect("valid texts")]);
///
/// let (method, fields) = (&Method::GET, HeaderMap::new());
/// let request = RuledRequest { method, scheme: "https", authority: "a.example.com", path: "/x", fields: &fields };
/// let response = |media_type: &str| HeaderMap::from_iter([(http::header::CONTENT_TYPE, media_type.parse().unwrap())]);
/// assert!(rules.find(&request, StatusCode::OK, &response("image/png")).is_some());
/// assert!(rules.find(&request, StatusCode::OK, &response("text/html")).is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchTexts {
    /// Names of hosts, each with or without a port; `*.example.com` is every name below `example.com`.
    pub hosts: Vec<String>,
    /// Patterns of whole paths without query. `*` matches anything but a slash, `**` anything, `{a,b}` either.
    pub paths: Vec<String>,
    /// Methods; GET if none is named.
    pub methods: Vec<String>,
    /// Statuses, such as `404`, or `5xx` for a whole class. If none is named, the rule's lifetime applies to 2xx, 301
    /// and 308 only.
    pub statuses: Vec<String>,
    /// Media types: `image/png`, or `image/*`.
    pub types: Vec<String>,
    /// Conditions on the request's cookies: `NAME` or `NAME=VALUE`, in which `*` stands for any characters. A `!` in
    /// front means the opposite.
    ///
    /// A request meets them if at least one of its cookies matches a condition without `!`, and none matches a
    /// condition with `!`.
    pub cookies: Vec<String>,
    /// Conditions on the request's fields, in the form of [`MatchTexts::cookies`].
    pub fields: Vec<String>,
    /// Conditions on the arguments of the request's query, in the form of [`MatchTexts::cookies`].
    pub queries: Vec<String>,
}

/// The error for an invalid text in a rule.
///
/// ```
/// use larder_http::rules::MatchedPart;
///
/// assert_eq!(MatchedPart::Status.check("5xx"), Ok(()));
/// assert_eq!(MatchedPart::Status.check("6xx").unwrap_err().found, "6xx");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// The expected kind of value, such as "a status".
    pub expected: &'static str,
    /// The invalid text.
    pub found: String,
}

/// The properties of a request that rules compare.
///
/// ```
/// use http::{HeaderMap, Method};
/// use larder_http::{Rules, rules::RuledRequest};
///
/// let fields = HeaderMap::from_iter([(http::header::ACCEPT, "text/html".parse()?)]);
/// let (method, authority) = (&Method::GET, "a.example:8080");
/// let request = RuledRequest { method, scheme: "http", authority, path: "/x?n=1", fields: &fields };
/// assert_eq!(request.accept(), "text/html");
/// assert!(Rules::default().find_before(&request).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RuledRequest<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The host, with or without port, in lower case.
    pub authority: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// The request's fields.
    pub fields: &'a HeaderMap,
}

/// A property that a rule can match. Use [`MatchedPart::check`] to refuse an invalid text where the operator wrote it.
///
/// ```
/// use larder_http::rules::MatchedPart;
///
/// assert!(MatchedPart::Host.check("*.example.com").is_ok());
/// assert!(MatchedPart::Type.check("image/*").is_ok());
/// assert!(MatchedPart::Type.check("image").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedPart {
    /// One of [`MatchTexts::hosts`].
    Host,
    /// One of [`MatchTexts::paths`].
    Path,
    /// One of [`MatchTexts::methods`].
    Method,
    /// One of [`MatchTexts::statuses`].
    Status,
    /// One of [`MatchTexts::types`].
    Type,
    /// One of [`MatchTexts::cookies`], [`MatchTexts::fields`] or [`MatchTexts::queries`].
    Condition,
}

impl MatchedPart {
    /// Checks that `text` is valid for this property.
    ///
    /// # Errors
    /// The text is invalid. The error says what is expected.
    pub fn check(self, text: &str) -> Result<(), BadRule> {
        match self {
            Self::Host => server(text).map(drop),
            Self::Path => path(text).map(drop),
            Self::Method => method(text).map(drop),
            Self::Status => status(text).map(drop),
            Self::Type => media_type_pattern(text).map(drop),
            Self::Condition => conditions::check(text),
        }
    }
}

/// Returns a path pattern that matches only `text`, in which `*` and other special characters are escaped.
pub fn literal_path(text: &str) -> String {
    globset::escape(text)
}

/// Checks that a text is a valid rule name.
///
/// # Errors
/// The text is not a valid name. The error says what is expected.
pub fn check_name(text: &str) -> Result<(), BadRule> {
    if ruling::is_name(text) {
        return Ok(());
    }
    Err(bad("1 to 200 printable characters other than \" and \\", text))
}

impl Rules {
    /// Creates the rules, in order of precedence.
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut all = Self::default();
        all.extend(rules);
        all
    }

    /// Adds rules with lower precedence than these.
    pub fn extend(&mut self, rules: impl IntoIterator<Item = Rule>) {
        self.all.extend(rules);
        self.have_conditions = self.all.iter().any(|rule| rule.ruling.conditions != 0);
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the ruling of the first rule that matches a response.
    pub fn find(&self, request: &RuledRequest<'_>, status: StatusCode, fields: &impl Fields) -> Option<&Ruling> {
        let rule = self.all.iter().find(|rule| rule.matches.is_about(request, status, fields))?;
        // A page in place of a file gets no lifetime, whatever the request, and is named as such.
        let is_page_for_file = about(status).is_success() && is_page(fields);
        let of_pages = rule.of_pages.as_ref().filter(|_| is_page_for_file);
        let of_cookies = rule.of_cookies.as_ref().filter(|_| request.fields.contains_key(COOKIE));
        let of_errors = rule.of_errors.as_ref().filter(|_| !is_kept_unnamed(status));
        Some(of_pages.or(of_cookies).or(of_errors).unwrap_or(&rule.ruling))
    }

    /// Returns whether a response to this request may be a file that never changes. The response's type, which is not
    /// known yet, can decide this.
    pub fn may_never_change(&self, request: &RuledRequest<'_>) -> bool {
        self.all.iter().any(|rule| rule.ruling.immutable && rule.matches.names(request))
    }

    /// Returns the ruling to apply before the response is known: that of the first rule that would match a response
    /// with status 200.
    ///
    /// Rules that name types are left out, because the type is not known yet.
    pub fn find_before(&self, request: &RuledRequest<'_>) -> Option<&Ruling> {
        let is_meant = |rule: &&Rule| {
            let RuleMatches { statuses, types, .. } = &rule.matches;
            types.is_empty() && is_any(statuses, |pattern| pattern.is(StatusCode::OK)) && rule.matches.names(request)
        };
        if !self.all.iter().any(|rule| rule.ruling.says_something_before()) {
            return None;
        }
        self.all.iter().find(is_meant).map(|rule| &rule.ruling)
    }
}

impl Rule {
    /// Creates a rule that applies `ruling` to the responses that `texts` describes.
    ///
    /// # Errors
    /// The name or one of the texts is invalid. The error says which, and what is expected.
    pub fn new(texts: &MatchTexts, mut ruling: Ruling) -> Result<Self, BadRule> {
        check_name(&ruling.name)?;
        let matches = RuleMatches::new(texts)?;
        // A rule that names cookies knows which of them matter.
        ruling.ignored.cookie |= !texts.cookies.is_empty();
        ruling.conditions = texts.mark_of_conditions();
        let gives_lifetime = ruling.gives_lifetime();
        let of_errors = (texts.statuses.is_empty() && gives_lifetime).then(|| Ruling {
            fresh: None,
            immutable: false,
            ..ruling.clone()
        });
        let of_pages = (ruling.immutable && !matches.names_pages()).then(|| Ruling {
            contradicts_url: true,
            fresh: None,
            immutable: false,
            ..ruling.clone()
        });
        let of_cookies = ruling.excludes_cookies().then(|| ruling.for_cookies());
        Ok(Self { matches, ruling, of_errors, of_pages, of_cookies })
    }

    /// Narrows the rule to responses to requests that pass `test`.
    pub fn only_if(mut self, test: RequestTest) -> Self {
        self.matches.test = Some(test);
        self
    }
}

impl RuledRequest<'_> {
    /// Returns the value of Accept; empty if there is none.
    pub fn accept(&self) -> &str {
        self.fields.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Returns whether a response with this status gets a lifetime from a rule that names no status.
///
/// Errors and temporary redirects get none: they would be served after their cause is gone, and no client could reload
/// them.
fn is_kept_unnamed(status: StatusCode) -> bool {
    let status = about(status);
    status.is_success() || matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::PERMANENT_REDIRECT)
}

/// Returns whether a response is a web page.
fn is_page(fields: &impl Fields) -> bool {
    media_type(fields).is_some_and(|found| PAGE_TYPES.iter().any(|page| page.eq_ignore_ascii_case(found)))
}

/// Returns the status to match. A 304 and a 206 count as 200, because they update or are part of a response with that
/// status.
fn about(status: StatusCode) -> StatusCode {
    if matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED) { StatusCode::OK } else { status }
}

impl RuleMatches {
    fn new(texts: &MatchTexts) -> Result<Self, BadRule> {
        Ok(Self {
            hosts: texts.hosts.iter().map(|text| server(text)).collect::<Result<_, _>>()?,
            paths: texts.paths.iter().map(|text| path(text)).collect::<Result<_, _>>()?,
            methods: texts.methods.iter().map(|text| method(text)).collect::<Result<_, _>>()?,
            statuses: texts.statuses.iter().map(|text| status(text)).collect::<Result<_, _>>()?,
            types: texts.types.iter().map(|text| media_type_pattern(text)).collect::<Result<_, _>>()?,
            cookies: NamedConditions::new(&texts.cookies, NamedKind::Cookie)?,
            fields: NamedConditions::new(&texts.fields, NamedKind::Field)?,
            queries: NamedConditions::new(&texts.queries, NamedKind::Query)?,
            test: None,
        })
    }

    fn is_about(&self, request: &RuledRequest<'_>, status: StatusCode, fields: &impl Fields) -> bool {
        self.names(request)
            && is_any(&self.statuses, |pattern| pattern.is(status))
            && is_any(&self.types, |pattern| pattern.is(fields))
    }

    /// Returns whether the operator named a type of web pages. A pattern such as `application/*` does not name one.
    fn names_pages(&self) -> bool {
        self.types.iter().any(|named| matches!(named, TypePattern::Exact(exact) if PAGE_TYPES.contains(&&**exact)))
    }

    /// Returns whether the rule can match a response to this request, whatever the response's status and type.
    fn names(&self, request: &RuledRequest<'_>) -> bool {
        let path = request.path.split('?').next().unwrap_or_default();
        let is_named_method = match self.methods.as_slice() {
            [] => *request.method == Method::GET || *request.method == Method::HEAD,
            methods => methods.contains(request.method),
        };
        is_any(&self.hosts, |server| server.is(request))
            && is_named_method
            && is_any(&self.paths, |pattern| pattern.is_match(path))
            && self.cookies.are_met_by_cookies(request.fields)
            && self.fields.are_met_by_fields(request.fields)
            && self.queries.are_met_by_query(request.path)
            && self.test.is_none_or(|test| test(request))
    }
}

/// Returns whether one of the patterns matches. An empty list matches everything.
fn is_any<T>(patterns: &[T], is: impl Fn(&T) -> bool) -> bool {
    patterns.is_empty() || patterns.iter().any(is)
}

fn bad(expected: &'static str, found: &str) -> BadRule {
    BadRule { expected, found: found.to_owned() }
}

/// Media types of web pages. A network's login page has one of them, whatever URL was requested.
const PAGE_TYPES: [&str; 2] = ["text/html", "application/xhtml+xml"];

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[(&str, MatchTexts)]) -> Rules {
        let rule = |(name, texts): &(&str, MatchTexts)| {
            Rule::new(texts, Ruling { name: (*name).to_owned(), ..Ruling::default() }).unwrap()
        };
        Rules::new(texts.iter().map(rule).collect())
    }

    fn named(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Returns the name of the rule that matches a response with this status and type to a GET of `url`.
    fn found(rules: &Rules, url: &str, (status, content_type): (u16, &str)) -> String {
        let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        let mut fields = HeaderMap::new();
        if !content_type.is_empty() {
            fields.insert(http::header::CONTENT_TYPE, content_type.parse().unwrap());
        }
        let none = HeaderMap::new();
        let request = RuledRequest { method: &Method::GET, scheme: "http", authority, path, fields: &none };
        let ruling = rules.find(&request, StatusCode::from_u16(status).unwrap(), &fields);
        ruling.map_or_else(|| "-".to_owned(), |ruling| ruling.name.clone())
    }

    #[test]
    fn the_first_rule_that_names_a_response_counts() {
        let all = MatchTexts::default();
        let rules = rules(&[
            ("tarballs", MatchTexts { paths: named(&["/**/*.{tgz,whl}"]), ..all.clone() }),
            ("images", MatchTexts { types: named(&["image/*"]), statuses: named(&["200"]), ..all.clone() }),
            ("missing", MatchTexts { statuses: named(&["404", "5xx"]), ..all.clone() }),
            ("below", MatchTexts { hosts: named(&["*.deb.example", "[::1]"]), ..all.clone() }),
            ("port", MatchTexts { hosts: named(&["ported.example:8081"]), ..all.clone() }),
            ("http", MatchTexts { hosts: named(&["ported.example:80"]), ..all.clone() }),
            ("apex", MatchTexts { hosts: named(&["Deb.Example"]), paths: named(&["/a/*"]), ..all }),
        ]);
        for (url, answer, expected) in [
            ("x/a/b.tgz?v=/q", (200, "image/png"), "tarballs"),
            ("x/b.whl", (404, ""), "tarballs"),
            ("x/a.png", (200, "Image/PNG; q=1"), "images"),
            ("x/a.png", (304, "image/png"), "images"),
            ("x/a.png", (206, "image/png"), "images"),
            ("x/a.png", (201, "image/png"), "-"),
            ("x/a", (503, ""), "missing"),
            ("a.deb.example:8080/", (200, "text/html"), "below"),
            ("[::1]:80/", (200, ""), "below"),
            ("deb.example/a/b", (200, ""), "apex"),
            ("deb.example/a/b/c", (200, ""), "-"),
            ("adeb.example/a/b", (200, ""), "-"),
            ("ported.example:8081/a", (200, ""), "port"),
            ("ported.example/a", (200, ""), "http"),
            ("ported.example:8082/a", (200, ""), "-"),
            (".deb.example/a/b", (200, ""), "-"),
        ] {
            assert_eq!(found(&rules, url, answer), expected, "{url} {answer:?}");
        }
    }

    #[test]
    fn other_methods_are_meant_only_where_they_are_named() {
        let texts = MatchTexts { methods: named(&["POST"]), ..MatchTexts::default() };
        for (method, texts, is_meant) in [
            (Method::POST, &texts, true),
            (Method::GET, &texts, false),
            (Method::POST, &MatchTexts::default(), false),
            (Method::HEAD, &MatchTexts::default(), true),
        ] {
            let none = HeaderMap::new();
            let request = RuledRequest { method: &method, scheme: "http", authority: "a", path: "/", fields: &none };
            let rules = rules(&[("a", texts.clone())]);
            assert_eq!(rules.find(&request, StatusCode::OK, &HeaderMap::new()).is_some(), is_meant, "{method}");
        }
    }

    /// Guards against a network's login page, stored for a year in place of a package.
    #[test]
    fn web_page_is_never_kept_as_a_file_unless_its_type_is_named() {
        let ruled = |types: &[&str], status: u16, content_type: &str| {
            let texts = MatchTexts { types: named(types), ..MatchTexts::default() };
            let ruling = Ruling { name: "a".into(), immutable: true, ..Ruling::default() };
            let rules = Rules::new(vec![Rule::new(&texts, ruling).unwrap()]);
            let none = HeaderMap::new();
            let request =
                RuledRequest { method: &Method::GET, scheme: "http", authority: "a", path: "/", fields: &none };
            let fields = HeaderMap::from_iter([(http::header::CONTENT_TYPE, content_type.parse().unwrap())]);
            let found = rules.find(&request, StatusCode::from_u16(status).unwrap(), &fields)?;
            Some((found.immutable, found.contradicts_url))
        };
        let kept = Some((true, false));
        let refused = Some((false, true));
        for (types, status, content_type, expected) in [
            (&[][..], 200, "application/vnd.debian.binary-package", kept),
            (&[], 200, "text/html", refused),
            (&[], 200, "Text/HTML; charset=utf-8", refused),
            (&[], 304, "text/html", refused),
            (&[], 206, "text/html", refused),
            (&[], 200, "application/xhtml+xml", refused),
            (&[], 301, "text/html", kept),
            (&[], 404, "text/html", Some((false, false))),
            (&["text/html"], 200, "text/html", kept),
            (&["application/*"], 200, "application/xhtml+xml", refused),
            (&["text/*", "application/xhtml+xml"], 200, "text/html", kept),
            (&["text/plain"], 200, "text/html", None),
        ] {
            assert_eq!(ruled(types, status, content_type), expected, "{types:?} {status} {content_type}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused_and_told() {
        let all = MatchTexts::default;
        for (texts, found) in [
            (MatchTexts { hosts: named(&["a", "http://b"]), ..all() }, "http://b"),
            (MatchTexts { hosts: named(&["a:http"]), ..all() }, "a:http"),
            (MatchTexts { hosts: named(&["a:0"]), ..all() }, "a:0"),
            (MatchTexts { hosts: named(&["*"]), ..all() }, "*"),
            (MatchTexts { hosts: named(&["*a.b"]), ..all() }, "*a.b"),
            (MatchTexts { paths: named(&["a/b"]), ..all() }, "a/b"),
            (MatchTexts { paths: named(&["/a[b"]), ..all() }, "/a[b"),
            (MatchTexts { methods: named(&["GE T"]), ..all() }, "GE T"),
            (MatchTexts { statuses: named(&["99"]), ..all() }, "99"),
            (MatchTexts { statuses: named(&["1xx"]), ..all() }, "1xx"),
            (MatchTexts { types: named(&["png"]), ..all() }, "png"),
            (MatchTexts { types: named(&["*/*"]), ..all() }, "*/*"),
            (MatchTexts { cookies: named(&["a", "!"]), ..all() }, "!"),
            (MatchTexts { fields: named(&["a: b"]), ..all() }, "a: b"),
            (MatchTexts { queries: named(&["=b"]), ..all() }, "=b"),
        ] {
            let refused = Rule::new(&texts, Ruling { name: "a".into(), ..Ruling::default() }).unwrap_err();
            assert_eq!(refused.found, found);
        }
        assert!(Rule::new(&all(), Ruling::default()).is_err());
    }
}
