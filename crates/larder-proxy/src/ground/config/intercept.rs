//! The hosts whose `https://` requests are intercepted, and the CA used for it.
//!
//! Owns: the patterns of hosts. `authority` reads the CA's files. Invariant: a pattern matches a name in any case, with
//! or without a final dot.

use std::{fmt, net::IpAddr, str::FromStr};

use super::TlsIdentity;

/// The settings of interception: the hosts whose tunneled connections the proxy decrypts and answers in place of the
/// origin.
///
/// The proxy presents certificates of a local CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    /// The hosts whose tunnels are intercepted.
    pub hosts: HostRules,
    /// The files of the CA that signs the hosts' certificates. Clients must trust this CA.
    pub authority: TlsIdentity,
}

/// A set of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    /// The hosts in the set.
    pub hosts: Vec<HostPattern>,
    /// Hosts that are not in the set although `hosts` matches them.
    pub except: Vec<HostPattern>,
}

/// A host, all hosts below a name, or all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// All hosts, written `all`.
    All,
    /// All names below this one, at any depth, but not the name itself. Written `*.debian.org`.
    Below(Box<str>),
    /// This name or address, written `pypi.org`.
    Host(Box<str>),
}

impl HostRules {
    /// Returns whether the set contains `host`, a name or an address without brackets.
    pub fn contain(&self, host: &str) -> bool {
        let host = normal(host);
        let is_in = |patterns: &[HostPattern]| patterns.iter().any(|pattern| pattern.matches_normal(&host));
        is_in(&self.hosts) && !is_in(&self.except)
    }
}

impl HostPattern {
    /// Returns whether the pattern matches `host`, given in lower case and without a final dot.
    pub(crate) fn matches_normal(&self, host: &str) -> bool {
        match self {
            Self::All => true,
            Self::Host(name) => **name == *host,
            Self::Below(parent) => {
                host.strip_suffix(&**parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }
}

/// Returns a host in normal form: in lower case, without a final dot, and without brackets.
pub(crate) fn normal(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
    bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase()
}

impl FromStr for HostPattern {
    type Err = InvalidHostPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidHostPattern { text: text.into() };
        if text == "all" {
            return Ok(Self::All);
        }
        let host = normal(text);
        if host.parse::<IpAddr>().is_ok() {
            return Ok(Self::Host(host.into()));
        }
        let (below, name) = host.strip_prefix("*.").map_or((false, &*host), |name| (true, name));
        let is_label = |label: &str| {
            let is_inside = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_';
            (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_inside)
        };
        // A name whose last label consists of digits would be an address in an obsolete form.
        let is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|octet| octet.is_ascii_digit()));
        if name.len() > NAME_BYTES_MAX || is_number || !name.split('.').all(is_label) {
            return Err(invalid());
        }
        Ok(if below { Self::Below(name.into()) } else { Self::Host(name.into()) })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Host(name) => f.write_str(name),
        }
    }
}

/// Error: a text is not a [`HostPattern`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHostPattern {
    text: String,
}

impl fmt::Display for InvalidHostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a host, `*.` and a name, or `all`: `{}`", self.text)
    }
}

impl std::error::Error for InvalidHostPattern {}

/// Maximum length of a label of a domain name, in bytes (RFC 1035 2.3.4).
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(hosts: &[&str], except: &[&str]) -> HostRules {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        HostRules { hosts: parse(hosts), except: parse(except) }
    }

    #[test]
    fn hosts_are_matched_in_any_case_and_whole() {
        let rules = rules(&["pypi.org", "*.debian.org", "192.0.2.1", "[2001:db8::1]"], &["private.debian.org"]);
        for host in
            ["pypi.org", "PyPI.org", "pypi.org.", "deb.debian.org", "a.b.debian.org", "192.0.2.1", "2001:db8::1"]
        {
            assert!(rules.contain(host), "{host}");
        }
        for host in
            ["xpypi.org", "a.pypi.org", "debian.org", ".debian.org", "xdebian.org", "private.debian.org", "192.0.2.10"]
        {
            assert!(!rules.contain(host), "{host}");
        }
        assert!(!HostRules::default().contain("pypi.org"));
    }

    #[test]
    fn all_has_exceptions_too() {
        let rules = rules(&["all"], &["*.bank.example", "bank.example"]);
        assert!(rules.contain("pypi.org") && rules.contain("127.0.0.1"));
        assert!(!rules.contain("bank.example") && !rules.contain("www.bank.example"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in
            ["", "*", "*.", "a..b", "*.*.a", "a.*", "http://a", "a:443", "127.1", "a b", ".a", "a/b", "*.127.0.0.1"]
        {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
        for text in ["all", "*.debian.org", "pypi.org", "2001:db8::1"] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
    }
}
