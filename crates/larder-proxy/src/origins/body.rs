//! The body of an origin's response as it arrives, with its connection.
//!
//! Owns: the lease of the connection, which is given back the moment the body has ended. The body is shared and stored
//! elsewhere. Invariants: the end is reported only of a body that is complete, see [`larder_http::framing`]. The
//! origin's deadline runs only while a reader waits for it, so a slow client never makes a good origin look silent.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use larder_http::{
    fields::{strip_hop_by_hop, strip_own},
    framing::{CompletedBody, IncompleteBody},
};

use crate::{
    figures::metrics::WorkerMetrics,
    ground::{cache::BodyError, received_body::ReceivedBody, target::OriginWay, watch::WatchedConnection},
    origins::{
        http1::{Http1Body, SwitchedStream},
        pool::Lease,
    },
};

/// The body of a response, while it arrives over a connection.
pub(crate) enum ArrivingBody {
    /// The body arrives over HTTP/1.1.
    Http1(Http1Body),
    /// The body arrives over HTTP/2.
    Http2(Box<ReceivedBody>),
}

/// The body of an origin's response, with the connection on which it arrives.
///
/// In a box, because each step between the connection and the reader moves it.
pub(crate) struct OriginBody(Box<LeasedBody>);

struct LeasedBody {
    incoming: ArrivingBody,
    /// The connection. `None` once the body has ended, when the connection is returned to the pool.
    lease: Option<Lease>,
    metrics: Arc<WorkerMetrics>,
    is_from_sibling: bool,
}

impl OriginBody {
    /// Creates the body of a response whose head was not checked yet. So the connection is kept even if the body has
    /// ended, until [`Self::release_if_ended`] is called.
    pub(super) fn new(incoming: ArrivingBody, lease: Lease, metrics: &Arc<WorkerMetrics>) -> Self {
        let is_from_sibling = lease.origin.way == OriginWay::Sibling;
        let metrics = Arc::clone(metrics);
        Self(Box::new(LeasedBody { incoming, lease: Some(lease), metrics, is_from_sibling }))
    }

    /// Returns whether the body comes from another node of the fleet.
    pub(crate) fn is_from_sibling(&self) -> bool {
        self.0.is_from_sibling
    }

    /// Turns the connection into a byte stream after a 101. Returns the stream and its deadline, or `None` if it cannot
    /// switch.
    pub(super) fn into_switched(self) -> Option<(SwitchedStream, Arc<WatchedConnection>)> {
        match self.0.incoming {
            ArrivingBody::Http1(body) => self.0.lease?.into_switched(body.into_received()),
            ArrivingBody::Http2(_) => None,
        }
    }

    /// Waits for the next bytes of the body. `None` is the end of a complete body. Trailers are dropped (RFC 9110
    /// 6.5.1).
    pub(crate) fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match ready!(self.poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
            }
        }
    }

    /// Waits for the next bytes of the body or its trailers. `None` is the end of a complete body.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.0.lease.as_ref().is_some_and(Lease::timed_out) {
            return Poll::Ready(Some(Err(self.broken("silent for too long"))));
        }
        let polled = match &mut self.0.incoming {
            ArrivingBody::Http1(body) => {
                let connection = self.0.lease.as_mut().and_then(Lease::http1);
                body.poll_frame(connection, context).map_err(|fault| fault.to_string())
            }
            ArrivingBody::Http2(body) => body.poll_frame(context).map_err(|fault| fault.to_string()),
        };
        match polled {
            Poll::Pending => {
                if let Some(lease) = &self.0.lease {
                    lease.await_origin(context);
                }
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.release();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(self.broken(error)))),
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(lease) = &self.0.lease {
                    lease.origin_delivered();
                }
                if let Some(bytes) = frame.data_ref().filter(|_| !self.0.is_from_sibling) {
                    self.0.metrics.origin_bytes.add(bytes.len() as u64);
                }
                if let Some(trailers) = frame.trailers_mut() {
                    strip_hop_by_hop(trailers);
                    strip_own(trailers);
                }
                self.release_if_ended();
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    /// Returns the proof that the body is complete, after its end was reported.
    pub(crate) fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        match &self.0.incoming {
            ArrivingBody::Http1(body) => body.end(),
            ArrivingBody::Http2(body) => body.end(),
        }
    }

    /// Reads the whole body, if it is complete and has exactly `len` bytes. Returns it with the proof of completeness.
    pub(crate) async fn collect(self, len: usize) -> Option<(Bytes, CompletedBody)> {
        self.collect_up_to(len).await.filter(|(collected, _)| collected.len() == len)
    }

    /// Reads the whole body, if it is complete and has at most `len` bytes. Returns it with the proof of completeness.
    pub(crate) async fn collect_up_to(mut self, len: usize) -> Option<(Bytes, CompletedBody)> {
        let mut collected = BytesMut::new();
        while let Some(piece) = std::future::poll_fn(|context| self.poll_data(context)).await {
            let piece = piece.ok()?;
            if collected.len() + piece.len() > len {
                return None;
            }
            collected.extend_from_slice(&piece);
        }
        let completed = self.end().ok()?;
        Some((collected.freeze(), completed))
    }

    /// Takes the body if all of it arrived together with the head, and returns it with the proof of completeness.
    ///
    /// Returns `None` if more has to be received, or if trailers may follow.
    pub(crate) fn take_arrived(&mut self) -> Option<(Bytes, CompletedBody)> {
        let ArrivingBody::Http1(body) = &mut self.0.incoming else { return None };
        let bytes = body.take_decoded()?;
        let completed = body.end().ok()?;
        if !self.0.is_from_sibling {
            self.0.metrics.origin_bytes.add(bytes.len() as u64);
        }
        Some((bytes, completed))
    }

    /// Returns whether the whole body has been received.
    pub(crate) fn has_arrived(&self) -> bool {
        self.0.lease.is_none()
    }

    /// Returns whether the body has been read to its end.
    pub(crate) fn is_finished(&self) -> bool {
        match &self.0.incoming {
            ArrivingBody::Http1(body) => body.is_finished(),
            ArrivingBody::Http2(body) => body.is_end_stream(),
        }
    }

    /// Returns the number of bytes still to come, or `None` if the origin did not announce the length.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match &self.0.incoming {
            ArrivingBody::Http1(body) => body.remaining(),
            ArrivingBody::Http2(body) => body.remaining(),
        }
    }

    fn broken(&mut self, why: impl fmt::Display) -> BodyError {
        self.0.metrics.origin_failures.add(1);
        self.0.lease = None;
        tracing::debug!(%why, "an origin's response ended before it was complete");
        BodyError::OriginBroke
    }

    /// Returns the connection to the pool if the whole body has been received.
    pub(super) fn release_if_ended(&mut self) {
        let is_off_the_wire = match &self.0.incoming {
            ArrivingBody::Http1(body) => body.is_off_the_wire(),
            ArrivingBody::Http2(body) => body.is_end_stream(),
        };
        if is_off_the_wire {
            self.release();
        }
    }

    fn release(&mut self) {
        if let Some(lease) = self.0.lease.take() {
            lease.release();
        }
    }
}
