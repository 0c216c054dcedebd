//! A response over HTTP/1.1 whose head is encoded already: a whole hit from memory.
//!
//! Owns: the thread's buffer for output, while nothing is written to it. HTTP/2 connections gather in it, too. Cost:
//! the stored lines are copied once, and no map of fields is made.

use std::cell::RefCell;

use bytes::Bytes;
use http::StatusCode;

use crate::road::client::response_body::ResponseBody;

/// A response whose head is encoded, except for Content-Length and Connection, which depend on the client's connection.
pub(crate) struct EncodedResponse {
    /// The status line and the field lines, in the buffer from [`scratch`].
    pub(crate) head: Vec<u8>,
    pub(crate) body: ResponseBody,
}

/// A hit from memory with an encoded head, before it is counted. Small, because it is moved through several results.
pub(crate) struct EncodedHit {
    pub(crate) head: Vec<u8>,
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Takes this thread's buffer for output. It is empty, and without memory if it is in use.
pub(crate) fn scratch() -> Vec<u8> {
    SCRATCH.take()
}

/// Returns a buffer to the thread for the next output, unless it has grown beyond [`SCRATCH_BYTES_MAX`].
pub(crate) fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() > 0 && buffer.capacity() <= SCRATCH_BYTES_MAX {
        buffer.clear();
        SCRATCH.set(buffer);
    }
}

/// Maximum size of the buffer that a thread keeps, in bytes.
const SCRATCH_BYTES_MAX: usize = 32 << 10;
