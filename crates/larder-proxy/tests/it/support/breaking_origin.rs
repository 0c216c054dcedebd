//! An origin that ends its responses in every way in which a connection can end, over HTTP/1.1 and HTTP/2, plain and
//! over TLS. The test sets how the next responses are framed, cut and ended.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::SockRef;

use super::{
    body,
    gate::PATIENCE,
    raw_http2::{self as raw, FrameHead},
};

/// How a response announces its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    /// By nothing: the end of the connection, or of the stream.
    Unstated,
}

/// How a response ends after the last octet of its body that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The end that the framing asks for, where it asks for more than octets. The connection stays open.
    Mark,
    /// The connection is closed in an orderly way; over TLS after a close_notify.
    Close,
    /// The connection is closed; over TLS without a close_notify.
    Cut,
    Reset,
    /// Nothing more is sent.
    Silence,
    /// RST_STREAM with this error code.
    StreamReset(u32),
    /// GOAWAY that names this stream as processed, and the end of the connection.
    GoAway,
    /// GOAWAY that names no stream, and the end of the connection.
    GoAwayBefore,
}

/// A response that may be broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BrokenResponse {
    pub(crate) framing: Framing,
    pub(crate) len: usize,
    /// Octets of the body that are sent.
    pub(crate) sent: usize,
    pub(crate) ending: Ending,
}

impl BrokenResponse {
    /// Returns whether the whole body arrives, and nothing else can be said of it.
    pub(crate) fn is_whole(&self, is_http2: bool) -> bool {
        let is_sent = self.sent == self.len;
        let is_marked = self.ending == Ending::Mark;
        match self.framing {
            // Chunks end with the last of them, which only `Mark` sends.
            Framing::Length => is_sent,
            Framing::Chunked => is_sent && is_marked,
            Framing::Unstated if is_http2 => is_sent && is_marked,
            // What is not announced cannot be missed.
            Framing::Unstated => self.ending == Ending::Close,
        }
    }
}

/// A target that only this response has.
impl fmt::Display for BrokenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{:?}/{}/{}/{}", self.framing, self.len, self.sent, self.ending.name())
    }
}

impl Ending {
    fn name(self) -> String {
        format!("{self:?}").replace(['(', ')'], "-")
    }
}

/// A listening origin.
pub(crate) struct BreakingOrigin {
    pub(crate) address: SocketAddr,
    next: Arc<Mutex<Option<BrokenResponse>>>,
}

impl BreakingOrigin {
    /// Starts an origin, whose threads end with the process.
    pub(crate) fn start(tls: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tls = tls.map(Arc::new);
        let next = Arc::<Mutex<Option<BrokenResponse>>>::default();
        let set = Arc::clone(&next);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                let tls = tls.clone();
                let set = Arc::clone(&set);
                // The proxy may close at any time.
                std::thread::spawn(move || drop(serve(socket, tls, set)));
            }
        });
        Self { address, next }
    }

    /// Sets the response to all requests from now on.
    pub(crate) fn set(&self, response: BrokenResponse) {
        *self.next.lock().unwrap() = Some(response);
    }
}

fn serve(
    socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    next: Arc<Mutex<Option<BrokenResponse>>>,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let transport = match tls {
        Some(config) => Transport::Tls(Box::new(StreamOwned::new(ServerConnection::new(config).unwrap(), socket))),
        None => Transport::Plain(socket),
    };
    let window = i64::from(raw::WINDOW_BYTES);
    let mut link = Link { transport, next, window, stream_window: window };
    let mut first = [0];
    link.transport.read_exact(&mut first)?;
    // The preface of HTTP/2 begins like no method that this origin gets.
    if first == *b"P" { link.serve_http2() } else { link.serve_http1() }
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

struct Link {
    transport: Transport,
    next: Arc<Mutex<Option<BrokenResponse>>>,
    /// Octets that the peer permits on the connection.
    window: i64,
    /// Octets that the peer permits on each new stream.
    stream_window: i64,
}

impl Link {
    fn response(&self) -> BrokenResponse {
        self.next.lock().unwrap().expect("the test has set a response")
    }

    fn serve_http1(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        loop {
            while !head.ends_with(b"\r\n\r\n") {
                let mut octet = [0];
                self.transport.read_exact(&mut octet)?;
                head.push(octet[0]);
            }
            let response = self.response();
            let framing = match response.framing {
                Framing::Length => format!("Content-Length: {}\r\n", response.len),
                Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
                Framing::Unstated => String::new(),
            };
            self.transport.write_all(format!("HTTP/1.1 200 OK\r\n{FIELD}{framing}\r\n").as_bytes())?;
            for piece in body(response.len)[..response.sent].chunks(PIECE_BYTES) {
                if response.framing == Framing::Chunked {
                    self.transport.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
                    self.transport.write_all(piece)?;
                    self.transport.write_all(b"\r\n")?;
                } else {
                    self.transport.write_all(piece)?;
                }
            }
            if response.ending == Ending::Mark && response.framing == Framing::Chunked {
                self.transport.write_all(b"0\r\n\r\n")?;
            }
            self.transport.flush()?;
            if response.ending != Ending::Mark {
                return self.end(response.ending);
            }
            head.clear();
        }
    }

    fn serve_http2(&mut self) -> io::Result<()> {
        let mut preface = [0; raw::PREFACE.len() - 1];
        self.transport.read_exact(&mut preface)?;
        self.transport.write_all(&raw::frame(raw::SETTINGS, 0, 0, &[]))?;
        self.transport.flush()?;
        loop {
            let (head, _) = self.read_frame()?;
            if head.kind == raw::HEADERS {
                self.answer(head.stream)?;
            }
        }
    }

    fn answer(&mut self, stream: u32) -> io::Result<()> {
        let response = self.response();
        let length = response.len.to_string();
        let mut fields = vec![(":status", "200"), ("cache-control", "max-age=600")];
        if response.framing == Framing::Length {
            fields.push(("content-length", &length));
        }
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| raw::literal(name, value)).collect();
        self.transport.write_all(&raw::frame(raw::HEADERS, raw::END_HEADERS, stream, &block))?;
        let mut stream_window = self.stream_window;
        for piece in body(response.len)[..response.sent].chunks(raw::FRAME_BYTES) {
            let len = piece.len() as i64;
            while self.window < len || stream_window < len {
                self.transport.flush()?;
                let (head, payload) = self.read_frame()?;
                if head.kind == raw::WINDOW_UPDATE && head.stream == stream {
                    stream_window += i64::from(u32::from_be_bytes(payload[..4].try_into().unwrap()));
                }
            }
            self.window -= len;
            stream_window -= len;
            self.transport.write_all(&raw::frame(raw::DATA, 0, stream, piece))?;
        }
        let number = |number: u32| number.to_be_bytes();
        match response.ending {
            Ending::Mark => self.transport.write_all(&raw::frame(raw::DATA, raw::END_STREAM, stream, &[]))?,
            Ending::StreamReset(code) => {
                self.transport.write_all(&raw::frame(raw::RST_STREAM, 0, stream, &number(code)))?;
            }
            Ending::GoAway | Ending::GoAwayBefore => {
                let last = if response.ending == Ending::GoAway { stream } else { 0 };
                let payload = [number(last), number(0)].concat();
                self.transport.write_all(&raw::frame(raw::GOAWAY, 0, 0, &payload))?;
                return self.end(Ending::Close);
            }
            ending => return self.end(ending),
        }
        self.transport.flush()
    }

    /// Reads a frame, and follows what it says about the connection.
    fn read_frame(&mut self) -> io::Result<(FrameHead, Vec<u8>)> {
        let (head, payload) = raw::read_frame(&mut self.transport)?;
        match head.kind {
            raw::SETTINGS if head.flags & raw::ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == [0, raw::INITIAL_WINDOW_SIZE] {
                        self.stream_window = i64::from(u32::from_be_bytes(setting[2..].try_into().unwrap()));
                    }
                }
                self.transport.write_all(&raw::frame(raw::SETTINGS, raw::ACK, 0, &[]))?;
            }
            raw::PING if head.flags & raw::ACK == 0 => {
                self.transport.write_all(&raw::frame(raw::PING, raw::ACK, 0, &payload))?;
            }
            raw::WINDOW_UPDATE if head.stream == 0 => {
                self.window += i64::from(u32::from_be_bytes(payload[..4].try_into().unwrap()));
            }
            _ => {}
        }
        self.transport.flush()?;
        Ok((head, payload))
    }

    fn end(&mut self, ending: Ending) -> io::Result<()> {
        self.transport.flush()?;
        if let (Ending::Close, Transport::Tls(stream)) = (ending, &mut self.transport) {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        let socket = self.transport.socket();
        match ending {
            Ending::Reset => {
                SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Ending::Silence => {}
            _ => socket.shutdown(Shutdown::Write)?,
        }
        // The proxy closes its side, or its patience ends.
        let mut rest = [0; 1024];
        let mut socket = socket;
        while socket.read(&mut rest)? > 0 {}
        Ok(())
    }
}

impl Transport {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Transport {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(target),
            Self::Tls(stream) => stream.read(target),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(octets),
            Self::Tls(stream) => stream.write(octets),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

const FIELD: &str = "Cache-Control: max-age=600\r\n";
const PIECE_BYTES: usize = 64 << 10;
