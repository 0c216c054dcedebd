//! A server that writes the frames of HTTP/2 by hand, so that it can end a stream in every way (RFC 9113 8.1).

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

/// How a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// END_STREAM in the frame of the last octets.
    WithTheLastOctets,
    /// END_STREAM in an empty frame of its own.
    Alone,
    /// END_STREAM in the frame of the trailers.
    Trailers,
    /// RST_STREAM with this error code.
    Reset(u32),
    /// GOAWAY that names the stream as processed, and the end of the connection.
    GoAway,
}

/// The body of every response.
pub(crate) const BODY: &[u8] = b"0123456789";

/// Every way to end a stream: whether the response has a Content-Length, its end, and whether it is whole.
pub(crate) const ENDS: [(bool, StreamEnd, bool); 10] = [
    (false, StreamEnd::WithTheLastOctets, true),
    (false, StreamEnd::Alone, true),
    (false, StreamEnd::Trailers, true),
    (true, StreamEnd::Alone, true),
    // All announced octets were received, so nothing can be missing.
    (true, StreamEnd::Reset(0), true),
    (true, StreamEnd::GoAway, true),
    (false, StreamEnd::Reset(0), false),
    (false, StreamEnd::Reset(2), false),
    (false, StreamEnd::Reset(8), false),
    (false, StreamEnd::GoAway, false),
];

/// Starts a server whose responses end like this. Its threads end with the process.
pub(crate) fn serve_frames(has_length: bool, end: StreamEnd) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            // The client may close at any time.
            thread::spawn(move || drop(serve(socket.unwrap(), has_length, end)));
        }
    });
    address
}

fn serve(mut socket: TcpStream, has_length: bool, end: StreamEnd) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.read_exact(&mut [0; PREFACE_BYTES])?;
    socket.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head)?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)];
        socket.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & ACK == 0 => socket.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            HEADERS => {
                answer(&mut socket, u32::from_be_bytes(stream), has_length, end)?;
                if end == StreamEnd::GoAway {
                    socket.shutdown(Shutdown::Write)?;
                }
            }
            _ => {}
        }
    }
}

fn answer(socket: &mut TcpStream, stream: u32, has_length: bool, end: StreamEnd) -> io::Result<()> {
    // The status 200 of the static table (RFC 7541 A).
    let mut block = vec![0x88];
    block.extend(literal("cache-control", "max-age=3600"));
    if has_length {
        block.extend(literal("content-length", &BODY.len().to_string()));
    }
    let mut octets = frame(HEADERS, END_HEADERS, stream, &block);
    let (first, last) = BODY.split_at(4);
    octets.extend(frame(DATA, 0, stream, first));
    let flags = if end == StreamEnd::WithTheLastOctets { END_STREAM } else { 0 };
    octets.extend(frame(DATA, flags, stream, last));
    let number = |number: u32| number.to_be_bytes();
    octets.extend(match end {
        StreamEnd::WithTheLastOctets => Vec::new(),
        StreamEnd::Alone => frame(DATA, END_STREAM, stream, &[]),
        StreamEnd::Trailers => frame(HEADERS, END_HEADERS | END_STREAM, stream, &literal("x-sum", "1")),
        StreamEnd::Reset(code) => frame(RST_STREAM, 0, stream, &number(code)),
        StreamEnd::GoAway => frame(GOAWAY, 0, 0, &[number(stream), number(0)].concat()),
    });
    socket.write_all(&octets)
}

/// Returns a field as a literal that no table remembers (RFC 7541 6.2.2).
fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const PREFACE_BYTES: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PATIENCE: Duration = Duration::from_secs(30);
