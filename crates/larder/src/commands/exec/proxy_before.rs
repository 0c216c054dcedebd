//! The proxy in the environment before a session, as curl and most programs determine it.
//!
//! Owns: which variables count, and the settings of a Larder that uses this proxy. Nothing is started. Invariant:
//! descriptions of a proxy contain no password.

use super::environment::SESSION_VARIABLE;
use crate::ground::value;
use larder_proxy::{Direct, HostPattern, Parent, Parents};
use std::env;

/// The proxy that the environment named before the session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProxyBefore {
    /// The environment variable that names the proxy.
    pub(crate) variable: &'static str,
    /// The settings with which a Larder uses this proxy as its parent. `None` if Larder cannot use such a proxy.
    pub(crate) parents: Option<Parents>,
}

/// Returns the proxy that the environment names. `None` if it names none, or the proxy of a Larder session.
pub(crate) fn find() -> Option<ProxyBefore> {
    of(|name| env::var(name).ok())
}

fn of(variable: impl Fn(&str) -> Option<String>) -> Option<ProxyBefore> {
    let said = |name: &'static str| variable(name).filter(|value| !value.trim().is_empty());
    if variable(SESSION_VARIABLE).is_some() {
        return None;
    }
    let (name, url) = VARIABLES.into_iter().find_map(|name| Some((name, said(name)?)))?;
    let url = if url.contains("://") { url } else { format!("http://{url}") };
    let direct = DIRECT_VARIABLES.into_iter().find_map(said).unwrap_or_default();
    if direct.trim() == "*" {
        return None;
    }
    let parents = url.trim().parse::<Parent>().ok().map(|parent| {
        let except = direct.split([',', ' ']).flat_map(directs).collect();
        Parents { except, ..Parents::from(parent) }
    });
    Some(ProxyBefore { variable: name, parents })
}

/// Returns the exceptions that one item of `no_proxy` describes: a network, or a host and all hosts below it. A port is
/// ignored. An invalid item gives none.
fn directs(text: &str) -> Vec<Direct> {
    if text.contains('/') {
        return value::network(text).map(Direct::Network).into_iter().collect();
    }
    let name = text.trim_start_matches("*.").trim_start_matches('.');
    let name = match name.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') && port.parse::<u16>().is_ok() => host,
        _ => name,
    };
    let patterns = [name.to_owned(), format!("*.{name}")];
    patterns.iter().filter_map(|text| text.parse::<HostPattern>().ok()).map(Direct::Hosts).collect()
}

/// The variables that may name a proxy, in order of precedence. Those for `https://` come first, because nearly all
/// requests use it. Lower case comes first, as in curl.
const VARIABLES: [&str; 6] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy", "HTTP_PROXY"];
const DIRECT_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];

#[cfg(test)]
mod tests {
    use super::*;

    fn before(variables: &[(&str, &str)]) -> Option<ProxyBefore> {
        of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn proxy_of_an_environment_is_found_with_its_exceptions() {
        let found = before(&[
            ("HTTPS_PROXY", "http://me:secret@proxy.example:3128"),
            ("http_proxy", "http://other.example"),
            ("NO_PROXY", "localhost, .company.example,10.0.0.0/8,[::1],a.example:8080,,999/8"),
        ]);
        let parents = found.unwrap().parents.unwrap();
        assert_eq!(parents.members[0].0.to_string(), "proxy.example:3128");
        let shown: Vec<String> = parents.except.iter().map(|direct| format!("{direct:?}")).collect();
        for (at, text) in [(0, "localhost"), (2, "company.example"), (4, "10.0.0.0/8")] {
            assert!(shown[at].contains(text), "{shown:?}");
        }
        assert!(shown.iter().any(|direct| direct.contains("\"a.example\"")), "{shown:?}");
        let plain = before(&[("all_proxy", "proxy:8080")]).unwrap();
        assert_eq!(plain.parents.unwrap().members[0].0.to_string(), "proxy:8080");
    }

    #[test]
    fn proxy_that_cannot_be_gone_through_is_told_and_one_that_is_not_used_is_not() {
        for url in ["socks5://a:1", "https://a:1", "http://"] {
            assert_eq!(before(&[("https_proxy", url)]), Some(ProxyBefore { variable: "https_proxy", parents: None }));
        }
        assert_eq!(before(&[]), None);
        assert_eq!(before(&[("https_proxy", "")]), None);
        assert_eq!(before(&[("https_proxy", "http://a:1"), ("no_proxy", "*")]), None);
        assert_eq!(before(&[("https_proxy", "http://a:1"), (SESSION_VARIABLE, "127.0.0.1:1")]), None, "one of ours");
    }
}
