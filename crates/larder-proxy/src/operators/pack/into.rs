//! Unpacks records from an untrusted file, and stores them as if they had been fetched at the time that they state.
//!
//! Owns: the checks on a record. A record is trusted no more than an origin: only storable responses are stored, and
//! this proxy's own rules are applied. Invariants: a response is stored only if its length is correct and its body has
//! the digest that its record states. It never replaces a stored response that is at least as new. A date in the future
//! does not make a response newer. Cost: one chunk in memory at a time.

use std::{
    io::{self, BufRead, Read},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use larder_http::{
    BodyPlace, ReceivedHead, SelectingFields, Storability, StoredHead, Timestamp,
    fields::strip_own,
    framing::{BodyMeter, EndMark},
    rules::RuledRequest,
    storable,
};

use super::{
    ORIGIN_FIELD,
    warc::{WarcItem, WarcReader, WarcRecord},
};
use crate::ground::{
    cache::{
        Cache,
        chunks::{BodyKeys, ChunkedBody},
        committed_body::CommittedBody,
        entry::{CHUNK_BYTES, random},
        invalidation,
        lookup::{self, LookupResult},
        mark::OriginMark,
        pins::wait,
        storing::{self, StoreAdmission, StorePlace},
    },
    clock,
    digest::{DigestCheck, NamedDigest},
};

/// The numbers of records that were stored, refused and ignored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnpackSummary {
    pub(crate) stored: u64,
    pub(crate) body_bytes: u64,
    /// Number of records that were not stored because an equally new or newer response is stored already.
    pub(crate) there: u64,
    /// Number of records that were invalid or must not be stored, and of damaged places in the file.
    pub(crate) refused: u64,
    /// Number of records of kinds that are ignored.
    pub(crate) passed: u64,
}

/// The first line and the fields of the HTTP message in a record.
struct RecordMessage {
    first_line: String,
    fields: HeaderMap,
    /// Length of the message's head, in bytes.
    len_bytes: u64,
}

/// The `request` record that precedes the `response` record of the same exchange.
struct RecordRequest {
    url: String,
    /// The identifier of this record, and the identifier of the `response` record that it names.
    ids: [Option<String>; 2],
    fields: HeaderMap,
    time: Option<Timestamp>,
}

/// A response that is about to be stored.
struct RecordResponse {
    place: StorePlace,
    head: StoredHead,
    body_bytes: u64,
    check: DigestCheck,
}

/// Why a record is not stored, in words for the operator.
enum RecordRefusal {
    There,
    Because(String),
}

impl From<&str> for RecordRefusal {
    fn from(why: &str) -> Self {
        Self::Because(why.to_owned())
    }
}

/// Stores the responses that a pack file contains. Blocks the thread.
///
/// Calls `tell` with the URL of each record that is not stored and the reason. Stops when `tell` returns `false`.
///
/// # Errors
/// The file cannot be read to its end. Responses that were stored before the error remain.
pub(crate) fn unpack(
    cache: &Arc<Cache>,
    source: impl BufRead,
    tell: &mut dyn FnMut(&str, &str) -> bool,
) -> (UnpackSummary, io::Result<()>) {
    let mut unpacking = Unpacker { cache, request: None, unpacked: UnpackSummary::default() };
    let outcome = unpacking.run(&mut WarcReader::new(source), tell);
    (unpacking.unpacked, outcome)
}

struct Unpacker<'a> {
    cache: &'a Arc<Cache>,
    /// The last `request` record that was read.
    request: Option<RecordRequest>,
    unpacked: UnpackSummary,
}

impl Unpacker<'_> {
    fn run<R: BufRead>(
        &mut self,
        reader: &mut WarcReader<R>,
        tell: &mut dyn FnMut(&str, &str) -> bool,
    ) -> io::Result<()> {
        loop {
            let record = match reader.next()? {
                WarcItem::End => return Ok(()),
                WarcItem::Record(record) => record,
                WarcItem::Damage(what) => {
                    self.unpacked.refused += 1;
                    if !tell("", &what) {
                        return Ok(());
                    }
                    continue;
                }
            };
            let mut content = reader.content(record.content_bytes);
            let outcome = match record.field("WARC-Type") {
                Some("response") => self.response(&record, &mut content),
                Some("request") => Ok(self.request(&record, &mut content)),
                _ => Ok(Ok(0)),
            };
            let url = record.url().unwrap_or_default();
            let goes_on = match outcome? {
                Ok(0) if record.field("WARC-Type") != Some("response") => {
                    self.unpacked.passed += 1;
                    true
                }
                Ok(bytes) => {
                    self.unpacked.stored += 1;
                    self.unpacked.body_bytes += bytes;
                    true
                }
                Err(RecordRefusal::There) => {
                    self.unpacked.there += 1;
                    true
                }
                Err(RecordRefusal::Because(why)) => {
                    self.unpacked.refused += 1;
                    tell(url, &why)
                }
            };
            let left = content.limit();
            if io::copy(&mut content, &mut io::sink())? < left {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Keeps a `request` record until the `response` record that follows it is read.
    fn request(&mut self, record: &WarcRecord, content: &mut impl Read) -> Result<u64, RecordRefusal> {
        self.request = None;
        let message = read_message(content).map_err(|_| "its request is malformed")?;
        let ids = ["WARC-Record-ID", "WARC-Concurrent-To"].map(|name| record.field(name).map(str::to_owned));
        let url = record.url().unwrap_or_default().to_owned();
        if message.first_line.starts_with("GET ") {
            self.request = Some(RecordRequest { url, ids, fields: message.fields, time: record.date() });
        }
        Ok(0)
    }

    /// Stores the response of a record. Returns the length of its body.
    fn response(
        &mut self,
        record: &WarcRecord,
        content: &mut io::Take<impl Read>,
    ) -> io::Result<Result<u64, RecordRefusal>> {
        let message = match read_message(content) {
            Ok(message) => message,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Ok(Err("it contains no response".into()));
            }
            Err(error) => return Err(error),
        };
        let body_bytes = record.content_bytes - message.len_bytes;
        match self.prepare(record, message, body_bytes) {
            Ok(response) => self.store(response, content),
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Checks a record, and decides under which key to store its response, before the body is read.
    fn prepare(
        &self,
        record: &WarcRecord,
        message: RecordMessage,
        body_bytes: u64,
    ) -> Result<RecordResponse, RecordRefusal> {
        let uri: Uri = record.url().and_then(|url| url.parse().ok()).ok_or("it names no URL")?;
        let response_time = record.date().ok_or("it has no date of receipt")?;
        if response_time.millis_since(clock::now()) > FUTURE_MILLIS_MAX {
            return Err("it was received in the future; one of the two clocks is wrong".into());
        }
        let digest = record.field("WARC-Payload-Digest").and_then(NamedDigest::of_label);
        let check = digest.ok_or("it has no digest that can be compared")?.check();
        let status = status_of(&message.first_line).ok_or("it contains no response")?;
        let mut fields = message.fields;
        if fields.contains_key(header::TRANSFER_ENCODING) {
            return Err("its body is still in a transfer coding".into());
        }
        let told_len = fields.get(header::CONTENT_LENGTH).map(|len| len.to_str().ok()?.parse::<u64>().ok());
        if told_len.is_some_and(|len| len != Some(body_bytes)) {
            return Err("its body has another length than stated".into());
        }
        if body_bytes > self.cache.shared.entry_bytes_max {
            return Err("its body is longer than cache.object_size_max".into());
        }
        let request = self.request.as_ref().filter(|request| belong_together(request, record));
        let request_fields = request.map(|request| request.fields.clone()).unwrap_or_default();
        if request.is_none() && fields.contains_key(header::VARY) {
            return Err("it varies, and no request precedes it".into());
        }
        self.put_ruling(&uri, &request_fields, status, &mut fields);
        let request_time = request.and_then(|request| request.time).filter(|time| *time <= response_time);
        let received =
            ReceivedHead { status, fields, request_time: request_time.unwrap_or(response_time), response_time };
        let primary = self.primary(&uri, record.field(ORIGIN_FIELD))?;
        let (place, selecting) = self.place(&primary, &request_fields, &received)?;
        let head = StoredHead::new(received, BodyPlace::Whole { len: body_bytes }, selecting, &self.cache.http.targets);
        Ok(RecordResponse { place, head, body_bytes, check })
    }

    /// Adds the overrides of this proxy's rules to the fields of a response.
    fn put_ruling(&self, uri: &Uri, request_fields: &HeaderMap, status: StatusCode, fields: &mut HeaderMap) {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let scheme = uri.scheme_str().unwrap_or("http");
        let request = RuledRequest { method: &Method::GET, scheme, authority, path, fields: request_fields };
        if let Some(ruling) = self.cache.shared.rules.find(&request, status, fields) {
            ruling.put(fields);
        }
    }

    /// Returns the primary key of a response. `origin` is the name of the origin in the record, if it has one.
    fn primary(&self, uri: &Uri, origin: Option<&str>) -> Result<Arc<[u8]>, RecordRefusal> {
        let primaries =
            invalidation::primaries_of(self.cache, uri).ok_or("its URL does not begin with http:// or https://")?;
        let is_it = |primary: &Vec<u8>| origin.is_none_or(|origin| OriginMark::of_key(primary).name() == Some(origin));
        match (primaries.into_iter().find(is_it), origin) {
            (Some(primary), _) => Ok(primary.into()),
            (None, Some(origin)) => Err(RecordRefusal::Because(format!(
                "it came from the origin {origin}, which is not this proxy's origin for its URL"
            ))),
            (None, None) => Err("its URL does not begin with http:// or https://".into()),
        }
    }

    /// Returns the key under which to store a response, or the reason why it is not stored.
    ///
    /// A response is not stored if the caching rules forbid it, or if an equally new or newer response is stored
    /// already.
    fn place(
        &self,
        primary: &Arc<[u8]>,
        request_fields: &HeaderMap,
        received: &ReceivedHead,
    ) -> Result<(StorePlace, SelectingFields), RecordRefusal> {
        let cache = self.cache;
        let settings = &cache.http;
        let exchange = storable::Exchange {
            method: &Method::GET,
            request_fields,
            status: received.status,
            response_fields: &received.fields,
            request_time: received.request_time,
            response_time: received.response_time,
        };
        let rule = match storable::decide(&exchange, settings) {
            Storability::Store { rule, .. } => rule,
            Storability::Refuse { reason } => {
                return Err(RecordRefusal::Because(format!("it may not be stored ({})", reason.token())));
            }
        };
        let found = wait(lookup::find(cache, primary, request_fields));
        let marker = match found {
            LookupResult::Found(found) if found.entry.head.response_time() >= received.response_time => {
                return Err(RecordRefusal::There);
            }
            LookupResult::Found(found) => found.marker,
            LookupResult::OtherVariants(marker) => Some(marker),
            LookupResult::Nothing => None,
        };
        let place = StorePlace::new(primary, &rule, request_fields, marker.as_ref(), settings);
        let (place, selecting) =
            place.zip(rule.select(request_fields, settings)).ok_or("no request could select it")?;
        let place = place.in_language_of(&received.fields, request_fields);
        Ok((StorePlace { admission: StoreAdmission::Granted, ..place }, selecting))
    }

    /// Stores a response, whose body is read from `content`. Returns the length of the body.
    fn store(&self, response: RecordResponse, content: &mut impl Read) -> io::Result<Result<u64, RecordRefusal>> {
        let RecordResponse { place, head, body_bytes, mut check } = response;
        let cache = self.cache;
        let work = cache.shared.begin(&place.primary);
        let mut left = body_bytes;
        let mut pieces = Vec::new();
        let representation = random();
        let keys = BodyKeys { primary: Arc::clone(&place.primary), key: Arc::clone(&place.key), representation };
        let chunks = (body_bytes > CHUNK_BYTES).then(|| ChunkedBody::new(cache, keys, &head, Some(body_bytes)));
        let mut number = 0;
        let mut meter = BodyMeter::of_len(body_bytes);
        while left > 0 {
            let mut piece = vec![0; left.min(CHUNK_BYTES) as usize];
            content.read_exact(&mut piece)?;
            check.push(&piece);
            left -= piece.len() as u64;
            meter.take(piece.len() as u64);
            pieces.push(Bytes::from(piece));
            if let Some(chunks) = &chunks {
                if !wait(chunks.store_chunk(number, std::mem::take(&mut pieces))) {
                    return Ok(Err("the store accepts nothing now".into()));
                }
                number += 1;
            }
        }
        if !check.matches() {
            // Chunks that were stored already have no head, so no lookup finds them.
            return Ok(Err("its body does not match the stated digest".into()));
        }
        let completed = meter.end(EndMark::Length).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let (head, body) = match chunks {
            Some(_) => {
                let place = BodyPlace::Chunks { len: body_bytes, representation };
                (head.with_body(place), CommittedBody::Chunks(completed))
            }
            None => (head, CommittedBody::Whole(completed, pieces)),
        };
        let head = head.after_purges(work.purge_count);
        match wait(storing::commit(cache, &place, &head, body, &work)) {
            true => Ok(Ok(body_bytes)),
            false => Ok(Err("the store accepts nothing now".into())),
        }
    }
}

/// Returns whether a request record and a response record describe the same exchange.
fn belong_together(request: &RecordRequest, response: &WarcRecord) -> bool {
    let id = response.field("WARC-Record-ID");
    let of = response.field("WARC-Concurrent-To");
    let [request_id, request_of] = &request.ids;
    let is_named = (of.is_some() && of == request_id.as_deref()) || (id.is_some() && id == request_of.as_deref());
    is_named && Some(&*request.url) == response.url()
}

fn status_of(line: &str) -> Option<StatusCode> {
    let rest = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?;
    rest.split(' ').next()?.parse().ok()
}

/// Reads the first line and the fields of an HTTP message.
///
/// # Errors
/// `InvalidData` if the message is malformed.
fn read_message(content: &mut impl Read) -> io::Result<RecordMessage> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MESSAGE_HEAD_BYTES_MAX || content.read(&mut octet)? == 0 {
            return Err(invalid());
        }
        head.push(octet[0]);
    }
    let mut lines =
        head[..head.len() - 4].split(|octet| *octet == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first_line = String::from_utf8(lines.next().unwrap_or_default().to_vec()).map_err(|_| invalid())?;
    let mut fields = HeaderMap::new();
    for line in lines {
        let colon = line.iter().position(|octet| *octet == b':').ok_or_else(invalid)?;
        let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| invalid())?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).map_err(|_| invalid())?;
        fields.try_append(name, value).map_err(|_| invalid())?;
    }
    strip_own(&mut fields);
    Ok(RecordMessage { first_line, fields, len_bytes: head.len() as u64 })
}

/// Maximum time by which a record's date may be ahead of this machine's clock, in milliseconds.
const FUTURE_MILLIS_MAX: i64 = 5 * 60 * 1000;
const MESSAGE_HEAD_BYTES_MAX: usize = 128 << 10;
