//! Failures of the program: one screen with the problem, its place, and advice.
//!
//! Owns: the exit codes and the shape of every error the user sees. Errors are detected elsewhere. Invariant: every
//! failure has a help line.

use crate::output::{has_colours, tell};
use miette::{Diagnostic, LabeledSpan, MietteHandler, MietteHandlerOpts, NamedSource, Report, SourceCode};
use rustix::termios::tcgetwinsize;
use std::{
    env,
    error::Error,
    fmt,
    io::{self, IsTerminal},
    ops::Range,
    path::Path,
    process::ExitCode,
};

/// The cause of an exit, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCause {
    /// An external operation failed, such as on a file, a port or a device. Exit code 1.
    Runtime,
    /// Another process uses the store. Exit code 1.
    StoreInUse,
    /// The command line or the configuration is invalid. Exit code 2.
    Usage,
    /// The output's reader closed it. Exit code 0, without a message.
    ReaderGone,
}

/// A failure to show to the user.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: ExitCause,
    problem: String,
    help: String,
    place: Option<Box<FilePlace>>,
}

/// A place in a file.
#[derive(Debug)]
struct FilePlace {
    source: NamedSource<String>,
    label: LabeledSpan,
}

impl Failure {
    /// Creates the failure of an external operation.
    pub(crate) fn runtime(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { exit: ExitCause::Runtime, problem: problem.into(), help: help.into(), place: None }
    }

    /// Creates the failure for a store that another process uses.
    pub(crate) fn store_in_use(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { exit: ExitCause::StoreInUse, problem: problem.into(), help: help.into(), place: None }
    }

    /// Creates the failure for invalid input of the user.
    pub(crate) fn usage(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { exit: ExitCause::Usage, problem: problem.into(), help: help.into(), place: None }
    }

    /// Creates the failure for output whose reader has gone.
    pub(crate) fn reader_gone() -> Self {
        let problem = "the reader of the output closed it".to_owned();
        Self { exit: ExitCause::ReaderGone, problem, help: "read all of it".to_owned(), place: None }
    }

    /// Returns whether another process uses the store.
    pub(crate) fn is_store_in_use(&self) -> bool {
        self.exit == ExitCause::StoreInUse
    }

    /// Returns the problem and the advice.
    pub(crate) fn told(&self) -> (&str, &str) {
        (&self.problem, &self.help)
    }

    /// Adds a place: `span` in the file `path` with the content `text`, which the report marks with a caret.
    pub(crate) fn at(mut self, path: &Path, text: &str, span: Range<usize>, label: &str) -> Self {
        let source = NamedSource::new(path.display().to_string(), text.to_owned());
        let label = LabeledSpan::new_primary_with_span(Some(label.to_owned()), span);
        self.place = Some(Box::new(FilePlace { source, label }));
        self
    }

    /// Returns the problem and its place in one line.
    pub(crate) fn placed(&self) -> String {
        let Some(place) = &self.place else { return self.problem.clone() };
        let context = place.source.read_span(place.label.inner(), 0, 0);
        match context {
            Ok(found) => format!("{}: {}, line {}", self.problem, place.source.name(), found.line() + 1),
            Err(_) => format!("{}: {}", self.problem, place.source.name()),
        }
    }

    /// Prints the failure on standard error, unless it has no message. Returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let code = match self.exit {
            ExitCause::Runtime | ExitCause::StoreInUse => ExitCode::from(1),
            ExitCause::Usage => ExitCode::from(2),
            ExitCause::ReaderGone => return ExitCode::SUCCESS,
        };
        tell!("{}", self.shown());
        code
    }

    /// Returns the printed text: the problem, its place if it has one, and the advice.
    pub(crate) fn shown(self) -> String {
        // An error means that a hook is already set, for example by a test harness. The report is still printed.
        let _ = miette::set_hook(Box::new(|_| Box::new(handler())));
        format!("{:?}", Report::new(self))
    }
}

/// Returns the handler that formats errors. It wraps lines only at a terminal, so that a path or a command in a log can
/// be found and copied as a whole.
fn handler() -> MietteHandler {
    let error_output = io::stderr();
    let is_terminal = error_output.is_terminal();
    let columns = tcgetwinsize(&error_output).map_or(0, |size| usize::from(size.ws_col));
    let options = MietteHandlerOpts::new().context_lines(2).wrap_lines(is_terminal).break_words(is_terminal);
    let options = options.color(has_colours(&error_output)).unicode(!is_terminal || is_unicode_terminal());
    options.width(if columns == 0 { COLUMNS } else { columns }).build()
}

/// Returns whether the terminal shows lines and arrows: its locale is in UTF-8, and it is not the kernel's console.
fn is_unicode_terminal() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(env::var_os).unwrap_or_default();
    let locale = locale.to_string_lossy().to_uppercase();
    env::var_os("TERM").is_none_or(|name| name != "linux") && (locale.ends_with("UTF-8") || locale.ends_with("UTF8"))
}

/// Columns of a terminal that does not know its width.
const COLUMNS: usize = 80;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Error for Failure {}

impl Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|place| &place.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.place.as_ref().map(|place| Box::new(std::iter::once(place.label.clone())) as _)
    }
}
