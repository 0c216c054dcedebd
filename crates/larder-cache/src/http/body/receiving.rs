//! Receives the origin's responses that fill a body.
//!
//! Owns: the request for missing bytes, and the pace of each response. Invariant: only bytes that the response
//! announced reach the core, and its end only if it ended as its framing announced. A response that waits for its
//! clients is not read, so its origin waits, too.

use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::Range,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::object::{Arrival, Event, OriginAsk, RunId};
use bytes::Bytes;
use larder_http::framing::CompletedBody;

use super::{
    continuation::{ContinuationAnswer, ContinuedBody, MissingRange},
    error::BodyError,
    fill::BodyChecks,
    head::BodyHead,
    long_body::LongBody,
    run_control::{RunControl, RunOrder},
    state::Asker,
};
use crate::http::fetcher::{Fetcher, IncomingBody as _};

/// The next thing that came of a response.
enum ReceivedPiece {
    Data(Bytes),
    End(CompletedBody),
    /// The body has ended without a proof that it is complete, and such an end is permitted.
    QuietEnd,
    Broken(BodyError),
    /// The task was ordered to stop receiving.
    Stopped,
}

/// A response of the origin whose body is about to be received.
pub struct ReceivedRun<F: Fetcher> {
    /// The number of the response in the core (the state machine of the body).
    pub id: RunId,
    /// Tells this task to go on, pause or stop.
    pub control: Arc<RunControl>,
    /// The body of the response, as it arrives.
    pub body: F::Body,
    /// The range of the whole body that the response brings.
    pub span: Range<u64>,
}

impl<F: Fetcher> LongBody<F> {
    /// Requests missing bytes of the body, and receives the response.
    pub(super) async fn request(
        self: Arc<Self>,
        (id, ask): (RunId, OriginAsk),
        control: Arc<RunControl>,
        asker: Asker<F>,
    ) {
        let guard = RunGuard::new(&self, id);
        let asking = Box::pin(self.ask(&ask, &asker));
        let answer = tokio::select! {
            biased;
            () = control.stopped() => return guard.disarm(),
            answer = asking => answer,
        };
        let len = self.chunks.body_len().unwrap_or(u64::MAX);
        let arrived = match answer {
            Some(ContinuationAnswer::Continued { status, body, span }) => {
                let is_stored = self.means.keeps(&body, &self.chunks.place.primary, span.end - span.start);
                let is_whole = span == (0..len);
                self.change(|state, now, orders| {
                    state.note_continued(id, ContinuedBody { status, is_stored });
                    if !is_stored {
                        state.unkept.push(span.clone());
                    }
                    let head = self.head();
                    let arrival = Arrival::Head { head, span: span.clone(), is_whole };
                    state.step(now, Event::Came(id, arrival), orders);
                });
                Some((body, span))
            }
            Some(ContinuationAnswer::Changed) => {
                let head = BodyHead { validator: None, ..self.head() };
                let arrival = Arrival::Head { head, span: 0..len, is_whole: true };
                self.on(Event::Came(id, arrival));
                None
            }
            Some(ContinuationAnswer::Unclear(status)) => {
                tracing::debug!(%status, "the origin's response does not confirm a body that it should continue");
                None
            }
            Some(ContinuationAnswer::Failed(failure)) => {
                tracing::debug!(failure, "the origin does not continue a body");
                None
            }
            None => None,
        };
        if let Some((body, span)) = arrived {
            guard.disarm();
            self.receive(ReceivedRun { id, control, body: *body, span }, BodyChecks::default()).await;
        }
    }

    async fn ask(&self, ask: &OriginAsk, asker: &Asker<F>) -> Option<ContinuationAnswer<F::Body>> {
        let len = self.chunks.body_len()?;
        let validator = self.chunks.validator.as_ref()?;
        let span = match ask {
            OriginAsk::Whole => 0..len,
            OriginAsk::Range { span, .. } => span.start..span.end.min(len),
        };
        let missing = MissingRange { validator, len, end: span.end, is_divisible: self.chunks.is_divisible };
        Some(asker.means.ask_rest(&asker.asked, &missing, span.start).await)
    }

    fn head(&self) -> BodyHead {
        let validator = self.chunks.validator.clone();
        BodyHead { validator, len: self.chunks.body_len(), budget: Arc::clone(self.budget()) }
    }

    /// Receives a response until it ends, breaks off or is stopped. If a body fails the check against its known digest,
    /// it counts as broken off before its end.
    pub async fn receive(self: &Arc<Self>, mut run: ReceivedRun<F>, mut checks: BodyChecks) {
        let guard = RunGuard::new(self, run.id);
        let mut held = HeldBack::default();
        let mut at = run.span.start;
        let end = run.span.end;
        let mut completed = None;
        let mut is_quiet = false;
        while completed.is_none() && !is_quiet && at < end {
            match poll_fn(|context| self.poll_piece(&mut run, context)).await {
                ReceivedPiece::Data(mut bytes) => {
                    bytes.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
                    checks.push(&bytes);
                    at += bytes.len() as u64;
                    held.push(self.budget().count(bytes));
                    // The last bytes wait for the checks, and for the store to have seen what was before them.
                    let shown = if at == end { 0 } else { held.len - checks.held_back(at, end).min(held.len) };
                    self.deliver(run.id, held.take(shown));
                }
                ReceivedPiece::End(proof) => completed = Some(proof),
                ReceivedPiece::QuietEnd => is_quiet = true,
                ReceivedPiece::Broken(error) => return self.lose(error),
                ReceivedPiece::Stopped => return guard.disarm(),
            }
        }
        // Of a body that several responses bring, the announced length of the whole counts.
        if (completed.is_some() || is_quiet) && end < u64::MAX && at < end {
            return self.lose(BodyError::OriginBroke);
        }
        let verdict = checks.verdict();
        if verdict.is_wrong || verdict.contradicts_itself {
            self.note_mismatch(if verdict.is_wrong { "its URL or a stored listing" } else { "its Repr-Digest" });
        }
        if verdict.is_wrong {
            return self.lose(BodyError::WrongDigest);
        }
        drop(run.body);
        self.change(|state, now, orders| {
            state.completed = completed;
            if let Some(fill) = state.fill.as_mut().filter(|_| is_quiet || !verdict.is_storable) {
                fill.refuse();
            }
            for bytes in held.take(held.len) {
                state.step(now, Event::Came(run.id, Arrival::Bytes(bytes)), orders);
            }
            if state.core.len().is_none() {
                // From here on the chunks' lengths are known.
                self.chunks.set_len(at);
            }
            state.remove_run(run.id);
            state.step(now, Event::Came(run.id, Arrival::End(None)), orders);
        });
        guard.disarm();
    }

    fn deliver(self: &Arc<Self>, id: RunId, pieces: VecDeque<Bytes>) {
        if pieces.is_empty() {
            return;
        }
        self.change(|state, now, orders| {
            for bytes in pieces {
                if let Some(fill) = &mut state.fill {
                    fill.note_received(bytes.len() as u64);
                }
                state.step(now, Event::Came(id, Arrival::Bytes(bytes)), orders);
            }
        });
    }

    /// Records the reason why a response broke off. The guard of the response then reports that it did.
    fn lose(&self, error: BodyError) {
        self.lock().error = Some(error);
    }

    fn poll_piece(&self, run: &mut ReceivedRun<F>, context: &mut Context<'_>) -> Poll<ReceivedPiece> {
        loop {
            match run.control.poll(context) {
                RunOrder::Go => {}
                RunOrder::Pause => return Poll::Pending,
                RunOrder::Stop => return Poll::Ready(ReceivedPiece::Stopped),
            }
            return Poll::Ready(match ready!(run.body.poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => ReceivedPiece::Data(bytes),
                    Err(frame) => {
                        self.lock().trailers = frame.into_trailers().ok();
                        continue;
                    }
                },
                Some(Err(error)) => ReceivedPiece::Broken(error),
                None => match run.body.end() {
                    Ok(proof) => ReceivedPiece::End(proof),
                    Err(_) if run.body.may_end_quietly() => ReceivedPiece::QuietEnd,
                    Err(_) => ReceivedPiece::Broken(BodyError::OriginBroke),
                },
            });
        }
    }
}

/// The last bytes that have arrived. Clients do not get them before the whole body has passed its checks.
#[derive(Default)]
struct HeldBack {
    pieces: VecDeque<Bytes>,
    len: u64,
}

impl HeldBack {
    fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len() as u64;
        self.pieces.push_back(bytes);
    }

    /// Removes the first `len` bytes, and returns them.
    fn take(&mut self, len: u64) -> VecDeque<Bytes> {
        let mut taken = VecDeque::new();
        let mut left = len;
        while let Some(piece) = self.pieces.front_mut().filter(|_| left > 0) {
            let count = left.min(piece.len() as u64);
            taken.push_back(piece.split_to(count as usize));
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            left -= count;
        }
        self.len -= len - left;
        taken
    }
}

/// A guard that reports on drop that a response broke off, unless its end was reported before.
struct RunGuard<F: Fetcher>(Option<(Arc<LongBody<F>>, RunId)>);

impl<F: Fetcher> RunGuard<F> {
    fn new(body: &Arc<LongBody<F>>, id: RunId) -> Self {
        Self(Some((Arc::clone(body), id)))
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: Fetcher> Drop for RunGuard<F> {
    fn drop(&mut self) {
        if let Some((body, id)) = self.0.take() {
            body.change(|state, now, orders| {
                state.remove_run(id);
                state.step(now, Event::Came(id, Arrival::Broken), orders);
            });
        }
    }
}
