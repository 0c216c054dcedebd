//! The program itself. Everything is in the library, so that the fuzzer can reach it too.

use std::process::ExitCode;

/// Gives back what a burst of clients took, which the C library's allocator keeps; `.cargo/config.toml` says how soon.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    larder::main()
}
