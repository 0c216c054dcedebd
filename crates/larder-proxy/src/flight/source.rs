//! A stored body as a request reads it: its chunks, and the means to fetch the missing ones.
//!
//! Owns: the reads and fetches that were started before the response. Streaming is in `chunk_reader`, fetching in
//! `rest`.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    asked::RequestHead,
    cache::{
        Cache,
        chunks::{AbsenceReason, ChunkedBody, PlacedBytes},
        entry::CachedEntry,
        patience::ReadPatience,
    },
    flight::{reader::FlightReader, rest::TailFetches},
    marks::ResponseMarkers,
    origin::origins::OriginRouter,
};

/// The settings and shared state that one worker's fetches use.
pub(crate) struct FetchContext {
    pub(crate) cache: Arc<Cache>,
    pub(crate) origins: Arc<OriginRouter>,
    pub(crate) marks: Arc<ResponseMarkers>,
    /// Fetches of what is missing of stored bodies in progress.
    pub(crate) rests: Arc<TailFetches>,
}

/// A stored body as it is read for a request.
pub(crate) struct BodySource {
    pub(crate) chunks: Arc<ChunkedBody>,
    pub(crate) means: Arc<FetchContext>,
    /// The request, by which what is missing can be fetched.
    pub(crate) asked: Arc<RequestHead>,
    begun: Mutex<BegunRead>,
}

/// Bytes or fetches that were started before the response, for the stream that takes them over.
#[derive(Default)]
struct BegunRead {
    bytes: Option<PlacedBytes>,
    rest: Option<(u64, FlightReader)>,
}

impl BodySource {
    /// Returns this body as it is read for a request.
    pub(crate) fn new(means: &Arc<FetchContext>, asked: &Arc<RequestHead>, chunks: Arc<ChunkedBody>) -> Self {
        Self { chunks, means: Arc::clone(means), asked: Arc::clone(asked), begun: Mutex::default() }
    }

    /// Returns the body of a stored response; `None` if it is in one piece.
    pub(crate) fn of(
        means: &Arc<FetchContext>,
        asked: &Arc<RequestHead>,
        key: &Arc<[u8]>,
        entry: &CachedEntry,
    ) -> Option<Self> {
        let chunks = ChunkedBody::of(&means.cache, asked.key.as_ref()?, key, entry)?;
        let chunks =
            if asked.before.digest.is_some() || asked.question.is_some() { chunks.without_rest() } else { chunks };
        Some(Self::new(means, asked, Arc::new(chunks)))
    }

    /// Returns the same body, of which nothing was begun.
    pub(crate) fn twin(&self) -> Self {
        Self::new(&self.means, &self.asked, Arc::clone(&self.chunks))
    }

    /// Leaves bytes for the reader that reaches their position.
    pub(crate) fn set_begun(&self, bytes: PlacedBytes) {
        self.lock().bytes = Some(bytes);
    }

    /// Leaves a fetch of the remainder from `position` on for the reader that gets there.
    pub(crate) fn set_rest(&self, position: u64, reader: FlightReader) {
        self.lock().rest = Some((position, reader));
    }

    /// Takes the fetch of the remainder from `position` on, if one was started.
    pub(crate) fn take_rest(&self, position: u64) -> Option<FlightReader> {
        // A reader that has passed the start of this fetch cannot use it, and the fetch would wait for a reader
        // forever.
        let rest = self.lock().rest.take_if(|(start, _)| *start <= position);
        rest.filter(|(start, _)| *start == position).map(|(_, reader)| reader)
    }

    /// Returns where the fetch of the rest begins that was begun, and that nobody has taken up yet.
    pub(crate) fn rest_start(&self) -> Option<u64> {
        self.lock().rest.as_ref().map(|(start, _)| *start)
    }

    /// Returns bytes of chunk `number`, the first of them at the first of `wanted` that are in it: those that were
    /// read before, or as memory or store has them.
    pub(crate) async fn read(
        self: Arc<Self>,
        number: u64,
        wanted: Range<u64>,
        waiting: ReadPatience,
    ) -> Result<PlacedBytes, AbsenceReason> {
        let span = self.chunks.span(number);
        let within = wanted.start.max(span.start)..wanted.end.min(span.end);
        if let Some(begun) = self.lock().bytes.take_if(|begun| begun.span().contains(&within.start)) {
            return Ok(begun);
        }
        self.chunks.read(number, wanted, waiting).await
    }

    fn lock(&self) -> MutexGuard<'_, BegunRead> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
