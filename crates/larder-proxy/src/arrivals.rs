//! The buffer into which the connections of a thread receive octets.
//!
//! Owns: the buffer. Received octets are copied at their exact length, so that a connection on which nothing moves has
//! no buffer.

use std::cell::RefCell;

/// Calls `receive` with the thread's buffer, of [`ARRIVALS_BYTES`]. It must not poll another connection.
pub(crate) fn with<T>(receive: impl FnOnce(&mut [u8]) -> T) -> T {
    ARRIVALS.with_borrow_mut(|buffer| receive(buffer))
}

/// Most octets that are received at once into the thread's buffer.
pub(crate) const ARRIVALS_BYTES: usize = 64 << 10;

thread_local! {
    static ARRIVALS: RefCell<Box<[u8]>> = RefCell::new(vec![0; ARRIVALS_BYTES].into_boxed_slice());
}
