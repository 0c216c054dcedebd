//! Reads git's questions, which are sent by POST, and converts them so that they are answered like a GET, if a rule
//! says so.
//!
//! Owns: the choice of requests to read, and the conversion of a question. `git` knows the protocol. Invariant: a
//! request that proves not to be a question is forwarded unchanged. Memory: the body, which has a limit.

use std::{future::poll_fn, pin::Pin};

use bytes::{Bytes, BytesMut};
use http::{Method, header};
use http_body::{Body as _, Frame};
use larder_http::cache_control::RequestDirectives;

use crate::{
    ground::errors::Failure,
    origins::request_body::{ClientBody, RequestBody},
    run::worker::Worker,
    targets::{
        asked::RequestHead,
        git::{GitQuestion, QUESTION_BYTES_MAX},
    },
};

/// Returns whether a request may be a git question (a POST that only reads), so that its body must be read to find out.
pub(super) fn may_be(asked: &RequestHead) -> bool {
    let len = asked.fields.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    // A client may wait until the origin asks for the body. It must not be asked by this proxy instead.
    asked.before.caches_git
        && asked.key.is_some()
        && asked.expectation.is_none()
        && len.is_some_and(|len| (1..=QUESTION_BYTES_MAX).contains(&len))
}

/// Reads the body of a request that may be a git question (a POST that only reads).
///
/// # Errors
/// The body is incomplete or too slow.
pub(super) async fn read(worker: &Worker, body: ClientBody) -> Result<Bytes, Failure> {
    let limits = &worker.policy.limits;
    let mut body = RequestBody::of_client(body, None, limits, &worker.watches);
    let mut read = BytesMut::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(bytes) = frame.map(Frame::into_data)? {
            read.extend_from_slice(&bytes);
        }
    }
    Ok(read.freeze())
}

/// Converts a request into one that is answered like a GET, if `body` is a git question (a POST that only reads).
pub(super) fn apply(asked: &mut RequestHead, body: &Bytes) {
    let question = GitQuestion::of(&asked.fields, body.clone());
    let key = question.as_ref().zip(asked.key.as_ref()).map(|(question, key)| question.key(key));
    let Some(key) = key else { return };
    asked.method = Method::GET;
    asked.key = Some(key.into());
    asked.question = question;
    // The response to a question never changes, but git sends fields that demand a validation with every request.
    for name in [header::CACHE_CONTROL, header::PRAGMA, header::CONTENT_LENGTH] {
        asked.fields.remove(name);
    }
    asked.directives = RequestDirectives::default();
}
