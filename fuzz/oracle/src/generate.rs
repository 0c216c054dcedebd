//! Makes streams of messages from a grammar, and damages some of them.
//!
//! Most messages are nearly right, because a reader refuses others before it comes to what matters. Invariant: a seed
//! makes the same stream on every machine.

use larder_device::SplitMix64;

use crate::wire::Side;

/// Makes the octets of one stream.
pub(crate) fn stream(side: Side, random: &mut SplitMix64) -> Vec<u8> {
    let mut octets = Vec::new();
    let is_client = side == Side::Client;
    let count = if is_client { 1 + random.below(3) } else { 1 + random.below(2) };
    for position in 0..count {
        if is_client {
            request(&mut octets, random);
        } else {
            let is_interim = position + 1 < count;
            response(&mut octets, is_interim, random);
        }
    }
    if random.below(2) == 0 {
        for _ in 0..=random.below(3) {
            damage(&mut octets, random);
        }
    }
    octets
}

fn request(octets: &mut Vec<u8>, random: &mut SplitMix64) {
    if random.below(12) == 0 {
        octets.extend_from_slice(pick(&[b"\r\n", b"\n", b"\r\n\r\n", b"\r", b" "], random));
    }
    octets.extend_from_slice(usual(METHODS, ODD_METHODS, random));
    octets.extend_from_slice(usual(&[b" "], &[b"  ", b"\t", b"", b"\r"], random));
    octets.extend_from_slice(usual(TARGETS, ODD_TARGETS, random));
    octets.extend_from_slice(usual(&[b" "], &[b"  ", b"\t", b"", b"\x0b"], random));
    octets.extend_from_slice(usual(&[b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"], ODD_VERSIONS, random));
    line_end(octets, random);
    let body = framing(octets, FieldsOf { usual: REQUEST_FIELDS, odd: ODD_FIELDS }, random);
    octets.extend_from_slice(&body);
}

fn response(octets: &mut Vec<u8>, is_interim: bool, random: &mut SplitMix64) {
    octets.extend_from_slice(usual(&[b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"], ODD_VERSIONS, random));
    octets.extend_from_slice(usual(&[b" "], &[b"  ", b"\t", b""], random));
    let statuses: &[&[u8]] =
        if is_interim { &[b"100", b"102", b"103"] } else { &[b"200", b"200", b"200", b"206", b"404", b"500"] };
    octets.extend_from_slice(usual(statuses, ODD_STATUSES, random));
    octets.extend_from_slice(usual(&[b" OK", b" Not Found", b" "], &[b"", b"\t", b" \xe4", b" a\rb", b"  x "], random));
    line_end(octets, random);
    let body = framing(octets, FieldsOf { usual: RESPONSE_FIELDS, odd: ODD_FIELDS }, random);
    if !is_interim || random.below(4) == 0 {
        octets.extend_from_slice(&body);
    }
}

/// The field lines of one side's messages.
#[derive(Clone, Copy)]
struct FieldsOf {
    usual: &'static [&'static [u8]],
    odd: &'static [&'static [u8]],
}

/// Appends field lines, and the empty line after them. Returns a body that has the framing that they announce, or nearly.
fn framing(octets: &mut Vec<u8>, fields: FieldsOf, random: &mut SplitMix64) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for _ in 0..random.below(4) {
        lines.push(usual(fields.usual, fields.odd, random).to_vec());
    }
    if random.below(4_000) == 0 {
        let len = random.below(70_000) as usize;
        lines.push([b"Long: ", &vec![b'x'; len][..]].concat());
    }
    if random.below(4_000) == 0 {
        let count = 90 + random.below(20);
        lines.extend((0..count).map(|_| b"A: 1".to_vec()));
    }
    let mut body = Vec::new();
    match random.below(8) {
        0..=2 => {
            let len = random.below(20) as usize;
            body.extend((0..len).map(|at| b"body\r\n0123456789:"[at % 17]));
            let announced = if random.below(12) == 0 { len + random.below(3) as usize } else { len };
            lines.push(length_line(announced, random));
        }
        3..=5 => {
            lines.push(usual(CHUNKED, ODD_CODINGS, random).to_vec());
            chunks(&mut body, random);
        }
        6 if random.below(3) == 0 => {
            lines.push(length_line(random.below(12) as usize, random));
            lines.push(usual(CHUNKED, ODD_CODINGS, random).to_vec());
            chunks(&mut body, random);
        }
        _ => {}
    }
    for position in (1..lines.len()).rev() {
        lines.swap(position, random.below(position as u64 + 1) as usize);
    }
    for line in lines {
        octets.extend_from_slice(&line);
        line_end(octets, random);
    }
    octets.extend_from_slice(usual(&[b"\r\n"], &[b"\n", b"\r\r\n", b"", b"\r\n\r\n"], random));
    body
}

fn length_line(len: usize, random: &mut SplitMix64) -> Vec<u8> {
    let name = pick(&[b"Content-Length", b"content-length", b"CONTENT-LENGTH"], random);
    let text = len.to_string();
    let value = match random.below(40) {
        0 => format!("+{text}"),
        1 => format!("{text}, {text}"),
        2 => format!("0{text}"),
        3 => format!("{text}\r\nContent-Length: {text}"),
        4 => format!("{text}\r\nContent-Length: {}", len + 1),
        5 => format!("{}{text}", pick(&[b"-", b"0x", b"1e", b"1 ", b"999999999999999999"], random).escape_ascii()),
        6 => format!("\t{text} "),
        7 => "18446744073709551616".to_owned(),
        _ => text,
    };
    [name, &b": "[..], value.as_bytes()].concat()
}

fn chunks(body: &mut Vec<u8>, random: &mut SplitMix64) {
    for _ in 0..random.below(4) {
        let len = 1 + random.below(18) as usize;
        let size = match random.below(24) {
            0 => format!("{len:X}"),
            1 => format!("000{len:x}"),
            2 => format!("{:x}", len + 1),
            3 => format!("0x{len:x}"),
            4 => format!("{len:020x}"),
            _ => format!("{len:x}"),
        };
        body.extend_from_slice(size.as_bytes());
        body.extend_from_slice(usual(&[b"", b"", b""], EXTENSIONS, random));
        line_end(body, random);
        body.extend((0..len).map(|at| b"0\r\n\r\nGET / HTTP/1.1"[at % 18]));
        line_end(body, random);
    }
    body.extend_from_slice(usual(&[b"0", b"0", b"00"], &[b"0;a=b", b"0 ", b"", b"-0", b"0000000000000000000"], random));
    line_end(body, random);
    for _ in 0..random.below(3) {
        body.extend_from_slice(usual(TRAILERS, ODD_FIELDS, random));
        line_end(body, random);
    }
    line_end(body, random);
}

/// Appends the end of a line, which is nearly always CR LF.
fn line_end(octets: &mut Vec<u8>, random: &mut SplitMix64) {
    let ends: &[&[u8]] = &[b"\n", b"\r", b"\r\r\n", b"", b" \r\n", b"\n\r", b"\x0b\r\n"];
    octets.extend_from_slice(if random.below(120) == 0 { pick(ends, random) } else { b"\r\n" });
}

/// Changes a few octets.
fn damage(octets: &mut Vec<u8>, random: &mut SplitMix64) {
    if octets.is_empty() {
        return;
    }
    let at = random.below(octets.len() as u64) as usize;
    let len = (random.below(12) as usize).min(octets.len() - at);
    match random.below(6) {
        0 => octets.truncate(at),
        1 => octets[at] = random.next_u64() as u8,
        2 => octets[at] = pick(&[b"\r", b"\n", b" ", b"\t", b":", b";", b"\0", b"0", b",", b"\x7f"], random)[0],
        3 => drop(octets.drain(at..at + len)),
        4 => {
            let copy = octets[at..at + len].to_vec();
            let to = random.below(octets.len() as u64 + 1) as usize;
            octets.splice(to..to, copy);
        }
        _ => {
            let inserted = pick(INSERTED, random);
            octets.splice(at..at, inserted.iter().copied());
        }
    }
}

/// Picks from the usual ones, or rarely from the odd ones.
fn usual<'a>(usual: &[&'a [u8]], odd: &[&'a [u8]], random: &mut SplitMix64) -> &'a [u8] {
    if random.below(24) == 0 { pick(odd, random) } else { pick(usual, random) }
}

fn pick<'a>(all: &[&'a [u8]], random: &mut SplitMix64) -> &'a [u8] {
    all[random.below(all.len() as u64) as usize]
}

const METHODS: &[&[u8]] = &[b"GET", b"GET", b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE"];
const ODD_METHODS: &[&[u8]] =
    &[b"CONNECT", b"get", b"PRI", b"M-SEARCH", b"G\"T", b"", b"G:T", b"VERYLONGMETHODNAME", b"\xe4", b"!"];
const TARGETS: &[&[u8]] = &[b"/", b"/a/b?c=d", b"http://a.example/x", b"/%41", b"*", b"a.example:443"];
const ODD_TARGETS: &[&[u8]] = &[
    b"/a\"b<c>`d",
    b"/?q=\"<>`",
    b"/a#b",
    b"/\xc3\xa4",
    b"/\xe4",
    b"http://a.example",
    b"http://a.example?x",
    b"http://u@a.example:80/",
    b"/a b",
    b"",
    b"//a",
    b"/\x7f",
    b"/\\|^{}",
    b"?x",
    b"http://[::1]:8/",
    b"http:///",
    b"x",
    b"/a\tb",
];
const ODD_VERSIONS: &[&[u8]] = &[
    b"HTTP/1.2",
    b"HTTP/1.9",
    b"HTTP/2.0",
    b"HTTP/0.9",
    b"HTTP/1.10",
    b"http/1.1",
    b"HTTP/1",
    b"",
    b"HTTP/1.1 ",
    b"HTTQ/1.1",
    b"HTTP/ 1.1",
    b"HTTP/1,1",
];
const ODD_STATUSES: &[&[u8]] =
    &[b"204", b"304", b"101", b"99", b"099", b"600", b"999", b"1000", b"2 0", b"199", b"+20", b"000", b"205"];
const REQUEST_FIELDS: &[&[u8]] = &[
    b"Host: a.example",
    b"Host: a.example",
    b"Accept: */*",
    b"Connection: keep-alive",
    b"Connection: close",
    b"Cookie: a=b; c=\"d\"",
    b"X-Empty:",
    b"Expect: 100-continue",
    b"TE: trailers",
    b"Upgrade: websocket",
    b"Connection: upgrade",
    b"Proxy-Connection: keep-alive",
];
const RESPONSE_FIELDS: &[&[u8]] = &[
    b"Date: Sun, 06 Nov 1994 08:49:37 GMT",
    b"Content-Type: text/plain",
    b"Cache-Control: max-age=60",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Set-Cookie: a=b",
    b"Vary: *",
    b"X-Empty:",
    b"ETag: \"a\"",
    b"Server:  two  words  ",
];
const ODD_FIELDS: &[&[u8]] = &[
    b"X: \xe4\xff",
    b"X : 1",
    b" folded: 1",
    b"\tfolded",
    b"NoColon",
    b": no name",
    b"X\0: 1",
    b"X: a\0b",
    b"X: a\rb",
    b"X: a\x01b",
    b"X: a\x7fb",
    b"X_Y: 1",
    b"\xe4: 1",
    b"Content-Length:",
    b"Content-Length: 0",
    b"Content-Length : 3",
    b"Content-Length\t: 3",
    b"Content_Length: 3",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: identity",
    b"Connection: close, x",
    b"Connection:close\r\nConnection: keep-alive",
    b"X:\t\t1\t",
    b"(X): 1",
];
const CHUNKED: &[&[u8]] =
    &[b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked", b"TRANSFER-ENCODING: chunked "];
const ODD_CODINGS: &[&[u8]] = &[
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
    b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked;q=1",
    b"Transfer-Encoding: \"chunked\"",
    b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding: chunked,",
    b"Transfer-Encoding: ,chunked",
    b"Transfer-Encoding: identity, chunked",
    b"Transfer-Encoding:",
    b"Transfer-Encoding: gzip",
    b"Transfer-Encoding: chun\r\n ked",
];
const EXTENSIONS: &[&[u8]] = &[
    b";a=b",
    b" ;a",
    b"; a = \"b;\\\"c\"",
    b";",
    b" ",
    b"\t",
    b";a=",
    b";\"",
    b";a=\"b",
    b";a\r",
    b";a\nb",
    b";a\0",
    b" x",
    b";\xe4",
];
const TRAILERS: &[&[u8]] = &[b"T: 1", b"Digest: a=b", b"T:", b"Content-Length: 3", b"Transfer-Encoding: chunked"];
const INSERTED: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\n\n",
    b" ",
    b"\t",
    b"\0",
    b"0\r\n\r\n",
    b"GET / HTTP/1.1\r\n",
    b": ",
    b"chunked",
    b"\r\n ",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 1\r\n",
    b"\xff",
    b"HTTP/1.1 200 OK\r\n\r\n",
];
