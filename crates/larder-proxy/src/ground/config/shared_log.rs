//! The address of a stream in Redis or NATS JetStream that carries the purges of a fleet.

use std::{fmt, str::FromStr};

use super::fleet::host_and_port;

/// A stream that carries the purges of a fleet, written `SCHEME://HOST:PORT/STREAM`.
///
/// Port and stream may be omitted, and several servers are separated by commas. For Redis Sentinels, the path is
/// `/MASTER/STREAM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLog {
    /// The kind of server that keeps the stream.
    pub system: LogSystem,
    /// Whether connections use TLS. The server's certificate must be signed by a CA that the system trusts.
    pub has_tls: bool,
    /// The hosts and ports of the servers. A host is a name, an IPv4 address, or an IPv6 address in brackets.
    pub servers: Vec<(String, u16)>,
    /// The name of the master, if the servers are Sentinels. Otherwise empty.
    pub master: String,
    /// The name of the stream.
    pub stream: String,
}

/// The kind of server that keeps a shared log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSystem {
    /// Redis Streams (Redis 5 or later).
    Redis,
    /// Redis Streams, on the server that Redis Sentinels name as the master.
    Sentinel,
    /// NATS JetStream.
    Nats,
}

/// Error: a text is not the address of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidSharedLog(String);

impl LogSystem {
    fn default_port(self) -> u16 {
        match self {
            Self::Redis => 6379,
            Self::Sentinel => 26379,
            Self::Nats => 4222,
        }
    }

    /// Returns why this build cannot use the server, or `None` if it can.
    pub(crate) fn absence(self) -> Option<String> {
        self.absence_among(FEATURES)
    }

    fn absence_among(self, features: &[&str]) -> Option<String> {
        let (name, feature) = match self {
            Self::Redis | Self::Sentinel => ("Redis", "log-redis"),
            Self::Nats => ("NATS", "log-nats"),
        };
        let why = || format!("this larder has no client for {name}: it was built without the feature {feature}");
        (!features.contains(&feature)).then(why)
    }
}

impl FromStr for SharedLog {
    type Err = InvalidSharedLog;

    fn from_str(text: &str) -> Result<Self, InvalidSharedLog> {
        // The text may contain a password, so the error does not repeat it.
        if text.contains('@') {
            return Err(InvalidSharedLog("the address of the log contains credentials".to_owned()));
        }
        let bad = |why: &str| InvalidSharedLog(format!("{why}: `{text}`"));
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let found = SCHEMES.iter().find(|(known, ..)| *known == scheme);
        let &(_, system, has_tls) = found.ok_or_else(|| {
            let schemes: Vec<&str> = SCHEMES.iter().map(|(scheme, ..)| *scheme).collect();
            bad(&format!("the log is none of {}", schemes.join("://, ") + "://"))
        })?;
        let (addresses, path) = rest.split_once('/').unwrap_or((rest, ""));
        let address_of = |address: &str| {
            let has_port = address.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
            let with_port = if has_port { address.to_owned() } else { format!("{address}:{}", system.default_port()) };
            host_and_port(&with_port).map_err(|why| bad(&format!("the log's address is wrong, {why}")))
        };
        let servers: Vec<(String, u16)> = addresses.split(',').map(address_of).collect::<Result<_, _>>()?;
        if system == LogSystem::Redis && servers.len() > 1 {
            return Err(bad("several servers of Redis need Sentinels (redis+sentinel://)"));
        }
        let (master, stream) = match system {
            LogSystem::Sentinel => path.split_once('/').unwrap_or((path, "")),
            LogSystem::Redis | LogSystem::Nats => ("", path),
        };
        if system == LogSystem::Sentinel && !is_name(master, b"-_.") {
            return Err(bad("the address of Sentinels has no name of a master (redis+sentinel://HOST/MASTER)"));
        }
        let stream = if stream.is_empty() { DEFAULT_STREAM } else { stream };
        if !is_name(stream, b"-_") {
            return Err(bad("the name of a stream consists of at most 64 letters, digits, - and _"));
        }
        Ok(Self { system, has_tls, servers, master: master.to_owned(), stream: stream.to_owned() })
    }
}

fn is_name(text: &str, more: &[u8]) -> bool {
    let is_part = |octet: u8| octet.is_ascii_alphanumeric() || more.contains(&octet);
    !text.is_empty() && text.len() <= NAME_LEN_MAX && text.bytes().all(is_part)
}

impl fmt::Display for SharedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, has_tls, servers, master, stream } = self;
        let is_own = |(_, other, tls): &&(&str, LogSystem, bool)| (other, tls) == (system, has_tls);
        let scheme = SCHEMES.iter().find(is_own).map_or("", |(scheme, ..)| scheme);
        let servers: Vec<String> = servers.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let slash = if master.is_empty() { "" } else { "/" };
        write!(f, "{scheme}://{}{slash}{master}/{stream}", servers.join(","))
    }
}

impl fmt::Display for InvalidSharedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidSharedLog {}

/// The URL schemes, with the kind of server that each stands for, and whether it uses TLS.
const SCHEMES: [(&str, LogSystem, bool); 6] = [
    ("redis", LogSystem::Redis, false),
    ("rediss", LogSystem::Redis, true),
    ("redis+sentinel", LogSystem::Sentinel, false),
    ("rediss+sentinel", LogSystem::Sentinel, true),
    ("nats", LogSystem::Nats, false),
    ("tls", LogSystem::Nats, true),
];
/// The Cargo features with which this program was built, of those that add clients for shared logs.
const FEATURES: &[&str] = &[
    #[cfg(feature = "log-redis")]
    "log-redis",
    #[cfg(feature = "log-nats")]
    "log-nats",
];
const DEFAULT_STREAM: &str = "larder-purges";
const NAME_LEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_without_a_client_names_the_feature_that_adds_it() {
        let both = ["log-redis", "log-nats"];
        for (system, feature) in
            [(LogSystem::Redis, both[0]), (LogSystem::Sentinel, both[0]), (LogSystem::Nats, both[1])]
        {
            assert_eq!(system.absence_among(&both), None);
            let others: Vec<&str> = both.into_iter().filter(|other| *other != feature).collect();
            for features in [&[][..], &others] {
                let told = system.absence_among(features).unwrap();
                assert!(told.ends_with(&format!("without the feature {feature}")), "{told}");
            }
        }
    }

    #[test]
    fn address_names_a_program_its_servers_and_a_stream() {
        for (text, shown) in [
            ("redis://10.0.0.9", "redis://10.0.0.9:6379/larder-purges"),
            ("redis://bus.example:6380/", "redis://bus.example:6380/larder-purges"),
            ("nats://bus.example/site_1", "nats://bus.example:4222/site_1"),
            ("nats://[fd00::1]", "nats://[fd00::1]:4222/larder-purges"),
            ("nats://[fd00::1]:4223/x", "nats://[fd00::1]:4223/x"),
            ("nats://a,b:4223/x", "nats://a:4222,b:4223/x"),
            ("rediss://h", "rediss://h:6379/larder-purges"),
            ("tls://h", "tls://h:4222/larder-purges"),
            ("redis+sentinel://a,b/main", "redis+sentinel://a:26379,b:26379/main/larder-purges"),
            ("rediss+sentinel://a:1/main/x", "rediss+sentinel://a:1/main/x"),
        ] {
            assert_eq!(text.parse::<SharedLog>().map(|log| log.to_string()), Ok(shown.to_owned()));
        }
        for (text, why) in [
            ("kafka://h:1", "none of redis://, rediss://, redis+sentinel://, rediss+sentinel://, nats://, tls://"),
            ("redis:h:1", "none of redis"),
            ("10.0.0.9:6379", "none of redis"),
            ("redis://a,b", "need Sentinels"),
            ("nats://a,", "host is not"),
            ("redis+sentinel://a", "no name of a master"),
            ("redis+sentinel://a/main/x/y", "name of a stream"),
            ("redis://", "host is not"),
            ("redis://h:0", "not a port"),
            ("redis://h:x", "not a port"),
            ("redis://h/a.b", "name of a stream"),
            ("nats://h/a/b", "name of a stream"),
            (&format!("nats://h/{}", "a".repeat(65)), "name of a stream"),
        ] {
            let told = text.parse::<SharedLog>().unwrap_err().to_string();
            assert!(told.contains(why) && told.contains(text), "{text}: {told}");
        }
        let told = "redis://:a%20secret@h".parse::<SharedLog>().unwrap_err().to_string();
        assert!(told.contains("credentials") && !told.contains("secret"), "{told}");
    }
}
