//! Fuzzes whole exchanges, responses as they arrive, and pack files. In an exchange, the client adds arbitrary fields
//! to its request, and the origin sends an arbitrary response.
//!
//! Owns: a proxy on loopback, an origin that sends the bytes it is given, and a strict parser of those bytes, whose
//! result is compared with the clients' responses. Used by the fuzz targets in `fuzz/`, and by tests that run it on
//! mutated samples with the stable toolchain. Compiled for tests and fuzzing only.
//!
//! The parsers that need no connection are in [`parsers`], with a bound on their steps. Exchanges run on the threads of
//! the proxy: their steps are bounded where nothing else runs in the process, as in the fuzz target.
//!
//! Properties: there is no panic; no client waits forever; a body that a client accepts as complete, from the origin or
//! from the cache, is the one that the origin framed, or a range of it.

use larder_device::IgnorePoison;
use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode};
use larder_http::steps;
use larder_wire::{BodyDecoder, DecodedPart, HeadLimits, parse_response};

use crate::{
    Proxy, ProxyConfig, RunningProxy,
    operators::pack::warc::{WarcItem, WarcReader},
};

mod parsers;
mod requests;

pub use parsers::{PARSERS, ParserTarget, parse};

/// Samples for `run`. Each has field lines of a request, a NUL, and an origin's response.
pub const SAMPLES: [&[u8]; 9] = [
    b"\0HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
    b"\0HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n2\r\n, \r\n0\r\nX: 1\r\n\r\n",
    b"\0HTTP/1.1 200 OK\r\nLast-Modified: Sat, 01 Jan 2022 00:00:00 GMT\r\n\r\nuntil the end",
    b"\0HTTP/1.0 404 No\r\nExpires: Sat, 01 Jan 2099 00:00:00 GMT\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nno",
    b"Range: bytes=1-3\r\n\0HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\n0123456789",
    b"Range: bytes=2-4\r\n\0HTTP/1.1 206 P\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n0123456789",
    b"If-None-Match: \"a\"\r\n\0HTTP/1.1 103 Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nETag: \"a\"\r\nVary: Foo\r\nContent-Length: 1\r\n\r\nx",
    b"Content-Length: 2\r\n\r\nab\0HTTP/1.1 200 OK\r\nCache-Control: s-maxage=9, private=\"x\"\r\nX: 1\r\nContent-Length: 0\r\n\r\n",
    b"Connection: x-hop\r\nX-Hop: 1\r\n\0HTTP/1.1 304 Same\r\nContent-Length: 7\r\n\r\n",
];

/// Does the same as [`run`], and also checks the number of steps. Nothing else may run in the process.
///
/// # Panics
/// If one of the module's properties is violated, or if the exchange takes more than [`PER_OCTET_MAX`] steps per octet.
pub fn run_alone(bytes: &[u8]) {
    let before = steps::total();
    run(bytes);
    let count = steps::total() - before;
    let most = (bytes.len() as u64 + FREE_OCTETS) * PER_OCTET_MAX;
    assert!(count <= most, "{count} steps for an exchange of {} octets, at most {most}", bytes.len());
}

/// Performs one exchange with the client's and origin's messages in `bytes`, then requests the same resource with
/// `only-if-cached`.
///
/// # Panics
/// If one of the module's properties is violated.
pub fn run(bytes: &[u8]) {
    let at = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let asked = &bytes[..at];
    let answer = bytes.get(at + 1..).unwrap_or_default();
    let bench = &*BENCH;
    *bench.answer.lock().ignore_poison() = answer.to_vec();
    let target = format!("/{}", bench.count.fetch_add(1, Relaxed));
    let framed = framed_by(answer);
    for extra in [asked, b"Cache-Control: only-if-cached\r\n"] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n");
        let got = bench.ask(&[head.as_bytes(), extra, b"\r\n"].concat()).expect("the proxy answers or closes in time");
        let read = read_final(&got);
        let Some(FuzzedResponse { status, fields, body: Some(body), .. }) = read else { continue };
        let has = |name: &str, end: &str| fields.iter().any(|(field, value)| field == name && value.ends_with(end));
        let is_the_origins = has("via", " larder") && !has("proxy-status", "");
        if !is_the_origins || matches!(status, 101 | 204 | 304 | 416) {
            continue;
        }
        let parts = fields.iter().any(|(name, value)| name == "content-type" && value.starts_with("multipart/"));
        let holds = match &framed {
            FramedAnswer::Unclear => true,
            // The requested range may have arrived before the response broke off.
            FramedAnswer::Broken => status == 206 && is_within(answer, &body),
            FramedAnswer::Body(framed) if status == 206 => parts || is_within(framed, &body),
            FramedAnswer::Body(framed) => *framed == body,
        };
        let [got, bytes] = [&got, bytes].map(|bytes| bytes.escape_ascii());
        assert!(holds, "a client got {got}\nof {bytes}");
    }
}

/// Parses these bytes as an origin's response: first as a whole, then in two pieces.
///
/// # Panics
/// If one of the module's properties is violated, or if the result depends on where the bytes are split.
pub fn receive(bytes: &[u8]) {
    let whole = receive_in_two(bytes, bytes.len());
    let split = bytes.iter().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    for split in [1, 2, split % (bytes.len() + 1), bytes.len().saturating_sub(1)] {
        let split = split.min(bytes.len());
        let received = receive_in_two(bytes, split);
        assert_eq!(received, whole, "split at {split}: {}", bytes.escape_ascii());
    }
    let holds = match framed_by(bytes) {
        FramedAnswer::Unclear => true,
        FramedAnswer::Broken => whole.is_none(),
        FramedAnswer::Body(framed) => whole.as_ref().is_none_or(|body| *body == framed),
    };
    assert!(holds, "{:?} was received of {}", whole, bytes.escape_ascii());
}

/// Parses an origin's response that arrives in two pieces before the connection ends. Returns the body of the final
/// response.
///
/// `None` if the response is refused or incomplete.
fn receive_in_two(bytes: &[u8], split: usize) -> Option<Vec<u8>> {
    let limits = HeadLimits { bytes_max: 64 << 10, field_count_max: 400 };
    let mut at = 0;
    let head = loop {
        let first = bytes.get(at..split).unwrap_or_default();
        let parsed = match first {
            [] => None,
            first => parse_response(first, 0, limits).ok()?,
        };
        let parsed = match parsed {
            Some(parsed) => parsed,
            None => parse_response(&bytes[at..], first.len(), limits).ok()??,
        };
        at += parsed.1;
        if !parsed.0.status.is_informational() || parsed.0.status == StatusCode::SWITCHING_PROTOCOLS {
            break parsed.0;
        }
        if at == bytes.len() {
            return None;
        }
    };
    let mut decoder = BodyDecoder::of_response(&head, &Method::GET, limits).ok()?;
    let mut body = Vec::new();
    for piece in [bytes.get(at..split).unwrap_or_default(), &bytes[split.max(at)..]] {
        let mut received = Bytes::copy_from_slice(piece);
        loop {
            match decoder.next(&mut received).ok()? {
                DecodedPart::Data(data) => body.extend_from_slice(&data),
                DecodedPart::Trailers(_) => {}
                DecodedPart::End | DecodedPart::More => break,
            }
        }
    }
    (decoder.has_ended() || matches!(decoder, BodyDecoder::UntilClose)).then_some(body)
}

/// Returns the origin's responses in the samples.
fn responses() -> Vec<Vec<u8>> {
    SAMPLES.map(|sample| sample[sample.iter().position(|byte| *byte == 0).unwrap_or(0) + 1..].to_vec()).into()
}

fn packs() -> Vec<Vec<u8>> {
    PACKS.map(<[u8]>::to_vec).into()
}

const PACKS: [&[u8]; 3] = [
    b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.example/\r\nContent-Length: 3\r\n\r\nabc\r\n\r\nWARC/1.1\r\nContent-Length: 0\r\n\r\n\r\n\r\n",
    b"WARC/1.0\nContent-Length: 18446744073709551615\n\nWARC/1.1\r\nContent-Length: 1\r\n\r\nWARC/1.1\r\n",
    b"WARC/9.9\r\nX\r\n\r\nWARC/1.1\r\nContent-Length: -1\r\nContent-Length: 2\r\n\r\n",
];

static BENCH: LazyLock<Bench> = LazyLock::new(|| Bench::start().expect("loopback can be used"));

/// Reads these bytes as a pack file.
///
/// # Panics
/// If one of the module's properties is violated: reading must end, and must read every byte only once.
pub fn unpack(bytes: &[u8]) {
    let mut reader = WarcReader::new(bytes);
    let mut read_bytes = 0;
    // Every step except the last consumes a byte.
    for _ in 0..=bytes.len() {
        match reader.next() {
            Ok(WarcItem::Record(record)) => {
                let content = io::copy(&mut reader.content(record.content_bytes), &mut io::sink());
                read_bytes += content.expect("what is in memory can be read");
                assert!(read_bytes <= bytes.len() as u64, "a byte is the content of two records");
            }
            Ok(WarcItem::Damage(what)) => assert!(!what.is_empty(), "damage has a text"),
            Ok(WarcItem::End) | Err(_) => return,
        }
    }
    panic!("reading does not end");
}

struct Bench {
    proxy: RunningProxy,
    /// The response that the origin sends to the next request.
    answer: Arc<Mutex<Vec<u8>>>,
    count: AtomicU64,
}

impl Bench {
    fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let origin = format!("http://{}", listener.local_addr()?).parse().expect("an address makes a URL");
        let answer = Arc::new(Mutex::new(Vec::new()));
        let answered = Arc::clone(&answer);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let answer = answered.lock().ignore_poison().clone();
                // Errors are ignored: broken connections are what the fuzzer tests.
                thread::spawn(move || drop(serve(socket, &answer)));
            }
        });
        let mut config = ProxyConfig {
            listeners: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            worker_count: 1,
            default_origin: Some(origin),
            forward: false,
            pseudonym: Some("larder".into()),
            ..ProxyConfig::default()
        };
        config.limits.header = SHORT;
        (config.policy.limits.stall, config.policy.limits.origin_response) = (SHORT, SHORT);
        Ok(Self { proxy: Proxy::start(config, None)?, answer, count: AtomicU64::new(0) })
    }

    /// Sends a request on a new connection, and returns all bytes received until the connection closes.
    fn ask(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut socket = TcpStream::connect(self.proxy.local_addrs()[0])?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut got = Vec::new();
        // The proxy may close the connection before it has read everything.
        if socket.write_all(request).is_ok() && !may_be_unfinished(request) || socket.shutdown(Shutdown::Write).is_ok()
        {
            match socket.read_to_end(&mut got) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                read => drop(read?),
            }
        }
        Ok(got)
    }
}

/// Reads the head of a request, and sends the response.
fn serve(mut socket: TcpStream, answer: &[u8]) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        match socket.read(&mut piece)? {
            0 => return Ok(()),
            count => head.extend_from_slice(&piece[..count]),
        }
    }
    socket.write_all(answer)?;
    socket.shutdown(Shutdown::Write)?;
    while socket.read(&mut piece)? > 0 {}
    Ok(())
}

/// Returns whether a request may announce a longer body than it has, so that the proxy would wait for more.
fn may_be_unfinished(request: &[u8]) -> bool {
    let text = request.to_ascii_lowercase();
    [&b"content-length"[..], b"transfer-encoding", b"upgrade", b"expect"]
        .iter()
        .any(|name| text.windows(name.len()).any(|window| window == *name))
}

/// The result of parsing an origin's response strictly (RFC 9112 6).
enum FramedAnswer {
    Body(Vec<u8>),
    /// The body is shorter than announced, or its framing is ambiguous.
    Broken,
    /// The response is so unusual that implementations may refuse it or parse it differently.
    Unclear,
}

fn framed_by(answer: &[u8]) -> FramedAnswer {
    let Some(FuzzedResponse { version, fields, body, .. }) = read_final(answer) else { return FramedAnswer::Unclear };
    let count = |wanted: &str| fields.iter().filter(|(name, _)| name == wanted).count();
    let lengths = count("content-length");
    let encodings = count("transfer-encoding");
    match body {
        _ if encodings > 0 && (lengths > 0 || encodings > 1 || version == b'0') => FramedAnswer::Broken,
        _ if lengths > 1 => FramedAnswer::Unclear,
        Some(body) => FramedAnswer::Body(body),
        None => FramedAnswer::Broken,
    }
}

/// A parsed response. `None` in place of a body means that the body does not end as announced.
struct FuzzedResponse<'a> {
    status: u16,
    /// The last digit of the HTTP version.
    version: u8,
    fields: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    after: &'a [u8],
}

/// Parses a response, skips the interim ones before it, and returns the final one.
fn read_final(bytes: &[u8]) -> Option<FuzzedResponse<'_>> {
    let mut response = read_response(bytes)?;
    while (100..200).contains(&response.status) && response.status != 101 {
        response = read_response(response.after)?;
    }
    Some(response)
}

/// Parses a response in its plainest form. Returns `None` if the head has another form.
fn read_response(bytes: &[u8]) -> Option<FuzzedResponse<'_>> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let after = &bytes[end + 4..];
    if head.replace("\r\n", "").contains(['\r', '\n']) {
        return None;
    }
    let mut lines = head.split("\r\n");
    let line = lines.next()?.strip_prefix("HTTP/1.")?;
    let version = line.as_bytes().first().filter(|digit| b"01".contains(digit))?;
    let rest = line.get(1..)?;
    let code = rest.strip_prefix(' ')?.get(..3)?;
    let status = code.bytes().all(|digit| digit.is_ascii_digit()).then(|| code.parse().ok())??;
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let plain =
            |text: &str, more: &[u8]| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte));
        if name.is_empty()
            || !plain(name, b"-_")
            || value.bytes().any(|byte| byte != b'\t' && !(b' '..=b'~').contains(&byte))
        {
            return None;
        }
        fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let bodiless = matches!(status, 100..=199 | 204 | 304);
    let body = match (field("transfer-encoding"), field("content-length")) {
        _ if bodiless => Some(Vec::new()),
        (Some(encoding), _) if encoding.eq_ignore_ascii_case("chunked") => dechunk(after),
        (Some(_), _) => None,
        (None, Some(length)) => {
            let digits = !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit());
            let length: usize = digits.then(|| length.parse().ok())??;
            after.get(..length).map(<[u8]>::to_vec)
        }
        (None, None) => Some(after.to_vec()),
    };
    Some(FuzzedResponse { status, version: *version, fields, body, after })
}

/// Decodes a chunked body. Returns `None` if it is incomplete.
fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end])
            .ok()
            .filter(|size| size.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return rest.windows(2).any(|window| window == b"\r\n").then_some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

fn is_within(whole: &[u8], part: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

/// Maximum steps for each octet of an exchange. Octets are parsed, checked, stored, and served again from the cache.
pub const PER_OCTET_MAX: u64 = 256;
/// Number of octets of an exchange that are not part of the input: the other fields of both messages.
const FREE_OCTETS: u64 = 4096;
/// Maximum time without progress within a message, in these tests.
const SHORT: Duration = Duration::from_millis(200);
/// Maximum time that a client waits. A longer wait counts as a hang.
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const ROUNDS: usize = 400;
    const OCTETS: &[u8] = b"\r\n\0 :,;0129afAF\t-";

    #[test]
    fn chunks_of_a_split_response_are_joined() {
        assert_eq!(receive_in_two(&responses()[1], 9).as_deref(), Some(&b"hello, "[..]));
    }

    /// Guards against input from a remote peer that causes a panic, a hang, or a body that the origin did not send.
    #[test]
    fn no_exchange_of_mutated_samples_breaks_the_law() {
        SAMPLES.into_iter().for_each(run);
        each_mutated(&SAMPLES, ROUNDS, run);
        let sound = b"\0HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello";
        run(sound);
        assert!(BENCH.proxy.stats().requests() > ROUNDS as u64, "the proxy has taken part");
    }

    /// Calls `run` with mutated samples, in which some octets are changed, inserted or removed.
    pub(crate) fn each_mutated(samples: &[&[u8]], rounds: usize, run: impl Fn(&[u8])) {
        let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize
        };
        for round in 0..rounds {
            let mut bytes = samples[round % samples.len()].to_vec();
            let other = samples[next() % samples.len()];
            for _ in 0..=next() % 3 {
                let at = next() % (bytes.len() + 1);
                match next() % 6 {
                    0 => bytes.insert(at, next() as u8),
                    1 => bytes.truncate(at),
                    2 => bytes.extend_from_within(at..),
                    3 => bytes.extend_from_slice(&other[next() % other.len()..]),
                    4 => drop(bytes.drain(at..(at + next() % 8).min(bytes.len()))),
                    _ if at < bytes.len() => bytes[at] = OCTETS[next() % OCTETS.len()],
                    _ => {}
                }
            }
            run(&bytes);
        }
    }
}
