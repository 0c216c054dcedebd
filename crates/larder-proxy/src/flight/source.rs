//! A stored body as a request reads it: its chunks, and the context for fetching the missing ones.
//!
//! Owns: the reads and fetches that were started before the response. `chunk_reader` streams the body, `rest` fetches
//! the remainder.

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
    siblings::Siblings,
};

/// The settings and shared state that one worker's fetches use.
pub(crate) struct FetchContext {
    pub(crate) cache: Arc<Cache>,
    pub(crate) origins: Arc<OriginRouter>,
    pub(crate) marks: Arc<ResponseMarkers>,
    /// The running fetches of missing parts of stored bodies.
    pub(crate) rests: Arc<TailFetches>,
    /// The nodes that are asked before origins.
    pub(crate) siblings: Option<Arc<Siblings>>,
}

/// A stored body as a request reads it.
pub(crate) struct BodySource {
    pub(crate) chunks: Arc<ChunkedBody>,
    pub(crate) means: Arc<FetchContext>,
    /// The request, which is used to fetch missing bytes.
    pub(crate) asked: Arc<RequestHead>,
    begun: Mutex<BegunRead>,
}

/// A read or fetch that was started before the response. The stream takes it over.
#[derive(Default)]
struct BegunRead {
    bytes: Option<PlacedBytes>,
    rest: Option<(u64, FlightReader)>,
}

impl BodySource {
    /// Creates the source of a body for a request.
    pub(crate) fn new(means: &Arc<FetchContext>, asked: &Arc<RequestHead>, chunks: Arc<ChunkedBody>) -> Self {
        Self { chunks, means: Arc::clone(means), asked: Arc::clone(asked), begun: Mutex::default() }
    }

    /// Returns the body of a stored response. `None` if it is not in chunks.
    pub(crate) fn of(
        means: &Arc<FetchContext>,
        asked: &Arc<RequestHead>,
        key: &Arc<[u8]>,
        entry: &CachedEntry,
    ) -> Option<Self> {
        let chunks = ChunkedBody::of(&means.cache, asked.key.as_ref()?, key, entry)?;
        // Other nodes can be asked for the pieces of a divided body while origins cannot.
        let is_cut_off = asked.line.is_down() && !means.divides(asked, &chunks);
        let is_checked = asked.before.digest.is_some() || entry.head.freshness().is_verified;
        let is_alone = is_checked || asked.question.is_some() || is_cut_off;
        let chunks = if is_alone { chunks.without_rest() } else { chunks };
        Some(Self::new(means, asked, Arc::new(chunks)))
    }

    /// Returns the same body without any started read or fetch.
    pub(crate) fn twin(&self) -> Self {
        Self::new(&self.means, &self.asked, Arc::clone(&self.chunks))
    }

    /// Sets bytes that were read before the response, for the reader that reaches their position.
    pub(crate) fn set_begun(&self, bytes: PlacedBytes) {
        self.lock().bytes = Some(bytes);
    }

    /// Sets a fetch of the remainder from `position` on, for the reader that reaches this position.
    pub(crate) fn set_rest(&self, position: u64, reader: FlightReader) {
        self.lock().rest = Some((position, reader));
    }

    /// Takes the fetch of the remainder that serves `position`, if one was started.
    pub(crate) fn take_rest(&self, position: u64) -> Option<FlightReader> {
        // A reader that has passed the start of this fetch cannot use it. If it were not taken here, the fetch would
        // wait for a reader forever.
        let rest = self.lock().rest.take_if(|(start, _)| *start <= position);
        rest.filter(|(start, _)| *start == position).map(|(_, reader)| reader)
    }

    /// Returns the start of the prepared fetch of the remainder, if no reader has taken it yet.
    pub(crate) fn rest_start(&self) -> Option<u64> {
        self.lock().rest.as_ref().map(|(start, _)| *start)
    }

    /// Returns bytes of chunk `number`, starting with the first of `wanted` in it. They were read before, or come from
    /// memory or the store.
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
