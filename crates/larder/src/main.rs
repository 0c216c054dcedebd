//! The binary. Everything else is in the library, so that the fuzzer can use it.

use std::process::ExitCode;

/// Returns memory to the system after a burst of clients, which the C library's allocator would keep.
/// `.cargo/config.toml` says how soon.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    larder::main()
}
