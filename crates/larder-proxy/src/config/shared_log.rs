//! The address of a stream in Redis or NATS JetStream that carries the purges of a fleet.

use std::{fmt, str::FromStr};

use super::fleet::host_and_port;

/// A stream that carries the purges of a fleet, in the form `redis://HOST:PORT/STREAM` or `nats://HOST:PORT/STREAM`.
/// Port and stream can be omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLog {
    /// The program that keeps the stream.
    pub system: LogSystem,
    /// A name, an IPv4 address, or an IPv6 address in brackets.
    pub host: String,
    /// The port of the program.
    pub port: u16,
    /// The name of the stream.
    pub stream: String,
}

/// A program that keeps streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSystem {
    /// Redis Streams, since Redis 5.
    Redis,
    /// NATS JetStream.
    Nats,
}

/// The text is not the address of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidSharedLog(String);

impl LogSystem {
    fn scheme(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Nats => "nats",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Redis => 6379,
            Self::Nats => 4222,
        }
    }
}

impl FromStr for SharedLog {
    type Err = InvalidSharedLog;

    fn from_str(text: &str) -> Result<Self, InvalidSharedLog> {
        // The text may contain a password, so that it is not repeated.
        if text.contains('@') {
            return Err(InvalidSharedLog("the address of the log contains credentials".to_owned()));
        }
        let bad = |why: &str| InvalidSharedLog(format!("{why}: `{text}`"));
        let systems = [LogSystem::Redis, LogSystem::Nats];
        let found = systems.iter().find_map(|system| Some((*system, text.strip_prefix(system.scheme())?)));
        let found = found.and_then(|(system, rest)| Some((system, rest.strip_prefix("://")?)));
        let (system, rest) = found.ok_or_else(|| bad("the log is neither redis:// nor nats://"))?;
        let (address, stream) = rest.split_once('/').unwrap_or((rest, ""));
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let with_port = if has_port { address.to_owned() } else { format!("{address}:{}", system.default_port()) };
        let (host, port) =
            host_and_port(&with_port).map_err(|why| bad(&format!("the log's address is wrong, {why}")))?;
        let stream = if stream.is_empty() { DEFAULT_STREAM } else { stream };
        let is_name = |octet: u8| octet.is_ascii_alphanumeric() || b"-_".contains(&octet);
        if stream.len() > STREAM_NAME_LEN_MAX || !stream.bytes().all(is_name) {
            return Err(bad("the name of a stream consists of at most 64 letters, digits, - and _"));
        }
        Ok(Self { system, host, port, stream: stream.to_owned() })
    }
}

impl fmt::Display for SharedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}/{}", self.system.scheme(), self.host, self.port, self.stream)
    }
}

impl fmt::Display for InvalidSharedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidSharedLog {}

const DEFAULT_STREAM: &str = "larder-purges";
const STREAM_NAME_LEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_names_a_program_a_host_and_a_stream() {
        for (text, shown) in [
            ("redis://10.0.0.9", "redis://10.0.0.9:6379/larder-purges"),
            ("redis://bus.example:6380/", "redis://bus.example:6380/larder-purges"),
            ("nats://bus.example/site_1", "nats://bus.example:4222/site_1"),
            ("nats://[fd00::1]", "nats://[fd00::1]:4222/larder-purges"),
            ("nats://[fd00::1]:4223/x", "nats://[fd00::1]:4223/x"),
        ] {
            assert_eq!(text.parse::<SharedLog>().map(|log| log.to_string()), Ok(shown.to_owned()));
        }
        for (text, why) in [
            ("kafka://h:1", "neither redis:// nor nats://"),
            ("redis:h:1", "neither redis"),
            ("10.0.0.9:6379", "neither redis"),
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
