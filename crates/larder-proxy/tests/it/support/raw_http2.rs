//! Frames of HTTP/2, written by hand, and a client that sends any octets as a field's name or value, which no HTTP library
//! would (RFC 9113, RFC 7541).

use std::{
    io::{self, Read},
    net::{SocketAddr, TcpStream},
};

use super::{Connection, client::Stream};

/// A connection over which one request at a time is sent.
pub(crate) struct RawHttp2<S = TcpStream> {
    connection: Connection<S>,
    last_stream: u32,
    /// Octets that the server permits on the connection, on the last stream, and on a new stream.
    window: i64,
    stream_window: i64,
    initial_window: i64,
}

/// How the server answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Status(u16),
    /// Its stream was reset, for this reason.
    Reset(u32),
    /// The connection ended.
    Ended,
}

impl RawHttp2 {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::over(Connection::open(address))
    }
}

impl<S: Stream> RawHttp2<S> {
    /// Begins HTTP/2 on a connection.
    pub(crate) fn over(mut connection: Connection<S>) -> Self {
        connection.send(PREFACE);
        // No dynamic table, so that every field in a response is written out.
        connection.send(frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]));
        let window = i64::from(WINDOW_BYTES);
        Self { connection, last_stream: 0, window, stream_window: window, initial_window: window }
    }

    /// Sends a request with these fields, including pseudo-fields, and this body. Waits for the outcome.
    pub(crate) fn request(&mut self, fields: &[(&str, &str)], body: &str) -> Outcome {
        let stream = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
        self.last_stream = stream;
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        let ends = if body.is_empty() { END_STREAM } else { 0 };
        let mut octets = frame(HEADERS, END_HEADERS | ends, stream, &block);
        if !body.is_empty() {
            octets.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
            self.window -= body.len() as i64;
        }
        self.connection.send_if_open(&octets);
        self.outcome(stream)
    }

    fn outcome(&mut self, stream: u32) -> Outcome {
        let mut status = None;
        while let Some((kind, flags, of, payload)) = self.read_frame() {
            match kind {
                RST_STREAM if of == stream && status.is_none() => {
                    return Outcome::Reset(u32::from_be_bytes(payload.try_into().expect("a reason has four octets")));
                }
                HEADERS if of == stream => status = Some(status_of(&payload)),
                _ => {}
            }
            let is_end = matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 || kind == RST_STREAM;
            if let Some(status) = status.filter(|_| of == stream && is_end) {
                return Outcome::Status(status);
            }
        }
        status.map_or(Outcome::Ended, Outcome::Status)
    }

    /// Begins a request, and sends a part of its body, unless the server answers earlier.
    pub(crate) fn begin(&mut self, fields: &[(&str, &str)], body: &[u8]) {
        let stream = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
        self.last_stream = stream;
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        self.connection.send_if_open(&frame(HEADERS, END_HEADERS, stream, &block));
        self.stream_window = self.initial_window;
        for piece in body.chunks(FRAME_BYTES) {
            let len = piece.len() as i64;
            while self.window < len || self.stream_window < len {
                match self.read_frame() {
                    Some((HEADERS | RST_STREAM, _, of, _)) if of == stream => return,
                    Some(_) => {}
                    None => return,
                }
            }
            self.window -= len;
            self.stream_window -= len;
            self.connection.send_if_open(&frame(DATA, 0, stream, piece));
        }
    }

    /// Resets the stream of the last request.
    pub(crate) fn reset(&mut self, code: u32) {
        self.connection.send_if_open(&frame(RST_STREAM, 0, self.last_stream, &code.to_be_bytes()));
    }

    /// Says that no stream of the server is processed, and that no more requests follow.
    pub(crate) fn go_away(&mut self) {
        self.connection.send_if_open(&frame(GOAWAY, 0, 0, &[0; 8]));
    }

    /// Ends the connection, and waits until the server has closed it, too.
    pub(crate) fn close(mut self) {
        self.connection.end_sending();
        while self.read_frame().is_some() {}
    }

    fn read_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let (head, payload) = read_frame(&mut self.connection.reader).ok()?;
        let number =
            |octets: &[u8]| i64::from(u32::from_be_bytes(octets.try_into().expect("a number has four octets")));
        match head.kind {
            SETTINGS if head.flags & ACK == 0 => {
                for setting in payload.chunks_exact(6).filter(|setting| setting[..2] == [0, INITIAL_WINDOW_SIZE]) {
                    self.stream_window += number(&setting[2..]) - self.initial_window;
                    self.initial_window = number(&setting[2..]);
                }
                self.connection.send_if_open(&frame(SETTINGS, ACK, 0, &[]));
            }
            WINDOW_UPDATE if head.stream == 0 => self.window += number(&payload),
            WINDOW_UPDATE if head.stream == self.last_stream => self.stream_window += number(&payload),
            _ => {}
        }
        Some((head.kind, head.flags, head.stream, payload))
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

/// Reads a frame with its payload.
pub(crate) fn read_frame(reader: &mut impl Read) -> io::Result<(FrameHead, Vec<u8>)> {
    let mut head = [0; 9];
    reader.read_exact(&mut head)?;
    let [high, middle, low, kind, flags, stream @ ..] = head;
    let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload)?;
    Ok((FrameHead { kind, flags, stream: u32::from_be_bytes(stream) }, payload))
}

/// Returns the status in a block of fields, which begins with it. A status that is not in the static table of HPACK is
/// written out, possibly in Huffman's code.
fn status_of(block: &[u8]) -> u16 {
    // A change of the table's size may precede it (RFC 7541 6.3).
    let block = if block[0] & 0xe0 == 0x20 { &block[1..] } else { block };
    match block {
        [first, ..] if first & 0x80 != 0 => [200, 204, 206, 304, 400, 404, 500][usize::from(first & 0x7f) - 8],
        [0x08 | 0x18 | 0x48, 3, digits @ ..] => std::str::from_utf8(&digits[..3]).unwrap().parse().unwrap(),
        // Digits have codes of five bits. Those of 0, 1 and 2 are their values (RFC 7541 B).
        [0x08 | 0x18 | 0x48, 0x82 | 0x83, coded @ ..] => huffman_digits(coded),
        _ => panic!("no status begins the block {block:02x?}"),
    }
}

/// Returns the number whose three digits are in Huffman's code.
fn huffman_digits(coded: &[u8]) -> u16 {
    let mut bits =
        coded.iter().take(3).fold(0, |bits, octet| bits << 8 | u32::from(*octet)) << (8 * (4 - coded.len().min(3)));
    let mut number = 0;
    for _ in 0..3 {
        let (digit, count) = match bits >> 27 {
            short @ 0..=2 => (short, 5),
            // 3 to 9 are 011001 to 011111.
            _ => ((bits >> 26) - 0b01_1001 + 3, 6),
        };
        number = number * 10 + digit as u16;
        bits <<= count;
    }
    number
}

/// Returns a field as a literal that no table remembers (RFC 7541 6.2.2).
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![0], text(name), text(value)].concat()
}

fn text(text: &str) -> Vec<u8> {
    assert!(text.len() < 127, "its length is one octet");
    [&[text.len() as u8], text.as_bytes()].concat()
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// The second octet of the setting's identifier.
pub(crate) const INITIAL_WINDOW_SIZE: u8 = 4;
/// The size of a window that no setting has changed.
pub(crate) const WINDOW_BYTES: u32 = 65_535;
/// Length of the longest frame payload, in bytes, that every peer must accept.
pub(crate) const FRAME_BYTES: usize = 16 << 10;
