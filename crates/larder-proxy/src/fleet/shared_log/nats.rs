//! Reads and writes a stream of NATS JetStream.
//!
//! Entries are read by their sequence numbers, so the server keeps no state about this reader. A plain subscription to
//! the stream's subject only signals that there is something to read.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Subscriber,
    jetstream::{
        self, Context,
        stream::{Config, RawMessageErrorKind, Stream},
    },
};
use futures_util::{StreamExt as _, future::try_join_all};

use super::stream::{EntryOctets, LogCredentials, StreamEntry, shown};
use crate::{
    fleet::connecting::CONNECT_PATIENCE,
    ground::{config::SharedLog, tls_provider},
};

/// A connection to a stream of NATS JetStream.
pub(super) struct NatsStream {
    client: Client,
    context: Context,
    stream: Stream,
    /// The subscription that signals new entries. Created when this node first waits for one.
    news: Option<Subscriber>,
}

impl NatsStream {
    /// Connects to one of the servers, and creates the stream if it does not exist.
    pub(super) async fn connect(
        log: &SharedLog,
        credentials: Option<&LogCredentials>,
        count_max: usize,
    ) -> Result<Self, String> {
        tls_provider::install();
        // The client gives up soon, because its owner connects again after a failure.
        let mut options = ConnectOptions::new()
            .name("larder")
            .connection_timeout(CONNECT_PATIENCE)
            .max_reconnects(log.servers.len())
            .subscription_capacity(NEWS_COUNT_MAX);
        options = match credentials.cloned() {
            Some(LogCredentials { user: Some(user), password }) => options.user_and_password(user, password),
            Some(LogCredentials { user: None, password }) => options.token(password),
            None => options,
        };
        let scheme = if log.has_tls { "tls" } else { "nats" };
        let servers: Vec<String> = log.servers.iter().map(|(host, port)| format!("{scheme}://{host}:{port}")).collect();
        let client = options.connect(servers).await.map_err(|error| refusal(&error))?;
        let context = jetstream::new(client.clone());
        let config = Config {
            name: log.stream.clone(),
            subjects: vec![log.stream.clone()],
            max_messages: count_max as i64,
            ..Config::default()
        };
        let opened = context.get_or_create_stream(config).await;
        let stream = opened.map_err(|error| format!("JetStream (nats-server --jetstream): {}", fault(&error)))?;
        Ok(Self { client, context, stream, news: None })
    }

    /// Returns the last entry in the stream. `None` if it is empty.
    pub(super) async fn last(&mut self) -> Result<Option<StreamEntry>, String> {
        let numbers = self.numbers().await?;
        if numbers.is_empty() {
            return Ok(None);
        }
        // The entry may have been removed meanwhile. Its number remains valid.
        Ok(self.read(*numbers.end()..=*numbers.end()).await?.pop())
    }

    /// Returns at most `count` entries after `number`; 0 stands for the beginning of the stream. If there are none,
    /// waits up to `wait` for one.
    pub(super) async fn after(
        &mut self,
        number: u64,
        count: usize,
        wait: Duration,
    ) -> Result<Vec<StreamEntry>, String> {
        let end = Instant::now() + wait;
        let mut pause = CHECK_INTERVAL;
        loop {
            let numbers = self.numbers().await?;
            let next = if number == 0 { *numbers.start() } else { number + 1 };
            if next <= *numbers.end() {
                return self.read(next..=(*numbers.end()).min(next + count as u64 - 1)).await;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            // A message is signalled before it is in the stream, so the stream is read again soon after a signal.
            let is_reported = tokio::time::timeout(left.min(pause), self.news().await?.next()).await.is_ok();
            pause = if is_reported { STORING_PAUSE } else { CHECK_INTERVAL.min(2 * pause) };
        }
    }

    /// Appends an entry.
    pub(super) async fn append(&mut self, text: &str) -> Result<(), String> {
        let sent = self.context.publish(self.stream.cached_info().config.name.clone(), text.to_owned().into()).await;
        sent.map_err(|error| fault(&error))?.await.map_err(|error| fault(&error)).map(drop)
    }

    /// Reads the entries whose numbers are in `numbers`. An entry that was removed has no content.
    async fn read(&self, numbers: RangeInclusive<u64>) -> Result<Vec<StreamEntry>, String> {
        // The entries are requested together, because a node that was away may have many to read.
        try_join_all(numbers.map(async |number| match self.stream.get_raw_message(number).await {
            Ok(message) => Ok(StreamEntry { number, octets: EntryOctets::new(message.payload.into()) }),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                Ok(StreamEntry { number, octets: EntryOctets::Removed })
            }
            Err(error) => Err(fault(&error)),
        }))
        .await
    }

    /// Returns the numbers of the first and the last entry. The range is empty if there are none.
    async fn numbers(&self) -> Result<RangeInclusive<u64>, String> {
        let state = self.stream.get_info().await.map_err(|error| fault(&error))?.state;
        // For a stream that never had an entry, the server reports 0 as the first number.
        Ok(state.first_sequence.max(1)..=state.last_sequence)
    }

    async fn news(&mut self) -> Result<&mut Subscriber, String> {
        let news = match self.news.take() {
            Some(news) => news,
            None => {
                let subject = self.stream.cached_info().config.name.clone();
                self.client.subscribe(subject).await.map_err(|error| fault(&error))?
            }
        };
        Ok(self.news.insert(news))
    }
}

fn refusal(error: &ConnectError) -> String {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            format!("NATS refuses this node: {}", fault(error))
        }
        _ => fault(error),
    }
}

/// Describes a failure for the operator.
fn fault(error: &impl std::fmt::Display) -> String {
    shown(&error.to_string())
}

/// Interval between reads if no entry is signaled, for example after a reconnect.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between the signal of an entry and the first attempt to read it.
const STORING_PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of unread signals that are kept. More would add no information.
const NEWS_COUNT_MAX: usize = 1;
