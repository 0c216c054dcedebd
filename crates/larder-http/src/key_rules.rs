//! Applies the operator's rules for keys: query arguments to ignore, and alternative URL prefixes of the same content.
//!
//! The rules change only the primary key. The request goes to its origin unchanged. Invariants: if no rule names a URL,
//! its key is unchanged. A rule removes whole arguments by name, and replaces a prefix only at the end of a path
//! segment, so it never merges keys that it does not name. Cost: one comparison of octets per rule.

use http::Uri;

use crate::{
    key::{KIND_PRIMARY, KeyError, normal_authority, primary_key, push_primary_key},
    steps,
};

/// The operator's rules for keys, in order of precedence. Only the first rule that names a URL applies to it.
///
/// ```
/// use larder_http::key_rules::{KeyRule, KeyRules};
///
/// // Links from newsletters have the same pages as others, and a mirror has the same files as its server.
/// let newsletter = KeyRule::new(&["https://a.example/".to_owned()], &["utm_*".to_owned()], None)?;
/// let mirror = KeyRule::new(&["https://mirror.example/pub/".to_owned()], &[], Some("https://b.example/"))?;
/// let rules = KeyRules::new(vec![newsletter, mirror]);
/// assert_eq!(rules.key("https", "a.example", "/x?utm_source=mail&n=1"), rules.key("https", "a.example", "/x?n=1"));
/// assert_eq!(rules.key("https", "mirror.example", "/pub/1.iso"), rules.key("https", "b.example", "/1.iso"));
/// # Ok::<(), larder_http::key_rules::KeyRuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules(Vec<KeyRule>);

/// A rule that changes the keys of some URLs, because they lead to the same content as others.
///
/// ```
/// use larder_http::key_rules::{KeyRule, KeyRules};
///
/// let rule = KeyRule::new(&["https://a.example/".to_owned()], &["session".to_owned()], None)?;
/// let rules = KeyRules::new(vec![rule]);
/// let key = |path| rules.key("https", "a.example", path);
/// assert_eq!(key("/x?session=1"), key("/x?session=2"));
/// assert_ne!(key("/x?page=1"), key("/x?page=2"));
/// # Ok::<(), larder_http::key_rules::KeyRuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// The URL prefixes that the rule applies to, in the form of primary keys.
    prefixes: Vec<Vec<u8>>,
    stripped: Vec<StrippedArgument>,
    /// The prefix that stands in keys in place of every prefix in `prefixes`.
    stands: Option<Vec<u8>>,
    /// Whether a container registry's blob has the same key in every repository, because its digest identifies it.
    joins_blobs: bool,
}

/// A query argument that the rule leaves out of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StrippedArgument {
    Named(Box<[u8]>),
    /// Every argument whose name begins with these octets.
    Beginning(Box<[u8]>),
}

/// Why a rule for keys is invalid, so that the program can show the cause at its start.
///
/// ```
/// use larder_http::key_rules::{KeyRule, KeyRuleError};
///
/// let rule = |url: &str, argument: &str| KeyRule::new(&[url.to_owned()], &[argument.to_owned()], None);
/// assert_eq!(rule("a.example", "session"), Err(KeyRuleError::Url));
/// assert_eq!(rule("https://a.example/", "*_id"), Err(KeyRuleError::Argument));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRuleError {
    /// The text is not a URL of `http` or `https` without a query.
    Url,
    /// The text is neither the name of a query argument nor the beginning of one followed by `*`.
    Argument,
    /// The rule names no URL, or changes nothing.
    Empty,
}

impl KeyRules {
    /// Creates the rules, in order of precedence.
    pub fn new(rules: Vec<KeyRule>) -> Self {
        Self(rules)
    }

    /// Adds a rule after all others.
    pub fn push(&mut self, rule: KeyRule) {
        self.0.push(rule);
    }

    /// Returns the rules, in order of precedence, for programs that compute the same keys.
    pub fn rules(&self) -> &[KeyRule] {
        &self.0
    }

    /// Returns the key of a resource under these rules; see [`primary_key`].
    ///
    /// # Errors
    /// The same as for [`primary_key`].
    pub fn key(&self, scheme: &str, authority: &str, path_and_query: &str) -> Result<Vec<u8>, KeyError> {
        let mut key = Vec::new();
        self.write_key((scheme, authority, path_and_query), &mut key)?;
        Ok(key)
    }

    /// Writes the key of a resource under these rules to `key`, in place of its content, so that one buffer serves many
    /// lookups. `url` is the scheme, the authority, and the path with query.
    ///
    /// ```
    /// use larder_http::key_rules::KeyRules;
    ///
    /// let mut key = Vec::new();
    /// KeyRules::default().write_key(("http", "a.example", "/x"), &mut key)?;
    /// assert_eq!(key, KeyRules::default().key("http", "a.example", "/x")?);
    /// # Ok::<(), larder_http::key::KeyError>(())
    /// ```
    ///
    /// # Errors
    /// The same as for [`primary_key`]. In case of an error, `key` is empty.
    pub fn write_key(&self, url: (&str, &str, &str), key: &mut Vec<u8>) -> Result<(), KeyError> {
        key.clear();
        push_primary_key(url, key)?;
        steps::take(key.len());
        let matched =
            self.0.iter().find_map(|rule| rule.prefixes.iter().find(|prefix| begins(key, prefix)).zip(Some(rule)));
        if let Some((prefix, rule)) = matched {
            *key = rule.apply(key, prefix);
        }
        Ok(())
    }
}

impl KeyRule {
    /// Creates a rule for the URLs that begin with one of `urls`.
    ///
    /// The rule removes the arguments that `stripped` names from the keys of these URLs; `utm_*` names all arguments
    /// that begin with `utm_`. If `stands` is given, it replaces the matching prefix in the keys.
    ///
    /// # Errors
    /// A text is invalid, `urls` is empty, or the rule would change nothing.
    pub fn new(urls: &[String], stripped: &[String], stands: Option<&str>) -> Result<Self, KeyRuleError> {
        if urls.is_empty() || (stripped.is_empty() && stands.is_none()) {
            return Err(KeyRuleError::Empty);
        }
        Ok(Self {
            prefixes: urls.iter().map(|url| url_prefix(url)).collect::<Result<_, _>>()?,
            stripped: stripped.iter().map(|name| argument(name)).collect::<Result<_, _>>()?,
            stands: stands.map(url_prefix).transpose()?,
            joins_blobs: false,
        })
    }

    /// Creates a rule for a container registry whose API is below `url`.
    ///
    /// A blob has one key in all repositories, because its digest identifies it.
    ///
    /// # Errors
    /// `url` is not a URL.
    pub fn joining_blobs(url: &str) -> Result<Self, KeyRuleError> {
        Ok(Self { prefixes: vec![url_prefix(url)?], stripped: Vec::new(), stands: None, joins_blobs: true })
    }

    /// Returns the URL prefixes that the rule matches, in the form that they have in keys.
    pub fn prefixes(&self) -> impl Iterator<Item = &str> {
        self.prefixes.iter().map(|prefix| url_of(prefix))
    }

    /// Returns the URL prefix that replaces those of [`KeyRule::prefixes`], if there is one.
    pub fn stands(&self) -> Option<&str> {
        self.stands.as_deref().map(url_of)
    }

    /// Returns the names of the arguments that are left out of keys. If the flag is true, the name is a prefix and
    /// stands for every name that begins with it.
    pub fn stripped(&self) -> impl Iterator<Item = (&str, bool)> {
        self.stripped.iter().map(|stripped| match stripped {
            StrippedArgument::Named(name) => (text_of(name), false),
            StrippedArgument::Beginning(beginning) => (text_of(beginning), true),
        })
    }

    fn apply(&self, key: &[u8], prefix: &[u8]) -> Vec<u8> {
        // Each argument is compared with each name.
        steps::take(key.len() * (1 + self.stripped.len()));
        if self.joins_blobs {
            let prefix = without_slash(prefix);
            let at = key.windows(BLOBS.len()).rposition(|window| window == BLOBS).filter(|at| *at >= prefix.len());
            let names_digest = |at: &usize| key[at + BLOBS.len()..].contains(&b':') && !key.contains(&b'?');
            return at.filter(names_digest).map_or_else(|| key.to_vec(), |at| [prefix, &key[at..]].concat());
        }
        let mut new = match &self.stands {
            // Both prefixes lose their last slash. The remainder then begins with a slash or a query, or is empty.
            Some(stands) => [without_slash(stands), &key[without_slash(prefix).len()..]].concat(),
            None => key.to_vec(),
        };
        let Some(query) = new.iter().position(|octet| *octet == b'?') else { return new };
        let kept = |argument: &&[u8]| {
            let name = argument.split(|octet| *octet == b'=').next().unwrap_or_default();
            !self.stripped.iter().any(|stripped| stripped.is(name))
        };
        let arguments = &new[query + 1..];
        if arguments.split(|octet| *octet == b'&').all(|argument| kept(&argument)) {
            return new;
        }
        let rest: Vec<&[u8]> = arguments.split(|octet| *octet == b'&').filter(kept).collect();
        let rest = rest.join(&b'&');
        new.truncate(query);
        if !rest.is_empty() {
            new.push(b'?');
            new.extend(rest);
        }
        new
    }
}

impl StrippedArgument {
    fn is(&self, name: &[u8]) -> bool {
        match self {
            Self::Named(named) => **named == *name,
            Self::Beginning(beginning) => name.starts_with(beginning),
        }
    }
}

/// Returns the URL of a primary key.
fn url_of(key: &[u8]) -> &str {
    text_of(key.strip_prefix(&[KIND_PRIMARY]).unwrap_or(key))
}

fn text_of(octets: &[u8]) -> &str {
    std::str::from_utf8(octets).expect("rules are made of texts")
}

/// The part of a blob's path before the digest.
const BLOBS: &[u8] = b"/blobs/";

/// Returns whether a key equals the prefix or lies below it.
fn begins(key: &[u8], prefix: &[u8]) -> bool {
    let prefix = without_slash(prefix);
    key.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/' | b'?', ..]))
}

fn without_slash(prefix: &[u8]) -> &[u8] {
    prefix.strip_suffix(b"/").unwrap_or(prefix)
}

fn url_prefix(url: &str) -> Result<Vec<u8>, KeyRuleError> {
    let uri: Uri = url.parse().map_err(|_| KeyRuleError::Url)?;
    let (Some(scheme), Some(authority), None) = (uri.scheme_str(), uri.authority(), uri.query()) else {
        return Err(KeyRuleError::Url);
    };
    let authority = normal_authority(scheme, authority.as_str()).ok_or(KeyRuleError::Url)?;
    primary_key(scheme, &authority, uri.path()).map_err(|_| KeyRuleError::Url)
}

fn argument(name: &str) -> Result<StrippedArgument, KeyRuleError> {
    let is_name = |name: &str| name.bytes().all(|octet| octet.is_ascii_graphic() && !b"&=?#*".contains(&octet));
    match name.strip_suffix('*') {
        Some(beginning) if is_name(beginning) => Ok(StrippedArgument::Beginning(beginning.as_bytes().into())),
        None if is_name(name) && !name.is_empty() => Ok(StrippedArgument::Named(name.as_bytes().into())),
        _ => Err(KeyRuleError::Argument),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(urls: &[&str], stripped: &[&str], stands: Option<&str>) -> Result<KeyRule, KeyRuleError> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        KeyRule::new(&owned(urls), &owned(stripped), stands)
    }

    fn key(rules: &KeyRules, url: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        String::from_utf8(rules.key(scheme, authority, path).unwrap()).unwrap()[1..].to_owned()
    }

    #[test]
    fn named_arguments_are_left_out_and_nothing_else() {
        let rules = KeyRules::new(vec![rule(&["http://a"], &["utm_*", "sid"], None).unwrap()]);
        for (url, expected) in [
            ("http://a/?utm_source=x", "http://a/"),
            ("http://a/p?x=1&sid=2&y=3&utm_a", "http://a/p?x=1&y=3"),
            ("http://A:80?sid=&q", "http://a/?q"),
            ("http://a/p?sidx=1&xutm_=2", "http://a/p?sidx=1&xutm_=2"),
            ("http://a/p?x=sid&y=utm_z", "http://a/p?x=sid&y=utm_z"),
            ("http://a/p?x=1;sid=2", "http://a/p?x=1;sid=2"),
            ("http://a/p?", "http://a/p?"),
            ("http://a/p?&&", "http://a/p?&&"),
            ("http://a/sid=1", "http://a/sid=1"),
            ("http://ab/?sid=1", "http://ab/?sid=1"),
            ("http://a:81/?sid=1", "http://a:81/?sid=1"),
            ("https://a/?sid=1", "https://a/?sid=1"),
        ] {
            assert_eq!(key(&rules, url), expected, "{url}");
        }
    }

    #[test]
    fn mirrors_share_keys_below_their_prefixes_only() {
        let urls = ["http://ftp.de.example/debian/", "http://mirror.example:8080/pub/debian"];
        let rules = KeyRules::new(vec![rule(&urls, &[], Some("http://deb.example/debian")).unwrap()]);
        for (url, expected) in [
            ("http://ftp.de.example/debian/pool/a.deb", "http://deb.example/debian/pool/a.deb"),
            ("http://mirror.example:8080/pub/debian/pool/a.deb?x", "http://deb.example/debian/pool/a.deb?x"),
            ("http://mirror.example:8080/pub/debian", "http://deb.example/debian"),
            ("http://mirror.example:8080/pub/debian-security/a", "http://mirror.example:8080/pub/debian-security/a"),
            ("http://mirror.example/pub/debian/a", "http://mirror.example/pub/debian/a"),
            ("http://ftp.de.example/debiam/a", "http://ftp.de.example/debiam/a"),
            ("http://deb.example/debian/pool/a.deb", "http://deb.example/debian/pool/a.deb"),
        ] {
            assert_eq!(key(&rules, url), expected, "{url}");
        }
    }

    #[test]
    fn blob_is_one_in_all_repositories_of_a_registry() {
        let rules = KeyRules::new(vec![KeyRule::joining_blobs("https://r/v2").unwrap()]);
        for (url, expected) in [
            ("https://r/v2/a/b/blobs/sha256:12", "https://r/v2/blobs/sha256:12"),
            ("https://r/v2/blobs/blobs/sha256:12", "https://r/v2/blobs/sha256:12"),
            ("https://r/v2/a/blobs/uploads/x", "https://r/v2/a/blobs/uploads/x"),
            ("https://r/v2/a/blobs/sha256:12?x", "https://r/v2/a/blobs/sha256:12?x"),
            ("https://r/v2/a/manifests/sha256:12", "https://r/v2/a/manifests/sha256:12"),
            ("https://s/v2/a/blobs/sha256:12", "https://s/v2/a/blobs/sha256:12"),
            ("https://r/blobs/sha256:12", "https://r/blobs/sha256:12"),
        ] {
            assert_eq!(key(&rules, url), expected, "{url}");
        }
    }

    #[test]
    fn first_rule_that_names_a_url_counts() {
        let rules = vec![rule(&["http://a/x"], &["p"], None).unwrap(), rule(&["http://a"], &["q"], None).unwrap()];
        let rules = KeyRules::new(rules);
        assert_eq!(key(&rules, "http://a/x?p&q"), "http://a/x?q");
        assert_eq!(key(&rules, "http://a/y?p&q"), "http://a/y?p");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        assert_eq!(rule(&[], &["a"], None), Err(KeyRuleError::Empty));
        assert_eq!(rule(&["http://a"], &[], None), Err(KeyRuleError::Empty));
        for url in ["a", "/a", "ftp://a/", "http://a/?q", "http://u@a/", "http://"] {
            assert_eq!(rule(&[url], &["a"], None), Err(KeyRuleError::Url), "{url}");
            assert_eq!(rule(&["http://a"], &[], Some(url)), Err(KeyRuleError::Url), "{url}");
        }
        for name in ["", "a=b", "a&b", "*a", "a*b", "a b"] {
            assert_eq!(rule(&["http://a"], &[name], None), Err(KeyRuleError::Argument), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn keys_without_the_named_argument_stay_apart(left in "[a-c&=?;]{0,12}", right in "[a-c&=?;]{0,12}") {
            let rules = KeyRules::new(vec![rule(&["http://a"], &["x"], None).unwrap()]);
            let of = |query: &str| rules.key("http", "a", &format!("/?{query}")).unwrap();
            proptest::prop_assert_eq!(of(&left) == of(&right), left == right);
        }
    }
}
