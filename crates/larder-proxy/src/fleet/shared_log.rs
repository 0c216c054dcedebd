//! The shared log of a fleet: a stream of Redis or NATS, to which each node appends its purges, and from which it reads
//! those of all.
//!
//! Owns: the detection of missing entries, and its consequences. `entry` has the entries, `redis` and `nats` the
//! servers that keep them (by client libraries, so each needs a feature), and `sending` appends.
//!
//! Invariants: the entry at this node's position must still be in the stream, unchanged. Otherwise entries after it may
//! be missing too, and all stored responses must be validated. If the entry is gone while older ones are there, the
//! server lost the end of the stream, and nodes that had not read so far cannot notice this. So this node appends a
//! note, after which they validate everything too. Redis loses the end if it restarts from an old snapshot, or fails
//! over to a replica.
//!
//! An entry that is not from a node of the fleet counts as a purge of unknown extent, because it may have replaced one.
//! An entry in a form that no Larder writes is skipped, and so is one that is appended again (`seen`).

mod entry;
#[cfg(feature = "log-nats")]
mod nats;
#[cfg(feature = "log-redis")]
mod redis;
mod seen;
pub(super) mod sending;
pub(crate) mod stream;

use std::time::Duration;

#[cfg(feature = "log-nats")]
use self::nats::NatsStream;
#[cfg(feature = "log-redis")]
use self::redis::RedisStream;
use self::{
    entry::{EntryContent, LogEntry},
    seen::SeenEntries,
    stream::{ENTRY_BYTES_MAX, EntryOctets, SharedLogLink, StreamEntry},
};
use super::{connecting::RESPONSE_PATIENCE, link::FleetLink, secret};
#[cfg(any(feature = "log-redis", feature = "log-nats"))]
use crate::ground::config::LogSystem;
use crate::ground::{
    cache::purges::{LogPosition, LogSlice, Purge, PurgeMode, PurgeScope, Purges},
    clock,
};

/// Reads or writes the shared log for this node.
#[derive(Default)]
pub(super) struct SharedLogClient {
    stream: Option<StreamClient>,
    seen: SeenEntries,
    /// Whether `seen` contains the entries before this node's position, which later entries may repeat.
    knows_earlier: bool,
}

/// A connection to the server that keeps the stream.
enum StreamClient {
    #[cfg(feature = "log-redis")]
    Redis(Box<RedisStream>),
    #[cfg(feature = "log-nats")]
    Nats(Box<NatsStream>),
}

impl SharedLogClient {
    /// Reads the entries after this node's position. If there are none, waits up to `wait` for one.
    pub(super) async fn slice(
        &mut self,
        link: &FleetLink,
        purges: &Purges,
        position: Option<LogPosition>,
        wait: Duration,
    ) -> Result<LogSlice, String> {
        if !self.knows_earlier {
            self.see_earlier(link, position.as_ref()).await?;
        }
        match position {
            None => self.join(link, purges, purges.log_start()).await,
            Some(position) => match self.stream(link).await?.at(position.number).await? {
                Some(entry) if entry.mark() == position.log => self.read(link, purges, &position, wait).await,
                _ => self.rejoin(link, purges, &position).await,
            },
        }
    }

    /// Remembers the entries up to this node's position, or all existing ones if it has no position.
    async fn see_earlier(&mut self, link: &FleetLink, position: Option<&LogPosition>) -> Result<(), String> {
        let end = match position {
            Some(position) => position.number,
            None => self.stream(link).await?.last().await?.map_or(0, |last| last.number),
        };
        let first = self.stream(link).await?.first().await?.filter(|first| *first <= end);
        if let Some(mut place) = first {
            let entry = self.stream(link).await?.at(place).await?;
            self.see(entry.as_slice(), link, end);
            while place < end {
                let entries = self.stream(link).await?.after(place, READ_COUNT, Duration::ZERO).await?;
                self.see(&entries, link, end);
                match entries.last() {
                    Some(last) if last.number > place => place = last.number,
                    // Entries that are out of order are reported when they are read.
                    Some(_) | None => break,
                }
            }
        }
        self.knows_earlier = true;
        Ok(())
    }

    fn see(&mut self, entries: &[StreamEntry], link: &FleetLink, end: u64) {
        for entry in entries.iter().take_while(|entry| entry.number <= end) {
            if let Ok(Some(known)) = decoded(entry, link) {
                self.seen.is_repeated(known.nonce, entry.number);
            }
        }
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.stream = None;
    }

    /// Uses the connection, so that the server does not close it as idle.
    async fn keep_open(&mut self) -> Result<(), String> {
        match &mut self.stream {
            Some(stream) => stream.first().await.map(drop),
            None => Ok(()),
        }
    }

    /// Begins to read at the end of the stream, so everything stored before must be validated. `sent` is the number of
    /// this node's last purge in the stream.
    async fn join(&mut self, link: &FleetLink, purges: &Purges, sent: u64) -> Result<LogSlice, String> {
        loop {
            let Some(last) = self.stream(link).await?.last().await? else {
                // An empty stream looks like one that has lost its entries, so a first entry is appended.
                self.append(link, purges, sent, EntryContent::Start).await?;
                continue;
            };
            let log = last.mark();
            let position = last.number;
            return Ok(LogSlice { log, is_reset: true, purges: Vec::new(), position, end: position, sent });
        }
    }

    /// Begins to read at the end of the stream, because the entry at this node's position is gone.
    async fn rejoin(&mut self, link: &FleetLink, purges: &Purges, position: &LogPosition) -> Result<LogSlice, String> {
        let first = self.stream(link).await?.first().await?;
        if first.is_some_and(|first| first <= position.number) {
            tracing::warn!(
                log = &*position.peer,
                "the shared log lost its latest entries: all nodes validate what they stored before"
            );
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
            self.take(entry, link, purges, &mut slice);
        }
        // If the read was full, more entries may follow. Only the next read shows how many.
        slice.end = slice.position + u64::from(entries.len() == READ_COUNT);
        Ok(slice)
    }

    /// Adds the purges of an entry to `slice`. Purges that this node made itself are left out.
    fn take(&mut self, entry: &StreamEntry, link: &FleetLink, purges: &Purges, slice: &mut LogSlice) {
        let number = entry.number;
        let known = match decoded(entry, link) {
            Ok(known) => known.filter(|known| !self.seen.is_repeated(known.nonce, number)),
            Err(why) => {
                tracing::warn!(
                    number,
                    why,
                    "an entry of the shared log is unusable: everything is validated before use"
                );
                slice.purges.push(everything());
                return;
            }
        };
        let Some(LogEntry { log, number, content, .. }) = known else {
            link.peers.note_skipped();
            tracing::warn!(number, "an entry of the shared log is skipped: no node wrote it, or it was appended twice");
            return;
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

    /// Appends an entry with `content`, which covers this node's own log up to `number`.
    async fn append(
        &mut self,
        link: &FleetLink,
        purges: &Purges,
        number: u64,
        content: EntryContent,
    ) -> Result<(), String> {
        let nonce = secret::number().ok_or("the system has no random numbers")?;
        let entry = LogEntry { log: purges.log_id(), number, nonce, content };
        let stream = &shared(link).log.stream;
        let mut text = entry.encode(&link.secret, stream, &link.own_name);
        if text.len() > ENTRY_BYTES_MAX {
            tracing::warn!(bytes = text.len(), "a purge is too long for the log: all nodes validate what they stored");
            text = LogEntry { content: EntryContent::Unknown, ..entry }.encode(&link.secret, stream, &link.own_name);
        }
        self.stream(link).await?.append(&text).await
    }

    /// Returns the connection to the stream. Opens it if necessary.
    async fn stream(&mut self, link: &FleetLink) -> Result<&mut StreamClient, String> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => in_time(Duration::ZERO, StreamClient::connect(shared(link))).await?,
        };
        Ok(self.stream.insert(stream))
    }
}

#[cfg_attr(
    not(any(feature = "log-redis", feature = "log-nats")),
    expect(unused_variables, reason = "a build without clients has no connections")
)]
impl StreamClient {
    async fn connect(link: &SharedLogLink) -> Result<Self, String> {
        let log = &link.log;
        let credentials = link.credentials.as_ref();
        match log.system {
            #[cfg(feature = "log-redis")]
            LogSystem::Redis | LogSystem::Sentinel => {
                RedisStream::connect(log, credentials).await.map(|redis| Self::Redis(Box::new(redis)))
            }
            #[cfg(feature = "log-nats")]
            LogSystem::Nats => {
                NatsStream::connect(log, credentials, STREAM_COUNT_MAX).await.map(|nats| Self::Nats(Box::new(nats)))
            }
            #[cfg(not(all(feature = "log-redis", feature = "log-nats")))]
            system => Err(system.absence().unwrap_or_default()),
        }
    }

    /// Returns the number of the first entry in the stream. `None` if it is empty.
    async fn first(&mut self) -> Result<Option<u64>, String> {
        Ok(self.after(0, 1, Duration::ZERO).await?.first().map(|first| first.number))
    }

    /// Returns the last entry in the stream. `None` if it is empty.
    async fn last(&mut self) -> Result<Option<StreamEntry>, String> {
        match *self {
            #[cfg(feature = "log-redis")]
            Self::Redis(ref mut redis) => in_time(Duration::ZERO, redis.last()).await,
            #[cfg(feature = "log-nats")]
            Self::Nats(ref mut nats) => in_time(Duration::ZERO, nats.last()).await,
        }
    }

    /// Returns the entry with this number. `None` if it is not in the stream.
    async fn at(&mut self, number: u64) -> Result<Option<StreamEntry>, String> {
        let next = self.after(number.saturating_sub(1), 1, Duration::ZERO).await?.pop();
        Ok(next.filter(|entry| entry.number == number && entry.octets != EntryOctets::Removed))
    }

    /// Returns at most `count` entries after `number`; 0 stands for the beginning of the stream. If there are none,
    /// waits up to `wait` for one.
    async fn after(&mut self, number: u64, count: usize, wait: Duration) -> Result<Vec<StreamEntry>, String> {
        match *self {
            #[cfg(feature = "log-redis")]
            Self::Redis(ref mut redis) => in_time(wait, redis.after(number, count, wait)).await,
            #[cfg(feature = "log-nats")]
            Self::Nats(ref mut nats) => in_time(wait, nats.after(number, count, wait)).await,
        }
    }

    async fn append(&mut self, text: &str) -> Result<(), String> {
        match *self {
            #[cfg(feature = "log-redis")]
            Self::Redis(ref mut redis) => in_time(Duration::ZERO, redis.append(text, STREAM_COUNT_MAX)).await,
            #[cfg(feature = "log-nats")]
            Self::Nats(ref mut nats) => in_time(Duration::ZERO, nats.append(text)).await,
        }
    }
}

/// Parses an entry. Returns `None` if no Larder node can have written it.
///
/// # Errors
/// The entry was removed or is not from a node of this fleet. It may have taken the place of a purge.
fn decoded(entry: &StreamEntry, link: &FleetLink) -> Result<Option<LogEntry>, &'static str> {
    match &entry.octets {
        EntryOctets::Present(octets) => LogEntry::decode(octets, &link.secret, &shared(link).log.stream).map(Some),
        EntryOctets::Removed => Err("it was removed"),
        EntryOctets::Foreign => Ok(None),
    }
}

/// Returns a purge that requires validation of everything. It gets its number when it is applied.
fn everything() -> Purge {
    Purge { number: 0, mode: PurgeMode::Validate, at_ms: clock::now().as_millis(), scope: PurgeScope::All }
}

fn shared(link: &FleetLink) -> &SharedLogLink {
    link.shared.as_ref().expect("only a fleet with a shared log reads it")
}

/// Waits for a response of the server, at most for `wait` plus [`RESPONSE_PATIENCE`].
///
/// After an error the caller must close the connection, because a part of the response may have been read.
async fn in_time<T>(wait: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let done = tokio::time::timeout(wait + RESPONSE_PATIENCE, work).await;
    done.unwrap_or_else(|_| Err("it does not respond".to_owned()))
}

/// Maximum number of entries in the stream. Beyond it, the oldest entries are dropped. A node that had not read them
/// validates everything once.
const STREAM_COUNT_MAX: usize = 65_536;
/// Maximum number of entries that are read at once.
const READ_COUNT: usize = 64;
