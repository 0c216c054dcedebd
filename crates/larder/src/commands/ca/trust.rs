//! `larder ca trust`: makes programs on this machine trust the local CA, or stops that.
//!
//! Owns: changing the trust stores: Debian's system store, and the NSS database that this user's browsers read. The key
//! is not read. Invariant: it reports the result for each place, and fails if none was changed.

use crate::{
    commands::ca::CaDirectory,
    ground::{failure::Failure, output::print_line, value},
    settings::authority_files::AuthorityFiles,
};
use clap::Args;
use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The flags of `larder ca trust`.
#[derive(Debug, Args)]
pub(crate) struct TrustFlags {
    #[command(flatten)]
    directory: CaDirectory,

    /// Remove the CA from the trust stores
    #[arg(long)]
    undo: bool,

    /// Folder of the system's additional CAs
    #[arg(long, value_name = "DIRECTORY", default_value = "/usr/local/share/ca-certificates", value_parser = value::path)]
    system_store: PathBuf,
}

/// The outcome of the change to one trust store.
enum TrustOutcome {
    Changed(String),
    /// The store was not changed, for the reason given here.
    Left(String),
}

/// Runs `larder ca trust`.
///
/// # Errors
/// There is no CA, or no trust store was changed.
pub(super) fn run(flags: TrustFlags) -> Result<(), Failure> {
    let files = AuthorityFiles::at(flags.directory.dir)?;
    let certificate = files.certificate();
    if !flags.undo {
        files.certificate_pem()?;
    }
    let places =
        [("system", system(&certificate, &flags.system_store, flags.undo)), ("nss", nss(&certificate, flags.undo))];
    let mut changed_any = false;
    for (place, done) in &places {
        match done {
            TrustOutcome::Changed(what) => {
                changed_any = true;
                print_line!("{place:<8} {what}")?;
            }
            TrustOutcome::Left(why) => print_line!("{place:<8} not changed: {why}")?,
        }
    }
    if !changed_any {
        let help = format!(
            "for the system's store, run it as root: sudo larder ca trust --dir {}; for browsers, install \
             libnss3-tools",
            files.directory().display()
        );
        return Err(Failure::runtime("no trust store was changed", help));
    }
    if !flags.undo {
        print_line!("undo     larder ca trust --undo --dir {}", files.directory().display())?;
    }
    Ok(())
}

/// Adds the CA to Debian's system store, or removes it: changes the CA's file, and runs the command that rebuilds the
/// store.
fn system(certificate: &Path, store: &Path, undo: bool) -> TrustOutcome {
    let file = store.join(FILE_NAME);
    if !store.is_dir() {
        return TrustOutcome::Left(format!("no such directory: {}", store.display()));
    }
    let changed = if undo { fs::remove_file(&file) } else { fs::copy(certificate, &file).map(drop) };
    match changed {
        Err(error) if undo && error.kind() == io::ErrorKind::NotFound => {
            return TrustOutcome::Left(format!("no such file: {}", file.display()));
        }
        Err(error) => return TrustOutcome::Left(format!("{error}: {}", file.display())),
        Ok(()) => {}
    }
    let what = if undo { "removed" } else { "added" };
    match run_quietly(Command::new("update-ca-certificates")) {
        Ok(()) => TrustOutcome::Changed(format!("{what} {} (update-ca-certificates)", file.display())),
        Err(why) => TrustOutcome::Left(format!("{what} {}, but update-ca-certificates failed: {why}", file.display())),
    }
}

/// Adds the CA to the NSS database of Chromium and other browsers, or removes it.
fn nss(certificate: &Path, undo: bool) -> TrustOutcome {
    let Some(home) = env::var_os("HOME") else { return TrustOutcome::Left("HOME is not set".to_owned()) };
    let folder = Path::new(&home).join(".pki/nssdb");
    let database = format!("sql:{}", folder.display());
    let certutil = |arguments: &[&str]| {
        let mut command = Command::new("certutil");
        command.arg("-d").arg(&database).args(arguments);
        run_quietly(command)
    };
    if undo {
        return match certutil(&["-D", "-n", NICKNAME]) {
            Ok(()) => TrustOutcome::Changed(format!("removed from {database} (certutil)")),
            Err(why) => TrustOutcome::Left(why),
        };
    }
    if !folder.join("cert9.db").exists() {
        let made = fs::create_dir_all(&folder).map_err(|error| error.to_string());
        if let Err(why) = made.and_then(|()| certutil(&["-N", "--empty-password"])) {
            return TrustOutcome::Left(why);
        }
    }
    // An older CA with the same nickname would take precedence, so it is removed first. An error means that there is
    // none.
    let _ = certutil(&["-D", "-n", NICKNAME]);
    let shown = certificate.display().to_string();
    match certutil(&["-A", "-n", NICKNAME, "-t", "C,,", "-i", &shown]) {
        Ok(()) => TrustOutcome::Changed(format!("added to {database} (certutil); restart the browser")),
        Err(why) => TrustOutcome::Left(why),
    }
}

/// Runs a program without showing its output. If it fails, the error contains the output.
fn run_quietly(mut command: Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("no {name} on this machine"),
        _ => format!("{name}: {error}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", told.lines().next().unwrap_or("it failed without a message")))
}

/// Name of the CA's file in the system's trust store.
const FILE_NAME: &str = "larder-local-ca.crt";
/// Nickname of the CA in NSS databases.
const NICKNAME: &str = "Larder local CA";
