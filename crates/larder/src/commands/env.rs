//! `larder env`: prints shell lines that make the shell's programs use the running Larder.
//!
//! Owns: the flags, and the shells' quoting. The variables are in `commands::exec::environment`. Invariant: the shell
//! reads a value literally, whatever it contains.

use crate::{
    commands::exec::{environment, java},
    ground::{
        failure::Failure,
        output::{print_line, tell},
    },
    run::control::{ControlAnswer, ControlPath, ControlRequest, ControlSummary},
    settings::authority_files::user_data_folder,
};
use clap::{Args, ValueEnum};
use std::{ffi::OsString, fs, io, path::Path};

const EXAMPLES: &str = "\
Examples:
  eval \"$(larder env)\"
  larder env --shell fish | source
  larder env --shell github >> \"$GITHUB_ENV\"
  eval \"$(larder env --undo)\"

A Larder must be running (larder run). If it intercepts hosts, the lines also make programs trust its \
CA. For one command, `larder exec` does all of this by itself.";

/// The flags of `larder env`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EnvFlags {
    /// Shell that reads the lines
    #[arg(long, value_enum, default_value_t = Shell::Bash)]
    shell: Shell,

    /// Print lines that reverse the effect of the usual ones
    #[arg(long)]
    undo: bool,
}

/// The program that reads the printed lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// bash, sh, dash and zsh
    Bash,
    Fish,
    Powershell,
    /// The file named by $GITHUB_ENV
    Github,
}

/// Runs `larder env`.
///
/// # Errors
/// No Larder is running, or it is not a forward proxy.
pub(crate) fn run(flags: &EnvFlags) -> Result<(), Failure> {
    if flags.undo {
        let before = std::env::var_os(java::VARIABLE).unwrap_or_default();
        let is_ours = before.to_string_lossy().contains(JAVA_STORE);
        let names = environment::names().chain(is_ours.then_some(java::VARIABLE));
        return names.into_iter().try_for_each(|name| print_line!("{}", flags.shell.unset(name)));
    }
    let ControlSummary { proxy, certificate, .. } = about()?;
    let help = "run one as a forward proxy: larder run without --origin and sites";
    let proxy = proxy.ok_or_else(|| {
        Failure::runtime("the running larder is not a forward proxy, or all its listeners use TLS", help)
    })?;
    let mut variables = environment::proxy_variables(proxy);
    match certificate {
        Some(certificate) => {
            let bundle = environment::bundle(&certificate)?;
            let folder = user_data_folder()?;
            let kept = fs::create_dir_all(&folder).and_then(|()| environment::trust(&folder, &bundle));
            variables.extend(kept.map_err(|error| unwritten(&folder, &error))?);
            if java::is_there() {
                let store = folder.join(JAVA_STORE);
                variables.push((
                    java::VARIABLE,
                    java::options(proxy, &bundle, &store).map_err(|error| unwritten(&store, &error))?,
                ));
            }
        }
        None => tell!("larder: no hosts are intercepted, so https:// is not cached (larder run --intercept)"),
    }
    variables.iter().try_for_each(|(name, value)| print_line!("{}", flags.shell.set(name, value)))
}

fn about() -> Result<ControlSummary, Failure> {
    let asked = match ControlPath::connect_any()? {
        Some(mut control) => Some(control.ask_or_fail(&ControlRequest::About)?),
        None => None,
    };
    match asked {
        Some(Ok(ControlAnswer::About(about))) => Ok(about),
        _ => {
            let help = "start one first, such as larder run --intercept npm; or use larder exec -- COMMAND";
            Err(Failure::runtime("no larder of yours is running", help))
        }
    }
}

fn unwritten(file: &Path, error: &io::Error) -> Failure {
    let help = "set XDG_DATA_HOME to a directory that you may write to";
    Failure::runtime(format!("cannot write the CA certificates: {error}: {}", file.display()), help)
}

/// File name of the Java trust store, by which `--undo` recognizes Larder's own options.
const JAVA_STORE: &str = "larder-authorities.jks";

impl Shell {
    fn set(self, name: &str, value: &OsString) -> String {
        let value = value.to_string_lossy();
        match self {
            Self::Bash => format!("export {name}='{}'", value.replace('\'', "'\\''")),
            Self::Fish => format!("set -gx {name} '{}'", value.replace('\\', "\\\\").replace('\'', "\\'")),
            Self::Powershell => format!("$env:{name} = '{}'", value.replace('\'', "''")),
            // In GitHub's environment file, a value ends at the end of its line, so line breaks are removed.
            Self::Github => format!("{name}={}", value.replace(['\n', '\r'], "")),
        }
    }

    fn unset(self, name: &str) -> String {
        match self {
            Self::Bash => format!("unset {name}"),
            Self::Fish => format!("set -e {name}"),
            Self::Powershell => format!("Remove-Item Env:{name} -ErrorAction SilentlyContinue"),
            Self::Github => format!("{name}="),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_their_shell() {
        let value = OsString::from("a'b\\c $(d)");
        for (shell, set, unset) in [
            (Shell::Bash, "export X='a'\\''b\\c $(d)'", "unset X"),
            (Shell::Fish, "set -gx X 'a\\'b\\\\c $(d)'", "set -e X"),
            (Shell::Powershell, "$env:X = 'a''b\\c $(d)'", "Remove-Item Env:X -ErrorAction SilentlyContinue"),
            (Shell::Github, "X=a'b\\c $(d)", "X="),
        ] {
            assert_eq!((shell.set("X", &value).as_str(), shell.unset("X").as_str()), (set, unset));
        }
    }
}
