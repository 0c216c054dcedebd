//! The shared log of a fleet: a stream of Redis or NATS to which each node appends its purges, and which each node reads.
//!
//! Owns: when entries are missing, and what follows from that. `entry` has the entries, `redis` and `nats` the programs
//! that keep them, `sending` appends.
//!
//! Invariants: the entry at this node's position must still be in the stream, unchanged. Otherwise entries after it may
//! be missing too, and all that is stored must be validated. If the entry is gone while older ones are there, then the
//! program lost the end of the stream, and other nodes cannot notice this. So this node appends a note, after which they
//! validate everything too. Such a loss happens if Redis restarts from an old snapshot, or fails over to a replica.
//!
//! An entry that is not from a node of the fleet counts as a purge of unknown extent.

mod entry;
mod nats;
mod redis;
pub(super) mod sending;
mod socket;

use std::{path::Path, time::Duration};

use ring::digest::{SHA256, digest};

use self::{
    entry::{EntryContent, LogEntry},
    nats::NatsStream,
    redis::RedisStream,
};
use super::{FleetLink, connecting::RESPONSE_PATIENCE, secret};
use crate::{
    cache::purges::{LogPosition, LogSlice, Purge, PurgeMode, PurgeScope, Purges},
    clock,
    config::{LogSystem, SharedLog},
    tokens::read_own,
};

/// The shared log under one configuration.
pub(crate) struct SharedLogLink {
    pub(crate) log: SharedLog,
    pub(crate) credentials: Option<LogCredentials>,
}

/// The credentials for the program that keeps the log.
pub(crate) struct LogCredentials {
    user: Option<String>,
    password: String,
}

/// The shared log, as one reader or writer sees it.
#[derive(Default)]
pub(super) struct SharedLogClient {
    stream: Option<StreamClient>,
}

/// A connection to a stream.
enum StreamClient {
    Redis(Box<RedisStream>),
    Nats(Box<NatsStream>),
}

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StreamEntry {
    number: u64,
    /// The content. `None` if it was removed, or if no Larder can have written it.
    octets: Option<Vec<u8>>,
}

impl LogCredentials {
    /// Reads credentials from a file that only its owner may read: a password or token, or `USER:PASSWORD`.
    ///
    /// # Errors
    /// The file is unusable, with the reason.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = read_own(path).map_err(|error| format!("credentials for the fleet's log {name}: {error}"))?;
        let text = text.trim();
        let (user, password) = text.split_once(':').map_or((None, text), |(user, password)| (Some(user), password));
        if password.is_empty() || text.chars().any(char::is_control) {
            return Err(format!("credentials for the fleet's log {name}: it has no PASSWORD, and no USER:PASSWORD"));
        }
        Ok(Self { user: user.map(str::to_owned), password: password.to_owned() })
    }
}

impl SharedLogClient {
    /// Reads the entries after this node's position. Waits for one if there is none.
    pub(super) async fn slice(
        &mut self,
        link: &FleetLink,
        purges: &Purges,
        position: Option<LogPosition>,
        wait: Duration,
    ) -> Result<LogSlice, String> {
        match position {
            None => self.join(link, purges, purges.log_start()).await,
            Some(position) => match self.stream(link).await?.at(position.number).await? {
                Some(entry) if entry.mark() == position.log => self.read(link, purges, &position, wait).await,
                _ => self.rejoin(link, purges, &position).await,
            },
        }
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.stream = None;
    }

    /// Uses the connection, if there is one, so that the program does not take it for dead.
    async fn keep_open(&mut self) -> Result<(), String> {
        match &mut self.stream {
            Some(stream) => stream.first().await.map(drop),
            None => Ok(()),
        }
    }

    /// Begins to read at the end of the stream. `sent` is the number of the last own purge in it.
    async fn join(&mut self, link: &FleetLink, purges: &Purges, sent: u64) -> Result<LogSlice, String> {
        loop {
            let Some(last) = self.stream(link).await?.last().await? else {
                // An empty stream cannot be told from one that was emptied, so it must not stay empty.
                self.append(link, purges, sent, EntryContent::Start).await?;
                continue;
            };
            let (log, position) = (last.mark(), last.number);
            return Ok(LogSlice { log, is_reset: true, purges: Vec::new(), position, end: position, sent });
        }
    }

    /// Begins to read at the end of the stream, because the entry at this node's position is gone.
    async fn rejoin(&mut self, link: &FleetLink, purges: &Purges, position: &LogPosition) -> Result<LogSlice, String> {
        let first = self.stream(link).await?.first().await?;
        if first.is_some_and(|first| first <= position.number) {
            tracing::warn!(log = &*position.peer, "the log lost its end: all nodes validate what they stored before");
            self.append(link, purges, position.sent, EntryContent::Unknown).await?;
        }
        self.join(link, purges, position.sent).await
    }

    async fn read(
        &mut self,
        link: &FleetLink,
        purges: &Purges,
        position: &LogPosition,
        wait: Duration,
    ) -> Result<LogSlice, String> {
        let entries = self.stream(link).await?.after(position.number, READ_COUNT, wait).await?;
        let LogPosition { log, number, sent, .. } = *position;
        let mut slice = LogSlice { log, is_reset: false, purges: Vec::new(), position: number, end: number, sent };
        for entry in &entries {
            if entry.number <= slice.position {
                return Err("its entries are not in order".to_owned());
            }
            (slice.log, slice.position) = (entry.mark(), entry.number);
            take(entry, link, purges, &mut slice);
        }
        // More may follow. Only the next part shows how much.
        slice.end = slice.position + u64::from(entries.len() == READ_COUNT);
        Ok(slice)
    }

    /// Appends an entry about this node's own log up to a number.
    async fn append(
        &mut self,
        link: &FleetLink,
        purges: &Purges,
        number: u64,
        content: EntryContent,
    ) -> Result<(), String> {
        let nonce = secret::nonce().ok_or("the system has no random numbers")?;
        let entry = LogEntry { log: purges.log_id(), number, content };
        let stream = &shared(link).log.stream;
        let mut text = entry.encode(&link.secret, stream, &link.own_name, &nonce);
        if text.len() > ENTRY_BYTES_MAX {
            tracing::warn!(bytes = text.len(), "a purge is too long for the log: all nodes validate what they stored");
            text = LogEntry { content: EntryContent::Unknown, ..entry }.encode(
                &link.secret,
                stream,
                &link.own_name,
                &nonce,
            );
        }
        self.stream(link).await?.append(&text).await
    }

    /// Returns the connection. Opens one if there is none.
    async fn stream(&mut self, link: &FleetLink) -> Result<&mut StreamClient, String> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => in_time(Duration::ZERO, StreamClient::connect(shared(link))).await?,
        };
        Ok(self.stream.insert(stream))
    }
}

impl StreamClient {
    async fn connect(link: &SharedLogLink) -> Result<Self, String> {
        let (log, credentials) = (&link.log, link.credentials.as_ref());
        Ok(match log.system {
            LogSystem::Redis => Self::Redis(Box::new(RedisStream::connect(log, credentials).await?)),
            LogSystem::Nats => Self::Nats(Box::new(NatsStream::connect(log, credentials, STREAM_COUNT_MAX).await?)),
        })
    }

    async fn first(&mut self) -> Result<Option<u64>, String> {
        match self {
            Self::Redis(redis) => in_time(Duration::ZERO, redis.first()).await,
            Self::Nats(nats) => in_time(Duration::ZERO, nats.first()).await,
        }
    }

    async fn last(&mut self) -> Result<Option<StreamEntry>, String> {
        match self {
            Self::Redis(redis) => in_time(Duration::ZERO, redis.last()).await,
            Self::Nats(nats) => in_time(Duration::ZERO, nats.last()).await,
        }
    }

    async fn at(&mut self, number: u64) -> Result<Option<StreamEntry>, String> {
        match self {
            Self::Redis(redis) => in_time(Duration::ZERO, redis.at(number)).await,
            Self::Nats(nats) => in_time(Duration::ZERO, nats.at(number)).await,
        }
    }

    async fn after(&mut self, number: u64, count: usize, wait: Duration) -> Result<Vec<StreamEntry>, String> {
        match self {
            Self::Redis(redis) => in_time(wait, redis.after(number, count, wait)).await,
            Self::Nats(nats) => in_time(wait, nats.after(number, count, wait)).await,
        }
    }

    async fn append(&mut self, text: &str) -> Result<(), String> {
        match self {
            Self::Redis(redis) => in_time(Duration::ZERO, redis.append(text, STREAM_COUNT_MAX)).await,
            Self::Nats(nats) => in_time(Duration::ZERO, nats.append(text)).await,
        }
    }
}

impl StreamEntry {
    /// Returns a number by which the entry is recognized later.
    fn mark(&self) -> u64 {
        let octets = digest(&SHA256, self.octets.as_deref().unwrap_or_default());
        let (first, _) = octets.as_ref().split_first_chunk().expect("the digest is longer");
        u64::from_le_bytes(*first)
    }
}

/// Adds the purges of an entry to a slice. Purges that this node made are applied already.
fn take(entry: &StreamEntry, link: &FleetLink, purges: &Purges, slice: &mut LogSlice) {
    let stream = &shared(link).log.stream;
    let removed = Err("it was removed");
    let octets = entry.octets.as_deref();
    let LogEntry { log, number, content } =
        match octets.map_or(removed, |it| LogEntry::decode(it, &link.secret, stream)) {
            Ok(entry) => entry,
            Err(why) => {
                tracing::warn!(
                    number = entry.number,
                    why,
                    "an entry of the log of purges is unusable: everything is validated"
                );
                slice.purges.push(everything());
                return;
            }
        };
    let is_own = log == purges.log_id() && number <= purges.latest();
    if is_own {
        slice.sent = slice.sent.max(number);
    }
    match content {
        EntryContent::Purges(made) if !is_own => slice.purges.extend(made),
        EntryContent::Purges(_) | EntryContent::Start => {}
        EntryContent::Unknown => slice.purges.push(everything()),
    }
}

/// Returns a demand to validate everything. Its number is given when it is applied.
fn everything() -> Purge {
    Purge { number: 0, mode: PurgeMode::Validate, at: clock::now(), scope: PurgeScope::All }
}

fn shared(link: &FleetLink) -> &SharedLogLink {
    link.shared.as_ref().expect("only a fleet with a shared log reads it")
}

/// Waits for a response. One that was read in part makes the connection useless, so an error must close it.
async fn in_time<T>(wait: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let done = tokio::time::timeout(wait + RESPONSE_PATIENCE, work).await;
    done.unwrap_or_else(|_| Err("it does not respond".to_owned()))
}

/// Returns what another program said, in a form that is safe to show.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN_CHARS).collect()
}

/// Longest entry. NATS takes 1 MiB by default.
const ENTRY_BYTES_MAX: usize = 512 << 10;
/// Most entries of a stream. Older ones are dropped. A node whose position was dropped validates everything once.
const STREAM_COUNT_MAX: usize = 65_536;
/// Most entries that are read at once.
const READ_COUNT: usize = 64;
const SHOWN_CHARS: usize = 120;
