//! Patterns of URLs, with which operators select stored responses.
//!
//! A pattern uses the normal form of keys: the host in lower case, no default port, no fragment. Cost: one pass over
//! the URL for all patterns together.

use std::{fmt, str::FromStr};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::key::{default_port, split_authority};

/// A pattern that matches one or several URLs. `*` stands for any characters.
///
/// `https://a.example/x` names one URL. `https://a.example/*` and `https://a.example` name every URL of that origin. A
/// pattern without `https://` or `http://` names both schemes.
///
/// ```
/// use larder_http::UrlPattern;
///
/// let pattern: UrlPattern = "https://A.Example:443/img/*".parse()?;
/// assert_eq!(pattern.as_str(), "https://a.example/img/*");
/// # Ok::<(), larder_http::BadUrlPattern>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UrlPattern(Box<str>);

/// A set of URL patterns.
///
/// ```
/// use larder_http::UrlPatterns;
///
/// let patterns = UrlPatterns::new(["https://a.example/img/*".parse()?, "b.example".parse()?]);
/// assert!(patterns.contain("https://a.example/img/1.png"));
/// assert_eq!(patterns.which("http://b.example/x"), [1]);
/// # Ok::<(), larder_http::BadUrlPattern>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct UrlPatterns {
    patterns: Vec<UrlPattern>,
    set: GlobSet,
}

/// The error for a text that is not a URL pattern. Its message contains the text.
///
/// ```
/// use larder_http::{BadUrlPattern, UrlPattern};
///
/// let error: BadUrlPattern = "ftp://a.example/".parse::<UrlPattern>().unwrap_err();
/// assert!(error.to_string().contains("ftp://a.example/"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrlPattern {
    why: &'static str,
    text: Box<str>,
}

impl UrlPattern {
    /// Returns the pattern in its normal form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the pattern in the syntax of `globset`, with everything but `*` escaped.
    fn glob(&self) -> String {
        let literals: Vec<_> = self.0.split('*').map(globset::escape).collect();
        let glob = literals.join("*");
        if self.0.contains("://") { glob } else { format!("{{http,https}}://{glob}") }
    }
}

impl FromStr for UrlPattern {
    type Err = BadUrlPattern;

    fn from_str(text: &str) -> Result<Self, BadUrlPattern> {
        let bad = |why| Err(BadUrlPattern { why, text: text.chars().take(SHOWN_CHARS).collect() });
        if text.len() > PATTERN_BYTES_MAX {
            return bad("longer than 4096 characters");
        }
        if text.is_empty() || !text.bytes().all(|octet| octet.is_ascii_graphic()) {
            return bad("it must be one word of ASCII, as URLs are");
        }
        let text = text.split('#').next().unwrap_or_default();
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
            None => (None, text),
        };
        if scheme.as_deref().is_some_and(|scheme| scheme != "http" && scheme != "https") {
            return bad("it must begin with http://, https:// or a host");
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // A star stands for any host here, although no host may contain one.
        let Some((host, port)) = split_authority(authority).filter(|_| !authority.contains('?')) else {
            return bad("it has no host");
        };
        let is_default = |port: &u16| scheme.as_deref().and_then(default_port) == Some(*port);
        let port = port.filter(|port| !is_default(port)).map_or(String::new(), |port| format!(":{port}"));
        let path = if path.is_empty() { "/*" } else { path };
        let scheme = scheme.map_or(String::new(), |scheme| format!("{scheme}://"));
        Ok(Self(format!("{scheme}{}{port}{path}", host.to_ascii_lowercase()).into()))
    }
}

impl UrlPatterns {
    /// Creates a set of patterns without duplicates.
    pub fn new(patterns: impl IntoIterator<Item = UrlPattern>) -> Self {
        let mut own: Vec<UrlPattern> = Vec::new();
        let mut known = std::collections::HashSet::new();
        own.extend(patterns.into_iter().filter(|pattern| known.insert(pattern.clone())));
        let mut set = GlobSetBuilder::new();
        for pattern in &own {
            let glob = GlobBuilder::new(&pattern.glob()).literal_separator(false).build();
            set.add(glob.expect("all but stars and our own braces is escaped"));
        }
        Self { patterns: own, set: set.build().expect("each of them was built") }
    }

    /// Returns all patterns in their original order.
    pub fn all(&self) -> &[UrlPattern] {
        &self.patterns
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns whether a pattern matches the URL.
    pub fn contain(&self, url: &str) -> bool {
        self.set.is_match(url)
    }

    /// Returns the indexes in [`Self::all`] of the patterns that match the URL.
    pub fn which(&self, url: &str) -> Vec<usize> {
        self.set.matches(url)
    }
}

impl fmt::Display for UrlPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BadUrlPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a URL pattern, {}: `{}`", self.why, self.text)
    }
}

impl std::error::Error for BadUrlPattern {}

/// Maximum length of a pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 4096;
/// Maximum number of characters of an invalid pattern that an error message quotes.
const SHOWN_CHARS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pattern: &str, url: &str) -> bool {
        UrlPatterns::new([pattern.parse().unwrap()]).contain(url)
    }

    #[test]
    fn a_star_is_any_characters_and_all_else_is_itself() {
        for (pattern, url) in [
            ("http://a.example/x", "http://a.example/x"),
            ("HTTP://A.Example:80/X?q=[1]{2}#top", "http://a.example/X?q=[1]{2}"),
            ("http://a.example/*", "http://a.example/x/y.deb?z"),
            ("http://a.example", "http://a.example/"),
            ("a.example", "https://a.example/x"),
            ("a.example:8080/x*", "http://a.example:8080/x/1"),
            ("https://*.example/*.whl", "https://b.a.example/p/x-1.whl"),
            ("*", "https://anything.example/x"),
            ("[::1]:81/*", "http://[::1]:81/"),
        ] {
            assert!(named(pattern, url), "{pattern} {url}");
        }
        for (pattern, url) in [
            ("http://a.example/x", "http://a.example/x/"),
            ("http://a.example/?", "http://a.example/y"),
            ("http://a.example/{a,b}", "http://a.example/a"),
            ("http://a.example/*", "https://a.example/x"),
            ("http://a.example/*", "http://a.example.evil/x"),
            ("*.example.com", "https://example.com/"),
        ] {
            assert!(!named(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told_why() {
        for (text, why) in [
            ("", "one word of ASCII"),
            ("http://a.example/a b", "one word of ASCII"),
            ("ftp://a.example/", "must begin with http://"),
            ("http:///x", "has no host"),
            ("http://user@a.example/", "has no host"),
            ("/a/list", "has no host"),
            ("http://a.example:port/", "has no host"),
        ] {
            let told = text.parse::<UrlPattern>().unwrap_err().to_string();
            assert!(told.contains(why), "{text}: {told}");
        }
        assert!("x".repeat(5000).parse::<UrlPattern>().is_err());
    }

    #[test]
    fn several_are_kept_once_each_and_tell_which() {
        let patterns = ["a.example/*", "http://A.example/*", "a.example/*", "b.example/x"];
        let patterns = UrlPatterns::new(patterns.map(|pattern| pattern.parse().unwrap()));
        assert_eq!(patterns.all().len(), 3);
        assert_eq!(patterns.which("http://a.example/x"), [0, 1]);
        assert!(patterns.which("http://c.example/").is_empty() && !patterns.is_empty());
    }
}
