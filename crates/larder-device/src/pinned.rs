//! Creates values where they stay.

use std::pin::Pin;

/// Calls `make`, and returns its result in a pinned box.
///
/// `Box::pin` copies a value that already exists into the box. For the future of an async function, that would copy
/// kilobytes of which only the arguments are set yet. Cost: the allocation.
pub fn pinned<T>(make: impl FnOnce() -> T) -> Pin<Box<T>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}
