//! Reads and writes a stream of Redis.
//!
//! The number of an entry is its ID: the milliseconds times 2^20, plus the counter within the millisecond.
//!
//! Cost: an entry that is skipped is nevertheless read completely, whatever its length. Redis limits it, to 512 MB by
//! default.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError, RedisResult, TlsMode,
    aio::MultiplexedConnection,
    cmd,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};

use super::stream::{EntryOctets, LogCredentials, StreamEntry, shown};
use crate::{
    fleet::connecting::CONNECT_PATIENCE,
    ground::{
        config::{LogSystem, SharedLog},
        tls_provider,
    },
};

/// A connection to a stream of Redis.
pub(super) struct RedisStream {
    connection: MultiplexedConnection,
    stream: String,
}

/// Entries as Redis sends them: an ID, then names and values in turn.
type RawEntries = Vec<(String, Vec<Vec<u8>>)>;

impl RedisStream {
    /// Connects to the server, or to the master that the Sentinels name.
    pub(super) async fn connect(log: &SharedLog, credentials: Option<&LogCredentials>) -> Result<Self, String> {
        tls_provider::install();
        let connection = connection(log, credentials).await.map_err(|error| fault(&error))?;
        Ok(Self { connection, stream: log.stream.clone() })
    }

    /// Returns the last entry in the stream. `None` if it is empty.
    pub(super) async fn last(&mut self) -> Result<Option<StreamEntry>, String> {
        let mut command = cmd("XREVRANGE");
        command.arg(&self.stream).arg(&["+", "-", "COUNT", "1"]);
        Ok(entries(self.query(&command).await?)?.pop())
    }

    /// Returns at most `count` entries after `number`. If there are none, waits up to `wait` for one.
    pub(super) async fn after(
        &mut self,
        number: u64,
        count: usize,
        wait: Duration,
    ) -> Result<Vec<StreamEntry>, String> {
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(count);
        if !wait.is_zero() {
            // To Redis, a wait of 0 means forever, so it is at least 1 ms.
            command.arg("BLOCK").arg(wait.as_millis().max(1).to_string());
        }
        command.arg("STREAMS").arg(&self.stream).arg(id_of(number));
        let streams: Option<Vec<(String, RawEntries)>> = self.query(&command).await?;
        entries(streams.and_then(|mut streams| streams.pop()).map(|(_, raw)| raw).unwrap_or_default())
    }

    /// Appends an entry, and drops the oldest entries if there are more than about `count_max`.
    pub(super) async fn append(&mut self, text: &str, count_max: usize) -> Result<(), String> {
        let mut command = cmd("XADD");
        command.arg(&self.stream).arg(&["MAXLEN", "~"]).arg(count_max).arg(&["*", FIELD, text]);
        self.query(&command).await
    }

    async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, String> {
        command.query_async(&mut self.connection).await.map_err(|error| fault(&error))
    }
}

async fn connection(log: &SharedLog, credentials: Option<&LogCredentials>) -> RedisResult<MultiplexedConnection> {
    // The caller limits the time of responses, because reads wait for entries.
    let settings =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_PATIENCE)).set_response_timeout(None);
    let mut redis = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(LogCredentials { user, password }) = credentials {
        redis = redis.set_password(password);
        if let Some(user) = user {
            redis = redis.set_username(user);
        }
    }
    let mut servers = log.servers.iter().map(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        match log.has_tls {
            true => ConnectionAddr::TcpTls { host, port: *port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, *port),
        }
    });
    if log.system == LogSystem::Sentinel {
        let mut node = SentinelNodeConnectionInfo::default().set_redis_connection_info(redis);
        if log.has_tls {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        let mut sentinels =
            SentinelClient::build(servers.collect(), &log.master, Some(node), SentinelServerType::Master)?;
        return sentinels.get_async_connection_with_config(&settings).await;
    }
    let server = servers.next().ok_or_else(|| std::io::Error::other("the log has no server"))?;
    let client = Client::open(server.into_connection_info()?.set_redis_settings(redis))?;
    client.get_multiplexed_async_connection_with_config(&settings).await
}

/// Describes a failure for the operator.
fn fault(error: &RedisError) -> String {
    let why = shown(&error.to_string());
    let is_refusal = error.code().is_some() || error.kind() == redis::ErrorKind::AuthenticationFailed;
    if is_refusal { format!("Redis refuses this node: {why}") } else { why }
}

fn entries(raw: RawEntries) -> Result<Vec<StreamEntry>, String> {
    raw.into_iter().map(|(id, fields)| entry(&id, fields).ok_or_else(|| STRANGE.to_owned())).collect()
}

fn entry(id: &str, fields: Vec<Vec<u8>>) -> Option<StreamEntry> {
    let octets = match <[Vec<u8>; 2]>::try_from(fields) {
        Ok([name, value]) if name == FIELD.as_bytes() => EntryOctets::new(value),
        _ => EntryOctets::Foreign,
    };
    Some(StreamEntry { number: number_of(id)?, octets })
}

fn id_of(number: u64) -> String {
    format!("{}-{}", number >> COUNTER_BITS, number & ((1 << COUNTER_BITS) - 1))
}

fn number_of(id: &str) -> Option<u64> {
    let (millis, counter) = id.split_once('-')?;
    let millis: u64 = millis.parse().ok()?;
    let counter: u64 = counter.parse().ok()?;
    (millis < 1 << (64 - COUNTER_BITS) && counter < 1 << COUNTER_BITS).then_some(millis << COUNTER_BITS | counter)
}

/// The name of the only field in an entry.
const FIELD: &str = "purges";
const COUNTER_BITS: u32 = 20;
const STRANGE: &str = "its entries have IDs that Redis never makes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_an_id_in_the_same_order() {
        let ids = ["0-1", "1-0", "1764041481000-0", "1764041481000-1048575", "1764041481001-0"];
        let numbers: Vec<u64> = ids.iter().map(|id| number_of(id).unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        ids.iter().zip(numbers).for_each(|(id, number)| assert_eq!(id_of(number), *id));
        for id in ["", "1", "-1", "1-", "1-1048576", "17592186044416-0", "x-1"] {
            assert_eq!(number_of(id), None, "{id}");
        }
    }
}
