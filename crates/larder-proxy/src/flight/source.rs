//! A stored body as a request reads it: its chunks, and the context for fetching the missing ones.
//!
//! Owns: the reads and fetches that were started before the response. `chunk_reader` streams the body, `rest` fetches
//! the remainder.

use larder_device::IgnorePoison;
use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::{
    asked::RequestHead,
    cache::{
        Cache,
        chunks::{ChunkedBody, PlacedBytes},
        entry::CachedEntry,
        patience::ReadPatience,
        shared_reads::AbsenceReason,
    },
    flight::{reader::FlightReader, rest::TailFetches, shared::Flight},
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

/// The reads and fetches that were started before the response. The stream takes them over.
#[derive(Default)]
struct BegunRead {
    bytes: Option<PlacedBytes>,
    rests: Vec<BegunRest>,
}

/// A fetch of missing bytes that was started before the response.
struct BegunRest {
    /// The requested bytes from the fetch's first one on.
    wanted: Range<u64>,
    reader: FlightReader,
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

    /// Adds a fetch of missing bytes, for the reader that reaches the start of `wanted`.
    pub(crate) fn add_rest(&self, wanted: Range<u64>, reader: FlightReader) {
        self.lock().rests.push(BegunRest { wanted, reader });
    }

    /// Returns the first of the fetches that no reader has taken yet.
    pub(super) fn begun_flight(&self) -> Option<Arc<Flight>> {
        self.lock().rests.first().map(|rest| Arc::clone(rest.reader.flight()))
    }

    /// Takes the fetch that brings the bytes from `position` on, if one was started.
    pub(crate) fn take_rest(&self, position: u64) -> Option<FlightReader> {
        let mut begun = self.lock();
        // A reader that has passed the start of a fetch cannot use it. If the fetch were not dropped here, it would
        // wait for a reader.
        begun.rests.retain(|rest| rest.wanted.start == position || !rest.wanted.contains(&position));
        let index = begun.rests.iter().position(|rest| rest.wanted.start == position)?;
        Some(begun.rests.swap_remove(index).reader)
    }

    /// Returns the start of the next fetch in `span` that no reader has taken yet.
    pub(crate) fn next_rest_start(&self, span: &Range<u64>) -> Option<u64> {
        let begun = self.lock();
        let starts = begun.rests.iter().map(|rest| rest.wanted.start);
        starts.filter(|start| span.start < *start && *start < span.end).min()
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
        self.begun.lock().ignore_poison()
    }
}
