//! A client that sends exactly the given octets and returns exactly what it receives.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
};

use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

use super::gate::PATIENCE;

/// A response as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing announced.
    pub(crate) complete: bool,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the member of Cache-Status, without the cache's name.
    pub(crate) fn cache_status(&self) -> &str {
        self.field("cache-status").and_then(|value| value.split_once("; ")).map_or("", |(_, status)| status)
    }

    pub(crate) fn is_hit(&self) -> bool {
        self.cache_status().starts_with("hit")
    }
}

/// The transport of a connection.
pub(crate) trait Stream: Read + Write {
    /// Signals that nothing more will be sent.
    fn end(&mut self);
}

impl Stream for TcpStream {
    fn end(&mut self) {
        // It may be closed already.
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn end(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
        self.sock.end();
    }
}

impl Stream for Box<dyn Stream> {
    fn end(&mut self) {
        (**self).end();
    }
}

/// A connection to the proxy.
pub(crate) struct Connection<S = TcpStream> {
    pub(crate) reader: BufReader<S>,
    /// The Host of its requests.
    host: &'static str,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// Connects to an admin listener, as a client of this machine.
    pub(crate) fn open_admin(address: SocketAddr) -> Self {
        Self { host: "localhost", ..Self::open(address) }
    }

    /// Connects as another client, from another loopback address than the usual one.
    pub(crate) fn open_from(source: IpAddr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(source, 0).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    fn over(socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { reader: BufReader::with_capacity(64 << 10, socket), host: "site.example" }
    }

    /// Continues over the stream that `wrap` creates from the socket, with requests for `host`.
    pub(crate) fn wrapped<S: Stream>(self, host: &'static str, wrap: impl FnOnce(TcpStream) -> S) -> Connection<S> {
        assert!(self.reader.buffer().is_empty(), "all that came is read");
        Connection { reader: BufReader::with_capacity(64 << 10, wrap(self.reader.into_inner())), host }
    }
}

impl<S: Stream> Connection<S> {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends as many bytes as possible: the proxy may have closed the connection.
    pub(crate) fn send_if_open(&mut self, bytes: &[u8]) {
        let _ = self.reader.get_mut().write_all(bytes);
    }

    /// Signals that nothing more will be sent.
    pub(crate) fn end_sending(&mut self) {
        self.reader.get_mut().end();
    }

    /// Sends a request for the fixture's site and reads the response.
    pub(crate) fn request(&mut self, method: &str, target: &str, fields: &[&str]) -> Response {
        self.send(request_text_for(self.host, method, target, fields));
        self.read_response(method)
    }

    /// Sends a request for the fixture's site. Returns the response, if one arrives.
    pub(crate) fn try_request(&mut self, method: &str, target: &str) -> Option<Response> {
        self.try_request_with(method, target, &[])
    }

    /// As [`PooledConnection::try_request`], with additional fields.
    pub(crate) fn try_request_with(&mut self, method: &str, target: &str, fields: &[&str]) -> Option<Response> {
        self.send_if_open(request_text_for(self.host, method, target, fields).as_bytes());
        let mut response = self.try_read_head_or_end()?;
        while (100..200).contains(&response.status) && response.status != 101 {
            response = self.try_read_head_or_end()?;
        }
        self.read_body(method, &mut response);
        Some(response)
    }

    /// As [`PooledConnection::request`]. Also returns the interim responses.
    pub(crate) fn request_with_interim(
        &mut self,
        method: &str,
        target: &str,
        fields: &[&str],
    ) -> (Vec<Response>, Response) {
        self.send(request_text_for(self.host, method, target, fields));
        let mut interim = Vec::new();
        let mut response = self.read_head();
        while response.status < 200 {
            let next = self.read_head();
            interim.push(std::mem::replace(&mut response, next));
        }
        self.read_body(method, &mut response);
        (interim, response)
    }

    pub(crate) fn read_response(&mut self, method: &str) -> Response {
        let mut response = self.read_head();
        self.read_body(method, &mut response);
        response
    }

    pub(crate) fn read_head(&mut self) -> Response {
        self.try_read_head().expect("a response was expected")
    }

    /// Reads the head of the next response. Returns `None` when the connection has ended.
    pub(crate) fn try_read_head(&mut self) -> Option<Response> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{error}"),
        }
        let status = line.split_whitespace().nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {line:?}"));
        let mut fields = Vec::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Some(Response { status, fields, body: Vec::new(), complete: false })
    }

    /// As [`PooledConnection::try_read_head`], but also accepts an end by a reset, or over TLS without a close
    /// notification.
    pub(crate) fn try_read_head_or_end(&mut self) -> Option<Response> {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        match self.reader.fill_buf() {
            Ok([]) => None,
            Err(error) if matches!(error.kind(), ConnectionReset | UnexpectedEof) => None,
            _ => self.try_read_head(),
        }
    }

    pub(crate) fn read_body(&mut self, method: &str, response: &mut Response) {
        if method == "HEAD" || matches!(response.status, 204 | 304) {
            response.complete = true;
        } else if response.field("transfer-encoding") == Some("chunked") {
            match read_chunked(&mut self.reader) {
                Ok(body) => (response.body, response.complete) = (body, true),
                Err(_) => response.complete = false,
            }
        } else if let Some(length) = response.field("content-length") {
            let length: u64 = length.parse().unwrap();
            // A reset in the middle leaves an incomplete body like any other.
            let _ = (&mut self.reader).take(length).read_to_end(&mut response.body);
            response.complete = response.body.len() as u64 == length;
        } else {
            response.complete = self.reader.read_to_end(&mut response.body).is_ok();
        }
    }

    /// Reads `count` bytes of a body.
    pub(crate) fn read_exact(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Returns whether the proxy closes the connection without sending another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.reader.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

/// Returns the text of a request for the fixture's site.
pub(crate) fn request_text(method: &str, target: &str, fields: &[&str]) -> String {
    request_text_for("site.example", method, target, fields)
}

fn request_text_for(host: &str, method: &str, target: &str, fields: &[&str]) -> String {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
    for field in fields {
        text.push_str(field);
        text.push_str("\r\n");
    }
    text + "\r\n"
}

/// Reads a chunked body up to its last chunk.
pub(crate) fn read_chunked(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        reader.read_line(&mut line)?;
        if size == 0 {
            return Ok(body);
        }
    }
}
