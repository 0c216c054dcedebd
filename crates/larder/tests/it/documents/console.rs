//! Runs every console block of the documentation.
//!
//! Each page has a stage of its own: namespaces for the network, the mounts and the processes, an empty home, and an
//! origin that stands in for example.com and the package registries. All of it is removed with the stage.

use super::{
    documents,
    fences::{Fence, fences},
    session::{Session, is_proxy},
    standin,
    steps::{Step, steps},
};
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// Names the page, in the process that runs inside the stage.
const PAGE: &str = "LARDER_TEST_PAGE";

/// Limits the run to pages whose path contains this.
const ONLY: &str = "LARDER_TEST_PAGES";

/// Blocks that are not run, which is the most that there may be.
const IGNORED_MAX: usize = 24;

/// Blocks that are run at least.
const RUN_MIN: usize = 71;

/// Creates the stage: an address for the origin, one for the machine, and private copies of /etc and /var.
const STAGE: &str = r#"
set -e
ip link set lo up
ip addr add "$ADDRESS/32" dev lo
ip addr add 192.168.0.5/32 dev lo
mount -t tmpfs tmpfs /mnt
for folder in etc var; do
  mkdir "/mnt/$folder" "/mnt/$folder.work"
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=/mnt/$folder,workdir=/mnt/$folder.work" "/$folder"
done
for name in $NAMES; do echo "$ADDRESS $name" >> /etc/hosts; done
"#;

#[test]
fn every_console_block_in_the_documentation_prints_what_it_shows() {
    if let Ok(page) = env::var(PAGE) {
        return run_page(&page);
    }
    let only = env::var(ONLY).unwrap_or_default();
    if let Err(lack) = find_stage() {
        // The tests must pass on a machine that has only a compiler.
        assert!(only.is_empty(), "{lack}");
        return eprintln!("no block was run: {lack}");
    }
    let mut wrong = Vec::new();
    let mut run_count = 0;
    let mut ignored = Vec::new();
    for (page, text) in documents().into_iter().filter(|(page, _)| page.contains(&only)) {
        let blocks: Vec<_> = fences(&text).into_iter().filter(|block| block.language == "console").collect();
        let run = blocks.iter().filter(|block| block.reason_to_ignore().is_none()).count();
        let reasons = blocks.iter().filter_map(|block| Some((block.line, block.reason_to_ignore()?)));
        ignored.extend(reasons.map(|(line, reason)| format!("{page}:{line}: {reason}")));
        run_count += run;
        if run > 0 {
            wrong.extend(run_on_a_stage(&page).err());
        }
    }
    eprintln!("{run_count} blocks were run, {} were not:\n{}", ignored.len(), ignored.join("\n"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(run_count >= RUN_MIN || !only.is_empty(), "the documentation has examples: {run_count}");
    assert!(ignored.len() <= IGNORED_MAX, "more blocks are not run than before: {}", ignored.len());
}

/// Returns the command that runs its further arguments in new namespaces, for three minutes at most.
fn in_namespaces() -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", "180", "unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork"])
        .args(["--mount-proc", "--kill-child"])
        .stdin(Stdio::null());
    command
}

/// Starts a stage and checks that the programs in it work. Otherwise, returns what this machine lacks.
fn find_stage() -> Result<(), String> {
    let probe = format!("curl --version && python3 --version || exit 3\n{STAGE}");
    let output = in_namespaces()
        .args(["bash", "-c", &probe])
        .env("ADDRESS", standin::ADDRESS)
        .env("NAMES", "example.com")
        .output()
        .map_err(|error| format!("timeout and unshare are needed: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("bash, curl, python3, ip and unprivileged user namespaces are needed: {said}")),
    }
}

/// Runs this very test in new namespaces for one page.
fn run_on_a_stage(page: &str) -> Result<(), String> {
    let output = in_namespaces()
        .arg(env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("documents::console::every_console_block_in_the_documentation_prints_what_it_shows")
        .env(PAGE, page)
        .env("RUST_BACKTRACE", "0")
        .output()
        .map_err(|error| format!("timeout and unshare are needed: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(format!("{page}: {}\n{}", output.status, String::from_utf8_lossy(&printed)))
}

/// Runs all blocks of a page, inside the stage.
fn run_page(page: &str) {
    let stage = TempDir::new().unwrap();
    let made = Command::new("bash")
        .args(["-c", STAGE])
        .env("ADDRESS", standin::ADDRESS)
        .env("NAMES", standin::NAMES.join(" "))
        .status()
        .unwrap();
    assert!(made.success(), "the stage cannot be made: it needs user namespaces, and ip of iproute2");
    trust(&standin::start());
    let home = stage.path().join("home");
    fs::create_dir_all(home.join("bin")).unwrap();
    make_executable(&home.join("bin/sudo"), "#!/bin/sh\nexec \"$@\"\n");
    let mut session = Session::start(home.to_str().unwrap(), stage.path().to_owned());
    let text = fs::read_to_string(page).unwrap();
    let wrong: Vec<String> = fences(&text)
        .iter()
        .flat_map(|block| {
            let complaints = run_block(&mut session, &home, block);
            complaints.into_iter().map(move |complaint| format!("{page}:{}: {complaint}", block.line))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Writes the file that a block shows, or runs its commands. Returns the differences from the page.
fn run_block(session: &mut Session, home: &Path, block: &Fence) -> Vec<String> {
    if block.reason_to_ignore().is_some() {
        return Vec::new();
    }
    if block.language != "console" {
        if let Some(name) = block.file_name() {
            let path = home.join(name.strip_prefix("~/").unwrap_or(name));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, block.text()).unwrap();
        }
        return Vec::new();
    }
    let mut wrong = Vec::new();
    if block.is_marked("with-proxy") {
        wrong.extend(session.start_in_background("larder run --admin 3180", None));
    }
    for step in steps(block) {
        let Step::Command { text, output } = step else {
            session.interrupt();
            continue;
        };
        eprintln!("{}: $ {text}", block.line);
        let continues = is_proxy(&text) && !block.is_marked("fails");
        wrong.extend(if continues || block.is_marked("background") {
            session.start_in_background(&text, output.as_deref())
        } else {
            session.run(&text, output.as_deref(), block.is_marked("fails"))
        });
    }
    wrong
}

/// Makes every program on the stage trust the origin's certificate.
fn trust(certificate: &str) {
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    let all = fs::read_to_string(bundle).unwrap_or_default() + certificate;
    fs::create_dir_all("/etc/ssl/certs").unwrap();
    fs::write(bundle, all).unwrap();
}

fn make_executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
