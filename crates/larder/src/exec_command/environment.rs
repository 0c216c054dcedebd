//! What programs have to be told so that they go through a proxy and trust its authority: environment variables, and the files
//! they name.
//!
//! Owns: the list of variables, and the bundle of authorities: those of the system, those that the variables named before, and ours.
//! Does not: run anything. Invariant: no program trusts less than it did before.

use super::java;
use crate::failure::Failure;
use std::{
    collections::HashSet,
    env,
    ffi::{OsStr, OsString},
    fs, io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// The variables of a command, and the files that they name, which are removed with this.
pub(crate) struct Environment {
    variables: Vec<(&'static str, OsString)>,
    _files: TempDir,
}

impl Environment {
    /// What the programs of a session need.
    ///
    /// # Errors
    /// The files cannot be written, or the system's authorities are not found.
    pub(crate) fn for_session(proxy: SocketAddr, certificate: &str) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let help = "it needs a directory for files of its own: set TMPDIR to one that you may write to";
            Failure::runtime(format!("cannot write down the authority: {error}"), help)
        };
        // Nothing in it is secret, and programs that change their user (apt) read it, too.
        let readable = fs::Permissions::from_mode(0o755);
        let files = tempfile::Builder::new().prefix("larder-exec-").permissions(readable).tempdir().map_err(failed)?;
        let bundle = bundle(certificate)?;
        let mut variables = proxy_variables(proxy);
        variables.push((SESSION_VARIABLE, proxy.to_string().into()));
        variables.extend(trust(files.path(), &bundle).map_err(failed)?);
        if java::is_there() {
            let options = java::options(proxy, &bundle, &files.path().join("authorities.jks")).map_err(failed)?;
            variables.push((java::VARIABLE, options));
        }
        Ok(Self { variables, _files: files })
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.variables.iter().map(|(name, value)| (*name, value))
    }
}

/// The variables that lead programs to a proxy.
pub(crate) fn proxy_variables(proxy: SocketAddr) -> Vec<(&'static str, OsString)> {
    let url = OsString::from(format!("http://{proxy}"));
    let mut variables: Vec<_> = PROXY_VARIABLES.iter().map(|name| (*name, url.clone())).collect();
    // What is on this machine is not reached through it. What else was excepted before is ours to cache.
    variables.extend(DIRECT_VARIABLES.iter().map(|name| (*name, OsString::from(DIRECT))));
    variables
}

/// Writes the authorities into a folder, and returns the variables that have programs trust them.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn trust(folder: &Path, bundle: &str) -> io::Result<Vec<(&'static str, OsString)>> {
    let (authorities, apt) = (folder.join("authorities.pem"), folder.join(APT_FILE));
    fs::write(&authorities, bundle)?;
    let before = env::var_os(APT_VARIABLE).filter(|before| !before.is_empty() && *before != apt);
    fs::write(&apt, apt_configuration(before.as_deref(), &authorities))?;
    let mut variables: Vec<_> = TRUST_VARIABLES.iter().map(|name| (*name, authorities.clone().into())).collect();
    variables.push((APT_VARIABLE, apt.into()));
    Ok(variables)
}

/// What apt is to read: what it was to read before, and which authorities to trust (apt.conf(5)).
fn apt_configuration(before: Option<&OsStr>, authorities: &Path) -> String {
    let before = before.map(|file| format!("#include \"{}\";\n", file.display())).unwrap_or_default();
    format!("{before}Acquire::https::CAInfo \"{}\";\n", authorities.display())
}

/// Every variable that is ever set.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PROXY_VARIABLES.into_iter().chain(DIRECT_VARIABLES).chain(TRUST_VARIABLES).chain([APT_VARIABLE])
}

/// The authorities that programs trusted before, and one more, in PEM.
///
/// # Errors
/// There are no authorities on this system.
pub(crate) fn bundle(certificate: &str) -> Result<String, Failure> {
    let said = TRUST_VARIABLES.iter().filter_map(env::var_os).map(PathBuf::from);
    let system = SYSTEM_BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file());
    let mut seen = HashSet::new();
    let mut bundle = String::new();
    // A variable that names no file is what programs complain about themselves.
    let texts: Vec<String> = said.chain(system).filter_map(|path| fs::read_to_string(path).ok()).collect();
    for block in texts.iter().map(String::as_str).chain([certificate]).flat_map(certificates) {
        if seen.insert(block) {
            bundle.push_str(block);
            bundle.push('\n');
        }
    }
    if seen.len() > 1 {
        return Ok(bundle);
    }
    let help = "install them (apt install ca-certificates), or name a file of them in SSL_CERT_FILE";
    Err(Failure::runtime("this system's certificate authorities are not found", help))
}

/// The certificates of a PEM file, each from its first line to its last.
fn certificates(text: &str) -> impl Iterator<Item = &str> {
    let begins = text.match_indices(BEGIN).map(|(at, _)| &text[at..]);
    begins.filter_map(|rest| rest.find(END).map(|end| &rest[..end + END.len()]))
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Read by nearly everything; cargo has one of its own.
const PROXY_VARIABLES: [&str; 7] =
    ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "CARGO_HTTP_PROXY"];
/// Says to programs that they are in a session, and in which.
pub(super) const SESSION_VARIABLE: &str = "LARDER_SESSION";
const DIRECT_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];
const DIRECT: &str = "localhost,127.0.0.1,::1";
/// OpenSSL, Go and uv; curl; Python's requests; pip; node; npm; cargo; git; AWS; deno.
const TRUST_VARIABLES: [&str; 10] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "CARGO_HTTP_CAINFO",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
];
/// Names a file of settings to apt, which has no variable for authorities.
const APT_VARIABLE: &str = "APT_CONFIG";
const APT_FILE: &str = "larder-apt.conf";
/// Where Debian, Fedora, Alpine and others, and SUSE keep theirs.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_reads_what_it_read_before() {
        let alone = apt_configuration(None, Path::new("/a/authorities.pem"));
        assert_eq!(alone, "Acquire::https::CAInfo \"/a/authorities.pem\";\n");
        let after = apt_configuration(Some(OsStr::new("/etc/my.conf")), Path::new("/a/authorities.pem"));
        assert_eq!(after, format!("#include \"/etc/my.conf\";\n{alone}"));
    }

    #[test]
    fn certificates_are_found_between_other_lines() {
        let one = format!("{BEGIN}\nAAAA\n{END}");
        let text = format!("# a comment\n{one}\n-----BEGIN X-----\n{one}\n{BEGIN}\ncut off");
        assert_eq!(certificates(&text).collect::<Vec<_>>(), [&one, &one]);
        assert_eq!(certificates("nothing").count(), 0);
    }

    #[test]
    fn every_variable_has_one_value() {
        let (proxy, folder) = ("127.0.0.1:1".parse().unwrap(), tempfile::tempdir().unwrap());
        let mut set: Vec<_> = proxy_variables(proxy).into_iter().chain(trust(folder.path(), "").unwrap()).collect();
        let count = set.len();
        assert_eq!(count, names().count());
        set.sort();
        set.dedup_by_key(|(name, _)| *name);
        assert_eq!(set.len(), count);
    }
}
