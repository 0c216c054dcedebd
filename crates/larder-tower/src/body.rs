//! The body of a response: passed through, served from the cache, or stored while it passes through.

use crate::fill_writer::FillWriter;
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use larder_cache::ValueReader;
use std::{
    error, fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The error of a body: that of the origin's body, or of the cache below ([`larder_cache::Error`]).
pub type BodyError = Box<dyn error::Error + Send + Sync>;

/// The body of a response.
pub struct CacheBody<B> {
    state: BodyState<B>,
}

enum BodyState<B> {
    /// From the origin, and not stored.
    Passed(Pin<Box<B>>),
    /// From memory. `None` once it was read.
    Memory(Option<Bytes>),
    /// From a value of the cache.
    Stored { reader: ValueReader, left_bytes: u64 },
    /// From the origin, and stored.
    Filled(FillingBody<B>),
}

/// A body that is stored while it passes through.
///
/// The last frame is passed on only once the response is stored. Otherwise a client that does not ask for the end of
/// the body, because it knows the length, would drop the body before that.
struct FillingBody<B> {
    body: Pin<Box<B>>,
    fill: FillState,
    /// The length that the body announced.
    expected_bytes: Option<u64>,
    received_bytes: u64,
    /// A frame that waits until the response is stored.
    last: Option<Frame<Bytes>>,
    has_ended: bool,
}

type FlushFuture = Pin<Box<dyn Future<Output = Option<Box<FillWriter>>> + Send>>;

enum FillState {
    Ready(Box<FillWriter>),
    Flushing(FlushFuture),
    Finishing(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// Stored, or given up.
    Done,
}

impl<B> CacheBody<B> {
    pub(crate) fn passed(body: B) -> Self {
        Self { state: BodyState::Passed(Box::pin(body)) }
    }

    pub(crate) fn memory(bytes: Bytes) -> Self {
        Self { state: BodyState::Memory(Some(bytes).filter(|bytes| !bytes.is_empty())) }
    }

    pub(crate) fn stored(reader: ValueReader, len_bytes: u64) -> Self {
        Self { state: BodyState::Stored { reader, left_bytes: len_bytes } }
    }
}

impl<B: Body> CacheBody<B> {
    pub(crate) fn filled(body: B, filling: FillWriter) -> Self {
        let expected_bytes = body.size_hint().exact();
        let fill = FillState::Ready(Box::new(filling));
        let body = Box::pin(body);
        Self {
            state: BodyState::Filled(FillingBody {
                body,
                fill,
                expected_bytes,
                received_bytes: 0,
                last: None,
                has_ended: false,
            }),
        }
    }
}

impl<B> Body for CacheBody<B>
where
    B: Body<Data: Buf, Error: Into<BodyError>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.state {
            BodyState::Passed(body) => {
                let frame = ready!(body.as_mut().poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map(in_bytes).map_err(Into::into)))
            }
            BodyState::Memory(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            BodyState::Stored { reader, left_bytes } => match ready!(reader.poll_next(context)) {
                Ok(Some(bytes)) => {
                    *left_bytes -= bytes.len() as u64;
                    Poll::Ready(Some(Ok(Frame::data(bytes))))
                }
                Ok(None) => Poll::Ready(None),
                Err(error) => Poll::Ready(Some(Err(error.into()))),
            },
            BodyState::Filled(body) => body.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            BodyState::Passed(body) => body.is_end_stream(),
            BodyState::Memory(bytes) => bytes.is_none(),
            BodyState::Stored { left_bytes, .. } => *left_bytes == 0,
            BodyState::Filled(body) => body.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            BodyState::Passed(body) => body.size_hint(),
            BodyState::Memory(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            BodyState::Stored { left_bytes, .. } => SizeHint::with_exact(*left_bytes),
            BodyState::Filled(body) => body.size_hint(),
        }
    }
}

impl<B: Body<Error: Into<BodyError>>> FillingBody<B> {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            ready!(self.poll_fill(context));
            if let Some(frame) = self.last.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match ready!(self.body.as_mut().poll_frame(context)) {
                None => {
                    self.has_ended = true;
                    self.finish();
                }
                Some(Err(error)) => {
                    self.has_ended = true;
                    self.fill = FillState::Done;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Some(Ok(frame)) => {
                    let frame = in_bytes(frame);
                    if self.take(&frame) {
                        self.finish();
                        self.last = Some(frame);
                    } else {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
            }
        }
    }

    /// Waits for what is being written.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.fill {
            FillState::Ready(_) | FillState::Done => {}
            FillState::Flushing(flush) => {
                self.fill = ready!(flush.as_mut().poll(context)).map_or(FillState::Done, FillState::Ready);
            }
            FillState::Finishing(finish) => {
                ready!(finish.as_mut().poll(context));
                self.fill = FillState::Done;
            }
        }
        Poll::Ready(())
    }

    /// Adds a frame to what is stored. Returns whether it is the last one of the content. Trailers are not stored.
    fn take(&mut self, frame: &Frame<Bytes>) -> bool {
        let Some(bytes) = frame.data_ref() else { return true };
        self.received_bytes += bytes.len() as u64;
        self.fill = match std::mem::replace(&mut self.fill, FillState::Done) {
            FillState::Ready(mut filling) => match filling.push(bytes.clone()) {
                true => FillState::Flushing(Box::pin(filling.flush())),
                false => FillState::Ready(filling),
            },
            other => other,
        };
        self.expected_bytes == Some(self.received_bytes) || self.body.is_end_stream()
    }

    /// Stores the response, if its body has the announced length.
    fn finish(&mut self) {
        let is_whole = self.expected_bytes.is_none_or(|expected| expected == self.received_bytes);
        self.fill = match std::mem::replace(&mut self.fill, FillState::Done) {
            FillState::Ready(filling) if is_whole => {
                assert_eq!(filling.len(), self.received_bytes, "all bytes that passed are stored");
                FillState::Finishing(Box::pin(filling.finish()))
            }
            FillState::Flushing(flush) if is_whole => FillState::Finishing(Box::pin(async {
                if let Some(filling) = flush.await {
                    filling.finish().await;
                }
            })),
            FillState::Finishing(finish) => FillState::Finishing(finish),
            FillState::Ready(_) | FillState::Flushing(_) | FillState::Done => FillState::Done,
        };
    }

    fn is_over(&self) -> bool {
        let is_stored = matches!(self.fill, FillState::Done);
        is_stored && self.last.is_none() && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held_bytes = self.last.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        let left = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = left.upper() {
            hint.set_upper(upper + held_bytes);
        }
        hint.set_lower(left.lower() + held_bytes);
        hint
    }
}

fn in_bytes<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}

impl<B> fmt::Debug for CacheBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.state {
            BodyState::Passed(_) => "origin",
            BodyState::Memory(_) | BodyState::Stored { .. } => "cache",
            BodyState::Filled(_) => "origin, stored",
        };
        f.debug_struct("CacheBody").field("source", &source).finish()
    }
}
