//! The task of one flight: asks the origin, shares what comes, stores it.
//!
//! Owns: the exchange with the origin, from the request to the commit; independent of the client that set
//! it off. Invariants: only a body that ended as its framing announced is committed; the flight leaves
//! the table only after commit or failure. Memory: see `shared`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, response};
use larder_http::{
    BodyPlace, Reason, Received, Reuse, Storability, StoredHead, Timestamp,
    fields::check_response,
    key, reuse,
    storable::{self, Exchange},
    validate,
};

use crate::{
    asked::{Asked, Edits},
    cache::{
        chunks::{CHUNK_BYTES, ChunkedBody, strong_tag},
        entry::{Entry, EntryBody, Marker, random},
        lookup::Found,
        storing::{self, Place},
    },
    client::response_body::BodyError,
    errors::Failure,
    flight::shared::{Flight, OpenHead, Pace, PrivateResponse, Stage},
    origin::{
        body::OriginBody,
        pool::{self, Outgoing},
    },
    worker::Worker,
};

/// One fetch.
pub(crate) struct Fetch {
    pub(crate) worker: Arc<Worker>,
    pub(crate) asked: Arc<Asked>,
    pub(crate) flight: Arc<Flight>,
    /// The resource's key.
    pub(crate) primary: Arc<[u8]>,
    /// The key the flight is in the table under, if it is.
    pub(crate) table_key: Option<Arc<[u8]>>,
    /// What is stored and to be confirmed.
    pub(crate) before: Option<Found>,
    /// Whether that may stand in for an error of the origin.
    pub(crate) stale_on_error: bool,
    /// The marker of the resource's variants, if it is known.
    pub(crate) marker: Option<Arc<Marker>>,
}

impl Fetch {
    /// Runs the fetch to its end.
    pub(crate) async fn run(self) {
        self.worker.metrics.flights.add(1);
        // Whatever happens, nobody is left waiting: see its `Drop`.
        let landing = Landing(self);
        landing.0.fly().await;
    }

    async fn fly(&self) {
        if let Some(found) = &self.before {
            let validators = validate::request_fields(&found.entry.head);
            if !validators.is_empty() && self.confirm(found, validators).await {
                return;
            }
        }
        match self.ask(Vec::new()).await {
            Ok(answer) => self.accept(answer).await,
            Err(failure) => self.flight.set_stage(Stage::Failed(failure)),
        }
    }

    /// Asks whether a stored response still holds. `false`: the answer was about something else, ask for all.
    async fn confirm(&self, found: &Found, validators: Vec<(http::HeaderName, http::HeaderValue)>) -> bool {
        let answer = match self.ask(validators).await {
            Ok(answer) => answer,
            Err(failure) => {
                self.flight.set_stage(Stage::Failed(failure));
                return true;
            }
        };
        if answer.head.status != StatusCode::NOT_MODIFIED {
            self.accept(answer).await;
            return true;
        }
        if !validate::selects(&answer.head.headers, &found.entry.head) {
            return false;
        }
        let head =
            validate::freshen(&found.entry.head, &answer.head.headers, answer.request_time, answer.response_time);
        let body = match &found.entry.body {
            EntryBody::Whole(bytes) => EntryBody::Whole(bytes.clone()),
            EntryBody::Chunks { len, representation } => {
                EntryBody::Chunks { len: *len, representation: *representation }
            }
        };
        let entry = Arc::new(Entry::new(head, body));
        self.flight.set_stage(Stage::Confirmed(Arc::clone(&entry)));
        storing::freshen(&self.worker, &self.primary, found, &entry, self.flight.epoch).await;
        true
    }

    /// Sends the request, and checks the framing of what comes back.
    async fn ask(&self, added: Vec<(http::HeaderName, http::HeaderValue)>) -> Result<OriginAnswer, Failure> {
        let worker = &self.worker;
        let edits = Edits { whole: true, added };
        let outgoing = Outgoing {
            origin: self.asked.origin.clone(),
            repeatable: true,
            make: || self.asked.outgoing(&worker.shared, &edits),
        };
        let request_time = worker.now();
        worker.metrics.origin_requests.add(1);
        let (response, lease) = match pool::send(worker, outgoing).await {
            Ok(answered) => answered,
            Err(failure) => {
                worker.metrics.origin_failures.add(1);
                return Err(failure);
            }
        };
        let response_time = worker.now();
        let (head, incoming) = response.into_parts();
        check_response(&head.headers, head.version)
            .map_err(|error| Failure::Broken { host: self.asked.origin.to_string(), why: error.to_string() })?;
        let body = OriginBody::new(incoming, lease, Arc::clone(worker));
        Ok(OriginAnswer { head, body, request_time, response_time })
    }

    /// Takes a response in: shares and stores it, or gives it to the first asker alone.
    async fn accept(&self, answer: OriginAnswer) {
        let status = answer.head.status;
        if self.stale_on_error && is_origin_error(status) {
            self.flight.set_stage(Stage::OriginFailing);
            return;
        }
        let lonely = &self.worker.shared.lonely;
        match self.place(&answer) {
            Err(reason) => {
                lonely.insert(&self.primary);
                let OriginAnswer { head: response::Parts { status, headers: fields, .. }, body, .. } = answer;
                self.flight.set_private(PrivateResponse { status, fields, body, reason });
            }
            Ok((place, selecting)) => {
                let OriginAnswer { head, body, request_time, response_time } = answer;
                let total_len = body.remaining();
                let received = Received { status, fields: head.headers, request_time, response_time };
                let head = StoredHead::new(received, BodyPlace::Whole { len: total_len.unwrap_or(0) }, selecting);
                let settings = &self.worker.shared.config.http;
                let fresh = reuse::decide(&http::Method::GET, &HeaderMap::new(), &head, response_time, settings);
                let shareable = matches!(fresh, Reuse::Fresh { .. });
                if shareable {
                    lonely.remove(&self.primary);
                } else {
                    lonely.insert(&self.primary);
                }
                let marker = place.marker.as_ref().map(|(marker, _)| Arc::clone(marker));
                let open = Arc::new(OpenHead { head, total_len, shareable, marker });
                self.flight.set_stage(Stage::Open(Arc::clone(&open)));
                Carrying::new(self, &open, place).run(body).await;
            }
        }
    }

    /// Where a response is to be stored, or why it is not.
    fn place(&self, answer: &OriginAnswer) -> Result<(Place, larder_http::Selecting), Reason> {
        let config = &self.worker.shared.config;
        let exchange = Exchange {
            method: &self.asked.method,
            request_fields: &self.asked.fields,
            status: answer.head.status,
            response_fields: &answer.head.headers,
            request_time: answer.request_time,
            response_time: answer.response_time,
        };
        let rule = match storable::decide(&exchange, &config.http) {
            Storability::Store { rule, .. } => rule,
            Storability::Refuse { reason } => return Err(reason),
        };
        if answer.body.remaining().is_some_and(|len| len > config.entry_bytes_max) {
            return Err(Reason::NothingToReuse);
        }
        let place = Place::new(&self.primary, &rule, &self.asked, self.marker.as_ref(), &config.http);
        let selecting = rule.select(&self.asked.fields, &config.http);
        place.zip(selecting).ok_or(Reason::VaryStar)
    }
}

/// An origin's response as it came.
struct OriginAnswer {
    head: response::Parts,
    body: OriginBody,
    request_time: Timestamp,
    response_time: Timestamp,
}

/// A body on its way from the origin to readers and store.
struct Carrying<'a> {
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
    End,
    Broken(BodyError),
    /// The readers are to come further first.
    Held,
    /// Nobody reads it, and it is not worth finishing.
    Abandoned,
}

impl<'a> Carrying<'a> {
    fn new(fetch: &'a Fetch, open: &'a OpenHead, place: Place) -> Self {
        Self { fetch, open, place, produced: 0, committed: 0, storage: Storage::Whole }
    }

    async fn run(mut self, mut body: OriginBody) {
        let flight = &self.fetch.flight;
        self.choose_storage(self.open.total_len.unwrap_or(0));
        loop {
            match self.next(&mut body).await {
                Next::Data(bytes) => {
                    self.produced += bytes.len() as u64;
                    flight.push(bytes);
                    self.choose_storage(self.produced);
                    self.commit_full_chunks().await;
                }
                Next::End => break,
                Next::Broken(error) => return flight.end(Err(error)),
                Next::Abandoned => return flight.end(Err(BodyError::OriginBroke)),
                Next::Held => self.wait_for_readers().await,
            }
        }
        drop(body);
        flight.end(Ok(()));
        self.commit_rest().await;
    }

    async fn next(&self, body: &mut OriginBody) -> Next {
        std::future::poll_fn(|context| {
            match self.fetch.flight.poll_pace(self.leaves_window(), context) {
                Pace::Wait => return std::task::Poll::Ready(Next::Held),
                Pace::Unread if !self.is_worth_finishing() && self.fetch.flight.close_if_unread() => {
                    return std::task::Poll::Ready(Next::Abandoned);
                }
                Pace::Go | Pace::Unread => {}
            }
            body.poll_data(context).map(|piece| match piece {
                Some(Ok(bytes)) => Next::Data(bytes),
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
            Pace::Wait => std::task::Poll::Pending,
            Pace::Go | Pace::Unread => std::task::Poll::Ready(()),
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
        if storing::commit_chunk(&self.fetch.worker, &key, pieces).await {
            self.committed += len;
            self.fetch.flight.note_committed(self.committed);
        } else {
            self.storage = Storage::Off;
        }
    }

    /// Stores what has not been, and with it makes the response visible.
    async fn commit_rest(mut self) {
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
        let head = self.open.head.clone().with_body(place);
        storing::commit(&self.fetch.worker, &self.place, &head, body, self.fetch.flight.epoch).await;
    }
}

/// Sees to it that a fetch that ends in any way leaves the table and leaves nobody waiting.
struct Landing(Fetch);

impl Drop for Landing {
    fn drop(&mut self) {
        let fetch = &self.0;
        fetch.flight.abandon_if_unfinished(&fetch.asked.origin);
        if let Some(key) = &fetch.table_key {
            fetch.worker.shared.flights.remove(key, &fetch.flight);
        }
    }
}

/// Statuses that a stale response may stand in for (RFC 5861 4).
pub(crate) fn is_origin_error(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// A fetch with less than this to come is finished though nobody reads it any more.
const SMALL_REST_BYTES: u64 = 256 << 10;
/// How long one reader may hold up the others where nothing is stored.
const LAG_PATIENCE: Duration = Duration::from_secs(10);
