//! `/proxy.pac` and `/wpad.dat`: a script that tells browsers which requests go through this proxy.
//!
//! Owns: the script. The hosts in it come from `config`. Invariants: the only part of the request in the script is the
//! address that the client used, and only if that is a plain host and port. Requests to the client's own network go
//! directly.

use http::{HeaderValue, Method, Request, Response, header, uri::Authority};

use crate::{
    figures::outcome::Outcome,
    ground::{
        config::{HostPattern, HostRules, ProxyConfig},
        target::{is_plain_host, path_of},
    },
    road::{client::response_body::ResponseBody, exchange::ClientExchange, served::ServedResponse},
    targets::routes::ResourceRoute,
};

impl ClientExchange {
    /// Returns the proxy's address for the PAC script, or `None` if the request is not for the script.
    pub(super) fn script_address(
        &self,
        request: &Request<impl Sized>,
        route: Option<ResourceRoute>,
    ) -> Option<Box<str>> {
        let shared = &self.worker.shared;
        let uri = request.uri();
        let is_script = matches!(path_of(uri), "/proxy.pac" | "/wpad.dat") && self.client.inside.is_none();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_at_proxy = is_script
            && is_read
            && shared.config.forward
            && shared.config.default_origin.is_none()
            && !matches!(route, Some(ResourceRoute::Site(_)))
            && !self.is_denied()
            && self.client.is_server_for(request.version(), uri);
        if !is_at_proxy {
            return None;
        }
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let authority: Authority = uri.authority().cloned().or_else(|| host?.parse().ok())?;
        own_address(&authority, self.client.scheme()).map(String::into_boxed_str)
    }
}

/// Answers with the PAC script, in which `address` is the proxy's address.
pub(super) fn answer(config: &ProxyConfig, address: &str) -> ServedResponse {
    let text = script(&hosts_of(config), address);
    let mut response = Response::new(ResponseBody::full(text.into()));
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ns-proxy-autoconfig"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=300"));
    ServedResponse { response: Box::new(response), outcome: Outcome::Failed, origin: None, why: None }
}

/// Returns the hosts whose requests browsers send to the proxy: those of `[pac]`, or all if it lists none.
///
/// Hosts that are not intercepted are included, because block lists and rate limits apply to them too.
fn hosts_of(config: &ProxyConfig) -> HostRules {
    let HostRules { hosts, except } = &config.pac;
    let hosts = if hosts.is_empty() { vec![HostPattern::All] } else { hosts.clone() };
    HostRules { hosts, except: except.clone() }
}

/// Returns the proxy's address as the client used it, in the syntax of the script. `None` if it is not a plain host.
fn own_address(authority: &Authority, scheme: &str) -> Option<String> {
    let (word, usual_port) = if scheme == "https" { ("HTTPS", 443) } else { ("PROXY", 80) };
    let host = authority.host();
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._:[]".contains(&octet);
    let is_address = !host.is_empty() && host.bytes().all(is_plain) && is_plain_host(host);
    is_address.then(|| format!("{word} {host}:{}", authority.port_u16().unwrap_or(usual_port)))
}

fn script(hosts: &HostRules, proxy: &str) -> String {
    let listed = names(&hosts.hosts);
    let except = names(&hosts.except);
    format!(
        "// Which hosts go through the cache; everything else is asked for directly.\n\
         var listed = [{listed}];\n\
         var except = [{except}];\n\
         function isIn(host, patterns) {{\n\
         \x20 for (var at = 0; at < patterns.length; at++) {{\n\
         \x20   var pattern = patterns[at];\n\
         \x20   if (pattern === \"all\" || host === pattern) return true;\n\
         \x20   if (pattern.charAt(0) === \"*\" && host.length >= pattern.length\n\
         \x20       && host.slice(1 - pattern.length) === pattern.slice(1)) return true;\n\
         \x20 }}\n\
         \x20 return false;\n\
         }}\n\
         function FindProxyForURL(url, host) {{\n\
         \x20 host = host.toLowerCase();\n\
         \x20 if (isPlainHostName(host) || /^127\\.|^\\[?::1\\]?$|\\.localhost$/.test(host)) return \"DIRECT\";\n\
         \x20 if (!isIn(host, listed) || isIn(host, except)) return \"DIRECT\";\n\
         \x20 return \"{proxy}; DIRECT\";\n\
         }}\n"
    )
}

/// Formats host patterns as a list of JavaScript strings. Parsing has excluded characters that need escaping.
fn names(patterns: &[HostPattern]) -> String {
    let quoted: Vec<String> = patterns.iter().map(|pattern| format!("\"{pattern}\"")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::config::{Intercept, TlsIdentity};

    #[test]
    fn address_is_the_one_that_the_client_used_and_nothing_else() {
        for (authority, scheme, expected) in [
            ("cache.lan:3128", "http", Some("PROXY cache.lan:3128")),
            ("wpad.lan", "http", Some("PROXY wpad.lan:80")),
            ("10.0.0.1:8443", "https", Some("HTTPS 10.0.0.1:8443")),
            ("[fd00::1]:3128", "http", Some("PROXY [fd00::1]:3128")),
            ("user@cache.lan", "http", Some("PROXY cache.lan:80")),
            ("a';alert(1)", "http", None),
            ("0x7f000001", "http", None),
        ] {
            let Ok(authority) = authority.parse() else { continue };
            assert_eq!(own_address(&authority, scheme).as_deref(), expected, "{authority}");
        }
    }

    #[test]
    fn script_names_what_is_listed() {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<HostPattern>>();
        let rules = HostRules { hosts: parse(&["pypi.org", "*.debian.org"]), except: parse(&["private.debian.org"]) };
        let text = script(&rules, "PROXY a:1");
        for line in [
            "var listed = [\"pypi.org\", \"*.debian.org\"];",
            "var except = [\"private.debian.org\"];",
            "  return \"PROXY a:1; DIRECT\";",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }

    /// Guards against clients that get past a block list because browsers send only intercepted hosts to the proxy.
    #[test]
    fn hosts_that_are_not_intercepted_go_through_the_proxy_too() {
        let authority = TlsIdentity { certificate: "c".into(), key: "k".into() };
        let hosts = HostRules { hosts: vec!["pypi.org".parse().unwrap()], except: vec!["a.pypi.org".parse().unwrap()] };
        let mut config = ProxyConfig { intercept: Some(Intercept { hosts, authority }), ..ProxyConfig::default() };
        assert_eq!(hosts_of(&config), HostRules { hosts: vec![HostPattern::All], except: Vec::new() });
        config.pac.hosts = vec!["*.debian.org".parse().unwrap()];
        assert_eq!(hosts_of(&config), config.pac);
    }

    #[test]
    fn exceptions_apply_without_a_list_of_hosts() {
        let mut config = ProxyConfig::default();
        assert_eq!(hosts_of(&config).hosts, [HostPattern::All]);
        config.pac.except = vec!["intranet.example".parse().unwrap()];
        assert_eq!(hosts_of(&config).except, config.pac.except);
        config.pac.hosts = vec!["pypi.org".parse().unwrap()];
        assert_eq!(hosts_of(&config).hosts, config.pac.hosts);
        assert_eq!(hosts_of(&config).except, config.pac.except);
    }
}
