//! A page of text.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::client::response_body::ResponseBody;

pub(crate) fn page(status: StatusCode, text: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
