//! Guards against a proxy that serves a network, and that the upgrade of its package kills because its configuration is
//! broken.
//!
//! The script of the package runs with stand-ins for the commands of the system.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

/// Runs the script after the installation, on an upgrade, with the service running. `upgrade_code` is the exit code of
/// `larder upgrade`. Returns its output, and the commands that it ran.
fn configure(upgrade_code: i32) -> (Output, String) {
    let home = TempDir::new().unwrap();
    let commands = home.path().join("bin");
    let calls = home.path().join("calls");
    fs::create_dir(&commands).unwrap();
    for (name, code) in [
        ("adduser", 0),
        ("deb-systemd-invoke", 0),
        ("getent", 0),
        ("install", 0),
        ("larder", upgrade_code),
        ("systemctl", 0),
    ] {
        let text = format!("#!/bin/sh\necho \"{name} $*\" >> {}\nexit {code}\n", calls.display());
        fs::write(commands.join(name), text).unwrap();
        fs::set_permissions(commands.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/debian/postinst");
    // The folder that says that systemd runs.
    let booted = home.path().to_str().unwrap();
    let text = fs::read_to_string(script).unwrap().replace("/run/systemd/system", booted);
    let own = home.path().join("postinst");
    fs::write(&own, text).unwrap();
    let output = Command::new("/bin/sh").arg(own).args(["configure", "0.1.0-1"]).env("PATH", &commands).output();
    (output.unwrap(), fs::read_to_string(calls).unwrap())
}

#[test]
fn proxy_that_cannot_be_upgraded_stays_and_the_package_warns() {
    let (output, calls) = configure(1);
    assert!(output.status.success(), "the package is installed all the same: {output:?}");
    assert!(calls.contains("larder upgrade\n") && !calls.contains("restart"), "{calls}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("warning: ") && told.contains("larder config check"), "{told}");
}

#[test]
fn proxy_that_can_be_upgraded_is() {
    let (output, calls) = configure(0);
    assert!(output.status.success(), "{output:?}");
    assert!(calls.ends_with("larder upgrade\n"), "{calls}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
