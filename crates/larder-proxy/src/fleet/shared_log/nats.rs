//! Reads and writes a stream of NATS JetStream, over one connection.
//!
//! Owns: the client protocol, and the requests of JetStream's API that are needed. They are written by hand because
//! they are few, and a client library would add crates to every build. Entries are read by their sequence numbers, so
//! the server has no state about this reader. A plain subscription to the stream's subject only says that there is
//! something to read.

use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    socket::LineSocket,
    stream::{EntryOctets, LogCredentials, StreamEntry, shown},
};
use crate::{config::SharedLog, fleet::secret};

/// A connection to the stream.
pub(super) struct NatsStream {
    socket: LineSocket,
    /// The name of the stream, and its only subject.
    stream: String,
    inbox: String,
    request_count: u64,
    /// Whether the server reports new entries to this connection.
    is_subscribed: bool,
    /// Whether the server reported a new entry that was not looked for yet.
    is_woken: bool,
}

/// A message of the server.
enum NatsMessage {
    Ping,
    Pong,
    /// A message on the stream's subject.
    Wake,
    /// The response to the request with this number.
    Response(u64, NatsPayload),
    Other,
}

/// The payload of a response.
enum NatsPayload {
    Octets(Vec<u8>),
    /// The payload was too long, and was skipped.
    TooLong,
    /// Nobody answers such requests.
    NoResponder,
}

/// The numbers of the entries that the stream has.
#[derive(Clone, Copy)]
struct StreamBounds {
    count: u64,
    first: u64,
    last: u64,
}

impl NatsStream {
    /// Connects, and creates the stream if there is none.
    pub(super) async fn connect(
        log: &SharedLog,
        credentials: Option<&LogCredentials>,
        count_max: usize,
    ) -> Result<Self, String> {
        let nonce = secret::nonce().ok_or("the system has no random numbers")?;
        let socket = LineSocket::connect(&log.host, log.port).await?;
        let stream = log.stream.clone();
        let inbox = format!("_INBOX.{nonce}");
        let mut nats = Self { socket, stream, inbox, request_count: 0, is_subscribed: false, is_woken: false };
        let greeting = nats.socket.line().await?;
        if !greeting.starts_with("INFO ") {
            return Err(STRANGE.to_owned());
        }
        let mut hello = json!({
            "verbose": false, "pedantic": false, "tls_required": false, "name": "larder", "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "headers": true, "no_responders": true,
        });
        if let Some(LogCredentials { user, password }) = credentials {
            match user {
                Some(user) => (hello["user"], hello["pass"]) = (json!(user), json!(password)),
                None => hello["auth_token"] = json!(password),
            }
        }
        let hello = format!("CONNECT {hello}\r\nSUB {}.* {INBOX}\r\nPING\r\n", nats.inbox);
        nats.socket.send(hello.as_bytes()).await?;
        // Errors of credentials and permissions come before the response to this.
        while !matches!(nats.message().await?, NatsMessage::Pong) {}
        nats.open_stream(count_max).await?;
        Ok(nats)
    }

    /// Returns the number of the first entry.
    pub(super) async fn first(&mut self) -> Result<Option<u64>, String> {
        Ok(self.bounds().await?.filter(|bounds| bounds.count > 0).map(|bounds| bounds.first))
    }

    /// Returns the last entry.
    pub(super) async fn last(&mut self) -> Result<Option<StreamEntry>, String> {
        match self.bounds().await?.filter(|bounds| bounds.count > 0) {
            // The entry may be removed meanwhile. Its place stays valid.
            Some(bounds) => {
                let removed = StreamEntry { number: bounds.last, octets: EntryOctets::Removed };
                Ok(Some(self.at(bounds.last).await?.unwrap_or(removed)))
            }
            None => Ok(None),
        }
    }

    /// Returns the entry with a number.
    pub(super) async fn at(&mut self, number: u64) -> Result<Option<StreamEntry>, String> {
        Ok(self.read(number..=number).await?.pop().filter(|entry| entry.octets != EntryOctets::Removed))
    }

    /// Returns at most `count` entries after a number. Waits for one if there is none.
    pub(super) async fn after(
        &mut self,
        number: u64,
        count: usize,
        wait: Duration,
    ) -> Result<Vec<StreamEntry>, String> {
        if !self.is_subscribed {
            let subscribe = format!("SUB {} {ENTRIES}\r\n", self.stream);
            self.socket.send(subscribe.as_bytes()).await?;
            self.is_subscribed = true;
        }
        let end = Instant::now() + wait;
        let mut pause = STORING_PAUSE_MIN;
        loop {
            let last = self.bounds().await?.map_or(0, |bounds| bounds.last);
            if last > number {
                return self.read(number + 1..=last.min(number + count as u64)).await;
            }
            // A reported entry may not be in the stream yet, so it is looked for several times.
            let is_due = self.is_woken && pause <= STORING_PAUSE_MAX;
            if !is_due {
                self.is_woken = false;
                if !self.until_woken(end.saturating_duration_since(Instant::now())).await? {
                    return Ok(Vec::new());
                }
                pause = STORING_PAUSE_MIN;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Appends an entry.
    pub(super) async fn append(&mut self, text: &str) -> Result<(), String> {
        let subject = self.stream.clone();
        let response = self.request(&subject, text.as_bytes()).await?;
        let response = response.ok_or("NATS has no stream for the subject of the log")?;
        checked(parsed(&response)?).map(drop)
    }

    /// Reads entries. Those that were removed have no octets.
    async fn read(&mut self, numbers: std::ops::RangeInclusive<u64>) -> Result<Vec<StreamEntry>, String> {
        let subject = format!("$JS.API.STREAM.MSG.GET.{}", self.stream);
        let start = self.request_count;
        // Sent together, because a node that was away may have many entries to read.
        for number in numbers.clone() {
            self.publish(&subject, json!({ "seq": number }).to_string().as_bytes()).await?;
        }
        let mut entries: Vec<_> = numbers.map(|number| StreamEntry { number, octets: EntryOctets::Removed }).collect();
        for _ in 0..entries.len() {
            let (at, response) = self.response().await?;
            let place = at.checked_sub(start + 1).and_then(|at| entries.get_mut(usize::try_from(at).ok()?));
            let entry = place.ok_or(STRANGE)?;
            let response = match response {
                NatsPayload::Octets(octets) => parsed(&octets)?,
                NatsPayload::TooLong => {
                    entry.octets = EntryOctets::Foreign;
                    continue;
                }
                NatsPayload::NoResponder => return Err(NO_JETSTREAM.to_owned()),
            };
            if response["error"]["code"] == 404 {
                continue;
            }
            let message = &checked(response)?["message"];
            let data = message["data"].as_str().unwrap_or_default();
            entry.octets = EntryOctets::new(BASE64_STANDARD.decode(data).map_err(|_| STRANGE)?);
            if message["seq"] != entry.number {
                return Err(STRANGE.to_owned());
            }
        }
        Ok(entries)
    }

    async fn open_stream(&mut self, count_max: usize) -> Result<(), String> {
        if self.bounds().await?.is_some() {
            return Ok(());
        }
        let stream = self.stream.clone();
        let config = json!({
            "name": stream, "subjects": [stream], "retention": "limits", "storage": "file", "discard": "old",
            "max_msgs": count_max, "max_bytes": -1, "max_age": 0, "num_replicas": 1,
        });
        let response = self.api("CREATE", config.to_string().as_bytes()).await?;
        // Another node may create the stream at the same moment, with the same settings, which is no error.
        checked(response).map(drop)
    }

    /// Returns the bounds of the stream, if there is one.
    async fn bounds(&mut self) -> Result<Option<StreamBounds>, String> {
        let response = self.api("INFO", b"").await?;
        if response["error"]["code"] == 404 {
            return Ok(None);
        }
        let state = &checked(response)?["state"];
        let figure = |name: &str| state[name].as_u64().ok_or(STRANGE);
        let count = figure("messages")?;
        let first = figure("first_seq")?;
        let last = figure("last_seq")?;
        Ok(Some(StreamBounds { count, first, last }))
    }

    async fn api(&mut self, command: &str, payload: &[u8]) -> Result<Value, String> {
        let subject = format!("$JS.API.STREAM.{command}.{}", self.stream);
        parsed(&self.request(&subject, payload).await?.ok_or(NO_JETSTREAM)?)
    }

    async fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.publish(subject, payload).await?;
        match self.response().await? {
            (number, NatsPayload::Octets(octets)) if number == self.request_count => Ok(Some(octets)),
            (number, NatsPayload::NoResponder) if number == self.request_count => Ok(None),
            _ => Err(STRANGE.to_owned()),
        }
    }

    async fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<(), String> {
        self.request_count += 1;
        let inbox = &self.inbox;
        let number = self.request_count;
        let mut octets = format!("PUB {subject} {inbox}.{number} {}\r\n", payload.len()).into_bytes();
        octets.extend_from_slice(payload);
        octets.extend_from_slice(b"\r\n");
        self.socket.send(&octets).await
    }

    /// Waits for the next response, and returns the number of its request.
    async fn response(&mut self) -> Result<(u64, NatsPayload), String> {
        loop {
            if let NatsMessage::Response(number, payload) = self.message().await? {
                return Ok((number, payload));
            }
        }
    }

    /// Waits until the server reports a new entry. Returns whether it did so in time.
    async fn until_woken(&mut self, wait: Duration) -> Result<bool, String> {
        let end = Instant::now() + wait;
        while !self.is_woken {
            let left = end.saturating_duration_since(Instant::now());
            // Only the first byte is awaited in this way: a message that was read in part would be lost.
            match tokio::time::timeout(left, self.socket.until_readable()).await {
                Ok(readable) => readable?,
                Err(_) => return Ok(false),
            }
            self.message().await?;
        }
        Ok(true)
    }

    /// Reads what the server sends next.
    async fn message(&mut self) -> Result<NatsMessage, String> {
        let line = not_refused(self.socket.line().await?)?;
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let message = match *words.as_slice() {
            ["PING"] => NatsMessage::Ping,
            ["MSG" | "HMSG", _, ENTRIES, .., len] => {
                self.socket.block(len.parse().map_err(|_| STRANGE)?).await?;
                NatsMessage::Wake
            }
            ["MSG", subject, INBOX, .., len] => {
                let number = self.number_of(subject)?;
                let len = len.parse().map_err(|_| STRANGE)?;
                let payload = self.socket.block(len).await?.map_or(NatsPayload::TooLong, NatsPayload::Octets);
                NatsMessage::Response(number, payload)
            }
            // Only a server without a responder sends fields.
            ["HMSG", subject, INBOX, .., len] => {
                let number = self.number_of(subject)?;
                let len = len.parse().map_err(|_| STRANGE)?;
                self.socket.block(len).await?;
                NatsMessage::Response(number, NatsPayload::NoResponder)
            }
            ["PONG"] => NatsMessage::Pong,
            ["+OK"] | ["INFO", ..] => NatsMessage::Other,
            _ => return Err(STRANGE.to_owned()),
        };
        match &message {
            NatsMessage::Ping => self.socket.send(b"PONG\r\n").await?,
            NatsMessage::Wake => self.is_woken = true,
            NatsMessage::Pong | NatsMessage::Response(..) | NatsMessage::Other => {}
        }
        Ok(message)
    }

    fn number_of(&self, subject: &str) -> Result<u64, String> {
        let number = subject.strip_prefix(&self.inbox).and_then(|rest| rest.strip_prefix('.')?.parse().ok());
        number.ok_or_else(|| STRANGE.to_owned())
    }
}

fn not_refused(line: String) -> Result<String, String> {
    match line.strip_prefix("-ERR ") {
        Some(why) => Err(format!("NATS refuses this node: {}", shown(why))),
        None => Ok(line),
    }
}

fn parsed(octets: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(octets).map_err(|_| STRANGE.to_owned())
}

/// Returns a response that is not an error.
fn checked(response: Value) -> Result<Value, String> {
    match &response["error"] {
        Value::Null => Ok(response),
        error => {
            let why = error["description"].as_str().unwrap_or("it does not say why");
            Err(format!("JetStream refuses a request: {}", shown(why)))
        }
    }
}

/// Identities of the subscriptions.
const INBOX: &str = "1";
const ENTRIES: &str = "2";
const STRANGE: &str = "its messages are not those of NATS";
const NO_JETSTREAM: &str = "NATS runs without JetStream, which the log needs (nats-server --jetstream)";
/// Pauses between the report of an entry and its reading.
const STORING_PAUSE_MIN: Duration = Duration::from_millis(1);
const STORING_PAUSE_MAX: Duration = Duration::from_millis(500);
