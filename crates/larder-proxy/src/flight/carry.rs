//! A body on its way from the origin to the readers of a flight and into the store.
//!
//! Owns: how much has arrived, how much is stored, and in which form. Invariants: only a body that ended as
//! its framing announced gets a head in the store; chunks without a head are never found. Memory: up to
//! one chunk that is not stored yet, and what `shared` keeps.

use std::{sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use larder_http::{BodyPlace, key};

use crate::{
    cache::{
        chunks::{CHUNK_BYTES, ChunkedBody, strong_tag},
        entry::random,
        storing::{self, Place},
    },
    client::response_body::BodyError,
    flight::{
        fetch::Fetch,
        shared::{OpenHead, Pace},
    },
    origin::body::OriginBody,
};

/// A body on its way from the origin to readers and store.
pub(super) struct Carrying<'a> {
    fetch: &'a Fetch,
    open: &'a OpenHead,
    place: Place,
    produced: u64,
    committed: u64,
    storage: Storage,
}

/// How the body is being stored.
enum Storage {
    /// In one piece, at the end.
    Whole,
    /// In chunks, each as it fills.
    Chunks(Arc<ChunkedBody>),
    /// Not.
    Off,
}

/// What came next.
enum Next {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    Broken(BodyError),
    /// The readers are to come further first.
    Held,
    /// Nobody reads it, and it is not worth finishing.
    Abandoned,
}

impl<'a> Carrying<'a> {
    pub(super) fn new(fetch: &'a Fetch, open: &'a OpenHead, place: Place) -> Self {
        Self { fetch, open, place, produced: 0, committed: 0, storage: Storage::Whole }
    }

    /// Carries the body to its end. The last bytes are handed out once the response is stored, if that takes
    /// no waiting, as it usually does not: so who has had a response finds it stored.
    pub(super) async fn run(mut self, mut body: OriginBody) {
        let flight = Arc::clone(&self.fetch.flight);
        self.choose_storage(self.open.total_len.unwrap_or(0));
        loop {
            match self.next(&mut body).await {
                Next::Data(bytes) => {
                    self.produced += bytes.len() as u64;
                    if self.open.total_len == Some(self.produced) {
                        flight.withhold(bytes);
                        break;
                    }
                    flight.push(bytes);
                    self.choose_storage(self.produced);
                    self.commit_full_chunks().await;
                }
                Next::Trailers(trailers) => flight.set_trailers(trailers),
                Next::End => break,
                Next::Broken(error) => return flight.end(Err(error)),
                Next::Abandoned => return flight.end(Err(BodyError::OriginBroke)),
                Next::Held => self.wait_for_readers().await,
            }
        }
        drop(body);
        let worker = Arc::clone(&self.fetch.worker);
        let mut storing = std::pin::pin!(self.commit_rest());
        let stored = std::future::poll_fn(|context| Poll::Ready(storing.as_mut().poll(context).is_ready())).await;
        let late = (!stored).then(|| worker.begin_late_commit());
        flight.end(Ok(()));
        if !stored {
            storing.await;
        }
        drop(late);
    }

    async fn next(&self, body: &mut OriginBody) -> Next {
        std::future::poll_fn(|context| {
            match self.fetch.flight.poll_pace(self.leaves_window(), context) {
                Pace::Wait => return Poll::Ready(Next::Held),
                Pace::Unread if !self.is_worth_finishing() && self.fetch.flight.close_if_unread() => {
                    return Poll::Ready(Next::Abandoned);
                }
                Pace::Go | Pace::Unread => {}
            }
            body.poll_frame(context).map(|piece| match piece {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => Next::Data(bytes),
                    Err(frame) => Next::Trailers(frame.into_trailers().unwrap_or_default()),
                },
                Some(Err(error)) => Next::Broken(error),
                None => Next::End,
            })
        })
        .await
    }

    /// Waits until the readers have come further. Where nothing is stored the slowest sets the pace, but it
    /// must not hold up others for long.
    async fn wait_for_readers(&self) {
        let flight = &self.fetch.flight;
        let stored = self.leaves_window();
        let moved = std::future::poll_fn(|context| match flight.poll_pace(stored, context) {
            Pace::Wait => Poll::Pending,
            Pace::Go | Pace::Unread => Poll::Ready(()),
        });
        if stored {
            moved.await;
        } else if tokio::time::timeout(LAG_PATIENCE, moved).await.is_err() {
            flight.drop_slowest();
        }
    }

    /// Whether what leaves the window can be had from the store.
    fn leaves_window(&self) -> bool {
        match self.storage {
            Storage::Whole => self.produced <= CHUNK_BYTES,
            Storage::Chunks(_) => true,
            Storage::Off => false,
        }
    }

    /// A client that leaves does not kill a fetch that is nearly there, or small.
    fn is_worth_finishing(&self) -> bool {
        if matches!(self.storage, Storage::Off) {
            return false;
        }
        match self.open.total_len {
            Some(total) => total.saturating_sub(self.produced) < SMALL_REST_BYTES || self.produced >= total / 2,
            None => self.produced < CHUNK_BYTES,
        }
    }

    /// Goes over to chunks, or stops storing, once a body of `len` bytes asks for it.
    fn choose_storage(&mut self, len: u64) {
        let worker = &self.fetch.worker;
        if len > worker.shared.config.entry_bytes_max {
            self.storage = Storage::Off;
        }
        if len <= CHUNK_BYTES || !matches!(self.storage, Storage::Whole) {
            return;
        }
        if worker.shared.store.is_none() {
            self.storage = Storage::Off;
            return;
        }
        let chunks = Arc::new(ChunkedBody {
            worker: Arc::clone(worker),
            asked: Arc::clone(&self.fetch.asked),
            primary: Arc::clone(&self.place.primary),
            key: Arc::clone(&self.place.key),
            representation: random(),
            len: self.open.total_len,
            entity_tag: strong_tag(self.open.head.fields()),
        });
        self.fetch.flight.set_chunks(Arc::clone(&chunks));
        self.storage = Storage::Chunks(chunks);
    }

    async fn commit_full_chunks(&mut self) {
        while let Storage::Chunks(chunks) = &self.storage
            && self.produced - self.committed >= CHUNK_BYTES
        {
            let chunks = Arc::clone(chunks);
            self.commit_chunk(&chunks, CHUNK_BYTES).await;
        }
    }

    async fn commit_chunk(&mut self, chunks: &ChunkedBody, len: u64) {
        let pieces = self.fetch.flight.copy_out(self.committed, len);
        let key = key::chunk_key(&chunks.key, chunks.representation, self.committed / CHUNK_BYTES);
        if storing::commit_chunk(&self.fetch.worker, &chunks.primary, &key, pieces).await {
            self.committed += len;
            self.fetch.flight.note_committed(self.committed);
        } else {
            self.storage = Storage::Off;
        }
    }

    /// Stores what has not been, and with it makes the response visible.
    async fn commit_rest(mut self) {
        self.commit_full_chunks().await;
        let (place, body) = match &self.storage {
            Storage::Off => return,
            Storage::Whole => {
                let body = self.fetch.flight.copy_out(0, self.produced);
                (BodyPlace::Whole { len: self.produced }, body)
            }
            Storage::Chunks(chunks) => {
                let chunks = Arc::clone(chunks);
                let rest = self.produced - self.committed;
                if rest > 0 {
                    self.commit_chunk(&chunks, rest).await;
                }
                if matches!(self.storage, Storage::Off) {
                    return;
                }
                (BodyPlace::Chunks { len: self.produced, representation: chunks.representation }, Vec::new())
            }
        };
        let placed = (self.open.head.body() != place).then(|| self.open.head.clone().with_body(place));
        let head = placed.as_ref().unwrap_or(&self.open.head);
        storing::commit(&self.fetch.worker, &self.place, head, body, self.fetch.flight.began).await;
    }
}

/// A fetch with less than this to come is finished though nobody reads it any more.
const SMALL_REST_BYTES: u64 = 256 << 10;
/// How long one reader may hold up the others where nothing is stored.
const LAG_PATIENCE: Duration = Duration::from_secs(10);
