//! A server for the few commands of Redis, or of NATS JetStream, that a shared log of purges needs. Unlike the real
//! programs, it can lose entries when a test says so.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use larder_proxy::LogSystem;
use serde_json::{Value, json};

use super::ports::free_address;

/// The server. Each connection has a thread, which ends with the connection.
#[derive(Clone)]
pub(crate) struct StreamServer {
    pub(crate) address: SocketAddr,
    system: LogSystem,
    password: Option<&'static str>,
    state: Arc<(Mutex<ServerState>, Condvar)>,
}

#[derive(Default)]
struct ServerState {
    entries: Vec<ServerEntry>,
    last: u64,
    is_up: bool,
    connections: Vec<ServerConnection>,
}

struct ServerEntry {
    number: u64,
    text: Vec<u8>,
}

struct ServerConnection {
    socket: TcpStream,
    /// The identity of its subscription to the entries, as messages of NATS.
    news: Option<String>,
}

impl StreamServer {
    pub(crate) fn start(system: LogSystem) -> Self {
        Self::with_password(system, None)
    }

    pub(crate) fn with_password(system: LogSystem, password: Option<&'static str>) -> Self {
        let server = Self { address: free_address(), system, password, state: Arc::default() };
        server.resume();
        server
    }

    /// The URL by which nodes find the log.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.system == LogSystem::Redis { "redis" } else { "nats" };
        format!("{scheme}://{}/purges", self.address)
    }

    /// Closes all connections, and refuses new ones.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_up = false;
        state.connections.drain(..).for_each(|connection| drop(connection.socket.shutdown(Shutdown::Both)));
        drop(state);
        self.state.1.notify_all();
        // Wakes the thread that accepts, which then closes the listener.
        drop(TcpStream::connect(self.address));
        while TcpListener::bind(self.address).is_err() {
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Accepts connections again.
    pub(crate) fn resume(&self) {
        let listener = TcpListener::bind(self.address).unwrap();
        self.lock().is_up = true;
        let server = self.clone();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                let server = server.clone();
                let mut state = server.lock();
                if !state.is_up {
                    return;
                }
                state.connections.push(ServerConnection { socket: socket.try_clone().unwrap(), news: None });
                drop(state);
                thread::spawn(move || server.serve(socket));
            }
        });
    }

    /// Forgets the last entries. NATS would give their numbers to others.
    pub(crate) fn lose_last(&self, count: usize) {
        let mut state = self.lock();
        let kept = state.entries.len() - count;
        state.entries.truncate(kept);
        if self.system == LogSystem::Nats {
            state.last = state.entries.last().map_or(0, |entry| entry.number);
        }
    }

    /// Forgets all entries but the last ones.
    pub(crate) fn trim(&self, kept: usize) {
        let mut state = self.lock();
        let dropped = state.entries.len() - kept;
        state.entries.drain(..dropped);
    }

    pub(crate) fn add(&self, text: &[u8]) {
        self.append(text.to_vec());
    }

    /// The content of the last entry of a kind.
    pub(crate) fn last(&self, word: &str) -> Vec<u8> {
        let has = |entry: &&ServerEntry| String::from_utf8_lossy(&entry.text).contains(&format!("\n{word} "));
        self.lock().entries.iter().rfind(has).unwrap().text.clone()
    }

    /// The position after the last entry, as nodes number it.
    pub(crate) fn position(&self) -> u64 {
        let last = self.lock().last;
        if self.system == LogSystem::Redis { last << 20 } else { last }
    }

    /// Number of entries of this kind.
    pub(crate) fn count(&self, word: &str) -> usize {
        let has = |entry: &&ServerEntry| String::from_utf8_lossy(&entry.text).contains(&format!("\n{word} "));
        self.lock().entries.iter().filter(has).count()
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.0.lock().unwrap()
    }

    fn append(&self, text: Vec<u8>) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        for ServerConnection { socket, news } in &mut state.connections {
            let Some(news) = news else { continue };
            // An error shows in the connection's own thread.
            let _ = socket.write_all(&message("purges", news, &text));
        }
        state.entries.push(ServerEntry { number, text });
        drop(state);
        self.state.1.notify_all();
        number
    }

    fn serve(&self, socket: TcpStream) {
        let reader = BufReader::new(socket.try_clone().unwrap());
        // Whatever ends the connection, the client opens another.
        let _ = match self.system {
            LogSystem::Redis | LogSystem::Sentinel => self.serve_redis(reader, socket),
            LogSystem::Nats => self.serve_nats(reader, socket),
        };
    }

    fn serve_redis(&self, mut reader: BufReader<TcpStream>, mut socket: TcpStream) -> Option<()> {
        let mut is_known = self.password.is_none();
        loop {
            let count: usize = line(&mut reader)?.strip_prefix('*')?.parse().ok()?;
            let mut words = Vec::new();
            for _ in 0..count {
                let len: usize = line(&mut reader)?.strip_prefix('$')?.parse().ok()?;
                words.push(String::from_utf8(block(&mut reader, len)?).ok()?);
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let reply = match words.as_slice() {
                ["AUTH", .., password] => {
                    is_known = self.password == Some(*password);
                    if is_known { "+OK\r\n".to_owned() } else { "-WRONGPASS invalid password\r\n".to_owned() }
                }
                _ if !is_known => "-NOAUTH Authentication required.\r\n".to_owned(),
                ["XADD", "purges", "MAXLEN", "~", "65536", "*", "purges", text] => {
                    let number = self.append(text.as_bytes().to_vec());
                    bulk(&format!("{number}-0"))
                }
                ["XREVRANGE", "purges", "+", "-", "COUNT", "1"] => shown(self.lock().entries.last().as_slice()),
                ["XREAD", "COUNT", count, "STREAMS", "purges", after] => {
                    self.read(number(after)?, count.parse().ok()?, Duration::ZERO)
                }
                ["XREAD", "COUNT", count, "BLOCK", wait, "STREAMS", "purges", after] => {
                    self.read(number(after)?, count.parse().ok()?, Duration::from_millis(wait.parse().ok()?))
                }
                _ => format!("-ERR unknown command {words:?}\r\n"),
            };
            socket.write_all(reply.as_bytes()).ok()?;
        }
    }

    fn read(&self, after: u64, count: usize, wait: Duration) -> String {
        let is_empty = |state: &mut ServerState| state.is_up && state.last <= after;
        let (state, _) = self.state.1.wait_timeout_while(self.lock(), wait, is_empty).unwrap();
        let first = state.entries.partition_point(|entry| entry.number <= after);
        let entries: Vec<&ServerEntry> = state.entries[first..].iter().take(count).collect();
        match &*entries {
            [] => "*-1\r\n".to_owned(),
            entries => format!("*1\r\n*2\r\n{}{}", bulk("purges"), shown(entries)),
        }
    }

    fn serve_nats(&self, mut reader: BufReader<TcpStream>, mut socket: TcpStream) -> Option<()> {
        socket.write_all(b"INFO {\"max_payload\":8388608,\"headers\":true}\r\n").ok()?;
        let mut is_known = self.password.is_none();
        // The identity of the subscription to responses.
        let mut inbox_id = String::new();
        loop {
            let line = line(&mut reader)?;
            let words: Vec<&str> = line.split(' ').collect();
            let reply = match *words.as_slice() {
                ["CONNECT", ..] => {
                    let said: Value = serde_json::from_str(&line["CONNECT ".len()..]).ok()?;
                    is_known |= said["auth_token"].as_str() == self.password || said["pass"].as_str() == self.password;
                    if !is_known {
                        socket.write_all(b"-ERR 'Authorization Violation'\r\n").ok()?;
                        return None;
                    }
                    continue;
                }
                ["SUB", "purges", id] => {
                    let own = socket.peer_addr().ok()?;
                    let mut state = self.lock();
                    let is_own =
                        |connection: &&mut ServerConnection| connection.socket.peer_addr().is_ok_and(|it| it == own);
                    state.connections.iter_mut().find(is_own)?.news = Some(id.to_owned());
                    continue;
                }
                ["SUB", _, id] => {
                    inbox_id = id.to_owned();
                    continue;
                }
                ["PONG"] => continue,
                ["PING"] => b"PONG\r\n".to_vec(),
                ["PUB", subject, inbox, len] => {
                    let payload = block(&mut reader, len.parse().ok()?)?;
                    message(inbox, &inbox_id, self.answer(subject, payload)?.to_string().as_bytes())
                }
                _ => return None,
            };
            // Entries are written to the same socket by other threads.
            let _state = self.lock();
            socket.write_all(&reply).ok()?;
        }
    }

    fn answer(&self, subject: &str, payload: Vec<u8>) -> Option<Value> {
        Some(match subject {
            "purges" => json!({ "stream": "purges", "seq": self.append(payload) }),
            "$JS.API.STREAM.INFO.purges" => {
                let state = self.lock();
                let first_of_none = if state.last == 0 { 0 } else { state.last + 1 };
                let first = state.entries.first().map_or(first_of_none, |entry| entry.number);
                let config = json!({
                    "name": "purges", "subjects": ["purges"], "retention": "limits", "discard": "old", "storage": "file",
                    "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "num_replicas": 1,
                });
                let state = json!({
                    "messages": state.entries.len(), "bytes": 0, "consumer_count": 0,
                    "first_seq": first, "first_ts": TIME, "last_seq": state.last, "last_ts": TIME,
                });
                json!({ "config": config, "created": TIME, "state": state })
            }
            "$JS.API.STREAM.MSG.GET.purges" => {
                let asked: Value = serde_json::from_slice(&payload).ok()?;
                match self.lock().entries.iter().find(|entry| asked["seq"] == entry.number) {
                    Some(ServerEntry { number, text }) => {
                        let data = BASE64_STANDARD.encode(text);
                        json!({ "message": { "subject": "purges", "seq": number, "data": data, "time": TIME } })
                    }
                    None => json!({ "error": { "code": 404, "err_code": 10037, "description": "no message found" } }),
                }
            }
            _ => return None,
        })
    }
}

fn line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.strip_suffix("\r\n").map(str::to_owned)
}

fn block(reader: &mut BufReader<TcpStream>, len: usize) -> Option<Vec<u8>> {
    let mut octets = vec![0; len + 2];
    reader.read_exact(&mut octets).ok()?;
    octets.truncate(len);
    Some(octets)
}

/// The number in an ID. All entries have the counter 0, so the counter of a place before or after them is ignored.
fn number(id: &str) -> Option<u64> {
    id.split_once('-')?.0.parse().ok()
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn shown(entries: &[&ServerEntry]) -> String {
    let show = |entry: &&ServerEntry| {
        let text = String::from_utf8(entry.text.clone()).unwrap();
        format!("*2\r\n{}*2\r\n{}{}", bulk(&format!("{}-0", entry.number)), bulk("purges"), bulk(&text))
    };
    let shown: String = entries.iter().map(show).collect();
    format!("*{}\r\n{shown}", entries.len())
}

/// Returns a message of NATS.
fn message(subject: &str, id: &str, payload: &[u8]) -> Vec<u8> {
    [format!("MSG {subject} {id} {}\r\n", payload.len()).as_bytes(), payload, b"\r\n"].concat()
}

/// When the stream and all its entries were made.
const TIME: &str = "2026-01-01T00:00:00Z";
