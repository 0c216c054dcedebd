//! Where the cache sends requests that it cannot answer: a tower service, or a chain of middleware.

use crate::origin_body::{BodyError, OriginBody};
use http::{Request, Response, StatusCode, request, response};
use http_body::Body;
use larder_cache::http::fetcher::RequestEdits;
use larder_http::{Ruling, fields::strip_own};

/// A response extension: the cache must not store this response, nor use it to update a stored one.
///
/// An [`Origin`] sets it if the response belongs to another resource than the requested one, for example because the
/// client library followed a redirect.
///
/// ```
/// use larder_tower::DoNotStore;
///
/// let mut response = http::Response::new("a page of another site");
/// response.extensions_mut().insert(DoNotStore);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DoNotStore;

/// Sends the requests that the cache cannot answer, for example over a network or to a handler.
///
/// `B` is the type of the requests' bodies. [`CacheLayer`](crate::CacheLayer) implements this for tower services.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use larder_tower::Origin;
/// use std::convert::Infallible;
///
/// /// Answers each request with a greeting that may be stored for a minute.
/// struct Greeter;
///
/// impl Origin<Full<Bytes>> for Greeter {
///     type Body = Full<Bytes>;
///     type Error = Infallible;
///
///     async fn send(&mut self, _: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
///         let response = Response::builder().header("cache-control", "max-age=60");
///         Ok(response.body(Full::from("hello")).expect("the field is valid"))
///     }
/// }
/// ```
pub trait Origin<B>: Send {
    /// The type of the responses' bodies.
    type Body: Body<Error: Into<BodyError>> + Send + 'static;
    /// The error that is returned in place of a response.
    type Error;

    /// Sends one request and returns the response.
    ///
    /// The cache calls this at most once for a client's request, with one exception: if the response to a validation is
    /// a 304 that does not match the stored response, it sends the request again without the validation.
    fn send(&mut self, request: Request<B>) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

/// Sends one request, and removes fields from the response that only the cache itself may set.
pub(crate) async fn ask<B, O: Origin<B>>(origin: &mut O, request: Request<B>) -> Result<Response<O::Body>, O::Error> {
    let mut response = origin.send(request).await?;
    strip_own(response.headers_mut());
    Ok(response)
}

/// A client's request, and the [`Origin`] to which it can be sent.
pub(crate) struct OriginSender<'o, B, O> {
    head: request::Parts,
    /// The body of the client's request. `None` once it was sent.
    body: Option<B>,
    origin: &'o mut O,
}

impl<'o, B: Default + Send, O: Origin<B>> OriginSender<'o, B, O> {
    pub(crate) fn new(request: Request<B>, origin: &'o mut O) -> Self {
        let (head, body) = request.into_parts();
        Self { head, body: Some(body), origin }
    }

    /// Sends the request to the origin, with the changes in `edits`.
    pub(crate) async fn send(&mut self, edits: &RequestEdits) -> Result<(response::Parts, OriginBody), O::Error> {
        let answer = self.send_once(edits).await?;
        if answer.0.status == StatusCode::NOT_MODIFIED && !is_of_resource(&answer.0) {
            // This 304 confirms another resource's response, so the request is repeated without its conditions.
            return self.send_once(&RequestEdits { added: Vec::new(), ..edits.clone() }).await;
        }
        Ok(answer)
    }

    async fn send_once(&mut self, edits: &RequestEdits) -> Result<(response::Parts, OriginBody), O::Error> {
        let mut head = self.head.clone();
        let removed: Vec<_> = head.headers.keys().filter(|name| edits.remove(name)).cloned().collect();
        for name in removed {
            head.headers.remove(name);
        }
        for (name, value) in &edits.added {
            head.headers.insert(name, value.clone());
        }
        let body = if edits.whole { B::default() } else { self.body.take().unwrap_or_default() };
        let (mut head, body) = ask(self.origin, Request::from_parts(head, body)).await?.into_parts();
        if !is_of_resource(&head) {
            let ruling = Ruling { name: "other-resource".to_owned(), is_never_stored: true, ..Ruling::default() };
            ruling.put(&mut head.headers);
        }
        let body = OriginBody::new(&head, body);
        Ok((head, body))
    }
}

/// Returns whether the response belongs to the requested resource, so [`DoNotStore`] is not set.
fn is_of_resource(head: &response::Parts) -> bool {
    head.extensions.get::<DoNotStore>().is_none()
}
