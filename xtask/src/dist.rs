//! Makes the files of a release, for each target: a static program, an archive, a Debian package, the root of a
//! container and a list of components; and checksums of all.
//!
//! Owns: the tools for this, and the folder `target/dist`. The dependencies are audited first. Invariant: missing tools
//! are named before anything is compiled, with the commands that install them.

mod components;

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{audit, cargo};

/// The cargo profile with which releases are built.
const PROFILE: &str = "dist";
/// The cargo features of a release, in addition to the default ones.
const FEATURES: &str = "aws-lc,lab,log-nats,log-redis";
/// The folder for the files of a release, below the root of the project.
const RESULTS: &str = "target/dist";
/// The certificates of public CAs on the machine that builds a release. They are copied into the container, which has
/// no others.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The C compiler for targets with another processor than this machine's.
const CROSS_COMPILER: &str = "packaging/zig-cc.sh";
/// Number of the user and of the group that Larder runs as in the container.
const USER_ID: &str = "65532";
/// Files of the project that go into the archive, each with its folder in the archive.
const ARCHIVED: [(&str, &str); 9] = [
    ("README.md", ""),
    ("CHANGELOG.md", ""),
    ("LICENSE-APACHE", ""),
    ("LICENSE-MIT", ""),
    ("clients/c/larder.c", "clients/c"),
    ("clients/c/larder.h", "clients/c"),
    ("clients/c/larder-value.c", "clients/c"),
    ("docs/how-to/values.md", "clients/c"),
    ("docs/reference/store-socket.md", "clients/c"),
];

/// Makes the release files for this machine's architecture and for the targets in `further`. Returns whether all were
/// made.
pub(crate) fn run(root: &Path, further: &[&str]) -> bool {
    make(root, further).inspect_err(|problem| eprintln!("dist: {problem}")).is_ok()
}

fn make(root: &Path, further: &[&str]) -> Result<(), String> {
    let own = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let mut targets = vec![own.as_str()];
    targets.extend(further.iter().filter(|target| **target != own));
    let mut missing: Vec<String> = targets.iter().flat_map(|target| missing_for(root, target, &own)).collect();
    missing.extend(missing_tools(root));
    if !missing.is_empty() {
        return Err(format!("needs:\n  {}", missing.join("\n  ")));
    }
    if !audit::run(root) {
        return Err("the dependencies did not pass the audit".into());
    }
    let results = root.join(RESULTS);
    // An error is ignored: there may be no earlier results.
    let _ = fs::remove_dir_all(&results);
    fs::create_dir_all(&results).map_err(|error| format!("cannot create {RESULTS}: {error}"))?;
    for target in &targets {
        build(root, target, &own)?;
        let program = program(root, target);
        // The pages of all targets are the same, and only this machine's program runs here.
        let manual = program.with_file_name("manual");
        let own_program = self::program(root, &own).display().to_string();
        execute(root, &own_program, &["manual", &manual.display().to_string()])?;
        Release { root, results: &results, target, program: &program, manual: &manual }.make()?;
    }
    sum_up(&results)
}

/// The files of a release for one target.
struct Release<'a> {
    root: &'a Path,
    results: &'a Path,
    target: &'a str,
    program: &'a Path,
    manual: &'a Path,
}

impl Release<'_> {
    fn make(&self) -> Result<(), String> {
        let profile = ["--profile", PROFILE, "--no-build", "--no-strip", "--target", self.target];
        let output = self.results.display().to_string();
        let package = [&["deb", "-p", "larder", "--output", &output][..], &profile[..]].concat();
        if !cargo::succeeds(self.root, &package, &[]) {
            return Err("cargo-deb failed".into());
        }
        self.archive().map_err(|error| format!("cannot collect the archive: {error}"))?;
        self.container().map_err(|error| format!("cannot collect the container: {error}"))?;
        let listed = components::list(self.root, self.target)?;
        let file = self.results.join(format!("{}.cdx.json", self.name()));
        fs::write(&file, listed).map_err(|error| format!("cannot write {}: {error}", file.display()))
    }

    fn architecture(&self) -> &str {
        self.target.split('-').next().unwrap_or(self.target)
    }

    fn name(&self) -> String {
        format!("larder-{}-{}-linux", env!("CARGO_PKG_VERSION"), self.architecture())
    }

    fn archive(&self) -> io::Result<()> {
        let name = self.name();
        let folder = self.results.join(&name);
        for (file, place) in ARCHIVED {
            put(&self.root.join(file), &folder.join(place))?;
        }
        put(self.program, &folder)?;
        for page in fs::read_dir(self.manual)? {
            put(&page?.path(), &folder.join("manual"))?;
        }
        let archive = format!("{name}.tar.zst");
        tar(self.results, &["--zstd", "-cf", &archive, "--owner=0", "--group=0", &name])?;
        fs::remove_dir_all(folder)
    }

    /// Collects the files of a container that has only Larder in it (`packaging/Containerfile`).
    fn container(&self) -> io::Result<()> {
        let name = format!("larder-rootfs-{}", self.architecture());
        let folder = self.results.join(&name);
        put(self.program, &folder.join("usr/bin"))?;
        put(Path::new(CERTIFICATES), &folder.join("etc/ssl/certs"))?;
        let passwd = format!("larder:x:{USER_ID}:{USER_ID}:Larder:/var/cache/larder:/sbin/nologin\n");
        fs::write(folder.join("etc/passwd"), passwd)?;
        fs::write(folder.join("etc/group"), format!("larder:x:{USER_ID}:\n"))?;
        for place in ["var/cache/larder", "var/lib/larder", "run/larder", "tmp"] {
            fs::create_dir_all(folder.join(place))?;
        }
        fs::set_permissions(folder.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        let archive = format!("{name}.tar");
        let within = folder.display().to_string();
        tar(self.results, &["-cf", &archive, "-C", &within, "--owner=0", "--group=0", "usr", "etc", "tmp"])?;
        let owner = format!("--owner={USER_ID}");
        let group = format!("--group={USER_ID}");
        let own = ["var/cache/larder", "var/lib/larder", "run/larder"];
        tar(self.results, &[&["-rf", &archive, "-C", &within, &owner, &group][..], &own[..]].concat())?;
        fs::remove_dir_all(folder)
    }
}

/// Builds the program for `target`.
fn build(root: &Path, target: &str, own: &str) -> Result<(), String> {
    let underscored = target.replace('-', "_");
    let linker = format!("CARGO_TARGET_{}_LINKER", underscored.to_uppercase());
    let compiler = format!("CC_{underscored}");
    let cross_compiler = root.join(CROSS_COMPILER).display().to_string();
    let mut environment = Vec::new();
    if target != own {
        // The target has its own start files and C library, so that no other linker is needed.
        environment.extend([(linker.as_str(), "rust-lld"), (compiler.as_str(), cross_compiler.as_str())]);
    }
    if target.starts_with("aarch64") {
        // Kernels for this architecture have pages of 4, 16 or 64 KiB. The allocator does not start if pages are larger
        // than it was built for.
        environment.push(("JEMALLOC_SYS_WITH_LG_PAGE", "16"));
    }
    let arguments =
        ["build", "--locked", "-p", "larder", "--features", FEATURES, "--profile", PROFILE, "--target", target];
    if cargo::succeeds(root, &arguments, &environment) { Ok(()) } else { Err(format!("cannot build for {target}")) }
}

/// Returns the path of the program that [`build`] makes.
fn program(root: &Path, target: &str) -> PathBuf {
    let folder = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    folder.join(target).join(PROFILE).join("larder")
}

/// Names the missing parts of a target's toolchain, with the commands that install them.
fn missing_for(root: &Path, target: &str, own: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let library =
        Command::new("rustc").args(["--print", "target-libdir", "--target", target]).current_dir(root).output();
    let library = library.map(|found| String::from_utf8_lossy(&found.stdout).trim().to_owned()).unwrap_or_default();
    if !Path::new(&library).is_dir() {
        missing.push(format!("Rust's library for {target}: rustup target add {target}"));
    }
    if target != own && !has_zig() {
        missing.push(format!("Zig, which compiles C for {target}: pip install ziglang"));
    }
    if target == own && !is_command("musl-gcc") {
        missing.push("a C compiler for musl: apt install musl-tools".to_owned());
    }
    missing
}

fn has_zig() -> bool {
    let asked = Command::new("python3").args(["-m", "ziglang", "version"]).output();
    asked.is_ok_and(|output| output.status.success())
}

fn missing_tools(root: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    for name in ["deb", "deny"] {
        if !cargo::has_command(root, name) {
            missing.push(format!("cargo-{name}: cargo install --locked cargo-{name}"));
        }
    }
    for name in ["tar", "zstd", "sha256sum"] {
        if !is_command(name) {
            missing.push(format!("{name}: apt install {}", if name == "sha256sum" { "coreutils" } else { name }));
        }
    }
    if !Path::new(CERTIFICATES).exists() {
        missing.push(format!("{CERTIFICATES}: apt install ca-certificates"));
    }
    missing
}

/// Writes the checksums of the release files, and lists the files with their sizes.
fn sum_up(results: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot list {RESULTS}: {error}");
    let mut names = Vec::new();
    for entry in fs::read_dir(results).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata().map_err(failed)?.len()));
    }
    names.sort_unstable();
    let files: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    let summed = Command::new("sha256sum").arg("--").args(&files).current_dir(results).output().map_err(failed)?;
    fs::write(results.join("SHA256SUMS"), summed.stdout).map_err(failed)?;
    for (name, len_bytes) in &names {
        println!("dist: {RESULTS}/{name}: {len_bytes} bytes");
    }
    println!("dist: {RESULTS}/SHA256SUMS");
    Ok(())
}

/// Copies a file into a folder, which is created if it is missing.
fn put(file: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let name = file.file_name().expect("a file has a name");
    fs::copy(file, folder.join(name)).map(drop)
}

fn tar(folder: &Path, arguments: &[&str]) -> io::Result<()> {
    let status = Command::new("tar")
        .env("ZSTD_CLEVEL", "19")
        .args(["--sort=name", "--numeric-owner"])
        .args(arguments)
        .current_dir(folder)
        .status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("tar failed")) }
}

fn execute(root: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    match Command::new(program).args(arguments).current_dir(root).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// Returns whether a command is in the search path.
fn is_command(name: &str) -> bool {
    env::var_os("PATH").is_some_and(|paths| env::split_paths(&paths).any(|folder| folder.join(name).is_file()))
}
