//! `larder ca`: manages the local CA, which signs the certificates of intercepted hosts.
//!
//! Owns: the flags, and the output. Signing is in `larder_proxy::Authority`, the files in `authority_files`. Invariant:
//! the private key is never printed.

mod trust;

use crate::{
    ground::{
        failure::Failure,
        output::{self, print_line, tell},
        value,
    },
    settings::{authority_files::AuthorityFiles, mirrors::InterceptedHosts},
};
use clap::{Args, Subcommand};
use larder_proxy::{Authority, HostPattern};
use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

const EXAMPLES: &str = "\
Examples:
  larder ca init --host pypi.org --host '*.pythonhosted.org'
  larder ca show
  sudo larder ca trust --dir ~/.local/share/larder/ca
  larder run --intercept pypi.org --intercept '*.pythonhosted.org'

A CA created with --host can sign for these hosts only, even if its key is stolen. `larder exec` needs \
no such CA: it creates one that a single command trusts, and deletes it with the command.";

/// The subcommands of `larder ca`.
#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// Create a CA: a private key, which stays on this machine, and a certificate for two years
    #[command(after_help = EXAMPLES)]
    Init(CaWishes),
    /// Print the CA's name, hosts and expiry
    Show(CaDirectory),
    /// Print the CA's certificate, for clients to trust
    Export {
        #[command(flatten)]
        directory: CaDirectory,
        /// Write the certificate to this file instead of standard output
        #[arg(long, value_name = "FILE", value_parser = value::path)]
        out: Option<PathBuf>,
    },
    /// Add the CA to the trust stores of this machine: Debian's system store, and NSS for browsers
    Trust(trust::TrustFlags),
    /// Replace the CA with a new one, which clients must trust again
    Rotate(CaWishes),
}

/// The directory of the CA.
#[derive(Debug, Args)]
pub(crate) struct CaDirectory {
    /// Directory of the CA [default: larder/ca in your data directory]
    #[arg(long, value_name = "DIRECTORY", value_parser = value::path)]
    dir: Option<PathBuf>,
}

/// The flags of `larder ca init`.
#[derive(Debug, Args)]
pub(crate) struct CaWishes {
    #[command(flatten)]
    directory: CaDirectory,
    /// Host that the CA may sign for, such as pypi.org or *.debian.org, or a package registry such as npm (repeatable)
    /// [default: any; for rotate: those of the existing CA]
    #[arg(long = "host", value_name = "HOST", value_parser = InterceptedHosts::parse)]
    hosts: Vec<InterceptedHosts>,
}

impl CaWishes {
    fn patterns(&self) -> Vec<HostPattern> {
        self.hosts.iter().flat_map(InterceptedHosts::patterns).collect()
    }
}

/// Runs `larder ca`.
///
/// # Errors
/// The CA's files are missing or unusable, or a step failed.
pub(crate) fn run(command: CaCommand) -> Result<(), Failure> {
    match command {
        CaCommand::Init(making) => {
            let hosts = making.patterns();
            let files = AuthorityFiles::at(making.directory.dir)?;
            if files.exist() {
                let help = "use it (larder ca show), or replace it with larder ca rotate";
                return Err(Failure::runtime(format!("a CA already exists: {}", files.directory().display()), help));
            }
            make(&files, &hosts)
        }
        CaCommand::Rotate(making) => {
            let hosts = making.patterns();
            let files = AuthorityFiles::at(making.directory.dir)?;
            if !files.exist() {
                return Err(files.missing());
            }
            // `rotate` may replace even a CA that cannot be read, so an error here only means that no hosts are taken
            // over.
            let before = if hosts.is_empty() { files.load().ok() } else { None };
            let kept = before.as_ref().and_then(Authority::permitted).unwrap_or_default();
            let kept: Vec<HostPattern> = kept.iter().filter_map(|name| name.parse().ok()).collect();
            make(&files, if hosts.is_empty() { &kept } else { &hosts })
        }
        CaCommand::Show(directory) => {
            let files = AuthorityFiles::at(directory.dir)?;
            show(&files, &files.load()?)
        }
        CaCommand::Export { directory, out } => {
            let pem = AuthorityFiles::at(directory.dir)?.certificate_pem()?;
            let Some(out) = out else { return output::print(format_args!("{pem}")) };
            fs::write(&out, pem).map_err(|error| {
                let help = "choose a file that you may write to with --out";
                Failure::runtime(format!("cannot write the certificate: {error}: {}", out.display()), help)
            })
        }
        CaCommand::Trust(flags) => trust::run(flags),
    }
}

fn make(files: &AuthorityFiles, hosts: &[HostPattern]) -> Result<(), Failure> {
    let authority = Authority::generate(hosts, LIFETIME).map_err(|error| {
        Failure::runtime(format!("cannot create a CA: {error}"), "check the hosts given with --host")
    })?;
    files.save(&authority)?;
    show(files, &authority)?;
    if hosts.is_empty() {
        tell!(
            "larder: warning: this CA can sign for any host. A thief of its key can read all HTTPS traffic of the \
             clients that trust it. To limit it to the hosts that you cache, run larder ca rotate --host HOST"
        );
    }
    print_line!("next      make clients trust it: larder ca trust, or larder ca export for other machines")
}

fn show(files: &AuthorityFiles, authority: &Authority) -> Result<(), Failure> {
    let left = authority.expires_at().duration_since(SystemTime::now()).unwrap_or_default();
    let hosts = match authority.permitted() {
        None => "any".to_owned(),
        Some(names) => format!("{} and their subdomains only", names.join(", ")),
    };
    print_line!("name      {}", authority.name())?;
    print_line!("file      {}", files.certificate().display())?;
    print_line!("sha256    {}", authority.fingerprint())?;
    print_line!("hosts     {hosts}")?;
    print_line!("expires   in {} days", left.as_secs() / DAY_SECS)
}

const DAY_SECS: u64 = 24 * 3600;
/// Time for which a new CA is valid.
const LIFETIME: Duration = Duration::from_secs(2 * 365 * DAY_SECS);
