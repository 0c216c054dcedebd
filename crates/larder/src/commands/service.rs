//! `larder service`: runs this program as a systemd service, without a package.
//!
//! Owns: the steps of an installation, and the report of each. The unit is that of the Debian package
//! (`packaging/larder.service`) with the path of this program. Invariants: a unit or configuration that this command
//! did not write is never changed. Configuration, store and user outlive an uninstall.

use crate::ground::{
    failure::Failure,
    output::{print_line, tell},
};
use clap::Subcommand;
use rustix::process::geteuid;
use std::{
    collections::HashMap,
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const EXAMPLES: &str = "\
Examples:
  sudo larder service install
  larder service status
  sudo larder service uninstall

The service runs this binary where it is, as the user `larder`, with the configuration \
/etc/larder/larder.toml. Until the configuration says otherwise, it serves this machine only.";

/// The subcommands of `larder service`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ServiceCommand {
    /// Install this program as a systemd service, and start it
    Install,
    /// Stop the service and remove its unit; configuration and store stay
    Uninstall,
    /// Show whether the service runs
    Status,
}

/// Runs `larder service`.
///
/// # Errors
/// The machine does not run systemd, the user is not root, or a step fails.
pub(crate) fn run(command: &ServiceCommand) -> Result<(), Failure> {
    let machine = Machine { root: PathBuf::from("/"), execute: &execute };
    let program = env::current_exe().map_err(|error| {
        Failure::runtime(format!("cannot find this program's file: {error}"), "mount /proc, and try again")
    })?;
    machine.require_systemd(&program)?;
    match command {
        ServiceCommand::Install => {
            require_root("install")?;
            machine.install(&program)
        }
        ServiceCommand::Uninstall => {
            require_root("uninstall")?;
            machine.uninstall()
        }
        ServiceCommand::Status => machine.print_status(),
    }
}

/// The unit of the Debian package.
const PACKAGED_UNIT: &str = include_str!("../../../../packaging/larder.service");
/// The configuration of the Debian package.
const PACKAGED_CONFIG: &str = include_str!("../../../../packaging/larder.toml");
/// The path of the program in [`PACKAGED_UNIT`].
const PACKAGED_PROGRAM: &str = "/usr/bin/larder ";
/// A line of [`PACKAGED_UNIT`] that names a manual page. Only the package installs that page.
const PACKAGED_MANUAL: &str = "Documentation=man:larder(1)\n";
/// The first line of a unit that this command wrote. It distinguishes the unit from the user's own.
const MARK: &str = "# Written by `larder service install`; `larder service uninstall` removes it.\n";

const SERVICE: &str = "larder.service";
const USER: &str = "larder";
const UNIT_PATH: &str = "/etc/systemd/system/larder.service";
/// Paths at which packages install a unit of the same name.
const PACKAGED_UNIT_PATHS: [&str; 2] = ["/usr/lib/systemd/system/larder.service", "/lib/systemd/system/larder.service"];
const CONFIG_PATH: &str = "/etc/larder/larder.toml";
/// The folder that exists while systemd runs the machine (sd_booted(3)).
const BOOTED_PATH: &str = "/run/systemd/system";
/// Folders that the service cannot see, because the unit hides them (`ProtectHome=`, `PrivateTmp=`).
const HIDDEN_PATHS: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// The machine on which the service is installed. Tests replace it.
struct Machine<'a> {
    /// The folder that holds the service's files: `/`, or a temporary folder in tests.
    root: PathBuf,
    /// Runs a program of the system, such as systemctl, with these arguments.
    execute: &'a dyn Fn(&[&str]) -> io::Result<Output>,
}

impl Machine<'_> {
    fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    fn require_systemd(&self, program: &Path) -> Result<(), Failure> {
        if self.path(BOOTED_PATH).is_dir() {
            return Ok(());
        }
        let help = format!(
            "under another service manager, or as the main process of a container, let this command run as a user of \
             its own; SIGTERM stops it, and it must be restarted after an exit code other than 0: {} run --config \
             {CONFIG_PATH}",
            program.display()
        );
        Err(Failure::runtime("there is no service: systemd does not run this machine", help))
    }

    fn install(&self, program: &Path) -> Result<(), Failure> {
        if let Some(packaged) = PACKAGED_UNIT_PATHS.iter().find(|path| self.path(path).exists()) {
            let help = "start it with: systemctl enable --now larder";
            return Err(Failure::runtime(format!("a package has installed the service: {packaged}"), help));
        }
        let unit = unit_for(program)?;
        let unit_file = self.path(UNIT_PATH);
        let config_file = self.path(CONFIG_PATH);
        self.require_own_unit(&unit_file)?;
        if self.succeeds(&["getent", "passwd", USER]) {
            print_line!("user larder: exists")?;
        } else {
            let create = ["useradd", "--system", "--user-group", "--no-create-home"];
            let home = ["--home-dir", "/var/cache/larder", "--shell", "/usr/sbin/nologin", USER];
            self.require(&[&create[..], &home[..]].concat())?;
            print_line!("user larder: created")?;
        }
        if config_file.exists() {
            print_line!("{CONFIG_PATH}: exists, not changed")?;
        } else {
            write(&config_file, PACKAGED_CONFIG)?;
            print_line!("{CONFIG_PATH}: written")?;
        }
        write(&unit_file, &unit)?;
        print_line!("{UNIT_PATH}: written, for {}", program.display())?;
        self.require(&["systemctl", "daemon-reload"])?;
        self.require(&["systemctl", "enable", SERVICE])?;
        if self.succeeds(&["systemctl", "--quiet", "is-active", SERVICE]) {
            return print_line!("{SERVICE}: runs already; `larder upgrade` replaces its process with this program");
        }
        self.start()?;
        print_line!("{SERVICE}: started, and starts with the machine")?;
        print_line!("try it: curl -x http://127.0.0.1:3128 http://example.com/")
    }

    /// Starts the service. If that fails, prints the last lines of the service's log.
    fn start(&self) -> Result<(), Failure> {
        self.require(&["systemctl", "start", SERVICE]).map(drop).map_err(|_| {
            if let Ok(log) = (self.execute)(&["journalctl", "--unit", SERVICE, "--lines", "10", "--output", "cat"]) {
                tell!("{}", String::from_utf8_lossy(&log.stdout).trim_end());
            }
            let help = "correct what its messages report, then: systemctl start larder (journalctl -u larder has more)";
            Failure::runtime("the service is installed and does not start", help)
        })
    }

    fn uninstall(&self) -> Result<(), Failure> {
        let file = self.path(UNIT_PATH);
        if !file.exists() {
            let help = "a service of a package is removed with the package, such as: apt remove larder";
            return Err(Failure::runtime(format!("no service of `larder service install` is here: {UNIT_PATH}"), help));
        }
        self.require_own_unit(&file)?;
        self.require(&["systemctl", "disable", "--now", SERVICE])?;
        fs::remove_file(&file).map_err(|error| not_written("remove", &file, &error))?;
        self.require(&["systemctl", "daemon-reload"])?;
        print_line!("{SERVICE}: stopped and removed")?;
        print_line!("kept: the configuration in /etc/larder, the store in /var/cache/larder, logs, data and user")?;
        print_line!(
            "to remove these: rm -r /etc/larder /var/cache/larder /var/lib/larder /var/log/larder; userdel larder"
        )
    }

    fn print_status(&self) -> Result<(), Failure> {
        let asked = "--property=LoadState,ActiveState,SubState,UnitFileState,MainPID,FragmentPath,ActiveEnterTimestamp";
        let shown = self.require(&["systemctl", "show", SERVICE, asked])?;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let facts: HashMap<&str, &str> = shown.lines().filter_map(|line| line.split_once('=')).collect();
        let fact = |name: &str| facts.get(name).copied().unwrap_or_default();
        if fact("LoadState") != "loaded" {
            return Err(Failure::runtime("the service is not installed", "install it: sudo larder service install"));
        }
        let boot = if fact("UnitFileState") == "enabled" { "starts with the machine" } else { "not started at boot" };
        print_line!("service  {SERVICE}: {} ({}), {boot}", fact("ActiveState"), fact("SubState"))?;
        print_line!("unit     {}", fact("FragmentPath"))?;
        print_line!("config   {CONFIG_PATH}")?;
        print_line!("log      journalctl -u larder")?;
        if fact("ActiveState") != "active" {
            let help = "start it: systemctl start larder; journalctl -u larder says why it stopped";
            return Err(Failure::runtime("the service does not run", help));
        }
        print_line!("process  {}, since {}", fact("MainPID"), fact("ActiveEnterTimestamp"))
    }

    /// Refuses to change the unit at `file` if this command did not write it.
    fn require_own_unit(&self, file: &Path) -> Result<(), Failure> {
        match fs::read_to_string(file) {
            Ok(text) if text.starts_with(MARK) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(not_written("read", file, &error)),
            Ok(_) => {
                let help = "nothing was changed; move this file away, or control the service with systemctl";
                Err(Failure::runtime(format!("`larder service install` did not write this unit: {UNIT_PATH}"), help))
            }
        }
    }

    fn succeeds(&self, command: &[&str]) -> bool {
        (self.execute)(command).is_ok_and(|output| output.status.success())
    }

    /// Runs a program of the system.
    ///
    /// # Errors
    /// The program cannot be run, or exits with a code other than 0.
    fn require(&self, command: &[&str]) -> Result<Output, Failure> {
        let told = match (self.execute)(command) {
            Ok(output) if output.status.success() => return Ok(output),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        let help = "correct the cause, and run the command again: completed steps are not repeated";
        Err(Failure::runtime(format!("`{}` failed: {told}", command.join(" ")), help))
    }
}

/// Returns the text of a unit that runs `program`.
///
/// # Errors
/// The service could not run the program at this path.
fn unit_for(program: &Path) -> Result<String, Failure> {
    let move_it = format!("move it: install -m 755 {} /usr/local/bin/larder", program.display());
    let refused = |why: &str| Err(Failure::runtime(format!("{why}: {}", program.display()), &*move_it));
    // Other characters, such as `%` and spaces, have a special meaning in a unit.
    let is_plain = |path: &&str| path.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"/._+-".contains(&octet));
    let Some(path) = program.to_str().filter(is_plain) else {
        return refused("a systemd unit cannot name the path of this program");
    };
    if HIDDEN_PATHS.iter().any(|hidden| program.starts_with(hidden)) {
        return refused("a service cannot see the home and temporary folders, where this program is");
    }
    let is_open = |place: &Path| fs::metadata(place).is_ok_and(|found| found.permissions().mode() & 0o001 != 0);
    if !program.ancestors().all(is_open) {
        return refused("the user larder may not execute this program, or not enter its folder");
    }
    let unit = PACKAGED_UNIT.replace(PACKAGED_MANUAL, "").replace(PACKAGED_PROGRAM, &format!("{path} "));
    Ok(format!("{MARK}{unit}"))
}

/// Writes a file that everybody may read. Creates its folder if it does not exist.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(file);
    let written = fs::create_dir_all(folder)
        .and_then(|()| fs::write(file, text))
        .and_then(|()| fs::set_permissions(file, fs::Permissions::from_mode(0o644)));
    written.map_err(|error| not_written("write", file, &error))
}

fn not_written(action: &str, file: &Path, error: &io::Error) -> Failure {
    let help = "check that its folder can be written, and run the command again";
    Failure::runtime(format!("cannot {action} {}: {error}", file.display()), help)
}

fn require_root(action: &str) -> Result<(), Failure> {
    if geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::runtime("only root can change the machine's services", format!("run: sudo larder service {action}")))
}

fn execute(command: &[&str]) -> io::Result<Output> {
    Command::new(command[0]).args(&command[1..]).output()
}

#[cfg(test)]
mod tests;
