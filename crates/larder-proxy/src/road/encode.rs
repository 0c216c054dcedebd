//! Encodes responses for clients that accept a content coding.
//!
//! `larder_http::coding` chooses the coding, and `encoder` applies it. Invariant: a stored response stays as its origin
//! sent it, and requested ranges are ranges of the unencoded response.

use http::{Method, Response, StatusCode, header::CONTENT_LENGTH};
use http_body::Body as _;
use larder_http::coding::{self, CodingWish, Compression};

use crate::road::{client::response_body::ResponseBody, encoder::Encoder};

/// Returns the response, compressed if the client accepts a content coding and compression is worthwhile.
pub(crate) fn encoded(
    compression: &Compression,
    wish: &CodingWish,
    response: Response<ResponseBody>,
) -> Response<ResponseBody> {
    let (mut head, body) = response.into_parts();
    if head.status == StatusCode::NOT_MODIFIED {
        wish.confirm(&mut head.headers);
        return Response::from_parts(head, body);
    }
    let named = head.headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
    let len = named.or_else(|| body.size_hint().exact().filter(|_| wish.method != Method::HEAD));
    if !compression.is_about(head.status, &head.headers, len) {
        return Response::from_parts(head, body);
    }
    coding::vary(&mut head.headers);
    let Some(coding) = wish.coding(compression) else { return Response::from_parts(head, body) };
    let body = if wish.method == Method::HEAD {
        body
    } else {
        // The number of encoders is limited. Beyond it, responses are sent uncompressed.
        let Some(encoder) = Encoder::new(coding, len) else { return Response::from_parts(head, body) };
        match body.encoded(encoder) {
            Ok(body) => body,
            Err(body) => return Response::from_parts(head, body),
        }
    };
    coding::encode(coding, &mut head.headers);
    Response::from_parts(head, body)
}
