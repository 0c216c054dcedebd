//! The program itself: everything is in the library beside it, so that the fuzzer can reach it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    larder::main()
}
