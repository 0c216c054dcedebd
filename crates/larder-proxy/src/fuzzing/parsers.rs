//! Fuzzes the parsers of bytes from strangers that need no connection, each with a bound on its steps.
//!
//! Owns: one [`ParserTarget`] for each parser, with the properties of its results. A test runs them on the corpus in
//! `fuzz/corpus`, on mutated samples and on long repetitions.

use std::{
    future::Future,
    net::IpAddr,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue};
use larder_http::steps;

use crate::{
    door::proxied,
    ground::{
        cache::tier::record,
        config::{ClientField, Fleet},
        forwarded::{self, ForwardedRequest},
    },
    targets::intercept::hello,
};

/// A parser of untrusted bytes, for fuzzing.
#[derive(Clone, Copy, Debug)]
pub struct ParserTarget {
    /// Name of the parser, its fuzz target and its corpus.
    pub name: &'static str,
    /// Parses any bytes. Panics if the result violates a property that must hold.
    pub run: fn(&[u8]),
    /// Valid inputs from which fuzzing starts.
    pub samples: fn() -> Vec<Vec<u8>>,
}

/// All parsers.
pub const PARSERS: [ParserTarget; 7] = [
    ParserTarget { name: "response", run: super::receive, samples: super::responses },
    ParserTarget { name: "request", run: super::requests::read, samples: super::requests::samples },
    ParserTarget { name: "packed", run: super::unpack, samples: super::packs },
    ParserTarget { name: "proxy_header", run: read_proxy_header, samples: proxy_headers },
    ParserTarget { name: "forwarded", run: find_client, samples: client_lists },
    ParserTarget { name: "tier_record", run: record::fuzz, samples: contents },
    ParserTarget { name: "client_hello", run: read_hello, samples: hellos },
];

/// Runs the parser with this name, and checks its steps.
///
/// # Panics
/// If no parser has this name, if a result violates a property that must hold, or if the input takes too many steps.
pub fn parse(name: &str, bytes: &[u8]) {
    let target = PARSERS.iter().find(|target| target.name == name).expect("the fuzz targets are named as these are");
    target.run_bounded(bytes);
}

impl ParserTarget {
    fn run_bounded(&self, bytes: &[u8]) {
        steps::bounded(bytes.len(), || (self.run)(bytes));
    }
}

/// Returns the output of a future that reads only from memory, so that it never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a reader waits for bytes in memory"),
    }
}

fn read_proxy_header(bytes: &[u8]) {
    let mut rest = bytes;
    let outcome = at_once(proxied::read(&mut rest));
    let header = &bytes[..bytes.len() - rest.len()];
    assert!(header.len() <= 16 + (2 << 10), "more is read than a header can have");
    if outcome.is_ok() {
        let is_whole = header.starts_with(b"\r\n\r\n\0\r\nQUIT\n") || header.ends_with(b"\r\n");
        assert!(is_whole, "a part of a header was taken for one: {}", header.escape_ascii());
    }
}

fn proxy_headers() -> Vec<Vec<u8>> {
    let version_2 = |command: u8, family: u8, addresses: &[u8]| {
        let length = (addresses.len() as u16).to_be_bytes();
        [b"\r\n\r\n\0\r\nQUIT\n", &[0x20 | command, family][..], &length, addresses, b"GET"].concat()
    };
    vec![
        b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET".to_vec(),
        b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\nGET".to_vec(),
        b"PROXY UNKNOWN\r\nGET".to_vec(),
        version_2(1, 0x11, &[192, 0, 2, 7, 198, 51, 100, 1, 0, 80, 1, 187]),
        version_2(1, 0x21, &[7; 36]),
        version_2(0, 0, &[4, 0, 3, 1, 2, 3]),
    ]
}

/// Finds the client in X-Forwarded-For or Forwarded fields made of these bytes. Checks that a client cannot pass for
/// another.
fn find_client(bytes: &[u8]) {
    let [trusted, stranger]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [192, 0, 2, 1].into()];
    let networks = vec!["10.0.0.0/8".parse().expect("a network")];
    for (name, client_field) in [("x-forwarded-for", ClientField::XForwardedFor), ("forwarded", ClientField::Forwarded)]
    {
        let fleet = Fleet { trusted_proxies: networks.clone(), client_field, ..Fleet::default() };
        let mut fields = HeaderMap::new();
        for line in bytes.split(|octet| *octet == b'\n').take(LINES_MAX) {
            if let Ok(value) = HeaderValue::from_bytes(line) {
                fields.append(HeaderName::from_static(name), value);
            }
        }
        assert_eq!(forwarded::client_of(stranger, &fleet, &fields), stranger, "a stranger is believed");
        let _ = forwarded::client_of(trusted, &fleet, &fields);
        let host = HeaderValue::from_static("a.example");
        let request = ForwardedRequest { peer: stranger, scheme: "http", host: &host, is_by_proxy: false };
        match client_field {
            ClientField::XForwardedFor => request.append_x_forwarded(&mut fields),
            ClientField::Forwarded => request.append_forwarded(&mut fields),
        }
        assert_eq!(forwarded::client_of(trusted, &fleet, &fields), stranger, "a client names another");
    }
}

fn client_lists() -> Vec<Vec<u8>> {
    let lists = [
        "192.0.2.1, 10.0.0.2",
        "\u{e4}, 10.0.0.2",
        "2001:db8::1, [2001:db8::2]:80, 10.1.1.1:80\n10.0.0.3",
        "for=192.0.2.60;proto=http;by=10.0.0.1, for=\"[2001:db8::1]:80\"",
        "For=\"_a,b\";host=\"x;y\"\nfor=unknown, for=10.0.0.4",
    ];
    lists.map(|list| list.as_bytes().to_vec()).into()
}

fn contents() -> Vec<Vec<u8>> {
    vec![b"key the head and a body".to_vec(), vec![0; 300], b"LTE1\x03\0\0\0\x08\0\0\0\x05\0\0\0key".to_vec()]
}

fn read_hello(bytes: &[u8]) {
    let mut stream = bytes;
    let mut read = BytesMut::new();
    let _ = at_once(hello::listen(&mut stream, &mut read, None));
    assert!(bytes.starts_with(&read), "bytes that were read are lost or changed");
    assert_eq!(read.len() + stream.len(), bytes.len(), "bytes are read twice or lost");
    assert!(read.len() <= (64 << 10) + (64 << 10), "more is read than a handshake's first message");
}

/// Returns sample first messages of TLS clients: in one record, in records of a few bytes, and one that is not TLS.
fn hellos() -> Vec<Vec<u8>> {
    let message = client_hello("a.example");
    let record = |part: &[u8]| [&[22, 3, 1], &(part.len() as u16).to_be_bytes()[..], part].concat();
    vec![record(&message), message.chunks(20).flat_map(record).collect(), b"GET / HTTP/1.1\r\n\r\n".to_vec()]
}

/// Returns the ClientHello of a client that requests this host (RFC 8446 4.1.2).
fn client_hello(name: &str) -> Vec<u8> {
    let short = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |number: u16, content: &[u8]| [&number.to_be_bytes()[..], &short(content)].concat();
    let extensions = [
        extension(0, &short(&[&[0][..], &short(name.as_bytes())].concat())),
        extension(10, &short(&[0, 29])),
        extension(13, &short(&[4, 3, 8, 4])),
        extension(16, &short(b"\x02h2\x08http/1.1")),
        extension(43, &[2, 3, 4]),
        extension(51, &short(&[&[0, 29][..], &short(&[9; 32])].concat())),
    ];
    let front = [&[3, 3][..], &[7; 32], &[0], &short(&[0x13, 1]), &[1, 0]].concat();
    let content = [front, short(&extensions.concat())].concat();
    [&[1, 0][..], &(content.len() as u16).to_be_bytes(), &content].concat()
}

/// Maximum number of lines of one field, like the limit on heads.
const LINES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use std::{env, fs, path::PathBuf};

    use super::*;
    use crate::fuzzing::{SAMPLES, tests::each_mutated};

    const ROUNDS: usize = 16_000;
    /// Length of a long input in bytes: long enough that a quadratic cost exceeds the limit on steps.
    const LONG: usize = 8 << 10;

    fn corpus(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
    }

    /// Guards against fuzzers that start without valid inputs. With `LARDER_WRITE_CORPUS=1`, missing samples are
    /// written.
    #[test]
    fn corpus_of_every_target_holds_its_samples() {
        let exchanges = ("exchange", SAMPLES.map(<[u8]>::to_vec).to_vec());
        let parsers = PARSERS.map(|target| (target.name, (target.samples)()));
        for (name, samples) in parsers.into_iter().chain([exchanges]) {
            for (number, sample) in samples.into_iter().enumerate() {
                let path = corpus(name).join(format!("sample-{number}"));
                if env::var_os("LARDER_WRITE_CORPUS").is_some() && !path.exists() {
                    fs::create_dir_all(corpus(name)).unwrap();
                    fs::write(&path, &sample).unwrap();
                }
                let known = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                assert!(known == sample, "{}", path.display());
            }
        }
    }

    #[test]
    fn samples_are_what_the_parsers_accept() {
        for sample in proxy_headers() {
            assert!(at_once(proxied::read(&mut &sample[..])).is_ok(), "{}", sample.escape_ascii());
        }
        let name = |bytes: &[u8]| at_once(hello::listen(&mut &bytes[..], &mut BytesMut::new(), None)).unwrap();
        for sample in &hellos()[..2] {
            assert_eq!(name(sample), hello::FirstBytes::Tls { name: Some("a.example".to_owned()) });
        }
    }

    /// Guards against a stranger who stops the proxy by a panic or an endless loop, or who passes for another by a
    /// wrong result.
    #[test]
    fn no_parser_breaks_the_law_on_its_corpus_or_on_mutated_samples() {
        for target in PARSERS {
            for entry in fs::read_dir(corpus(target.name)).unwrap() {
                target.run_bounded(&fs::read(entry.unwrap().path()).unwrap());
            }
            let samples = (target.samples)();
            let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
            each_mutated(&samples, ROUNDS, |bytes| target.run_bounded(bytes));
        }
    }

    /// Guards against a message of a few kilobytes that occupies a worker for seconds.
    #[test]
    fn no_long_repetition_in_a_sample_takes_more_steps_than_its_length_allows() {
        for target in PARSERS {
            for sample in (target.samples)() {
                for (start, len) in (0..sample.len()).flat_map(|start| [1, 3].map(|len| (start, len))) {
                    let (front, rest) = sample.split_at(start);
                    let (part, end) = rest.split_at(len.min(rest.len()));
                    target.run_bounded(&[front, &part.repeat(LONG / part.len()), end].concat());
                }
            }
        }
    }
}
