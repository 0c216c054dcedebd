//! The body of a response from the cache or from the origin.

use crate::{
    fetcher::OriginFetcher,
    origin_body::{BodyError, OriginBody},
};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use larder_cache::http::{
    answer::AnswerBody,
    body::{cursor::BodyCursor, parts::PartsReader},
};
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The body of a response, as [`HttpCache::respond`](crate::HttpCache::respond) returns it.
///
/// ```
/// # use bytes::Bytes;
/// # use larder_tower::{HttpCache, Origin};
/// # use std::convert::Infallible;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use larder_tower::CacheBody;
///
/// # struct Greeter;
/// # impl Origin<Full<Bytes>> for Greeter {
/// #     type Body = Full<Bytes>;
/// #     type Error = Infallible;
/// #     async fn send(&mut self, _: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
/// #         Ok(Response::new("hello".into()))
/// #     }
/// # }
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let cache = larder_cache::Cache::builder(directory.path()).disk("32MB").open().expect("a cache");
/// # let responses = HttpCache::shared(cache);
/// # tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
/// let request = Request::get("http://example.com/").body(Full::default()).expect("a request");
/// let response: Response<CacheBody> = responses.respond(request, &mut Greeter).await.expect("a response");
/// let bytes = response.into_body().collect().await.expect("the whole body").to_bytes();
/// assert_eq!(bytes, "hello");
/// # });
/// ```
pub struct CacheBody {
    source: BodySource,
}

enum BodySource {
    /// The whole body, in memory. `None` once it was read.
    Whole(Option<Bytes>),
    /// A stored or arriving body, which other clients may read at the same time.
    Shared(Box<BodyCursor<OriginFetcher>>),
    /// Several ranges of a stored body, as one multipart body (RFC 9110 14.6).
    Parts(Box<PartsReader<OriginFetcher>>),
    /// The origin's body, passed through for this client only.
    Passed(Box<OriginBody>),
}

impl CacheBody {
    pub(crate) fn passed(body: OriginBody) -> Self {
        Self { source: BodySource::Passed(Box::new(body)) }
    }

    pub(crate) fn empty() -> Self {
        Self { source: BodySource::Whole(None) }
    }
}

impl From<AnswerBody<OriginFetcher>> for CacheBody {
    fn from(body: AnswerBody<OriginFetcher>) -> Self {
        let source = match body {
            AnswerBody::Empty => BodySource::Whole(None),
            AnswerBody::Whole(bytes) => BodySource::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())),
            AnswerBody::Cursor(cursor) => BodySource::Shared(cursor),
            AnswerBody::Parts(parts) => BodySource::Parts(parts),
            AnswerBody::Origin(body) => BodySource::Passed(Box::new(body)),
        };
        Self { source }
    }
}

impl Body for CacheBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(match &mut self.source {
            BodySource::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            BodySource::Shared(cursor) => {
                ready!(cursor.poll_frame(context)).map(|frame| frame.map_err(BodyError::from))
            }
            BodySource::Parts(parts) => {
                ready!(parts.poll_data(context)).map(|piece| piece.map(Frame::data).map_err(BodyError::from))
            }
            BodySource::Passed(body) => ready!(body.poll_next(context)),
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Whole(bytes) => bytes.is_none(),
            BodySource::Shared(cursor) => cursor.remaining() == Some(0),
            BodySource::Parts(parts) => parts.remaining() == 0,
            BodySource::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            BodySource::Shared(cursor) => cursor.remaining().map_or_else(SizeHint::default, SizeHint::with_exact),
            BodySource::Parts(parts) => SizeHint::with_exact(parts.remaining()),
            BodySource::Passed(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for CacheBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            BodySource::Whole(_) => "memory",
            BodySource::Shared(_) | BodySource::Parts(_) => "cache",
            BodySource::Passed(_) => "origin",
        };
        f.debug_struct("CacheBody").field("source", &source).finish()
    }
}
