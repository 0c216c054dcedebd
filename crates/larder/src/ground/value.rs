//! Parses the values of flags and configuration keys: addresses, networks, origins and others. An error says which
//! values are valid.
//!
//! Owns: [`BadValue`], which flags and the configuration file share, and the small parsers. The caller adds the place
//! of a bad value: the flag's name, or the line. Invariant: a value that parses is usable without further checks.

use crate::ground::{duration, failure::page, size};
use http::{HeaderName, uri::Authority};
use ipnet::IpNet;
use larder_http::{coding::ContentCoding, fields::via::Pseudonym};
use larder_proxy::{
    AccessLogTarget, ClientField, Direct, FleetName, FleetNode, HostPattern, HostSent, InvalidFleetNode,
    InvalidSharedLog, LogFormat, Offline, OriginUrl, Parent, SharedLog, TlsIdentity,
};
use larder_store::IoChoice;
use std::{
    error::Error,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU64,
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

/// The error for an invalid value of a flag or a key: the problem, and the valid values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadValue {
    /// A description of the problem, in lower case. It ends with the refused value.
    pub(crate) problem: String,
    /// A description of the valid values, with an example.
    pub(crate) help: String,
}

impl BadValue {
    pub(crate) fn new(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { problem: problem.into(), help: help.into() }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Error for BadValue {}

/// Parses the host name that an origin receives in Host. `true` means the host that the client requested, and `false`
/// the host of the origin's URL. Any other text is a host name, with or without a port.
pub(crate) fn host_sent(text: &str) -> Result<HostSent, BadValue> {
    match text {
        "true" => Ok(HostSent::Client),
        "false" => Ok(HostSent::Origin),
        name => {
            let parsed = name.parse::<Authority>().ok().filter(|name| !name.as_str().contains('@'));
            let help = "it can be true (the host that the client requested), false (the host in the origin's URL), \
                        or a host such as www.example.com";
            parsed.map(HostSent::Named).ok_or_else(|| BadValue::new(format!("not a host: `{name}`"), help))
        }
    }
}

/// Parses the name of a bucket in an object store.
pub(crate) fn bucket(text: &str) -> Result<String, BadValue> {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    match (3..=63).contains(&text.len()) && text.bytes().all(is_known) {
        true => Ok(text.to_owned()),
        false => {
            let help = "it has 3 to 63 lower-case letters, digits, hyphens and dots";
            Err(BadValue::new(format!("not the name of a bucket: `{text}`"), help))
        }
    }
}

/// Parses the URL of an object store.
pub(crate) fn endpoint(text: &str) -> Result<String, BadValue> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' '])) {
        true => Ok(text.to_owned()),
        false => Err(BadValue::new(
            format!("not the URL of an object store: `{text}`"),
            "give scheme and host only, such as https://s3.eu-central-1.amazonaws.com",
        )),
    }
}

/// Parses a prefix of object names in a bucket.
pub(crate) fn object_prefix(text: &str) -> Result<String, BadValue> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    let parts_are_named = || text.split('/').all(|part| !matches!(part, "" | "." | ".."));
    match text.is_empty() || (text.bytes().all(is_known) && parts_are_named()) {
        true => Ok(text.to_owned()),
        false => {
            let help = "it has letters, digits, `-`, `_` and `.`, with single slashes between them";
            Err(BadValue::new(format!("not a prefix of names in a bucket: `{text}`"), help))
        }
    }
}

/// Parses the setting that selects which evicted entries go to the second tier. Returns `true` for `hit` (only entries
/// that were hit), and `false` for `all`.
pub(crate) fn tier_admission(text: &str) -> Result<bool, BadValue> {
    match text {
        "all" => Ok(true),
        "hit" => Ok(false),
        _ => Err(BadValue::new(format!("unknown value for `admit`: `{text}`"), "it can be hit or all")),
    }
}

/// Parses the setting that decides if connections to an origin begin with a PROXY header. Returns `true` for `v2`, and
/// `false` for `off`.
pub(crate) fn proxy_protocol(text: &str) -> Result<bool, BadValue> {
    match text {
        "v2" => Ok(true),
        "off" => Ok(false),
        "v1" => Err(BadValue::new("only version 2 of the PROXY protocol is sent", "write proxy_protocol = \"v2\"")),
        _ => Err(BadValue::new(format!("unknown version of the PROXY protocol: `{text}`"), "it can be v2 or off")),
    }
}

/// Parses the hosts that the proxy contacts without a parent: a pattern of host names, or a network.
pub(crate) fn direct(text: &str) -> Result<Direct, BadValue> {
    if text.contains('/') { network(text).map(Direct::Network) } else { host_pattern(text).map(Direct::Hosts) }
}

/// Parses the host of a site, or a pattern such as `*.example.com` for all hosts below a name.
pub(crate) fn site_host(text: &str) -> Result<String, BadValue> {
    match text.strip_prefix("*.") {
        Some(name) if !name.starts_with('[') => host(name).map(|name| format!("*.{name}")),
        _ => host(text),
    }
}

/// Parses the name of a content coding: `zstd`, `br` or `gzip`.
pub(crate) fn coding(text: &str) -> Result<ContentCoding, BadValue> {
    let known = ContentCoding::ALL.into_iter().find(|coding| coding.token() == text);
    known.ok_or_else(|| BadValue::new(format!("unknown coding: `{text}`"), "it can be zstd, br or gzip"))
}

/// Parses a media type, or a pattern such as `text/*` for all its subtypes.
pub(crate) fn media_type(text: &str) -> Result<String, BadValue> {
    let bad = |_| BadValue::new(format!("not a media type: `{text}`"), "write one such as text/html or text/*");
    larder_http::rules::MatchedPart::Type.check(text).map(|()| text.to_ascii_lowercase()).map_err(bad)
}

/// Parses the URL of a parent proxy. An error text never contains its password.
pub(crate) fn parent(text: &str) -> Result<Parent, BadValue> {
    let help = "write a parent as http://10.0.0.1:3128 or http://user:password@proxy.example:3128; %40 stands for @";
    text.parse::<Parent>().map_err(|error| BadValue::new(error.to_string(), help))
}

/// Parses an address to listen on, such as `3128`, `:3128`, `127.0.0.1:3128`, `[::1]:3128` or `localhost:3128`. A port
/// alone is on the loopback address.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, BadValue> {
    let bad = |what: &str| {
        BadValue::new(
            format!("{what}: `{text}`"),
            "give an IP address and a port such as 127.0.0.1:3128, [::1]:3128 or 0.0.0.0:3128; a port alone (3128) \
             is on 127.0.0.1",
        )
    };
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let port = text.strip_prefix("localhost").unwrap_or(text);
    let port = port.strip_prefix(':').unwrap_or(port);
    if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) {
        let port = port.parse().map_err(|_| bad("port out of range"))?;
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    match text.parse::<IpAddr>() {
        Ok(_) => Err(bad("address without a port")),
        Err(_) => Err(bad("not an address to listen on")),
    }
}

/// Parses a default lifetime for error responses: their status and a duration, such as `404=10s`.
pub(crate) fn negative_lifetime(text: &str) -> Result<(u16, Duration), BadValue> {
    let help = "give a status from 400 to 599 and a duration, such as 404=10s";
    let bad = |what: &str| BadValue::new(format!("{what}: `{text}`"), help);
    let (status, lifetime) = text.split_once('=').ok_or_else(|| bad("not a status with a duration"))?;
    let status = status.trim().parse().ok().filter(|status| (400..600).contains(status));
    let lifetime = duration::parse(lifetime.trim()).map_err(|_| bad("not a duration after the status"))?;
    Ok((status.ok_or_else(|| bad("not an error status"))?, lifetime))
}

/// Parses a network, such as `192.168.0.0/16` or `fd00::/8`, or a single address.
pub(crate) fn network(text: &str) -> Result<IpNet, BadValue> {
    let parsed = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    parsed.map(|net| net.trunc()).ok_or_else(|| {
        BadValue::new(
            format!("not a network: `{text}`"),
            "give an address with a prefix length such as 192.168.0.0/16 or fd00::/8, or one address",
        )
    })
}

/// Parses the name of a header field.
pub(crate) fn field_name(text: &str) -> Result<HeaderName, BadValue> {
    let help = "give a field name such as CDN-Cache-Control";
    text.parse().map_err(|_| BadValue::new(format!("not a field name: `{text}`"), help))
}

/// Parses the name of the field in which trusted proxies send the client's address.
pub(crate) fn client_field(text: &str) -> Result<ClientField, BadValue> {
    match text.to_ascii_lowercase().as_str() {
        "x-forwarded-for" => Ok(ClientField::XForwardedFor),
        "forwarded" => Ok(ClientField::Forwarded),
        _ => Err(BadValue::new(
            format!("unknown field for the client's address: `{text}`"),
            "it can be x-forwarded-for or forwarded: choose the one that your balancers write",
        )),
    }
}

/// Parses a node of a fleet: its name and address, such as `cache-a=10.0.0.1:8080`.
pub(crate) fn fleet_node(text: &str) -> Result<FleetNode, BadValue> {
    let help = "a node is a name and its address, such as cache-a=10.0.0.1:8080";
    text.parse().map_err(|error: InvalidFleetNode| BadValue::new(error.to_string(), help))
}

/// Parses a host name and a port. The addresses of the name are the nodes of a fleet.
pub(crate) fn fleet_name(text: &str) -> Result<FleetName, BadValue> {
    let help = "name a host and the port of all nodes, such as larder.example:8080";
    text.parse().map_err(|error: InvalidFleetNode| BadValue::new(error.to_string(), help))
}

/// Parses the URL of the log of purges that all nodes of a fleet share, in Redis or NATS.
pub(crate) fn shared_log(text: &str) -> Result<SharedLog, BadValue> {
    let help = "a log is a stream of Redis or NATS, such as redis://10.0.0.9:6379/larder-purges or \
                nats://a:4222,b:4222/larder-purges; credentials belong in `log_credentials_file`";
    text.parse().map_err(|error: InvalidSharedLog| BadValue::new(error.to_string(), help))
}

/// Parses the path for health checks on the client port. `none` turns health checks off.
pub(crate) fn ready_path(text: &str) -> Result<Option<String>, BadValue> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
    match text {
        "none" => Ok(None),
        _ if is_path => Ok(Some(text.to_owned())),
        _ => Err(BadValue::new(
            format!("not a path: `{text}`"),
            "give a path that begins with a slash and has no query, such as /-/ready, or `none`",
        )),
    }
}

/// Parses the name by which the proxy identifies itself in Via and CDN-Loop.
pub(crate) fn pseudonym(text: &str) -> Result<String, BadValue> {
    let help = "a name consists of letters, digits, -, . and _, such as cache-1.example";
    let name = Pseudonym::new(text).ok_or_else(|| BadValue::new(format!("not a name: `{text}`"), help))?;
    Ok(name.as_str().to_owned())
}

/// Parses a header field in the form `name: value`.
pub(crate) fn field_line(text: &str) -> Result<String, BadValue> {
    let is_line = |(name, value): (&str, &str)| {
        name.parse::<HeaderName>().is_ok() && http::HeaderValue::from_str(value.trim()).is_ok()
    };
    if text.split_once(':').is_some_and(is_line) {
        return Ok(text.to_owned());
    }
    let help = "give a name, a colon and a value, such as \"Accept-Language: de\"";
    Err(BadValue::new(format!("not a field: `{text}`"), help))
}

/// Parses the number of worker threads, from 1 to [`WORKERS_MAX`].
pub(crate) fn workers(text: &str) -> Result<usize, BadValue> {
    let count = text.parse().ok().filter(|count| (1..=WORKERS_MAX).contains(count));
    count.ok_or_else(|| {
        BadValue::new(
            format!("not a number of threads: `{text}`"),
            format!("give 1 to {WORKERS_MAX}, or leave it out for one thread per processor"),
        )
    })
}

/// Parses a whole number from 1 to [`COUNT_MAX`].
pub(crate) fn count(text: &str) -> Result<usize, BadValue> {
    let count = text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| {
        BadValue::new(format!("not a count: `{text}`"), format!("give a whole number from 1 to {COUNT_MAX}"))
    })
}

/// Parses the maximum number of listed items. 0 means all.
pub(crate) fn limit(text: &str) -> Result<u64, BadValue> {
    text.parse().map_err(|_| BadValue::new(format!("not a count: `{text}`"), "give a whole number; 0 means all"))
}

/// Parses the number of simultaneous fetches of `larder warm`.
pub(crate) fn jobs(text: &str) -> Result<u8, BadValue> {
    let count = text.parse().ok().filter(|count| JOBS.contains(count));
    count.ok_or_else(|| {
        let help = format!("it can be from {} to {}", JOBS.start(), JOBS.end());
        BadValue::new(format!("not a number of concurrent fetches: `{text}`"), help)
    })
}

/// Parses a number of bytes per second, which must not be 0.
pub(crate) fn rate(text: &str) -> Result<NonZeroU64, BadValue> {
    NonZeroU64::new(size::parse(text)?)
        .ok_or_else(|| BadValue::new(format!("not a rate: `{text}`"), "give bytes per second, such as 500KB"))
}

/// Parses a whole number from 1 to [`SMALL_COUNT_MAX`].
pub(crate) fn small_count(text: &str) -> Result<u32, BadValue> {
    let count = text.parse().ok().filter(|count| (1..=SMALL_COUNT_MAX).contains(count));
    let bad = || BadValue::new(format!("not a count: `{text}`"), format!("it can be from 1 to {SMALL_COUNT_MAX}"));
    count.ok_or_else(bad)
}

/// Parses the files of a certificate chain and its private key: `CERTIFICATE,KEY`, or one file that contains both.
pub(crate) fn identity(text: &str) -> Result<TlsIdentity, BadValue> {
    let (certificate, key) = text.split_once(',').unwrap_or((text, text));
    if certificate.is_empty() || key.is_empty() {
        let help = "give two PEM files such as example.pem,example.key, or one that contains both certificate and key";
        return Err(BadValue::new(format!("not a certificate with its key: `{text}`"), help));
    }
    Ok(TlsIdentity { certificate: certificate.into(), key: key.into() })
}

/// Parses the maximum size of a message head, in bytes.
pub(crate) fn header_size(text: &str) -> Result<usize, BadValue> {
    let bytes = size::parse(text)?;
    let fitting = usize::try_from(bytes).ok().filter(|bytes| HEADER_BYTES.contains(bytes));
    fitting.ok_or_else(|| {
        BadValue::new(format!("size of a message head out of range: `{text}`"), "it can be from 8KiB to 1MiB")
    })
}

/// Parses a share from 0 to 1.
pub(crate) fn fraction(text: &str) -> Result<f64, BadValue> {
    let fraction = text.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| BadValue::new(format!("not a share: `{text}`"), "it can be from 0 to 1, such as 0.1"))
}

/// Parses the time for which requests that refer to a page join the page's group.
pub(crate) fn group_window(text: &str) -> Result<Duration, BadValue> {
    let window = duration::parse(text)?;
    let fitting = Some(window).filter(|window| *window <= GROUP_WINDOW_MAX);
    fitting.ok_or_else(|| {
        BadValue::new(format!("group window out of range: `{text}`"), "it can be from 0s (no groups) to 60s")
    })
}

/// Parses the path of a file, which must not be empty.
pub(crate) fn path(text: &str) -> Result<PathBuf, BadValue> {
    if text.is_empty() { Err(BadValue::new("an empty path", "give the path of a file")) } else { Ok(text.into()) }
}

/// Parses a TCP port to connect to, which must not be 0.
pub(crate) fn port(text: &str) -> Result<u16, BadValue> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| BadValue::new(format!("not a port: `{text}`"), "give a number from 1 to 65535"))
}

/// Parses the host name of a site, as clients send it in requests: without scheme, port and path.
pub(crate) fn host(text: &str) -> Result<String, BadValue> {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let named = !text.is_empty()
        && text.len() <= HOST_BYTES_MAX
        && text.split('.').all(|label| !label.is_empty() && label.bytes().all(is_part));
    if named
        || text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
    {
        return Ok(text.to_ascii_lowercase());
    }
    Err(BadValue::new(
        format!("not a host name: `{text}`"),
        "give a name or an address as clients request it, such as www.example.com or [::1], without scheme, port and \
         path",
    ))
}

/// Parses a pattern of hosts to intercept: a host, `*.` and a name for all hosts below that name, or `all`.
pub(crate) fn host_pattern(text: &str) -> Result<HostPattern, BadValue> {
    let help = "give a name or an address such as pypi.org, *.debian.org for all names below one, or all; \
                interception also takes a package registry such as npm";
    text.parse().map_err(|_| BadValue::new(format!("not a host: `{text}`"), help))
}

/// Parses the offline mode: `off`, `auto`, `on` or `on-even-forbidden`.
pub(crate) fn offline(text: &str) -> Result<Offline, BadValue> {
    let help = "it can be off, auto, on or on-even-forbidden";
    text.parse().map_err(|_| BadValue::new(format!("unknown offline mode: `{text}`"), help))
}

/// Parses the format of the lines in the access log.
pub(crate) fn log_format(text: &str) -> Result<LogFormat, BadValue> {
    let help = concat!(
        "it can be squid, common, combined, json, or directives such as `%h %t \"%r\" %>s %b %{outcome}x`; see ",
        page!("reference/configuration.md")
    );
    text.parse::<LogFormat>().map_err(|error| BadValue::new(error.to_string(), help))
}

/// Parses the value of `--io` and of `[store] io`.
pub(crate) fn io(text: &str) -> Result<IoChoice, BadValue> {
    match text {
        "auto" => Ok(IoChoice::Auto),
        "uring" => Ok(IoChoice::Uring),
        "threads" => Ok(IoChoice::Threads),
        _ => Err(BadValue::new(format!("unknown I/O method: `{text}`"), "it can be auto, uring or threads")),
    }
}

/// Parses the value of `--access-log` and of `[log] access`. `-` is standard output.
pub(crate) fn access_log(text: &str) -> Result<AccessLogTarget, BadValue> {
    match text {
        "" => Err(BadValue::new("an empty path", "give a file, or `-` for standard output")),
        "-" => Ok(AccessLogTarget::Stdout),
        path => Ok(AccessLogTarget::File(PathBuf::from(path))),
    }
}

/// Parses the URL of an origin, from `--origin`, `origin` or `[[site]] origin`.
pub(crate) fn origin(text: &str) -> Result<OriginUrl, BadValue> {
    text.parse::<OriginUrl>().map_err(|error| {
        let help = "an origin is a URL such as http://127.0.0.1:8080, https://example.com or http://example.com/base";
        BadValue::new(error.to_string(), help)
    })
}

/// Returns the member of `known` of which `name` is most probably a misspelling. `None` if no member is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|known| (similarity(name, known), known));
    let (score, known) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score >= SIMILARITY_MIN).then_some(known)
}

/// Returns the similarity of two names, from 0 to 1. A pair that [`is_slip`] accepts has at least [`SIMILARITY_MIN`].
fn similarity(name: &str, known: &str) -> f64 {
    strsim::jaro_winkler(name, known).max(if is_slip(name, known) { SIMILARITY_MIN } else { 0.0 })
}

/// Returns whether two names differ by only a few letters that are missing, wrong or swapped.
pub(crate) fn is_slip(name: &str, known: &str) -> bool {
    strsim::normalized_damerau_levenshtein(name, known) >= SLIP_MIN
}

/// Returns help for an unknown name: the known name that the user probably meant, and all known names. `what` is the
/// kind of the names, in the plural, such as `keys`.
pub(crate) fn names_help<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let meant = nearest(name, known.clone()).map_or_else(String::new, |known| format!("did you mean `{known}`? "));
    format!("{meant}the {what} are {}", known.collect::<Vec<_>>().join(", "))
}

/// Minimum edit similarity of two names that [`is_slip`] accepts. `pipy` and `pypi` have 0.5; `nexus` and `nix`, or
/// `git` and `go`, have less.
const SLIP_MIN: f64 = 0.5;

/// Minimum similarity at which one name counts as a misspelling of the other.
const SIMILARITY_MIN: f64 = 0.7;

/// Maximum number of worker threads. No supported machine has as many processors.
const WORKERS_MAX: usize = 1024;

/// Maximum of a count, such as of connections or fields. No useful setting comes near it.
const COUNT_MAX: usize = 10_000_000;

/// Maximum number that [`small_count`] accepts.
const SMALL_COUNT_MAX: u32 = 65_535;

/// Numbers of simultaneous fetches that can be chosen. More than 64 would not help any origin.
const JOBS: RangeInclusive<u8> = 1..=64;

/// Sizes in bytes that can be chosen as the limit on a message head.
const HEADER_BYTES: RangeInclusive<usize> = 8 << 10..=1 << 20;

/// Maximum time for which requests that refer to a page can join the page's group.
const GROUP_WINDOW_MAX: Duration = Duration::from_secs(60);

/// Maximum length of a host name in the domain name system, in bytes (RFC 1035 2.3.4).
const HOST_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_of_errors_are_a_status_and_a_duration() {
        assert_eq!(negative_lifetime("404=10s"), Ok((404, Duration::from_secs(10))));
        assert_eq!(negative_lifetime("410 = 5m"), Ok((410, Duration::from_mins(5))));
        for bad in ["404", "200=10s", "600=10s", "x=10s", "404=", "404=ten", "=10s"] {
            assert!(negative_lifetime(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, expected) in [
            ("3128", "127.0.0.1:3128"),
            (":3128", "127.0.0.1:3128"),
            ("localhost:80", "127.0.0.1:80"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:65535", "[::1]:65535"),
            ("0", "127.0.0.1:0"),
        ] {
            assert_eq!(listen_address(text).map(|address| address.to_string()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_bad_address_says_what_is_wrong() {
        for (text, problem) in [
            ("70000", "port out of range: `70000`"),
            ("127.0.0.1", "address without a port: `127.0.0.1`"),
            ("::1", "address without a port: `::1`"),
            ("example.com:80", "not an address to listen on: `example.com:80`"),
            ("", "not an address to listen on: ``"),
            (":", "not an address to listen on: `:`"),
            ("127.0.0.1:-1", "not an address to listen on: `127.0.0.1:-1`"),
        ] {
            assert_eq!(listen_address(text).map_err(|bad| bad.problem), Err(problem.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_network_is_cut_to_its_prefix_and_an_address_is_a_network_of_one() {
        assert_eq!(network("10.1.2.3/8").map(|net| net.to_string()).as_deref(), Ok("10.0.0.0/8"));
        assert_eq!(network("10.1.2.3").map(|net| net.to_string()).as_deref(), Ok("10.1.2.3/32"));
        assert_eq!(network("::1").map(|net| net.to_string()).as_deref(), Ok("::1/128"));
        for text in ["", "10.0.0.0/33", "lan", "10.0.0/8"] {
            assert!(network(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_is_what_clients_ask_for() {
        assert_eq!(host("WWW.Example.com").as_deref(), Ok("www.example.com"));
        assert_eq!(host("[::1]").as_deref(), Ok("[::1]"));
        assert_eq!(host("127.0.0.1").as_deref(), Ok("127.0.0.1"));
        for text in ["", "http://a", "a:80", "a/b", "a..b", ".a", "[a]", "a b"] {
            assert!(host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_and_ports_are_bounded() {
        assert_eq!((workers("1"), workers("1024")), (Ok(1), Ok(1024)));
        assert_eq!((port("1"), port("65535")), (Ok(1), Ok(65535)));
        for text in ["", "0", "-1", "1.5", "65536", "99999999999999999999"] {
            assert!(workers(text).is_err() && port(text).is_err(), "{text}");
        }
        assert_eq!((count("1"), fraction("0.25"), header_size("8KiB")), (Ok(1), Ok(0.25), Ok(8192)));
        assert_eq!((group_window("0s"), group_window("60s")), (Ok(Duration::ZERO), Ok(Duration::from_secs(60))));
        assert!(group_window("61s").is_err() && group_window("1").is_err());
        assert!(count("0").is_err() && header_size("8191").is_err() && header_size("2MiB").is_err());
        for text in ["1.1", "-0.1", "nan", "inf", ""] {
            assert!(fraction(text).is_err(), "{text}");
        }
    }
}
