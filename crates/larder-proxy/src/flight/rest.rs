//! Fetches the remainder of a stored body from the origin: one fetch per gap, shared by all readers there.
//!
//! Owns: the fetches in progress, by representation. `presence` and `chunk_reader` decide when the origin is contacted.
//! `continuation` decides whether its response continues the stored body.
//!
//! Invariants: the received bytes are stored as whole chunks, and an incomplete chunk as its fragment. If two fetches
//! would bring the same last bytes, the fetch of the earlier range ends where the other one starts, once the origin has
//! confirmed that one: a response may rely on the bytes that a confirmed fetch will bring. Cost: one request; memory: a
//! flight's window.

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use http::StatusCode;

use crate::{
    cache::{chunks::ChunkedBody, entry::CHUNK_BYTES},
    errors::{BodyError, Failure},
    flight::{
        carrier::{AskedBy, BodyCarrier, BodyStorage, CarriedPiece},
        continuation::{ContinuationAnswer, MissingRange},
        copying,
        reader::FlightReader,
        shared::Flight,
        source::BodySource,
        stage::{ContinuedBody, FetchStage},
    },
    origin::body::OriginBody,
};

/// The fetches in progress, by representation.
#[derive(Default)]
pub(crate) struct TailFetches {
    bodies: Mutex<HashMap<u64, Vec<Arc<Flight>>>>,
}

/// A fetch of missing bytes.
struct TailFetch {
    /// The body, from which nothing else is being read.
    source: Arc<BodySource>,
    flight: Arc<Flight>,
    /// Position of the first byte to request.
    start: u64,
    /// The stored end of the last chunk, which reaches the end of the body.
    last: Option<Bytes>,
    /// Position after the last byte to request.
    end: u64,
}

/// A part of a body whose head has arrived, and which is longer than a chunk.
pub(super) struct LongPart {
    pub(super) span: Range<u64>,
    pub(super) body: OriginBody,
    /// Whether the whole chunks are stored.
    pub(super) is_stored: bool,
}

/// Returns a reader of a new fetch that brings a part of `source`. Nothing else is being fetched of this body.
pub(super) fn board_part(source: &Arc<BodySource>, part: LongPart) -> FlightReader {
    let LongPart { span, body, is_stored } = part;
    let rests = &source.means.rests;
    let begin = |_| {
        let work = source.chunks.cache.shared.begin(&source.chunks.place.primary);
        Arc::new(Flight::continuing(work, Arc::clone(source), span.clone()))
    };
    let (reader, _) = rests.join_or_begin(source.chunks.place.representation, span.start, span.clone(), begin);
    let source = Arc::clone(source);
    let flight = Arc::clone(reader.flight());
    flight.set_stage(FetchStage::Continued(ContinuedBody { status: StatusCode::PARTIAL_CONTENT, is_stored }));
    let rest = TailFetch { source, flight, start: span.start, last: None, end: span.end };
    tokio::spawn(rest.run_from(body, is_stored));
    reader
}

/// Returns the end of the gap that begins at `start`.
///
/// The gap ends at the next chunk that seems to be stored, or at the end of the chunk that contains `wanted_end`. So
/// whole chunks arrive and can be stored.
pub(crate) fn gap_end(body: &ChunkedBody, start: u64, wanted_end: u64) -> u64 {
    let mut number = start / CHUNK_BYTES + 1;
    while number * CHUNK_BYTES < wanted_end && !body.seems_there(number) {
        number += 1;
    }
    body.span(number - 1).end
}

/// Returns a reader of the remainder of `source` from `position` on. It reads a running fetch, or a new one up to
/// `end`.
pub(crate) async fn board(source: &Arc<BodySource>, position: u64, end: u64) -> FlightReader {
    let rests = &source.means.rests;
    let body = &source.chunks;
    if let Some(reader) = rests.join(body.place.representation, position) {
        return reader;
    }
    // The fetch starts and ends at chunk boundaries, so that whole chunks can be stored. Fetching the bytes before
    // `position` costs less than losing the chunk again.
    let first = position / CHUNK_BYTES;
    // Each piece of a divided body is requested from its own owner.
    let end = source.piece_end(position).map_or(end, |piece_end| piece_end.min(end));
    let chunk = body.span(first);
    let end = end.max(position + 1);
    let last = end.div_ceil(CHUNK_BYTES) - 1;
    let end = body.span(last).end;
    let mut fragment = body.read_fragment(first).await;
    // Only two fragments save bytes: one at the start of the first chunk, and one at the end of the last chunk. Others
    // lie inside the range.
    let before = fragment.take_if(|fragment| fragment.start == chunk.start && fragment.span().end < end);
    if last != first {
        fragment = body.read_fragment(last).await;
    }
    let after = fragment.filter(|fragment| fragment.span().end == end && fragment.start > body.span(last).start);
    let twin = Arc::new(source.twin());
    let begin = |end| {
        let work = body.cache.shared.begin(&body.place.primary);
        Arc::new(Flight::continuing(work, Arc::clone(&twin), chunk.start..end))
    };
    // Another task may have begun the same fetch while the fragments were being read. So the table decides again, under
    // its lock.
    let (reader, begun_end) = rests.join_or_begin(body.place.representation, position, chunk.start..end, begin);
    if let Some(begun_end) = begun_end {
        let flight = Arc::clone(reader.flight());
        let start = before.map_or(chunk.start, |before| {
            let start = before.span().end;
            flight.push(before.bytes);
            start
        });
        // If another fetch begins within the range, this one ends there, and the fragment at the original end does not
        // belong to it.
        let last = after.filter(|after| begun_end == end && after.start >= start);
        let end = last.as_ref().map_or(begun_end, |last| last.start);
        tokio::spawn(TailFetch { source: twin, flight, start, last: last.map(|last| last.bytes), end }.run());
    }
    reader
}

impl TailFetches {
    /// Returns a reader of the fetch that has, or will soon have, the byte at `position`.
    fn join(&self, representation: u64, position: u64) -> Option<FlightReader> {
        join(self.lock().get(&representation)?, position)
    }

    /// Joins a fetch like [`Self::join`], or begins a fetch of `span` with `begin`. Returns the end of the new fetch,
    /// which may be earlier than requested.
    fn join_or_begin(
        &self,
        representation: u64,
        position: u64,
        span: Range<u64>,
        begin: impl FnOnce(u64) -> Arc<Flight>,
    ) -> (FlightReader, Option<u64>) {
        let mut bodies = self.lock();
        let flights = bodies.entry(representation).or_default();
        if let Some(reader) = join(flights, position) {
            return (reader, None);
        }
        // The first bytes of a part may belong to a chunk that its fetch does not store.
        let starts = flights.iter().map(|flight| flight.start().next_multiple_of(CHUNK_BYTES));
        let end = starts.filter(|start| *start > span.start).min();
        let end = end.map_or(span.end, |start| start.min(span.end));
        let flight = begin(end);
        flights.push(Arc::clone(&flight));
        (FlightReader::join_at(&flight, position).expect("a new flight takes readers"), Some(end))
    }

    /// Ends the other fetches whose remaining bytes are in `span`, which a confirmed fetch will bring.
    fn end_others(&self, representation: u64, span: &Range<u64>) {
        if let Some(flights) = self.lock().get(&representation) {
            for flight in flights {
                flight.end_before(span);
            }
        }
    }

    fn remove(&self, representation: u64, flight: &Arc<Flight>) {
        let mut bodies = self.lock();
        if let Some(flights) = bodies.get_mut(&representation) {
            flights.retain(|known| !Arc::ptr_eq(known, flight));
            if flights.is_empty() {
                bodies.remove(&representation);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Arc<Flight>>>> {
        self.bodies.lock().ignore_poison()
    }
}

fn join(flights: &[Arc<Flight>], position: u64) -> Option<FlightReader> {
    flights.iter().find_map(|flight| FlightReader::join_at(flight, position))
}

impl TailFetch {
    async fn run(self) {
        // Dropping the guard wakes all readers, however the fetch ends.
        let landing = TailLandingGuard(self);
        let rest = &landing.0;
        let Some(missing) = rest.missing() else {
            let why = "the remainder of a body without a validator cannot be requested".to_owned();
            return rest.flight.set_stage(FetchStage::Failed(Failure::Broken { host: rest.host(), why }));
        };
        let BodySource { means, asked, .. } = &*rest.source;
        match means.ask_rest(asked, &missing, rest.start).await {
            ContinuationAnswer::Continued { status, body, skip } => {
                let span = rest.flight.start()..rest.flight.limit();
                means.rests.end_others(rest.source.chunks.place.representation, &span);
                let is_stored = !body.is_from_sibling || rest.is_kept_copy();
                rest.flight.set_stage(FetchStage::Continued(ContinuedBody { status, is_stored }));
                rest.carry(&missing, (body, skip), is_stored).await;
            }
            ContinuationAnswer::Changed => {
                rest.source.chunks.forget().await;
                rest.flight.set_stage(FetchStage::Changed);
            }
            ContinuationAnswer::Unclear(status) => {
                let why = format!("its response does not confirm the stored body: {status}");
                rest.flight.set_stage(FetchStage::Failed(Failure::Broken { host: rest.host(), why }));
            }
            ContinuationAnswer::Failed(failure) => rest.flight.set_stage(FetchStage::Failed(failure)),
        }
    }

    /// As [`Self::run`], with a response that has arrived.
    async fn run_from(self, body: OriginBody, is_stored: bool) {
        let landing = TailLandingGuard(self);
        let rest = &landing.0;
        if let Some(missing) = rest.missing() {
            rest.carry(&missing, (body, 0), is_stored).await;
        }
    }

    /// Returns the missing range, if it can be requested from the origin.
    fn missing(&self) -> Option<MissingRange<'_>> {
        let chunks = &self.source.chunks;
        let validator = chunks.validator.as_ref()?;
        let len = chunks.len?;
        Some(MissingRange { validator, len, end: self.end, is_divisible: chunks.is_divisible })
    }

    /// Returns whether the bytes are stored although another node stores them too.
    fn is_kept_copy(&self) -> bool {
        let chunks = &self.source.chunks;
        copying::admits_part(&chunks.cache, &chunks.place.primary, self.end - self.start)
    }

    /// Passes the received bytes to the readers and, with `is_stored`, to the store.
    ///
    /// Readers receive the last bytes only once they are stored, so that a client that has received a whole response
    /// finds all of it in the store.
    async fn carry(&self, missing: &MissingRange<'_>, (mut body, skip): (OriginBody, u64), is_stored: bool) {
        let chunks = || BodyStorage::Chunks(Arc::clone(&self.source.chunks));
        let storage = if is_stored { chunks() } else { BodyStorage::Off };
        let mut carrier = BodyCarrier::new(&self.source.means.cache, &self.flight, storage, self.flight.start());
        (carrier.produced, carrier.skip) = (self.start, skip);
        let source = AskedBy { means: &self.source.means, asked: &self.source.asked };
        loop {
            // The limit shrinks if a later fetch begins within the range, so that two fetches never write the same
            // chunk.
            let end = self.end.min(self.flight.limit());
            if carrier.produced >= end {
                break;
            }
            // The current chunk is completed even without readers. Otherwise it would be fetched again, starting from
            // its fragment.
            let worth = carrier.skip == 0 && end - carrier.produced < CHUNK_BYTES;
            match carrier.next(&mut body, worth).await {
                CarriedPiece::Data(mut bytes) => {
                    bytes.truncate(usize::try_from(end - carrier.produced).unwrap_or(usize::MAX));
                    carrier.produced += bytes.len() as u64;
                    if carrier.produced == end {
                        // A client with the last byte may send its next request at once. So that byte is withheld until
                        // the commit, and the request finds the whole body stored.
                        self.flight.withhold(bytes);
                        break;
                    }
                    if !bytes.is_empty() {
                        self.flight.push(bytes);
                        carrier.commit_full_chunks().await;
                    }
                }
                CarriedPiece::Trailers(_) => {}
                CarriedPiece::Broken(_) if let Some(next) = carrier.go_on(source, missing, worth).await => {
                    body = next;
                }
                CarriedPiece::End(_) | CarriedPiece::Broken(_) => {
                    self.flight.end(Err(BodyError::OriginBroke));
                    return carrier.keep_fragment().await;
                }
                CarriedPiece::Abandoned => {
                    drop(body);
                    return carrier.keep_fragment().await;
                }
            }
        }
        drop(body);
        // The stored end of the last chunk was not requested. It is usable only if everything before it has arrived.
        if let Some(last) = self.last.clone().filter(|_| carrier.produced == self.end) {
            carrier.produced += last.len() as u64;
            self.flight.withhold(last);
        }
        // A part may end within a chunk. Stored as a chunk, its last bytes would never match the chunk's length.
        if carrier.produced.is_multiple_of(CHUNK_BYTES) || carrier.produced == missing.len {
            carrier.commit_last_chunk().await;
        } else {
            carrier.keep_fragment().await;
        }
        self.flight.end(Ok(()));
    }

    fn host(&self) -> String {
        self.source.asked.origin.to_string()
    }
}

/// Ensures that a fetch leaves the table and wakes its readers, however it ends.
struct TailLandingGuard(TailFetch);

impl Drop for TailLandingGuard {
    fn drop(&mut self) {
        let rest = &self.0;
        rest.flight.abandon_if_unfinished(&rest.source.asked.origin);
        rest.source.means.rests.remove(rest.source.chunks.place.representation, &rest.flight);
    }
}
