//! A response over HTTP/1.1 whose head is encoded already: a whole hit from memory.
//!
//! Owns: the thread's buffer for heads, while no head is being written. Cost: the stored lines are copied once, and no
//! map of fields is made.

use std::cell::RefCell;

use bytes::Bytes;
use http::StatusCode;

use crate::client::response_body::ResponseBody;

/// A response whose head lacks only the fields that frame its body and say how the connection goes on.
pub(crate) struct EncodedResponse {
    /// The status line and the other field lines, in the thread's buffer.
    pub(crate) head: Vec<u8>,
    pub(crate) body: ResponseBody,
}

/// The same response before its exchange is accounted for. It is small, because it is moved through several results.
pub(crate) struct EncodedHit {
    pub(crate) head: Vec<u8>,
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Takes the thread's buffer.
pub(crate) fn scratch() -> Vec<u8> {
    SCRATCH.take()
}

/// Gives an emptied buffer back to the thread.
pub(crate) fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() > 0 && buffer.capacity() <= SCRATCH_BYTES_MAX {
        buffer.clear();
        SCRATCH.set(buffer);
    }
}

/// Largest buffer that a thread keeps.
const SCRATCH_BYTES_MAX: usize = 32 << 10;
