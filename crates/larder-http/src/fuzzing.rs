//! Every parser of untrusted input, as a function that accepts any bytes.
//!
//! There is one [`Target`] for each parser: the parser, the properties that hold for every input it accepts, and
//! samples. For every input the number of steps is bounded, too ([`crate::steps`]). The fuzz targets in `fuzz/` call
//! these functions. A test calls them with the corpus and with mutated samples on the stable toolchain. Compiled for
//! tests and fuzzing only.

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use crate::{
    Settings, TargetList, Timestamp, VaryRule,
    cache_control::{RequestDirectives, ResponseDirectives, directives},
    date::{format_http_date, parse_http_date},
    entity_tag::EntityTag,
    facts::Facts,
    fields::check_request,
    key_rules::{KeyRule, KeyRules},
    language,
    partial::{ContentRange, parse_content_range},
    range::{self, RangeOutcome, RangeRequest},
    steps,
};

/// A parser to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the parser and of its fuzz target.
    pub name: &'static str,
    /// Parses any bytes. Panics if the result violates a property that must hold.
    pub run: fn(&[u8]),
    /// Valid inputs from which fuzzing starts.
    pub samples: &'static [&'static str],
}

/// All parsers.
pub const TARGETS: [Target; 8] = [
    Target {
        name: "cache_control",
        run: cache_control,
        samples: &[
            "max-age=60, s-maxage=\"10\", private=\"a, b\"",
            "no-cache,,max-stale",
            "ext=\"\\\"max-age=1\", public",
        ],
    },
    Target {
        name: "vary",
        run: vary,
        samples: &["Accept, *", "Foo\n1, \"2,3\" ,4", "Accept-Language\nde;q=0.5, en", "\nfor=a;host=\"b;c\", proto=d"],
    },
    Target {
        name: "dates",
        run: dates,
        samples: &["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
    },
    Target { name: "ranges", run: ranges, samples: &["bytes=0-9", "bytes=-5, 7-, 3-4", "bytes=18446744073709551615-"] },
    Target { name: "content_range", run: content_range, samples: &["bytes 0-9/10", "bytes */10", "bytes 5-9/*"] },
    Target { name: "targeted", run: targeted, samples: &["max-age=60, foo;x=1, no-cache=?0", "private=(\"a\" b)"] },
    Target { name: "framing", run: framing, samples: &["5\nchunked", "5, 5\n", "\ngzip, chunked"] },
    Target {
        name: "key_rules",
        run: key_rules,
        samples: &["utm_*\n/a?utm_x=1&b", "http://a/b/\n/b/c?d", "sid\n/?sid&&x"],
    },
];

/// Runs the target of this name.
///
/// # Panics
/// If there is no such target, if a parser's result violates a property that must hold, or if the input takes too many
/// steps.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("the fuzz targets are named as these are");
    target.run_bounded(bytes);
}

impl Target {
    fn run_bounded(&self, bytes: &[u8]) {
        steps::bounded(bytes.len(), || (self.run)(bytes));
    }
}

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Creates fields with these bytes as values. Bytes that a field value must not contain are dropped.
fn fields(lines: &[(HeaderName, &[u8])]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, bytes) in lines {
        if let Ok(value) = HeaderValue::from_bytes(bytes) {
            fields.append(name.clone(), value);
        }
    }
    fields
}

/// Splits the bytes at the first line feed.
fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    (&bytes[..at], bytes.get(at + 1..).unwrap_or_default())
}

fn cache_control(bytes: &[u8]) {
    assert!(directives(bytes).count() <= bytes.len(), "a directive has an octet at least");
    let both = fields(&[(header::CACHE_CONTROL, bytes), (header::AGE, bytes)]);
    let response = Facts::of(&both, &TargetList::default());
    let request = RequestDirectives::from_fields(&both);
    assert!(!response.directives.targeted && !request.pragma_no_cache, "nothing came from another field");
    let _ = response.age_secs();
}

fn vary(bytes: &[u8]) {
    let (names, value) = halves(bytes);
    let response = fields(&[(header::VARY, names)]);
    let settings = Settings::default();
    let request = fields(&[
        (HeaderName::from_static("foo"), value),
        (HeaderName::from_static("foo"), names),
        (header::ACCEPT_LANGUAGE, value),
        (header::FORWARDED, value),
    ]);
    let _ = language::preferred(&request);
    if let Some(selecting) = VaryRule::for_exchange(&request, &response).select(&request, &settings) {
        assert!(selecting.matches(&request, &settings), "a request matches what was stored for it");
        assert!(selecting.cover_what_is_told(&request), "what it tells is selecting");
    }
}

fn dates(bytes: &[u8]) {
    if let Some(date) = parse_http_date(bytes, NOW).filter(|date| date.as_secs() >= 0) {
        let written = format_http_date(date);
        assert_eq!(parse_http_date(written.as_bytes(), NOW), Some(date), "what is written is read again");
    }
}

fn ranges(bytes: &[u8]) {
    let requested = range::parse(&fields(&[(header::RANGE, bytes)]));
    for total_len in [0, 1, 10, 1 << 40, u64::MAX] {
        let outcome = match &requested {
            RangeRequest::Absent => continue,
            RangeRequest::Single(range) => range::resolve(*range, total_len),
            RangeRequest::Many(ranges) => range::resolve_many(ranges, total_len),
        };
        match outcome {
            RangeOutcome::Single { first, last } => assert!(first <= last && last < total_len),
            RangeOutcome::Many(spans) => {
                assert!(spans.len() > 1 && spans.iter().all(|span| span.first <= span.last && span.last < total_len));
            }
            RangeOutcome::Whole | RangeOutcome::NotSatisfiable => {}
        }
    }
}

fn content_range(bytes: &[u8]) {
    if let Some(ContentRange::Part { span, total_len }) = parse_content_range(bytes) {
        assert!(span.first <= span.last && total_len.is_none_or(|total_len| span.last < total_len));
    }
    let _ = EntityTag::list(bytes).count();
}

fn targeted(bytes: &[u8]) {
    let name = HeaderName::from_static("cdn-cache-control");
    let both = fields(&[(name, bytes), (header::CACHE_CONTROL, &b"no-store"[..])]);
    let read = ResponseDirectives::from_fields(&both, &TargetList::default());
    assert!(read.targeted || read.no_store, "one of the two fields counts");
}

fn framing(bytes: &[u8]) {
    let (length, encoding) = halves(bytes);
    let both = fields(&[(header::CONTENT_LENGTH, length), (header::TRANSFER_ENCODING, encoding)]);
    if check_request(&both, Version::HTTP_11).is_ok() {
        assert!(both.len() <= 1, "one framing at most is accepted");
    }
}

fn key_rules(bytes: &[u8]) {
    let (rule, target) = halves(bytes);
    let (Ok(rule), Ok(target)) = (std::str::from_utf8(rule), std::str::from_utf8(target)) else { return };
    let urls = ["http://a/b".to_owned(), "http://c".to_owned()];
    let stripping = KeyRule::new(&urls, &[rule.to_owned()], None);
    let standing = KeyRule::new(&[rule.to_owned()], &[], Some("http://mirror/x/"));
    for rule in [stripping, standing].into_iter().flatten() {
        let rules = KeyRules::new(vec![rule]);
        for authority in ["a", "c", "d"] {
            if let Ok(key) = rules.key("http", authority, target) {
                assert!(key.starts_with(b"Phttp://"), "a key stays one of its kind");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::PathBuf};

    use super::*;

    const MUTATIONS: u64 = 20_000;

    /// Returns the next number of a xorshift generator, the same on every machine.
    fn next(state: &mut u64) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 16) as usize
    }

    fn corpus(target: &Target) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name)
    }

    /// Guards against fuzzers that start without valid inputs. With `LARDER_WRITE_CORPUS=1`, missing samples are
    /// written.
    #[test]
    fn corpus_of_every_reader_holds_its_samples() {
        for target in TARGETS {
            for (number, sample) in target.samples.iter().enumerate() {
                let path = corpus(&target).join(format!("sample-{number}"));
                if env::var_os("LARDER_WRITE_CORPUS").is_some() && !path.exists() {
                    fs::create_dir_all(corpus(&target)).unwrap();
                    fs::write(&path, sample).unwrap();
                }
                let known = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                assert!(known == sample.as_bytes(), "{}", path.display());
            }
        }
    }

    /// Length of a long input in bytes: long enough that a quadratic cost exceeds the limit on steps.
    const LONG: usize = 8 << 10;

    /// Guards against a field of a few kilobytes that occupies a worker for seconds.
    #[test]
    fn no_long_repetition_in_a_sample_takes_more_steps_than_its_length_allows() {
        for target in TARGETS {
            for sample in target.samples.iter().map(|sample| sample.as_bytes()) {
                for (start, len) in (0..sample.len()).flat_map(|start| [1, 2, 3, 7].map(|len| (start, len))) {
                    let (front, rest) = sample.split_at(start);
                    let (part, end) = rest.split_at(len.min(rest.len()));
                    target.run_bounded(&[front, &part.repeat(LONG / part.len()), end].concat());
                    target.run_bounded(&[front, &part.repeat(LONG / part.len())].concat());
                }
            }
        }
    }

    /// A panic or an endless loop would let a remote peer stop the proxy.
    #[test]
    fn no_reader_panics_on_its_samples_or_on_mutations_of_them() {
        for (target, seed) in TARGETS.iter().zip(1..) {
            let mut state: u64 = 0x9E37_79B9_7F4A_7C15 ^ seed;
            for entry in fs::read_dir(corpus(target)).unwrap() {
                target.run_bounded(&fs::read(entry.unwrap().path()).unwrap());
            }
            for round in 0..MUTATIONS {
                let mut bytes = target.samples[round as usize % target.samples.len()].as_bytes().to_vec();
                for _ in 0..=next(&mut state) % 4 {
                    let at = next(&mut state) % (bytes.len() + 1);
                    match next(&mut state) % 4 {
                        0 => bytes.insert(at, next(&mut state) as u8),
                        1 => bytes.truncate(at),
                        2 => bytes.extend_from_within(at..),
                        _ if at < bytes.len() => bytes[at] = b",;=\"\\ \t0-/*q9"[next(&mut state) % 13],
                        _ => {}
                    }
                }
                target.run_bounded(&bytes);
            }
        }
    }
}
