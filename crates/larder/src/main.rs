//! The binary. Everything else is in the library, so that the fuzzer can use it.

use std::process::ExitCode;

/// The allocator. Unlike the C library's, it returns memory to the system after a burst of clients.
/// `.cargo/config.toml` sets the delay.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    larder::main()
}
