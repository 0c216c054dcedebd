//! Stores the body of a PUT as it arrives, and makes it visible when it is complete.
//!
//! Owns: the pieces that are not stored yet, the check of the digest, and the head of the entry. Invariants: the head
//! is committed last, so a body that breaks off, is too long or has a wrong digest leaves nothing that a lookup finds.
//! Of two uploads of one entry the one that ends later stays; their chunks have keys of their own, so they never mix.
//!
//! An upload that `finish` accepted survives a kill of the process.
//!
//! Memory: one chunk. If memory is short, uploads fill their chunks in turn. An upload that does not fill its chunk in
//! its turn is refused. Cost: the hash of each byte below `/cas/`.

use std::{fmt, future::poll_fn, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED},
};
use http_body::Body as _;
use larder_http::{
    BodyPlace, Precondition, ReceivedHead, Ruling, SelectingFields, StoredHead, conditional, date::format_http_date,
    framing::CompletedBody, ruling::IgnoredParts,
};
use tokio::time::timeout_at;

use crate::{
    ground::{
        cache::{
            Cache,
            body_budget::{FillTurn, SHARE_BYTES_MIN},
            chunks::{BodyKeys, ChunkedBody},
            committed_body::CommittedBody,
            entry::{CHUNK_BYTES, random},
            lookup::FoundResponse,
            storing::{self, StoreAdmission, StorePlace},
            work::ResourceWork,
        },
        clock,
        config::SiteLimits,
        digest::{DigestCheck, NamedDigest},
        errors::Failure,
        watch::WorkerDeadlines,
    },
    origins::request_body::{BodyFault, ClientBody, RequestBody},
    road::{admitted::AdmittedRequest, served::ServedResponse},
};

/// The body of a request to a build cache.
pub(super) struct UploadBody(RequestBody);

/// A piece of a body that is being uploaded.
pub(super) enum UploadPiece {
    Bytes(Bytes),
    End(CompletedBody),
}

/// An upload: the body of a PUT, while it arrives.
pub(super) struct Upload {
    cache: Arc<Cache>,
    primary: Arc<[u8]>,
    head: StoredHead,
    work: ResourceWork,
    max_bytes: u64,
    check: Option<DigestCheck>,
    representation: u64,
    /// The part of the body that was stored in chunks. `None` while the body fits in one chunk.
    chunks: Option<ChunkedBody>,
    chunk_count: u64,
    /// Received bytes that are not stored yet.
    pieces: Vec<Bytes>,
    pending_bytes: u64,
    len: u64,
    told_len: Option<u64>,
    turn: Option<FillTurn>,
}

/// Why an upload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadRefusal {
    /// The request has Content-Range, so it contains only a part of the entry.
    Partial,
    TooLong {
        max_bytes: u64,
    },
    WrongDigest,
    /// The entry was removed while its upload was running.
    Removed,
    MemoryShort,
    /// The store accepts no entries now, or the proxy has no store for long bodies.
    NotStored,
}

/// Returns the refusal of a PUT whose preconditions fail (RFC 9110 13.2), or `None` if they hold.
pub(super) fn precondition(fields: &HeaderMap, before: Option<&FoundResponse>) -> Option<ServedResponse> {
    let holds = match before {
        Some(found) => conditional::evaluate(fields, &found.entry.head) == Precondition::Pass,
        None => !fields.contains_key(http::header::IF_MATCH),
    };
    (!holds).then(|| super::failed(StatusCode::PRECONDITION_FAILED, "the precondition of the request does not hold\n"))
}

impl UploadBody {
    pub(super) fn new(limits: &SiteLimits, watches: &Arc<WorkerDeadlines>, body: ClientBody) -> Self {
        Self(RequestBody::of_client(body, None, limits, watches))
    }

    /// Returns whether the whole body was received.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_end_stream()
    }

    /// Reads the remainder of the body and drops it. Returns whether the end was reached.
    pub(super) async fn skip(&mut self) -> bool {
        let mut left = SKIPPED_BYTES_MAX;
        while left > 0 {
            match self.next().await {
                Ok(UploadPiece::Bytes(bytes)) => left = left.saturating_sub(bytes.len() as u64),
                Ok(UploadPiece::End(_)) => return true,
                Err(_) => return false,
            }
        }
        self.is_over()
    }

    /// Waits for the next bytes of the body, or its end.
    async fn next(&mut self) -> Result<UploadPiece, Failure> {
        loop {
            let Some(frame) = poll_fn(|context| Pin::new(&mut self.0).poll_frame(context)).await else {
                return self.0.end().map(UploadPiece::End).map_err(|_| BodyFault::BrokenOff.into());
            };
            // Trailers are not stored.
            if let Ok(bytes) = frame?.into_data() {
                return Ok(UploadPiece::Bytes(bytes));
            }
        }
    }
}

impl Upload {
    /// Begins an upload to the entry with the key `primary`.
    ///
    /// # Errors
    /// The upload is refused before its body is read.
    pub(super) fn begin(by: &AdmittedRequest, primary: &Arc<[u8]>) -> Result<Self, UploadRefusal> {
        let AdmittedRequest { worker, asked } = by;
        let cache = Arc::clone(&worker.cache);
        if asked.fields.contains_key(CONTENT_RANGE) {
            return Err(UploadRefusal::Partial);
        }
        let told_len = asked.fields.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
        let max_bytes = worker.http.entry_bytes_max;
        if told_len.is_some_and(|len| len > max_bytes) {
            return Err(UploadRefusal::TooLong { max_bytes });
        }
        let digest = asked.before.digest.as_ref();
        let work = cache.shared.begin(primary);
        let representation = random();
        let head = head_of(&cache, &asked.fields, digest.is_some(), representation);
        Ok(Self {
            cache,
            primary: Arc::clone(primary),
            head,
            work,
            max_bytes,
            check: digest.map(NamedDigest::check),
            representation,
            chunks: None,
            chunk_count: 0,
            pieces: Vec::new(),
            pending_bytes: 0,
            len: 0,
            told_len,
            turn: None,
        })
    }

    /// Waits for the next piece of the body. While memory is short, waits for this upload's turn to buffer a chunk.
    ///
    /// # Errors
    /// The body does not arrive, or the turn has expired.
    pub(super) async fn next_piece(
        &mut self,
        body: &mut UploadBody,
    ) -> Result<Result<UploadPiece, UploadRefusal>, Failure> {
        let bodies = Arc::clone(&self.cache.shared.bodies);
        while self.turn.is_none() && bodies.is_used_up() && self.pending_bytes > SHARE_BYTES_MIN {
            self.turn = bodies.take_turn().await;
        }
        loop {
            let Some(turn) = &self.turn else { return body.next().await.map(Ok) };
            match timeout_at(turn.end, body.next()).await {
                Ok(next) => return next.map(Ok),
                Err(_) if bodies.is_used_up() => return Ok(Err(UploadRefusal::MemoryShort)),
                Err(_) => self.turn = None,
            }
        }
    }

    /// Adds received bytes, and stores the chunks that they complete.
    ///
    /// # Errors
    /// The body is too long, or cannot be stored.
    pub(super) async fn push(&mut self, bytes: Bytes) -> Result<(), UploadRefusal> {
        self.len += bytes.len() as u64;
        if self.len > self.max_bytes {
            return Err(UploadRefusal::TooLong { max_bytes: self.max_bytes });
        }
        if let Some(check) = &mut self.check {
            check.push(&bytes);
        }
        self.pending_bytes += bytes.len() as u64;
        self.pieces.push(self.cache.shared.bodies.count(bytes));
        // A body of exactly one chunk is stored together with its head. So a full chunk waits until more bytes arrive.
        while self.pending_bytes > CHUNK_BYTES {
            let pieces = self.take_pieces(CHUNK_BYTES);
            self.store_chunk(pieces).await?;
        }
        Ok(())
    }

    /// Makes the entry visible, waits until it survives a kill of the process, and returns its entity tag.
    ///
    /// With `has_origin`, a fetch of the same entry that is in progress does not replace the upload.
    ///
    /// # Errors
    /// The body has a wrong digest, or cannot be stored.
    pub(super) async fn finish(
        mut self,
        completed: CompletedBody,
        has_origin: bool,
    ) -> Result<HeaderValue, UploadRefusal> {
        if self.check.take().is_some_and(|check| !check.matches()) {
            // Chunks that were stored already have no head, so no lookup finds them.
            return Err(UploadRefusal::WrongDigest);
        }
        let len = completed.len();
        let representation = self.representation;
        let (place, body) = if self.chunks.is_some() {
            let pieces = self.take_pieces(self.pending_bytes);
            self.store_chunk(pieces).await?;
            (BodyPlace::Chunks { len, representation }, CommittedBody::Chunks(completed))
        } else {
            (BodyPlace::Whole { len }, CommittedBody::Whole(completed, std::mem::take(&mut self.pieces)))
        };
        let is_current = if has_origin { self.work.outdate_others() } else { self.work.is_current() };
        if !is_current {
            return Err(UploadRefusal::Removed);
        }
        let work = self.work;
        let head = self.head.with_body(place).after_purges(work.purge_count);
        let primary = Arc::clone(&self.primary);
        let key = Arc::clone(&self.primary);
        let place = StorePlace { primary, key, marker: None, group: 0, admission: StoreAdmission::Granted };
        // The status promises that the entry is stored, so all of it must leave this process' memory. One flush covers
        // the earlier chunks too.
        if storing::commit_for_good(&self.cache, &place, &head, body, &work).await {
            return Ok(tag_of(representation));
        }
        Err(if work.is_current() { UploadRefusal::NotStored } else { UploadRefusal::Removed })
    }

    async fn store_chunk(&mut self, pieces: Vec<Bytes>) -> Result<(), UploadRefusal> {
        let chunks = self.chunks.get_or_insert_with(|| {
            let primary = Arc::clone(&self.primary);
            let key = Arc::clone(&self.primary);
            let keys = BodyKeys { primary, key, representation: self.representation };
            ChunkedBody::new(&self.cache, keys, &self.head, self.told_len)
        });
        let number = self.chunk_count;
        self.chunk_count += 1;
        let is_stored = chunks.store_chunk(number, pieces).await;
        self.turn = None;
        is_stored.then_some(()).ok_or(UploadRefusal::NotStored)
    }

    /// Removes the first `len` bytes from the received bytes that are not stored yet.
    fn take_pieces(&mut self, len: u64) -> Vec<Bytes> {
        debug_assert!(len <= self.pending_bytes, "{len} of {} bytes", self.pending_bytes);
        let mut taken = Vec::new();
        let mut left = len;
        let mut rest = Vec::new();
        for mut piece in std::mem::take(&mut self.pieces) {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            left -= count as u64;
            if count > 0 {
                taken.push(piece.split_to(count));
            }
            if !piece.is_empty() {
                rest.push(piece);
            }
        }
        self.pieces = rest;
        self.pending_bytes -= len;
        taken
    }
}

impl UploadRefusal {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Partial | Self::WrongDigest => StatusCode::BAD_REQUEST,
            Self::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Removed => StatusCode::CONFLICT,
            Self::MemoryShort => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotStored => StatusCode::INSUFFICIENT_STORAGE,
        }
    }
}

impl fmt::Display for UploadRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partial => f.write_str("an entry must be sent whole, without Content-Range"),
            Self::TooLong { max_bytes } => {
                write!(f, "the entry is longer than cache.object_size_max, which is {max_bytes} bytes")
            }
            Self::WrongDigest => f.write_str("the content does not have the SHA-256 digest in its path"),
            Self::Removed => f.write_str("the entry was removed while it was sent"),
            Self::MemoryShort => f.write_str("memory is short and the entry arrives slowly, retry in 1 s"),
            Self::NotStored => f.write_str("the store does not accept the entry: it is off, full or does not respond"),
        }
    }
}

/// Creates the head of an entry from the fields that a client sent.
fn head_of(cache: &Cache, sent: &HeaderMap, is_immutable: bool, representation: u64) -> StoredHead {
    let mut fields = HeaderMap::new();
    for name in &KEPT {
        fields.extend(sent.get_all(name).iter().map(|value| (Some(name.clone()), value.clone())));
    }
    fields.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/octet-stream"));
    let now = clock::now();
    fields.insert(LAST_MODIFIED, format_http_date(now));
    fields.insert(ETAG, tag_of(representation));
    // This field is for caches between this proxy and the client. This cache obeys the ruling that is stored with the
    // head.
    let lifetime = if is_immutable { "max-age=31536000, immutable" } else { "no-cache" };
    fields.insert(CACHE_CONTROL, HeaderValue::from_static(lifetime));
    let ignored = IgnoredParts { client_directives: true, cookie: true, ..IgnoredParts::default() };
    Ruling { name: "build cache".to_owned(), immutable: true, ignored, ..Ruling::default() }.put(&mut fields);
    let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
    StoredHead::new(received, BodyPlace::Whole { len: 0 }, SelectingFields::default(), &cache.http.targets)
}

/// Returns the entity tag of an entry. Each upload gets a different one.
fn tag_of(representation: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{representation:016x}\"")).expect("it is hexadecimal digits in quotes")
}

/// The fields that are stored with an entry. The two that begin with x-artifact are Turborepo's.
static KEPT: [HeaderName; 4] = [
    CONTENT_TYPE,
    CONTENT_ENCODING,
    HeaderName::from_static("x-artifact-duration"),
    HeaderName::from_static("x-artifact-tag"),
];
/// Maximum bytes of a refused body that are read, so that a client that sends before it reads can see the response.
const SKIPPED_BYTES_MAX: u64 = 64 << 20;
