//! Bodies of requests to an origin: none, or the client's, forwarded as it arrives.
//!
//! Owns: the lowest rate at which a client may send, and the reason why a body did not arrive whole. Invariants: while
//! the proxy waits for the client, the client's deadline runs and the origin's is paused, so a slow client never makes
//! an origin look silent. Once the origin has begun its response, the client has no deadline, because the two may be in
//! a conversation. Cost: nothing without a body; one deadline for a body that must be waited for.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use larder_http::{
    framing::{BodyMeter, CompletedBody, EndMark, IncompleteBody},
    telling::{self, FieldTrust},
};

use crate::{
    ground::{
        config::SiteLimits,
        errors::Failure,
        received_body::ReceivedBody,
        watch::{WatchOrder, WatchedConnection, WorkerDeadlines},
    },
    origins::expectation::{Expectation, OriginWord},
};

/// The body of a request to an origin: none, in memory, or forwarded while the client sends it.
#[derive(Default)]
pub(crate) struct RequestBody(RequestBodySource);

/// A client's body: still arriving, or read completely.
pub(crate) enum ClientBody {
    Arriving(ReceivedBody),
    Read(Bytes),
}

/// The source of a body.
#[derive(Default)]
enum RequestBodySource {
    #[default]
    Nowhere,
    /// Bytes in memory. `None` when they were taken to be sent.
    Whole(Option<Bytes>),
    Streamed(Box<StreamedBody>),
}

/// A client's body that is forwarded while it arrives.
struct StreamedBody {
    incoming: ReceivedBody,
    fate: Arc<BodyFate>,
    pace: BodyPace,
    watches: Arc<WorkerDeadlines>,
    /// The client's deadline. `None` until the proxy first has to wait for the client.
    own: Option<WatchedConnection>,
    /// The origin's deadline, and how far ahead of the current time each sent piece moves it.
    origins: Option<(Arc<WatchedConnection>, Duration)>,
    /// The expectation that the origin must fulfil before the body is read, and the deadline of that wait.
    expected: Option<(Arc<Expectation>, WatchedConnection)>,
}

/// Why the body did not arrive completely, for the task that waits for the response.
#[derive(Default)]
pub(crate) struct BodyFate {
    fault: OnceLock<BodyFault>,
    answered: AtomicBool,
}

/// Why a client's body was not sent to the origin completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// The client closed its connection or stream before the end of the body.
    BrokenOff,
    /// The client sent the body too slowly.
    TooSlow,
    /// The origin sent its final response without wanting the body.
    NotWanted,
}

impl RequestBody {
    /// Creates a request's body from that of the client. It is streamed unless it was read completely.
    ///
    /// With `expectation`, nothing of the body is read until the origin asks for it.
    pub(crate) fn of_client(
        body: ClientBody,
        expectation: Option<Arc<Expectation>>,
        limits: &SiteLimits,
        watches: &Arc<WorkerDeadlines>,
    ) -> Self {
        let body = match body {
            ClientBody::Read(bytes) => return Self::whole(bytes),
            ClientBody::Arriving(body) if body.is_end_stream() => return Self::none(),
            ClientBody::Arriving(body) => body,
        };
        Self(RequestBodySource::Streamed(Box::new(StreamedBody {
            incoming: body,
            fate: Arc::default(),
            pace: BodyPace::new(limits.body_rate, limits.body_grace),
            watches: Arc::clone(watches),
            own: None,
            origins: None,
            expected: expectation.map(|expectation| (expectation, watches.register())),
        })))
    }

    /// Creates a body from bytes in memory.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self(RequestBodySource::Whole(Some(bytes)))
    }

    /// Creates an empty body.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Returns the proof that the body is complete, after its end was reported.
    pub(crate) fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        match &self.0 {
            RequestBodySource::Streamed(streamed) => streamed.incoming.end(),
            // Bytes in memory were read completely before.
            RequestBodySource::Nowhere | RequestBodySource::Whole(_) => BodyMeter::of_len(0).end(EndMark::Length),
        }
    }

    /// Takes the bytes of a body in memory. Returns `None` if the body is still arriving.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            RequestBodySource::Nowhere => Some(Bytes::new()),
            RequestBodySource::Whole(bytes) => Some(bytes.take().unwrap_or_default()),
            RequestBodySource::Streamed(_) => None,
        }
    }

    /// Attaches an origin's deadline. Each piece that is sent moves the deadline to `patience` from that time.
    pub(crate) fn with_deadline(mut self, deadline: &Arc<WatchedConnection>, patience: Duration) -> Self {
        if let RequestBodySource::Streamed(streamed) = &mut self.0 {
            streamed.origins = Some((Arc::clone(deadline), patience));
        }
        self
    }

    /// Returns the expectation that the body waits for. `None` if it waits for none.
    pub(crate) fn expectation(&self) -> Option<Arc<Expectation>> {
        self.streamed()?.expected.as_ref().map(|(expectation, _)| Arc::clone(expectation))
    }

    /// Returns where a failure of the body is recorded, or `None` if the body is in memory and cannot fail.
    pub(crate) fn fate(&self) -> Option<Arc<BodyFate>> {
        self.streamed().map(|streamed| Arc::clone(&streamed.fate))
    }

    fn streamed(&self) -> Option<&StreamedBody> {
        if let RequestBodySource::Streamed(streamed) = &self.0 { Some(streamed) } else { None }
    }
}

impl ClientBody {
    /// Returns whether the body is empty.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Arriving(body) => body.is_end_stream(),
            Self::Read(bytes) => bytes.is_empty(),
        }
    }
}

impl From<BodyFault> for Failure {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::TooSlow => Self::SlowBody,
            BodyFault::BrokenOff | BodyFault::NotWanted => Self::BadRequest("its body broke off"),
        }
    }
}

impl BodyFate {
    /// Returns why the body was not sent completely. `None` if nothing has failed.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.fault.get().copied()
    }

    /// Records that the origin has begun its response. From then on, the client has no deadline.
    pub(crate) fn note_answered(&self) {
        self.answered.store(true, Relaxed);
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match &mut self.0 {
            RequestBodySource::Nowhere => Poll::Ready(None),
            RequestBodySource::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            RequestBodySource::Streamed(streamed) => streamed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            RequestBodySource::Nowhere => true,
            RequestBodySource::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            RequestBodySource::Streamed(streamed) => streamed.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            RequestBodySource::Nowhere => SizeHint::with_exact(0),
            RequestBodySource::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            RequestBodySource::Streamed(streamed) => {
                streamed.incoming.remaining().map_or_else(SizeHint::new, SizeHint::with_exact)
            }
        }
    }
}

impl StreamedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match self.poll_expected(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(fault)) => return Poll::Ready(Some(Err(fault))),
            Poll::Ready(None) => {}
        }
        let tick = self.watches.tick();
        match self.incoming.poll_frame(cx) {
            Poll::Pending => {
                self.pace.wait(tick);
                self.await_client(cx)
            }
            Poll::Ready(frame) => {
                if let Some(own) = &self.own {
                    own.disarm();
                }
                self.resume_origin();
                let bytes = match &frame {
                    Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
                    Some(Err(_)) | None => 0,
                };
                let in_time = self.pace.take(tick, bytes as u64) || self.is_answered();
                Poll::Ready(frame.map(|frame| match frame {
                    Ok(mut frame) if in_time => {
                        if let Some(trailers) = frame.trailers_mut() {
                            // Trailers must not name a user, whoever sends them (RFC 9110 6.5.1).
                            telling::drop_untrusted(trailers, FieldTrust::default());
                        }
                        Ok(frame)
                    }
                    Ok(_) => Err(self.fails(BodyFault::TooSlow)),
                    Err(_) => Err(self.fails(BodyFault::BrokenOff)),
                }))
            }
        }
    }

    /// Waits until the origin asks for the body, or until it has been silent for [`EXPECTATION_PATIENCE`].
    ///
    /// Returns the fault if the body must not be sent (RFC 9110 10.1.1).
    fn poll_expected(&mut self, cx: &Context<'_>) -> Poll<Option<BodyFault>> {
        let Some((expectation, deadline)) = &self.expected else { return Poll::Ready(None) };
        match expectation.poll_word(cx) {
            OriginWord::Go => {}
            OriginWord::Over => return Poll::Ready(Some(self.fails(BodyFault::NotWanted))),
            OriginWord::Refused => {
                deadline.disarm();
                return Poll::Pending;
            }
            OriginWord::Awaited if deadline.order() == WatchOrder::Expire => expectation.grant(),
            OriginWord::Awaited => {
                if !deadline.is_armed() {
                    deadline.arm(EXPECTATION_PATIENCE);
                }
                deadline.remember(cx);
                return Poll::Pending;
            }
        }
        self.expected = None;
        Poll::Ready(None)
    }

    /// Starts the client's deadline and pauses the origin's, because the proxy waits for the client.
    fn await_client(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        if let Some((deadline, _)) = &self.origins {
            deadline.pause();
        }
        let own = self.own.get_or_insert_with(|| self.watches.register());
        match self.pace.left() {
            _ if self.fate.answered.load(Relaxed) => own.disarm(),
            Some(_) if own.order() == WatchOrder::Expire => {
                return Poll::Ready(Some(Err(self.fails(BodyFault::TooSlow))));
            }
            Some(left) if !own.is_armed() => own.arm(left),
            _ => {}
        }
        own.remember(cx);
        Poll::Pending
    }

    fn fails(&self, fault: BodyFault) -> BodyFault {
        *self.fate.fault.get_or_init(|| fault)
    }

    fn is_answered(&self) -> bool {
        self.fate.answered.load(Relaxed)
    }

    fn resume_origin(&self) {
        if let Some((deadline, patience)) = &self.origins {
            deadline.resume(*patience);
        }
    }
}

impl Drop for StreamedBody {
    /// Restarts the origin's deadline if it was paused.
    fn drop(&mut self) {
        self.resume_origin();
    }
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BrokenOff => "its body broke off",
            Self::TooSlow => "its body arrived too slowly",
            Self::NotWanted => "its body is not wanted",
        })
    }
}

impl std::error::Error for BodyFault {}

/// Enforces a minimum rate at which a client must send a body.
///
/// A client may fall behind by some bytes, its credit. Waiting uses it up, and received bytes restore it.
#[derive(Debug)]
struct BodyPace {
    /// Minimum rate, in bytes per second. 0 means no limit.
    rate: u64,
    /// Maximum credit, in bytes.
    grace_bytes: u64,
    /// Current credit: how many bytes the client may fall behind the minimum rate.
    left_bytes: u64,
    waiting_since: Option<u32>,
}

impl BodyPace {
    fn new(rate: u64, grace: Duration) -> Self {
        let grace_bytes = rate.saturating_mul(grace.as_secs());
        Self { rate, grace_bytes, left_bytes: grace_bytes, waiting_since: None }
    }

    /// Records that the client has sent nothing since `tick`, a time in seconds.
    fn wait(&mut self, tick: u32) {
        self.waiting_since.get_or_insert(tick);
    }

    /// Records received bytes. Returns false if the client had fallen too far behind before they came.
    fn take(&mut self, tick: u32, bytes: u64) -> bool {
        let waited = self.waiting_since.take().map_or(0, |since| u64::from(tick.saturating_sub(since)));
        let left = self.left_bytes.saturating_add(bytes).checked_sub(waited.saturating_mul(self.rate));
        self.left_bytes = left.unwrap_or(0).min(self.grace_bytes);
        left.is_some()
    }

    /// Returns how long the client may still send nothing, or `None` if there is no minimum rate.
    fn left(&self) -> Option<Duration> {
        self.left_bytes.checked_div(self.rate).map(Duration::from_secs)
    }
}

/// Time after which the body is sent although the origin has not sent a 100 (Continue). The same as in curl.
const EXPECTATION_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_too_slow_once_its_grace_is_used_up_and_never_while_it_keeps_the_rate() {
        let mut pace = BodyPace::new(100, Duration::from_secs(10));
        let mut tick = 0;
        let mut sends = |every_secs: u32, bytes: u64, times: usize| {
            (0..times).all(|_| {
                pace.wait(tick);
                tick += every_secs;
                pace.take(tick, bytes)
            })
        };
        assert!(sends(1, 100, 10_000) && sends(5, 500, 1000));
        assert!(sends(1, 0, 10) && !sends(1, 0, 1), "ten seconds of grace");
        assert!(sends(1, 1_000_000, 1) && sends(9, 0, 1), "more than the grace is not saved up");
        assert!(!sends(2, 10, 1));
    }

    #[test]
    fn without_a_rate_nobody_is_too_slow() {
        let mut pace = BodyPace::new(0, Duration::from_secs(1));
        pace.wait(0);
        assert!(pace.take(u32::MAX, 0) && pace.left().is_none());
    }

    #[test]
    fn what_is_already_there_is_not_waited_for() {
        let mut pace = BodyPace::new(100, Duration::ZERO);
        assert!(pace.take(0, 1) && pace.take(1000, 1));
    }
}
