//! Reads and writes a stream of Redis, over one connection.
//!
//! Owns: the commands, and the parsing of replies (RESP 2). They are written by hand because five commands are enough,
//! and a client library would add crates to every build.
//!
//! The number of an entry is its ID: the milliseconds times 2^20, plus the counter within the millisecond.

use std::{fmt::Write as _, time::Duration};

use super::{
    socket::LineSocket,
    stream::{EntryOctets, LogCredentials, StreamEntry, shown},
};
use crate::config::SharedLog;

/// A connection to the stream.
pub(super) struct RedisStream {
    socket: LineSocket,
    stream: String,
}

/// A reply to a command.
#[derive(Debug, PartialEq, Eq)]
enum RedisReply {
    /// A simple string or an integer, as text.
    Word(String),
    Error(String),
    Block(Vec<u8>),
    List(Vec<RedisReply>),
    Nothing,
}

impl RedisStream {
    pub(super) async fn connect(log: &SharedLog, credentials: Option<&LogCredentials>) -> Result<Self, String> {
        let socket = LineSocket::connect(&log.host, log.port).await?;
        let mut redis = Self { socket, stream: log.stream.clone() };
        if let Some(LogCredentials { user, password }) = credentials {
            let words: Vec<&str> = ["AUTH"].into_iter().chain(user.as_deref()).chain([&**password]).collect();
            redis.command(&words).await?;
        }
        Ok(redis)
    }

    /// Returns the number of the first entry.
    pub(super) async fn first(&mut self) -> Result<Option<u64>, String> {
        let stream = self.stream.clone();
        let first = self.entries_of(&["XRANGE", &stream, "-", "+", "COUNT", "1"]).await?;
        Ok(first.first().map(|entry| entry.number))
    }

    /// Returns the last entry.
    pub(super) async fn last(&mut self) -> Result<Option<StreamEntry>, String> {
        let stream = self.stream.clone();
        Ok(self.entries_of(&["XREVRANGE", &stream, "+", "-", "COUNT", "1"]).await?.pop())
    }

    /// Returns the entry with a number.
    pub(super) async fn at(&mut self, number: u64) -> Result<Option<StreamEntry>, String> {
        let stream = self.stream.clone();
        let id = id_of(number);
        Ok(self.entries_of(&["XRANGE", &stream, &id, &id]).await?.pop())
    }

    /// Returns at most `count` entries after a number. Waits for one if there is none.
    pub(super) async fn after(
        &mut self,
        number: u64,
        count: usize,
        wait: Duration,
    ) -> Result<Vec<StreamEntry>, String> {
        let stream = self.stream.clone();
        let id = id_of(number);
        let count = count.to_string();
        // To Redis, a wait of 0 means forever.
        let block = wait.as_millis().max(1).to_string();
        let mut words = vec!["XREAD", "COUNT", &count];
        if !wait.is_zero() {
            words.extend(["BLOCK", &*block]);
        }
        words.extend(["STREAMS", &*stream, &*id]);
        match self.command(&words).await? {
            RedisReply::Nothing => Ok(Vec::new()),
            RedisReply::List(mut streams) if streams.len() == 1 => match streams.pop() {
                Some(RedisReply::List(mut named)) if named.len() == 2 => entries(named.pop()),
                _ => Err(STRANGE.to_owned()),
            },
            _ => Err(STRANGE.to_owned()),
        }
    }

    /// Appends an entry, and drops the oldest entries above `count_max`.
    pub(super) async fn append(&mut self, text: &str, count_max: usize) -> Result<(), String> {
        let stream = self.stream.clone();
        let count_max = count_max.to_string();
        self.command(&["XADD", &stream, "MAXLEN", "~", &count_max, "*", FIELD, text]).await.map(drop)
    }

    async fn entries_of(&mut self, words: &[&str]) -> Result<Vec<StreamEntry>, String> {
        entries(Some(self.command(words).await?))
    }

    async fn command(&mut self, words: &[&str]) -> Result<RedisReply, String> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            write!(text, "${}\r\n{word}\r\n", word.len()).expect("a string takes what is written to it");
        }
        self.socket.send(text.as_bytes()).await?;
        match self.reply().await? {
            RedisReply::Error(why) => Err(format!("Redis refuses {}: {}", words[0], shown(&why))),
            reply => Ok(reply),
        }
    }

    /// Reads a reply. Lists that are not complete yet are on a stack, so a deeply nested reply takes no stack frames.
    ///
    /// A list that is longer than any of a Larder's entry is read, and gives nothing: an error would end each further
    /// attempt to read the entry.
    async fn reply(&mut self) -> Result<RedisReply, String> {
        let mut open: Vec<OpenList> = Vec::new();
        let mut part_count = 0;
        let mut skipped_count = 0_usize;
        loop {
            let is_kept = open.iter().all(OpenList::is_kept);
            *(if is_kept { &mut part_count } else { &mut skipped_count }) += 1;
            if part_count > PART_COUNT_MAX || skipped_count > SKIPPED_COUNT_MAX || open.len() > DEPTH_MAX {
                return Err(STRANGE.to_owned());
            }
            let mut reply = match self.part().await? {
                ReplyPart::Whole(reply) => reply,
                ReplyPart::List(0) => RedisReply::List(Vec::new()),
                ReplyPart::List(len) => {
                    open.push(OpenList { len, seen: 0, parts: Vec::new() });
                    continue;
                }
            };
            loop {
                let Some(list) = open.last_mut() else { return Ok(reply) };
                list.seen += 1;
                if list.is_kept() {
                    list.parts.push(reply);
                }
                if list.seen < list.len {
                    break;
                }
                let list = open.pop().expect("it was the last one");
                reply = if list.is_kept() { RedisReply::List(list.parts) } else { RedisReply::Nothing };
            }
        }
    }

    async fn part(&mut self) -> Result<ReplyPart, String> {
        let line = self.socket.line().await?;
        let (kind, rest) = line.split_at_checked(1).ok_or(STRANGE)?;
        let len = || rest.parse::<i64>().map_err(|_| STRANGE.to_owned());
        Ok(match kind {
            "+" | ":" => ReplyPart::Whole(RedisReply::Word(rest.to_owned())),
            "-" => ReplyPart::Whole(RedisReply::Error(rest.to_owned())),
            "$" => match usize::try_from(len()?) {
                Ok(len) => {
                    ReplyPart::Whole(self.socket.block(len).await?.map_or(RedisReply::Nothing, RedisReply::Block))
                }
                Err(_) => ReplyPart::Whole(RedisReply::Nothing),
            },
            "*" => usize::try_from(len()?).map_or(ReplyPart::Whole(RedisReply::Nothing), ReplyPart::List),
            _ => return Err(STRANGE.to_owned()),
        })
    }
}

/// A list of which some parts are missing.
struct OpenList {
    len: usize,
    seen: usize,
    parts: Vec<RedisReply>,
}

impl OpenList {
    fn is_kept(&self) -> bool {
        self.len <= LIST_LEN_MAX
    }
}

/// A part of a reply.
enum ReplyPart {
    Whole(RedisReply),
    /// The beginning of a list of this length.
    List(usize),
}

/// Reads a list of entries: an ID and a list of fields each.
fn entries(reply: Option<RedisReply>) -> Result<Vec<StreamEntry>, String> {
    let Some(RedisReply::List(entries)) = reply else { return Err(STRANGE.to_owned()) };
    entries.into_iter().map(|entry| entry_of(entry).ok_or_else(|| STRANGE.to_owned())).collect()
}

fn entry_of(reply: RedisReply) -> Option<StreamEntry> {
    let RedisReply::List(mut parts) = reply else { return None };
    let (fields, RedisReply::Block(id)) = (parts.pop()?, parts.pop()?) else { return None };
    let number = number_of(std::str::from_utf8(&id).ok()?)?;
    let octets = match fields {
        RedisReply::List(mut fields) if fields.len() == 2 => match (fields.pop(), fields.pop()) {
            (Some(RedisReply::Block(value)), Some(RedisReply::Block(name))) if name == FIELD.as_bytes() => {
                EntryOctets::new(value)
            }
            _ => EntryOctets::Foreign,
        },
        _ => EntryOctets::Foreign,
    };
    Some(StreamEntry { number, octets })
}

fn id_of(number: u64) -> String {
    format!("{}-{}", number >> COUNTER_BITS, number & ((1 << COUNTER_BITS) - 1))
}

fn number_of(id: &str) -> Option<u64> {
    let (millis, counter) = id.split_once('-')?;
    let (millis, counter): (u64, u64) = (millis.parse().ok()?, counter.parse().ok()?);
    (millis < 1 << (64 - COUNTER_BITS) && counter < 1 << COUNTER_BITS).then_some(millis << COUNTER_BITS | counter)
}

/// The name of the only field of an entry.
const FIELD: &str = "purges";
const COUNTER_BITS: u32 = 20;
const STRANGE: &str = "its replies are not those of Redis";
/// Most parts of a reply that are kept, and most that are skipped.
const PART_COUNT_MAX: usize = 10_000;
const SKIPPED_COUNT_MAX: usize = 100_000_000;
/// Longest list that is kept: the entries that are read at once.
const LIST_LEN_MAX: usize = 64;
const DEPTH_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    async fn read(reply: &'static [u8]) -> Result<RedisReply, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            // The client may leave before the end of a reply that it refuses.
            let _ = socket.write_all(reply).await;
        });
        let socket = LineSocket::connect("127.0.0.1", port).await.unwrap();
        let read = RedisStream { socket, stream: "s".to_owned() }.reply().await;
        serving.await.unwrap();
        read
    }

    #[tokio::test]
    async fn replies_are_read_and_strange_ones_are_refused() {
        let word = |text: &str| RedisReply::Word(text.to_owned());
        let block = |text: &[u8]| RedisReply::Block(text.to_vec());
        for (octets, expected) in [
            (&b"+OK\r\n"[..], word("OK")),
            (b":12\r\n", word("12")),
            (b"-ERR no\r\n", RedisReply::Error("ERR no".to_owned())),
            (b"$-1\r\n", RedisReply::Nothing),
            (b"*-1\r\n", RedisReply::Nothing),
            (b"$3\r\na\r\n\r\n", block(b"a\r\n")),
            (b"*0\r\n", RedisReply::List(Vec::new())),
            (
                b"*2\r\n*2\r\n$1\r\nx\r\n*0\r\n:1\r\n",
                RedisReply::List(vec![RedisReply::List(vec![block(b"x"), RedisReply::List(Vec::new())]), word("1")]),
            ),
        ] {
            assert_eq!(read(octets).await, Ok(expected));
        }
        for octets in [
            &b""[..],
            b"+OK",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"$x\r\n",
            b"$3\r\nabcde",
            b"$99999999999\r\n",
            b"*99999999999\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
            b"\xff\r\n",
        ] {
            assert!(read(octets).await.is_err(), "{octets:?}");
        }
    }

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
