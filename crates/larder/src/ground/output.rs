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

/// Prints a line of results on standard output, with the arguments of `println!`. The caller must return the error,
/// which ends the command.
macro_rules! print_line {
    ($($text:tt)*) => { $crate::ground::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a message on standard error, with the arguments of `eprintln!`. A message that cannot be written is dropped.
macro_rules! tell {
    ($($text:tt)*) => { $crate::ground::output::say(format_args!($($text)*)) };
}

pub(crate) use {print_line, tell};

/// Prints `text` on standard output.
///
/// # Errors
/// The output cannot be written. The command must return this failure. It has no message if the output's reader has
/// gone.
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

/// Prints a message on standard error. A message that cannot be written is dropped, because there is no other place to
/// report it.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Returns whether text on `output` may have colors: it is a terminal, and the environment variable `NO_COLOR` is not
/// set.
pub(crate) fn has_colors(output: &impl IsTerminal) -> bool {
    output.is_terminal() && env::var_os("NO_COLOR").is_none()
}

/// Prints the text that clap made for `--help`, `--version` or a usage error. Returns the exit code.
pub(crate) fn help(asked: &clap::Error) -> ExitCode {
    let code = ExitCode::from(u8::try_from(asked.exit_code()).expect("clap exits with 0 or 2"));
    let text = asked.render();
    if asked.use_stderr() {
        say(format_args!("{}", text.to_string().trim_end()));
        return code;
    }
    print(format_args!("{text}")).map_or_else(Failure::report, |()| code)
}
