//! Reads the log of purges of another node, and applies its purges.
//!
//! Owns: the connection, the order of steps, and the pauses after failures. Invariants: the position advances only when
//! the purges before it are recorded here. A response is accepted only if its code proves that a node with the secret
//! made it for this request, and if it is a valid part of a log (`message`).
//!
//! Cost: one connection per node, and one request per purge or per [`WAIT_MAX`].

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, Request, StatusCode, header};
use http_body::Body as _;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpStream, lookup_host},
    task::JoinSet,
};

use super::{
    FleetLink,
    message::{self, LogQuery},
    secret,
    serving::{CODE_FIELD, FleetCredentials, response_parts},
};
use crate::{
    cache::purges::{LogSlice, Purges},
    clock,
    config::FleetNode,
    origin::request_body::RequestBody,
};

/// Reads the log of a node and applies its purges, for as long as the worker runs.
pub(crate) async fn follow(node: FleetNode, link: Arc<FleetLink>, purges: Arc<Purges>) {
    let mut reader = LogReader { node, link, purges, connection: None, has_read: false };
    let mut pause = PAUSE_MIN;
    loop {
        match reader.step().await {
            Ok(()) => pause = PAUSE_MIN,
            Err(fault) => {
                (reader.connection, reader.has_read) = (None, false);
                reader.link.peers.note_failed(&reader.node.name, &fault);
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }
}

struct LogReader {
    node: FleetNode,
    link: Arc<FleetLink>,
    purges: Arc<Purges>,
    connection: Option<PeerConnection>,
    /// Whether the node has responded since the connection was opened. The first response must not wait for a purge,
    /// because this node's readiness depends on it.
    has_read: bool,
}

/// A connection to a node. Dropping it closes it.
struct PeerConnection {
    sender: SendRequest<RequestBody>,
    _driver: JoinSet<()>,
}

impl LogReader {
    /// Reads and applies one part of the log.
    async fn step(&mut self) -> Result<(), String> {
        // Purges that could not be recorded stay in effect. A crash would lose them, so the position must not advance
        // before they are recorded.
        self.apply(|purges, _| purges.save()).await?;
        let position = self.purges.position(&self.node.name);
        let wait = if self.has_read { WAIT_MAX.min(self.link.timeout / 3) } else { Duration::ZERO };
        let (log, after) = position.map_or((0, 0), |position| (position.log, position.number));
        let slice = self.request(LogQuery { log, after, wait }).await?;
        if slice.log == self.purges.log_id() {
            return Err("its address leads to this node itself".to_owned());
        }
        let (position, end) = (slice.position, slice.end);
        self.apply(move |purges, peer| purges.follow(peer, slice, clock::now())).await?;
        self.has_read = true;
        self.link.peers.note_read(&self.node.name, position, end);
        Ok(())
    }

    /// Runs a change of the purges on a thread that may block.
    async fn apply(
        &self,
        change: impl FnOnce(&Purges, &str) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let (purges, peer) = (Arc::clone(&self.purges), self.node.name.clone());
        let changing = tokio::task::spawn_blocking(move || change(&purges, &peer));
        let changed = changing.await.map_err(|error| error.to_string()).flatten();
        changed.map_err(|why| format!("its purges cannot be recorded here: {why}"))
    }

    /// Sends a request for a part of the log, and checks the response.
    async fn request(&mut self, query: LogQuery) -> Result<LogSlice, String> {
        let nonce = secret::nonce().ok_or("the system has no random numbers")?;
        let target = query.target();
        let credentials = FleetCredentials::new(&self.link.own_name, &self.node.name, &nonce);
        let mut request = Request::new(RequestBody::none());
        *request.uri_mut() = target.parse().expect("its parts are numbers");
        let authority = format!("{}:{}", self.node.host, self.node.port);
        for (name, value) in
            [(header::HOST, authority), (header::AUTHORIZATION, credentials.value(&self.link.secret, &target))]
        {
            request.headers_mut().insert(name, HeaderValue::try_from(value).map_err(|error| error.to_string())?);
        }
        let patience = query.wait + RESPONSE_PATIENCE;
        let exchange = tokio::time::timeout(patience, self.exchange(request)).await;
        let (status, code, body) = exchange.map_err(|_| "it does not respond".to_owned())??;
        if status != StatusCode::OK {
            let text: String = body.chars().take(SHOWN_CHARS).filter(|letter| !letter.is_control()).collect();
            return Err(format!("it refuses to send its purges: {} {text}", status.as_u16()));
        }
        if !self.link.secret.verify(&response_parts(&nonce, &body), &code) {
            return Err("its response does not prove that it knows the secret of the fleet".to_owned());
        }
        message::decode(&body, query).map_err(|why| format!("its log of purges is unusable: {why}"))
    }

    /// Sends a request over the connection. Opens one if there is none. Returns the status, the code and the body.
    async fn exchange(&mut self, request: Request<RequestBody>) -> Result<(StatusCode, String, String), String> {
        let connection = match self.connection.take().filter(|connection| !connection.sender.is_closed()) {
            Some(connection) => connection,
            None => connect(&self.node).await.map_err(|error| error.to_string())?,
        };
        let connection = self.connection.insert(connection);
        let response = connection.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let code =
            response.headers().get(CODE_FIELD).and_then(|code| code.to_str().ok()).unwrap_or_default().to_owned();
        let body = whole(response.into_body()).await?;
        Ok((status, code, body))
    }
}

/// Opens a connection to a node, at the first of its addresses that accepts one.
async fn connect(node: &FleetNode) -> io::Result<PeerConnection> {
    let host = node.host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::time::timeout(RESPONSE_PATIENCE, lookup_host((host, node.port))).await?;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in found? {
        match tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => {
                socket.set_nodelay(true)?;
                let (sender, connection) = http1::Builder::new()
                    .max_buf_size(HEAD_BYTES_MAX)
                    .handshake(TokioIo::new(socket))
                    .await
                    .map_err(io::Error::other)?;
                let mut driver = JoinSet::new();
                driver.spawn(async move {
                    // The request fails with the same error.
                    let _ = connection.await;
                });
                return Ok(PeerConnection { sender, _driver: driver });
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// Reads a whole body, which must be short text.
async fn whole(mut body: Incoming) -> Result<String, String> {
    let (mut octets, begun) = (Vec::new(), Instant::now());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        if octets.len() + data.len() > BODY_BYTES_MAX {
            return Err(format!("it sends more than {BODY_BYTES_MAX} bytes at once"));
        }
        octets.extend_from_slice(&data);
        if begun.elapsed() > RESPONSE_PATIENCE {
            return Err("its response takes too long".to_owned());
        }
    }
    String::from_utf8(octets).map_err(|_| "its response is no text".to_owned())
}

/// Longest time that a response may wait for a purge. A node that is silent for longer is noticed.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Time in which a node must accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// Time in which a node must respond, in addition to its wait for a purge.
const RESPONSE_PATIENCE: Duration = Duration::from_secs(5);
/// Pauses after failures. The longest determines how soon the return of a node is noticed.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Longest response. The purges of one command are sent together; their tags fit in the head of a request.
const BODY_BYTES_MAX: usize = 8 << 20;
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Number of characters of a refusal that are shown to the operator.
const SHOWN_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::{
        cache::purges::{LogPosition, Purge, PurgeMode, PurgeScope},
        fleet::{FleetPeers, secret::FleetSecret},
    };

    const SECRET: &str = "0123456789abcdef";

    fn slice(numbers: &[u64], position: u64, end: u64) -> LogSlice {
        let scope = || PurgeScope::Tag("t".into());
        let purge = |number: &u64| Purge { number: *number, mode: PurgeMode::Hard, at: clock::now(), scope: scope() };
        LogSlice { log: 7, is_reset: false, purges: numbers.iter().map(purge).collect(), position, end }
    }

    /// Reads once from a node whose response `answer` makes from the request's nonce. Returns the outcome and the
    /// position after it.
    async fn read(
        purges: &Arc<Purges>,
        answer: impl FnOnce(&str) -> Vec<u8> + Send + 'static,
    ) -> (Result<(), String>, Option<LogPosition>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let nonce = head.split(' ').skip_while(|word| !word.ends_with("Larder-Fleet")).nth(3).unwrap();
            // The reader may disconnect before the end.
            let _ = socket.write_all(&answer(nonce)).await;
        });
        let peers = Arc::new(FleetPeers::default());
        peers.set(&["b".into()]);
        let link = FleetLink {
            own_name: "a".into(),
            secret: Arc::new(FleetSecret::new(SECRET)),
            peers,
            timeout: Duration::from_mins(1),
        };
        let node = FleetNode { name: "b".to_owned(), host: "127.0.0.1".to_owned(), port };
        let purges = Arc::clone(purges);
        let mut reader = LogReader { node, link: Arc::new(link), purges, connection: None, has_read: false };
        let outcome = reader.step().await;
        drop(reader.connection.take());
        serving.await.unwrap();
        (outcome, reader.purges.position("b"))
    }

    fn response(status: &str, code: &str, body: &str) -> Vec<u8> {
        let len = body.len();
        format!("HTTP/1.1 {status}\r\nLarder-Code: {code}\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
    }

    fn signed(nonce: &str, secret: &str, body: &str) -> Vec<u8> {
        response("200 OK", &FleetSecret::new(secret).sign(&response_parts(nonce, body)), body)
    }

    /// At stake: a node that purges or skips purges because of a message from a stranger or a faulty node.
    #[tokio::test]
    async fn only_parts_of_a_log_from_nodes_with_the_secret_are_applied() {
        let purges = Arc::new(Purges::open(None, None, &["b".into()]));
        let right = |body: String| move |nonce: &str| signed(nonce, SECRET, &body);
        let reset = LogSlice { is_reset: true, ..slice(&[], 3, 3) };
        let at = |number| Some(LogPosition { peer: "b".into(), log: 7, number });
        assert_eq!(read(&purges, right(message::encode(&reset))).await, (Ok(()), at(3)));
        assert_eq!(read(&purges, right(message::encode(&slice(&[4, 5], 5, 9)))).await, (Ok(()), at(5)));
        let latest = purges.latest();
        let good = message::encode(&slice(&[6], 6, 9));
        let (body, other, old) = (good.clone(), good.clone(), good.clone());
        type Answer = Box<dyn FnOnce(&str) -> Vec<u8> + Send>;
        let strange: Vec<(&str, Answer)> = vec![
            ("does not prove", Box::new(move |nonce| signed(nonce, "another secret!!", &body))),
            ("does not prove", Box::new(move |_| response("200 OK", "", &other))),
            ("does not prove", Box::new(move |_| signed("00112233445566778899aabbccddeeff", SECRET, &old))),
            ("403 go away", Box::new(|_| response("403 Forbidden", "", "go\u{1b} away"))),
            ("404", Box::new(|_| response("404 Not Found", "", ""))),
            ("not in order", Box::new(right(message::encode(&slice(&[7, 6], 6, 9))))),
            ("not in order", Box::new(right(message::encode(&slice(&[5], 5, 9))))),
            ("end at 6", Box::new(right(message::encode(&slice(&[6], 8, 9))))),
            ("no position", Box::new(right(message::encode(&slice(&[6], 6, 5))))),
            ("another identity", Box::new(right(message::encode(&LogSlice { log: 8, ..slice(&[6], 6, 6) })))),
            ("this node itself", Box::new(right(message::encode(&LogSlice { log: purges.log_id(), ..reset.clone() })))),
            ("more than", Box::new(right("x".repeat(BODY_BYTES_MAX + 1)))),
            ("no text", Box::new(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff".to_vec())),
            ("", Box::new(|_| b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec())),
            ("", Box::new(|_| Vec::new())),
        ];
        for (why, answer) in strange {
            let (outcome, position) = read(&purges, answer).await;
            let told = outcome.expect_err(why);
            assert!(told.contains(why) && !told.contains('\u{1b}'), "{why}: {told}");
            assert_eq!((position, purges.latest()), (at(5), latest), "{why}");
        }
        assert_eq!(read(&purges, right(good)).await, (Ok(()), at(6)));
    }
}
