//! The buffers into which the connections of a thread receive octets.
//!
//! Owns: the buffers. Received octets are copied at their exact length, or leave with the buffer that they fill. So a
//! connection on which nothing moves has no buffer.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// Calls `receive` with the thread's buffer of [`ARRIVALS_BYTES`]. `receive` must not call this function.
pub(crate) fn with<T>(receive: impl FnOnce(&mut [u8]) -> T) -> T {
    ARRIVALS.with_borrow_mut(|buffer| receive(buffer))
}

/// Calls `receive` with the thread's buffer for long bodies. Returns its result, and the octets that it appended.
///
/// The buffer has [`LONG_ARRIVALS_BYTES`]. `receive` must not call this function.
pub(crate) fn take_long<T>(receive: impl FnOnce(&mut BytesMut) -> T) -> (T, Bytes) {
    LONG_ARRIVALS.with_borrow_mut(|buffer| {
        if buffer.capacity() == 0 {
            buffer.reserve(LONG_ARRIVALS_BYTES);
        }
        let result = receive(buffer);
        let is_filled = buffer.len() >= LONG_ARRIVALS_BYTES / 2;
        let octets = if is_filled { std::mem::take(buffer).freeze() } else { Bytes::copy_from_slice(buffer) };
        buffer.clear();
        (result, octets)
    })
}

/// Maximum octets of a long body that are received at once.
pub(crate) const LONG_ARRIVALS_BYTES: usize = 256 << 10;
/// Maximum octets that are received at once into the thread's buffer.
pub(crate) const ARRIVALS_BYTES: usize = 64 << 10;

thread_local! {
    static ARRIVALS: RefCell<Box<[u8]>> = RefCell::new(vec![0; ARRIVALS_BYTES].into_boxed_slice());
    static LONG_ARRIVALS: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}
