//! The body of a response: passed through, served from the cache, or stored while it passes through.

use crate::filled_body::FilledBody;
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
    Filled(FilledBody<B>),
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

    pub(crate) fn filled(body: FilledBody<B>) -> Self {
        Self { state: BodyState::Filled(body) }
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
            BodyState::Filled(body) => body.is_end_stream(),
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

pub(crate) fn in_bytes<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
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
