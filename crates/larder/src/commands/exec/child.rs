//! Runs the command of `larder exec` as a process.
//!
//! Owns: waiting for its end, and the choice of the signals forwarded to it. Invariant: a signal that the terminal
//! sends to both processes is not sent twice.

use super::{environment::CommandEnvironment, isolation::Isolation};
use crate::ground::failure::Failure;
use rustix::{
    process::{Pid, Signal as Number, getpgrp, kill_process},
    termios::tcgetpgrp,
};
use std::{
    ffi::OsString,
    fs::File,
    io,
    net::SocketAddr,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitCode, ExitStatus},
    time::Duration,
};
use tokio::{
    runtime, select,
    signal::unix::{Signal, SignalKind, signal},
    task, time,
};

/// The result of a command whose process has ended.
pub(super) struct CommandEnd {
    /// The exit code that `larder exec` returns.
    pub(super) code: ExitCode,
    /// Whether the program was found and started.
    pub(super) was_run: bool,
}

/// Runs the command to its end. If `only` is given, the command runs in an isolated network, from which it can reach
/// only the proxy at that address.
///
/// # Errors
/// Signals cannot be received, or the network cannot be prepared.
pub(super) fn run(
    command: &[OsString],
    environment: &CommandEnvironment,
    only: Option<SocketAddr>,
) -> Result<CommandEnd, Failure> {
    let system = |error: io::Error| {
        Failure::runtime(
            format!("cannot wait for the command: {error}"),
            "the limit on open files may be too low (ulimit -n)",
        )
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    runtime.block_on(async {
        let mut signals = ForwardedSignals::listen().map_err(system)?;
        let (program, arguments) = command.split_first().expect("the command line asks for one");
        let isolation = only.map(|proxy| Isolation::new(environment.folder(), proxy)).transpose().map_err(system)?;
        let mut starting = match &isolation {
            Some(isolation) => isolation.command(program, arguments).map_err(system)?,
            None => direct(program, arguments),
        };
        let mut child = match starting.envs(environment.variables()).spawn() {
            Ok(child) => child,
            Err(error) => return Ok(CommandEnd { code: not_run(program, &error), was_run: false }),
        };
        let id = Pid::from_child(&child);
        let ended = task::spawn_blocking(move || child.wait());
        tokio::pin!(ended);
        let start = async {
            match &isolation {
                Some(isolation) => isolation.serve_start().await.unwrap_or_default(),
                None => true,
            }
        };
        let mut start = std::pin::pin!(start);
        let mut was_run = None;
        loop {
            select! {
                run = &mut start, if was_run.is_none() => was_run = Some(run),
                status = &mut ended => {
                    let status = status.map_err(io::Error::other).and_then(|status| status).map_err(system)?;
                    // The helper process may have sent a last message before it ended, which is still unread.
                    let was_run = match was_run {
                        Some(was_run) => was_run,
                        None => time::timeout(LAST_WORDS, &mut start).await.unwrap_or_default(),
                    };
                    return Ok(CommandEnd { code: code_of(status), was_run });
                }
                number = signals.next() => {
                    // The process may have just ended, so an error is ignored.
                    let _ = kill_process(id, number);
                }
            }
        }
    })
}

fn direct(program: &OsString, arguments: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Returns the exit code that a shell would report for a process that ended with `status`.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| SIGNAL_CODE + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}

/// Reports on standard error that a program cannot be run. Returns the exit code that a shell would return.
pub(super) fn not_run(program: &OsString, error: &io::Error) -> ExitCode {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let help = "give a program in your PATH, or a path";
    let _ = Failure::runtime(format!("cannot run the command: {error}: {}", program.display()), help).report();
    ExitCode::from(if is_missing { NOT_FOUND_CODE } else { NOT_RUN_CODE })
}

/// The signals that this process receives and forwards to the command.
struct ForwardedSignals {
    from_terminal: [(Number, Signal); 2],
    others: [(Number, Signal); 5],
}

impl ForwardedSignals {
    fn listen() -> io::Result<Self> {
        let of = |number: Number, kind: SignalKind| signal(kind).map(|signal| (number, signal));
        Ok(Self {
            from_terminal: [of(Number::INT, SignalKind::interrupt())?, of(Number::QUIT, SignalKind::quit())?],
            others: [
                of(Number::TERM, SignalKind::terminate())?,
                of(Number::HUP, SignalKind::hangup())?,
                of(Number::USR1, SignalKind::user_defined1())?,
                of(Number::USR2, SignalKind::user_defined2())?,
                of(Number::ALARM, SignalKind::alarm())?,
            ],
        })
    }

    /// Waits for the next signal that has to be forwarded. A signal from the terminal is skipped if the command
    /// received it, too.
    async fn next(&mut self) -> Number {
        let Self { from_terminal: [interrupt, quit], others: [terminate, hangup, user1, user2, alarm] } = self;
        loop {
            let (number, from_terminal) = select! {
                _ = interrupt.1.recv() => (interrupt.0, true),
                _ = quit.1.recv() => (quit.0, true),
                _ = terminate.1.recv() => (terminate.0, false),
                _ = hangup.1.recv() => (hangup.0, false),
                _ = user1.1.recv() => (user1.0, false),
                _ = user2.1.recv() => (user2.0, false),
                _ = alarm.1.recv() => (alarm.0, false),
            };
            if !(from_terminal && is_in_foreground()) {
                return number;
            }
        }
    }
}

/// Returns whether this process group is in the terminal's foreground. If it is, the terminal also sends its signals to
/// the command, which is in the same group.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Maximum wait for the last message of a helper process that has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Number that shells add to a signal's number to get the exit code of a process that the signal ended.
const SIGNAL_CODE: i32 = 128;
const NOT_FOUND_CODE: u8 = 127;
const NOT_RUN_CODE: u8 = 126;
