//! Carries a response from the origin to the readers of a flight and into the store.
//!
//! Owns: the response's head, and the form in which the response is stored. `carrier` moves the bytes.
//!
//! Invariants: the store gets the head of a complete response only if the body ended as its framing announced. If a
//! body broke off, or every reader left it, its head is stored only as that of an incomplete representation (RFC 9111
//! 3.3). That requires the total length and a strong validator, so that the remainder can be fetched. Chunks without a
//! head are never found.
//!
//! The head of an incomplete representation is stored while the body is still arriving, so that a crash does not lose
//! the bytes received. This process hides the head until the fetch ends (see [`crate::cache::arrivals`]).

use std::{pin::pin, sync::Arc, task::Poll};

use http::StatusCode;
use larder_http::{
    BodyPlace, Ruling,
    framing::{BodyMeter, CompletedBody, EndMark},
};
use larder_store::Store;

use crate::{
    cache::{
        arrivals::Arrival,
        chunks::{BodyKeys, ChunkedBody},
        committed_body::CommittedBody,
        entry::{CHUNK_BYTES, random},
        storing::{self, StoreAdmission, StorePlace},
    },
    digest::{DigestCheck, NamedDigest},
    errors::BodyError,
    flight::{
        carrier::{AskedBy, BodyCarrier, BodyStorage, CarriedPiece},
        continuation::MissingRange,
        fetch::Fetch,
        source::BodySource,
        stage::OpenHead,
    },
    git::AnswerCheck,
    metrics::FileCheck,
    origin::body::OriginBody,
};

/// A response that is being carried to its readers and into the store.
pub(super) struct ResponseCarrier<'a> {
    fetch: &'a Fetch,
    open: &'a OpenHead,
    place: StorePlace,
    carrier: BodyCarrier,
    /// The checks that the body must pass.
    checks: BodyChecks,
    /// Longest body that is stored, in bytes.
    size_max: u64,
    /// Whether a rule demands or forbids finishing the fetch without readers. `None` without such a rule.
    finishes: Option<bool>,
    /// The arriving body, once its head is stored.
    arrival: Option<(Arrival, Arc<ChunkedBody>)>,
}

/// The checks of a body while it passes.
#[derive(Default)]
struct BodyChecks {
    /// The digest that its URL or a listing names. No reader may receive a complete body that does not match it.
    named: Option<DigestCheck>,
    /// The digest that the origin names (RFC 9530 3). A body that does not match it is passed on to its clients, who
    /// can check it themselves, but not stored.
    repr: Option<DigestCheck>,
    /// The completeness of git's packets. An incomplete response is passed on to its client, but not stored.
    git: Option<AnswerCheck>,
}

impl<'a> ResponseCarrier<'a> {
    /// Creates the carrier of a response whose body must have this digest, if one is known.
    pub(super) fn new(fetch: &'a Fetch, open: &'a OpenHead, place: StorePlace, digest: Option<NamedDigest>) -> Self {
        let storage = if open.unstored.is_some() { BodyStorage::Off } else { BodyStorage::Whole };
        let carrier = BodyCarrier::new(fetch.cache(), &fetch.flight, storage, 0);
        let fields = open.head.fields();
        let is_whole = open.head.status() == StatusCode::OK;
        let repr = NamedDigest::of_representation(fields).filter(|_| is_whole);
        let checks = match &fetch.asked.question {
            Some(question) => BodyChecks { git: Some(question.check()), ..BodyChecks::default() },
            None => BodyChecks {
                named: digest.map(|named| named.check()),
                repr: repr.map(|named| named.check()),
                git: None,
            },
        };
        let finishes = Ruling::of(fields).and_then(|ruling| ruling.finishes_abandoned);
        Self { fetch, open, place, carrier, checks, size_max: fetch.size_max(fields), finishes, arrival: None }
    }

    /// Carries the body to its end.
    ///
    /// If the commit needs no waiting, which is usual, readers receive the last bytes only after it. A client that has
    /// received a response then finds it stored.
    pub(super) async fn run(mut self, body: OriginBody) {
        self.carry(body).await;
        if let Some((arrival, chunks)) = self.arrival.take() {
            // The fetch ended, and neither the whole body nor parts of it were kept.
            Box::pin(chunks.forget()).await;
            drop(arrival);
        }
    }

    async fn carry(&mut self, mut body: OriginBody) {
        let flight = Arc::clone(&self.fetch.flight);
        self.choose_storage(self.open.total_len.unwrap_or(0));
        let completed = loop {
            match self.next_piece(&mut body).await {
                CarriedPiece::Data(bytes) => {
                    self.checks.push(&bytes);
                    self.carrier.produced += bytes.len() as u64;
                    // If the length is known, the last bytes are recognized before the end of the message. So a wrong
                    // digest can still break off the response.
                    if let Some(completed) = self.completed() {
                        if self.is_wrong() {
                            return flight.end(Err(BodyError::WrongDigest));
                        }
                        flight.withhold(bytes);
                        break completed;
                    }
                    match self.checks.named {
                        Some(_) => flight.push_unchecked(bytes, self.open.total_len),
                        None => flight.push(bytes),
                    }
                    self.choose_storage(self.carrier.produced);
                    self.carrier.commit_full_chunks().await;
                    // This stores a head for the part that has arrived, so that a crash does not lose it.
                    self.note_arrival().await;
                }
                CarriedPiece::Trailers(trailers) => flight.set_trailers(trailers),
                CarriedPiece::End(_) if self.is_wrong() => return flight.end(Err(BodyError::WrongDigest)),
                CarriedPiece::End(completed) => break completed,
                CarriedPiece::Broken(error) => {
                    if let Some(next) = self.go_on().await {
                        body = next;
                        continue;
                    }
                    flight.end(Err(error));
                    // The readers get the error first: storing the parts may wait for the disk.
                    return Box::pin(self.keep_parts()).await;
                }
                CarriedPiece::Abandoned => {
                    drop(body);
                    Box::pin(self.keep_parts()).await;
                    return flight.end(Err(BodyError::OriginBroke));
                }
            }
        };
        drop(body);
        let unfinished = Arc::clone(&self.fetch.flights.unfinished);
        // The commit is polled once before the end is announced. If it completes at once, as in memory, the next
        // request finds the response stored. If the disk is slow, it must not delay the readers' last bytes. The commit
        // is boxed, because it takes kilobytes that the fetch does not need while the body arrives.
        let mut storing = Box::pin(self.commit_rest(completed));
        let stored = std::future::poll_fn(|context| Poll::Ready(storing.as_mut().poll(context).is_ready())).await;
        // If the commit is not complete, a stop of the proxy waits for it.
        let late = (!stored).then(|| unfinished.begin_late_commit());
        flight.end(Ok(()));
        if !stored {
            storing.await;
        }
        drop(late);
    }

    /// Returns the next piece. Of a body that several responses bring, the announced length of the whole counts.
    async fn next_piece(&mut self, body: &mut OriginBody) -> CarriedPiece {
        let left = self.open.total_len.map_or(u64::MAX, |len| len - self.carrier.produced);
        match self.carrier.next(body, self.is_worth_finishing()).await {
            CarriedPiece::Data(mut bytes) => {
                bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                CarriedPiece::Data(bytes)
            }
            CarriedPiece::End(_) if self.open.total_len.is_some() && left > 0 => {
                CarriedPiece::Broken(BodyError::OriginBroke)
            }
            piece => piece,
        }
    }

    /// Returns the proof that the body is complete, once all announced bytes have arrived.
    fn completed(&self) -> Option<CompletedBody> {
        let mut meter = BodyMeter::of_len(self.open.total_len?);
        meter.take(self.carrier.produced);
        meter.end(EndMark::Length).ok()
    }

    /// Returns the remainder of a body that broke off, if it can be fetched.
    async fn go_on(&mut self) -> Option<OriginBody> {
        let is_worth_finishing = self.is_worth_finishing();
        let source = AskedBy { means: &self.fetch.flights.means, asked: &self.fetch.asked };
        if source.asked.question.is_some() {
            // A range of a response to POST cannot be requested.
            return None;
        }
        let missing = MissingRange::of_open(&source.asked.method, self.open)?;
        // Boxed, because it takes kilobytes that a body which does not break off never needs.
        Box::pin(self.carrier.go_on(source, &missing, is_worth_finishing)).await
    }

    /// Checks the complete body. Returns whether it contradicts the digest in its URL or a listing.
    ///
    /// A body that only contradicts its Repr-Digest, and an incomplete response of git, are no longer stored.
    fn is_wrong(&mut self) -> bool {
        let BodyChecks { named, repr, git } = std::mem::take(&mut self.checks);
        let is_wrong = named.is_some_and(|check| !check.matches());
        let contradicts_itself = repr.is_some_and(|check| !check.matches());
        if contradicts_itself || git.is_some_and(|check| !check.is_whole()) {
            self.carrier.storage = BodyStorage::Off;
        }
        if is_wrong || contradicts_itself {
            self.fetch.cache().metrics.files[FileCheck::Mismatched as usize].add(1);
            let origin = &self.fetch.asked.origin;
            let path = self.fetch.asked.path();
            let named_by = if is_wrong { "its URL or a stored listing" } else { "its Repr-Digest" };
            tracing::warn!(%origin, path, named_by, "a response is not stored: its body does not have the named digest");
        }
        is_wrong
    }

    /// Returns whether a fetch without readers is continued, because it is nearly complete or small.
    fn is_worth_finishing(&self) -> bool {
        if matches!(self.carrier.storage, BodyStorage::Off) {
            return false;
        }
        let produced = self.carrier.produced;
        if let Some(finishes) = self.finishes {
            return finishes;
        }
        match self.open.total_len {
            Some(total) => total.saturating_sub(produced) < SMALL_REST_BYTES || produced >= total / 2,
            None => produced < CHUNK_BYTES,
        }
    }

    /// Switches to storing in chunks, or stops storing, if the body's length requires it.
    fn choose_storage(&mut self, len: u64) {
        let cache = self.fetch.cache();
        let flights = &self.fetch.flights;
        if len > self.size_max {
            self.carrier.storage = BodyStorage::Off;
        }
        if len <= CHUNK_BYTES || !matches!(self.carrier.storage, BodyStorage::Whole) {
            return;
        }
        let len = self.open.total_len.unwrap_or(len);
        // The store admits either all of its chunks or none.
        let is_let_in = |store: &Store| match self.place.admission {
            StoreAdmission::Granted => true,
            StoreAdmission::Refused => false,
            StoreAdmission::Open => cache.shared.pins.name(&self.place.key) || store.admits(&self.place.key, len),
        };
        if !cache.shared.store.as_ref().is_some_and(is_let_in) {
            self.carrier.storage = BodyStorage::Off;
            return;
        }
        let primary = Arc::clone(&self.place.primary);
        let key = Arc::clone(&self.place.key);
        let place = BodyKeys { primary, key, representation: random() };
        let chunks = ChunkedBody::new(cache, place, &self.open.head, self.open.total_len);
        let chunks = Arc::new(if self.checks.are_any() { chunks.without_rest() } else { chunks });
        let source = BodySource::new(&flights.means, &self.fetch.asked, Arc::clone(&chunks));
        self.fetch.flight.set_source(Arc::new(source));
        self.carrier.storage = BodyStorage::Chunks(chunks);
    }

    /// Stores the remainder, which makes the response visible.
    async fn commit_rest(&mut self, completed: CompletedBody) {
        self.carrier.commit_last_chunk().await;
        let produced = self.carrier.produced;
        let (place, body) = match &self.carrier.storage {
            BodyStorage::Off => return self.fetch.forget_unkept().await,
            BodyStorage::Whole => {
                let body = self.fetch.flight.copy_out(0, produced);
                (BodyPlace::Whole { len: produced }, CommittedBody::Whole(completed, body))
            }
            BodyStorage::Chunks(chunks) => {
                let place = BodyPlace::Chunks { len: produced, representation: chunks.place.representation };
                (place, CommittedBody::Chunks(completed))
            }
        };
        // Pinned where it is made: awaited as a value, its kilobytes would be copied once more.
        pin!(self.commit_head(place, body)).await;
        self.arrival = None;
        self.fetch.count_file(&self.open.head);
    }

    /// Stores the head of an incomplete body whose chunks are stored, if its remainder can be requested. The response
    /// that it would replace stays until the whole body has arrived.
    async fn note_arrival(&mut self) {
        if self.arrival.is_some() || self.fetch.before.is_some() || self.carrier.committed == 0 {
            return;
        }
        if !self.fetch.is_in_table() {
            return;
        }
        let BodyStorage::Chunks(chunks) = &self.carrier.storage else { return };
        let is_long = |len: u64| len.saturating_sub(self.carrier.produced) >= CHUNK_BYTES;
        let Some(len) = chunks.len.filter(|&len| chunks.can_go_on() && is_long(len)) else { return };
        let representation = chunks.place.representation;
        let chunks = Arc::clone(chunks);
        let arrival = self.fetch.cache().shared.arrivals.begin(representation);
        self.arrival = Some((arrival, chunks));
        let head = self.open.head.clone().with_body(BodyPlace::Chunks { len, representation });
        let work = &self.fetch.flight.work;
        let storing = Box::pin(storing::commit(self.fetch.cache(), &self.place, &head, CommittedBody::Part, work));
        // The body continues even if the head was not stored in time. A crash would then lose the bytes received.
        let _ = self.carrier.hold_up_for(storing).await;
    }

    /// Keeps the received part of a body that will not be completed, if its remainder can be requested.
    async fn keep_parts(&mut self) {
        let BodyStorage::Chunks(chunks) = &self.carrier.storage else { return };
        let Some(len) = chunks.len.filter(|_| chunks.can_go_on() && self.carrier.committed > 0) else { return };
        // Another fetch may have begun since this one stopped accepting readers. That fetch brings the whole body.
        if !self.fetch.is_in_table() {
            return;
        }
        let place = BodyPlace::Chunks { len, representation: chunks.place.representation };
        self.carrier.keep_fragment().await;
        if matches!(self.carrier.storage, BodyStorage::Chunks(_)) {
            self.commit_head(place, CommittedBody::Part).await;
            self.arrival = None;
        }
    }

    async fn commit_head(&self, place: BodyPlace, body: CommittedBody) {
        let placed = (self.open.head.body() != place).then(|| self.open.head.clone().with_body(place));
        let head = placed.as_ref().unwrap_or(&self.open.head);
        storing::commit(self.fetch.cache(), &self.place, head, body, &self.fetch.flight.work).await;
    }
}

impl BodyChecks {
    fn push(&mut self, bytes: &[u8]) {
        for check in [&mut self.named, &mut self.repr].into_iter().flatten() {
            check.push(bytes);
        }
        if let Some(check) = &mut self.git {
            check.push(bytes);
        }
    }

    fn are_any(&self) -> bool {
        self.named.is_some() || self.repr.is_some() || self.git.is_some()
    }
}

/// A fetch with fewer bytes left is finished even without readers.
const SMALL_REST_BYTES: u64 = 256 << 10;
