//! Creates values where they stay.

use std::pin::Pin;

/// Creates a value in a box, and pins it.
///
/// `Box::pin` gets a value that exists already, and copies it into the box. The value of a call of an async function is
/// a future with its whole size, often kilobytes, of which only the arguments mean something yet. Cost: the allocation.
pub fn pinned<T>(make: impl FnOnce() -> T) -> Pin<Box<T>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}
