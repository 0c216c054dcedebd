//! `larder exec`: runs a command whose requests go through a caching Larder, `https://` included.
//!
//! Owns: the flags, finding or starting a Larder, and the summary at the end. `child` runs the command, and
//! `environment` sets its environment. Invariants: the exit code, standard streams and terminal belong to the command.
//! The CA that its programs trust exists only in memory and only while the command runs.

mod child;
pub(crate) mod environment;
pub(crate) mod isolated;
mod isolation;
pub(crate) mod java;
pub(crate) mod proxy_before;
mod summary;
pub(crate) mod trusted;

use crate::{
    commands::private_larder::{self, AllowedTargets},
    ground::{failure::Failure, output::tell},
    run::control::{Control, ControlAnswer, ControlPath, ControlRequest},
    settings::mirrors::InterceptedHosts,
};
use clap::Args;
use environment::CommandEnvironment;
use larder_proxy::HostPattern;
use proxy_before::ProxyBefore;
use std::{ffi::OsString, process::ExitCode, time::Instant};
use summary::SummaryForm;

const EXAMPLES: &str = "\
Examples:
  larder exec -- pip install -r requirements.txt
  larder exec -- npm ci
  larder exec --offline -- cargo build
  larder exec --intercept pypi.org -- make
  larder exec --allow-target 10.0.0.0/8 -- mvn package

Every https:// host that the command requests is intercepted; --intercept names fewer. The CA is created \
for this command: only its processes trust it, and it is deleted when they end.

If a Larder of yours runs, the command goes through it. Otherwise a Larder is started on the default \
store, and ends with the last command that uses it. The started Larder goes through the proxy that the \
environment names (https_proxy, no_proxy), if any.

Exit code: that of the command; 128 plus the signal's number if a signal ended it; 127 or 126 if it \
cannot be found or run; 1 if there is no Larder to go through.";

/// The flags of `larder exec`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExecFlags {
    /// Host whose https:// is cached: pypi.org, *.debian.org, all, or a package registry such as npm (repeatable)
    /// [default: all]
    #[arg(long, value_name = "HOST", value_parser = InterceptedHosts::parse)]
    intercept: Vec<InterceptedHosts>,

    /// Host or package registry that is not intercepted (repeatable)
    #[arg(long, value_name = "HOST", value_parser = InterceptedHosts::parse)]
    except: Vec<InterceptedHosts>,

    #[command(flatten)]
    targets: AllowedTargets,

    /// Answer only from stored responses, however old, and contact no origin. Where the system permits it, the command
    /// has no network except the cache
    #[arg(long)]
    offline: bool,

    /// Print no summary at the end
    #[arg(long, short)]
    quiet: bool,

    /// Format of the summary on standard error
    #[arg(long, value_name = "FORM", value_enum, default_value_t = SummaryForm::Text)]
    summary: SummaryForm,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs `larder exec`. Returns the exit code of the user's command.
///
/// # Errors
/// No Larder can be used, or the CA's files cannot be written.
pub(crate) fn run(flags: ExecFlags) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let named = flags.intercept.iter().flat_map(InterceptedHosts::patterns).collect::<Vec<_>>();
    let hosts = if named.is_empty() { vec![HostPattern::All] } else { named };
    let shown = |patterns: &[HostPattern]| patterns.iter().map(ToString::to_string).collect();
    let except = flags.except.iter().flat_map(InterceptedHosts::patterns).collect::<Vec<_>>();
    let ask = ControlRequest::Open {
        hosts: shown(&hosts),
        except: shown(&except),
        offline: flags.offline,
        allow_targets: flags.targets.shown(),
    };
    let (mut control, proxy, certificate) = private_larder::open(&ask, None)?;
    if let Some(before) = proxy_before::find() {
        warn_of(&before, &mut control);
    }
    let environment = CommandEnvironment::for_session(proxy, &certificate)?;
    let end = child::run(&flags.command, &environment, flags.offline.then_some(proxy))?;
    drop(environment);
    let figures = match control.ask(&ControlRequest::Figures) {
        Ok(ControlAnswer::Figures(figures)) => Some(figures),
        _ => None,
    };
    control.close();
    match figures {
        _ if flags.quiet || !end.was_run => {}
        Some(figures) => summary::print(&figures, flags.summary, begun.elapsed().as_secs_f64()),
        None => tell!("larder: the proxy ended before the command did; see {}", ControlPath::find()?.log().display()),
    }
    Ok(end.code)
}

/// Prints a warning if the environment names a proxy that the command's requests no longer go through.
fn warn_of(before: &ProxyBefore, control: &mut Control) {
    let variable = before.variable;
    let Some((parent, _)) = before.parents.as_ref().and_then(|parents| parents.members.first()) else {
        tell!("larder: warning: {variable} names a proxy that larder cannot use: only http:// proxies are supported");
        return;
    };
    let theirs = match control.ask(&ControlRequest::About) {
        Ok(ControlAnswer::About(about)) => about.parent,
        _ => None,
    };
    if theirs != Some(parent.to_string()) {
        let way = theirs.map_or("directly".to_owned(), |parent| format!("through {parent}"));
        tell!(
            "larder: warning: {variable} names another proxy, but the running larder contacts origins {way}; see \
             `parent` in its configuration"
        );
    }
}
