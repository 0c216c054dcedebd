//! Packs entries of the store, one after the other, as records.
//!
//! Owns: the selection of entries and of their content. The store is not changed. Invariant: a record is begun only
//! when all of its content is known to be present. Its digests are those of the bytes that follow. Cost: a long body is
//! read twice, once for its digest.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderName, header};
use larder_http::{BodyPlace, StoredHead, Timestamp, UrlPatterns, key::KeyOf, telling};
use larder_store::{Error, ErrorKind, Result, Store};
use ring::digest::{Context, SHA256};

use super::{
    ORIGIN_FIELD,
    warc::{self, END},
};
use crate::ground::{
    cache::{
        Cache,
        chunk_format::{chunk_key, chunk_span, chunks_of, read_chunk},
        entry::random,
        mark::OriginMark,
        pins::wait,
        responses::{self, WalkStep},
    },
    clock,
    digest::hex,
};

/// The entries to pack, and the form of the pack.
pub(crate) struct PackSelection {
    pub(crate) patterns: UrlPatterns,
    /// Only entries that were received or confirmed at or after this time are packed. `None` sets no limit.
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    /// Whether to compress each record with gzip.
    pub(crate) gzip: bool,
}

/// The numbers of entries that were packed and left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PackSummary {
    pub(crate) responses: u64,
    pub(crate) body_bytes: u64,
    pub(crate) left_out: u64,
}

/// The functions that receive a pack and reports about it. Each returns false if the client is gone, which ends the
/// work.
pub(crate) struct PackOutlet<'a> {
    /// Receives the bytes of the file.
    pub(crate) data: &'a dyn Fn(&[u8]) -> bool,
    /// Receives the amount of work that is done, and the total amount.
    pub(crate) progress: &'a dyn Fn(u64, u64) -> bool,
    /// Receives the URL of each response that is left out, and the reason.
    pub(crate) left_out: &'a dyn Fn(&str, &str) -> bool,
}

/// Packs the selected responses. Blocks the thread while it reads the whole store.
///
/// # Errors
/// The store cannot list its keys, or is closed.
pub(crate) fn pack(
    cache: &Cache,
    store: &Store,
    selection: &PackSelection,
    outlet: &PackOutlet<'_>,
) -> Result<PackSummary> {
    let mut packing = Packer { store, selection, outlet, packed: PackSummary::default(), broken_url: None };
    let mut goes_on = packing.begin();
    responses::each(cache, store, &selection.patterns, &mut |met| {
        match met {
            WalkStep::Passed { bytes, of } => goes_on &= (outlet.progress)(bytes, of),
            WalkStep::Response(response) => goes_on &= packing.entry(response),
        }
        goes_on
    })?;
    match packing.broken_url {
        None => Ok(packing.packed),
        Some(url) => {
            let place = format!("part of a body was evicted while it was packed, the file is unusable: {url}");
            Err(Error::new(ErrorKind::Unavailable, place))
        }
    }
}

struct Packer<'a> {
    store: &'a Store,
    selection: &'a PackSelection,
    outlet: &'a PackOutlet<'a>,
    packed: PackSummary,
    /// The URL of a response whose record could not be completed after it was begun.
    broken_url: Option<String>,
}

/// A response that is about to be packed.
struct PackedResponse<'a> {
    url: &'a str,
    key: &'a [u8],
    head: &'a StoredHead,
    /// The status line and the fields of the response, encoded for HTTP/1.1.
    message_head: Vec<u8>,
    /// The body. `None` if it is stored in chunks.
    body: Option<Bytes>,
}

impl Packer<'_> {
    fn begin(&self) -> bool {
        let text = concat!("software: larder/", env!("CARGO_PKG_VERSION"), "\r\nformat: WARC File Format 1.1\r\n");
        let head = warc::WarcHead {
            kind: "warcinfo",
            id: &new_id(),
            date: clock::now(),
            content_type: "application/warc-fields",
            content_bytes: text.len() as u64,
            fields: &[],
        };
        self.record(&head.encode(), &mut |sink| sink.write_all(text.as_bytes())).is_ok()
    }

    /// Packs a stored response if it is selected. Returns false if the client is gone, so that packing must end.
    fn entry(&mut self, response: &responses::Response<'_>) -> bool {
        let responses::Response { url, key, head, reader } = response;
        let is_late = |since: &Timestamp| head.response_time() >= *since;
        if !self.selection.since.as_ref().is_none_or(is_late) || self.selection.until.as_ref().is_some_and(is_late) {
            return true;
        }
        if let Some(why) = why_left_out(head) {
            return self.leave_out(url, why);
        }
        let body = match head.body() {
            BodyPlace::Chunks { .. } => None,
            BodyPlace::Whole { .. } => match wait(reader.read(0..reader.len())) {
                Ok(Some(body)) => Some(body),
                Ok(None) | Err(_) => return self.leave_out(url, "its body cannot be read"),
            },
        };
        let response = PackedResponse { url, key, head, message_head: message_head(head), body };
        self.response(&response)
    }

    fn response(&mut self, response: &PackedResponse<'_>) -> bool {
        let PackedResponse { url, head, message_head, .. } = response;
        let mut block = Context::new(&SHA256);
        let mut payload = Context::new(&SHA256);
        block.update(message_head);
        let hashed = self.each_piece(response, &mut |piece| {
            block.update(piece);
            payload.update(piece);
            Ok(())
        });
        if hashed.is_err() {
            return self.leave_out(url, "part of its body is missing");
        }
        let id = new_id();
        let request_id = new_id();
        let block_digest = label(block);
        let payload_digest = label(payload);
        let request = request_block(url, head);
        let request_head = warc::WarcHead {
            kind: "request",
            id: &request_id,
            date: head.request_time(),
            content_type: "application/http; msgtype=request",
            content_bytes: request.len() as u64,
            fields: &[
                ("WARC-Target-URI", url),
                ("WARC-Concurrent-To", &id),
                ("WARC-Block-Digest", &digest_of(&request)),
            ],
        };
        let mut fields = vec![
            ("WARC-Target-URI", *url),
            ("WARC-Concurrent-To", &*request_id),
            ("WARC-Block-Digest", &*block_digest),
            ("WARC-Payload-Digest", &*payload_digest),
        ];
        let origin = KeyOf::parse(response.key).and_then(|of| OriginMark::of_key(of.primary).name());
        fields.extend(origin.map(|origin| (ORIGIN_FIELD, origin)));
        let response_head = warc::WarcHead {
            kind: "response",
            id: &id,
            date: head.response_time(),
            content_type: "application/http; msgtype=response",
            content_bytes: message_head.len() as u64 + head.body().len(),
            fields: &fields,
        };
        let written = self.record(&request_head.encode(), &mut |sink| sink.write_all(&request)).and_then(|()| {
            self.record(&response_head.encode(), &mut |sink| {
                sink.write_all(message_head)?;
                self.each_piece(response, &mut |piece| sink.write_all(piece))
            })
        });
        if written.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe) {
            self.broken_url = Some((*url).to_owned());
        }
        self.packed.responses += 1;
        self.packed.body_bytes += head.body().len();
        written.is_ok()
    }

    /// Calls `give` with each piece of a response's body.
    fn each_piece(
        &self,
        response: &PackedResponse<'_>,
        give: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (len, representation) = match (&response.body, response.head.body()) {
            (Some(body), _) => return give(body),
            (None, BodyPlace::Chunks { len, representation }) => (len, representation),
            (None, BodyPlace::Whole { .. }) => return Ok(()),
        };
        for number in chunks_of(&(0..len)) {
            let key = chunk_key(response.key, representation, number);
            let span = chunk_span(number, Some(len));
            let chunk = wait(read_chunk(self.store, &key, &span, &span));
            give(&chunk.map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?)?;
        }
        Ok(())
    }

    /// Writes one record, compressed if the operator chose that.
    fn record(&self, head: &[u8], content: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut sink = OutletSink(self.outlet);
        let mut write = |sink: &mut dyn Write| {
            sink.write_all(head)?;
            content(sink)?;
            sink.write_all(END)
        };
        if self.selection.gzip {
            let mut encoder = GzEncoder::new(&mut sink, Compression::default());
            write(&mut encoder).and_then(|()| encoder.finish().map(drop))
        } else {
            write(&mut sink)
        }
    }

    fn leave_out(&mut self, url: &str, why: &str) -> bool {
        self.packed.left_out += 1;
        (self.outlet.left_out)(url, why)
    }
}

/// Writes to an outlet. An error means that the client is gone.
struct OutletSink<'a>(&'a PackOutlet<'a>);

impl Write for OutletSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.0.data)(bytes) { Ok(bytes.len()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns why a response is private and must not be packed. `None` if it may be.
fn why_left_out(head: &StoredHead) -> Option<&'static str> {
    let is_chosen_by =
        |name: &HeaderName| head.selecting().iter().any(|(chosen, value)| chosen == name && value.is_some());
    let names_user = head.selecting().iter().any(|(name, value)| telling::is_identity(name) && value.is_some());
    if names_user || is_chosen_by(&header::COOKIE) || is_chosen_by(&header::AUTHORIZATION) {
        return Some("a client's cookies or credentials selected it");
    }
    let checks = head.ruling().is_some_and(|ruling| ruling.answers_credentials);
    checks.then_some("it answered a request with credentials")
}

/// Returns the status line and fields of a response, as they were received.
fn message_head(head: &StoredHead) -> Vec<u8> {
    let status = head.status();
    let mut text = format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or("")).into_bytes();
    text.extend_from_slice(head.fields().octets());
    if head.age_secs() > 0 {
        push_field(&mut text, "age", head.age_secs().to_string().as_bytes());
    }
    push_field(&mut text, "content-length", head.body().len().to_string().as_bytes());
    text.extend_from_slice(b"\r\n");
    text
}

/// Returns a request that would select the response among the variants of its URL.
fn request_block(url: &str, head: &StoredHead) -> Vec<u8> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut text = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\n").into_bytes();
    for (name, value) in head.selecting().iter() {
        if let Some(value) = value.filter(|_| *name != header::HOST) {
            push_field(&mut text, name.as_str(), value);
        }
    }
    if head.selecting().answered_cookie() {
        // Heuristics depend on whether there was a cookie, but its value is private.
        push_field(&mut text, "cookie", b"withheld");
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn push_field(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

fn digest_of(bytes: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    label(context)
}

fn label(context: Context) -> String {
    format!("sha256:{}", hex(context.finish().as_ref()))
}

/// Returns a unique identifier for a record.
fn new_id() -> String {
    let high = random();
    let low = random();
    let a = high >> 32;
    let b = high >> 16 & 0xffff;
    let c = high & 0xfff;
    format!("<urn:uuid:{a:08x}-{b:04x}-4{c:03x}-{:04x}-{:012x}>", 0x8000 | (low >> 48 & 0x3fff), low & 0xffff_ffff_ffff)
}
