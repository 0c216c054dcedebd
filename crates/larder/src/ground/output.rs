//! The program's output: results on standard output, messages for people on standard error.
//!
//! Owns: the handling of output that cannot be written. The wording is elsewhere. Invariants: if the output's reader
//! closes it (`| head`), the command ends quietly. A full disk ends it with a failure. A message that cannot be written
//! is dropped. No command prints in another way, because `println!` and `eprintln!` panic in all three cases.

use crate::ground::failure::Failure;
use std::{
    env, fmt,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

/// Prints a line of results, with the arguments of `println!`. The caller returns the error, which ends the command.
macro_rules! print_line {
    ($($text:tt)*) => { $crate::ground::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a message on standard error, with the arguments of `eprintln!`. Does nothing if it cannot be written.
macro_rules! tell {
    ($($text:tt)*) => { $crate::ground::output::say(format_args!($($text)*)) };
}

pub(crate) use {print_line, tell};

/// Prints `text` on standard output.
///
/// # Errors
/// A failure to return from the command. It has no message if the output's reader has gone.
pub(crate) fn print(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output.write_fmt(text).and_then(|()| output.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::reader_gone(),
        _ => {
            let help = "free some space, or redirect the output elsewhere";
            Failure::runtime(format!("cannot write to standard output: {error}"), help)
        }
    })
}

/// Prints a message on standard error. An error cannot be reported, so it is ignored.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Returns whether text on this output may have colors.
pub(crate) fn has_colors(output: &impl IsTerminal) -> bool {
    output.is_terminal() && env::var_os("NO_COLOR").is_none()
}

/// Prints clap's text for a request for help or the version. Returns the exit code.
pub(crate) fn help(asked: &clap::Error) -> ExitCode {
    let code = ExitCode::from(u8::try_from(asked.exit_code()).expect("clap exits with 0 or 2"));
    let text = asked.render();
    if asked.use_stderr() {
        say(format_args!("{}", text.to_string().trim_end()));
        return code;
    }
    print(format_args!("{text}")).map_or_else(Failure::report, |()| code)
}
