//! What a panic does: it ends the program, unless the store contains it.
//!
//! A bug of the proxy could otherwise leave a request without an answer. A bug of the storage engine costs one volume
//! until the next start (docs/rfcs/0014-failed-assertions.md).

use std::{panic, process};

/// Ends the program at every panic that the store does not contain, after the panic was reported.
pub(crate) fn end_the_program() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |about| {
        report(about);
        // Debug builds contain no panic.
        if cfg!(debug_assertions) || !larder_store::contains_panics() {
            process::abort();
        }
    }));
}
