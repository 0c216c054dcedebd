//! Environment variables and files that make programs use a proxy and trust its CA.
//!
//! Owns: the list of variables, and the bundle of CAs: the system's, those that programs trusted before (see
//! `trusted`), and Larder's. Programs are run elsewhere. Invariant: no program trusts fewer CAs than before.

use super::{java, trusted};
use crate::ground::failure::Failure;
use std::{
    collections::HashSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// The environment variables for a command, and the temporary files that they name. Dropping this removes the files.
pub(crate) struct CommandEnvironment {
    variables: Vec<(&'static str, OsString)>,
    files: TempDir,
}

impl CommandEnvironment {
    /// Creates the variables and files for the programs of a session. `certificate` is the session's CA, in PEM.
    ///
    /// # Errors
    /// The files cannot be written, or the system's CAs are not found.
    pub(crate) fn for_session(proxy: SocketAddr, certificate: &str) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let help = "it needs a directory for its files: set TMPDIR to one that you may write to";
            Failure::runtime(format!("cannot write the CA: {error}"), help)
        };
        // Everybody may read the files, because programs such as apt read them as another user. They are not secret.
        let readable = fs::Permissions::from_mode(0o755);
        let files = tempfile::Builder::new().prefix("larder-exec-").permissions(readable).tempdir().map_err(failed)?;
        let bundle = bundle(certificate)?;
        let mut variables = proxy_variables(proxy);
        variables.push((SESSION_VARIABLE, proxy.to_string().into()));
        variables.extend(trust(files.path(), &bundle).map_err(failed)?);
        variables.push((NODE_VARIABLE, preload_in_node(files.path()).map_err(failed)?));
        if java::is_there() {
            let options = java::options(proxy, &bundle, &files.path().join("authorities.jks")).map_err(failed)?;
            variables.push((java::VARIABLE, options));
        }
        Ok(Self { variables, files })
    }

    /// Returns the temporary folder that contains the files.
    pub(crate) fn folder(&self) -> &Path {
        self.files.path()
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.variables.iter().map(|(name, value)| (*name, value))
    }
}

/// Returns the variables that make programs use the proxy at this address.
pub(crate) fn proxy_variables(proxy: SocketAddr) -> Vec<(&'static str, OsString)> {
    let url = OsString::from(format!("http://{proxy}"));
    let mut variables: Vec<_> = PROXY_VARIABLES.iter().map(|name| (*name, url.clone())).collect();
    // Addresses of this machine are reached without the proxy. Exceptions that were set before are dropped, so that
    // their hosts are cached, too.
    variables.extend(DIRECT_VARIABLES.iter().map(|name| (*name, OsString::from(DIRECT))));
    variables.extend(SWITCH_VARIABLES.iter().map(|name| (*name, OsString::from("1"))));
    let of_gcloud = ["http".to_owned(), proxy.ip().to_string(), proxy.port().to_string()];
    variables.extend(GCLOUD_VARIABLES.into_iter().zip(of_gcloud.map(OsString::from)));
    variables
}

/// Writes a script that makes Node's `fetch` use the proxy. Returns the value of `NODE_OPTIONS` with which Node loads
/// it.
fn preload_in_node(folder: &Path) -> io::Result<OsString> {
    let script = folder.join("node-fetch.cjs");
    fs::write(&script, NODE_SCRIPT)?;
    let mut options = env::var_os(NODE_VARIABLE).filter(|before| !before.is_empty()).unwrap_or_default();
    if !options.is_empty() {
        options.push(" ");
    }
    options.push("--require \"");
    options.push(script.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\""));
    options.push("\"");
    Ok(options)
}

/// Writes the CAs in `bundle` into `folder`, in the forms that programs need. Returns the variables that make programs
/// trust them.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn trust(folder: &Path, bundle: &str) -> io::Result<Vec<(&'static str, OsString)>> {
    let authorities = folder.join("authorities.pem");
    let apt = folder.join(APT_FILE);
    fs::write(&authorities, bundle)?;
    let before = env::var_os(APT_VARIABLE).filter(|before| !before.is_empty() && *before != apt);
    fs::write(&apt, apt_configuration(before.as_deref(), &authorities))?;
    let mut variables: Vec<_> = TRUST_VARIABLES.iter().map(|name| (*name, authorities.clone().into())).collect();
    variables.push((APT_VARIABLE, apt.into()));
    variables.push((WGET_VARIABLE, wget(folder, &authorities)?));
    Ok(variables)
}

/// Writes a settings file for wget, which has no variable for CAs. It contains the user's own settings, which may
/// include a password, and the path of the CAs.
fn wget(folder: &Path, authorities: &Path) -> io::Result<OsString> {
    let path = folder.join(WGET_FILE);
    let before = wget_before().filter(|before| *before != path).and_then(|before| fs::read_to_string(before).ok());
    let settings = format!("{}\nca_certificate = {}\n", before.unwrap_or_default(), authorities.display());
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    file.write_all(settings.as_bytes())?;
    Ok(path.into())
}

/// Returns the settings file that wget would read without Larder. `None` if there is no home directory.
pub(super) fn wget_before() -> Option<PathBuf> {
    let named = env::var_os(WGET_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
    named.or_else(|| env::home_dir().map(|home| home.join(".wgetrc")))
}

/// Returns a configuration for apt that includes the user's own one and names the CAs to trust (apt.conf(5)).
fn apt_configuration(before: Option<&OsStr>, authorities: &Path) -> String {
    let before = before.map(|file| format!("#include \"{}\";\n", file.display())).unwrap_or_default();
    format!("{before}Acquire::https::CAInfo \"{}\";\n", authorities.display())
}

/// Returns the names of all variables that a session or `larder env` may set.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let of_proxy = PROXY_VARIABLES.into_iter().chain(DIRECT_VARIABLES).chain(SWITCH_VARIABLES).chain(GCLOUD_VARIABLES);
    of_proxy.chain(TRUST_VARIABLES).chain([APT_VARIABLE, WGET_VARIABLE])
}

/// Returns the CAs that programs trusted before, and also `certificate`, in PEM.
///
/// # Errors
/// No CAs of this system are found.
pub(crate) fn bundle(certificate: &str) -> Result<String, Failure> {
    // An unreadable file that a variable names is skipped, because the programs themselves report it.
    let mut texts = trusted::texts();
    let system = SYSTEM_BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file());
    let mut seen = HashSet::new();
    let mut bundle = String::new();
    texts.extend(system.and_then(|path| fs::read_to_string(path).ok()));
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
    Err(Failure::runtime("this system's CA certificates were not found", help))
}

/// Returns the certificates of a PEM file, each from its first line to its last line.
pub(crate) fn certificates(text: &str) -> impl Iterator<Item = &str> {
    let begins = text.match_indices(BEGIN).map(|(at, _)| &text[at..]);
    begins.filter_map(|rest| rest.find(END).map(|end| &rest[..end + END.len()]))
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Variables that name the proxy. Nearly every program reads the first six; Cargo and Yarn have their own.
const PROXY_VARIABLES: [&str; 9] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "CARGO_HTTP_PROXY",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
];
/// The variable that tells programs that they run in a session of `larder exec`, and in which one.
pub(super) const SESSION_VARIABLE: &str = "LARDER_SESSION";
const DIRECT_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];
const DIRECT: &str = "localhost,127.0.0.1,::1";
/// Variables that make Perl's LWP and newer versions of Node use the proxy that other variables name.
const SWITCH_VARIABLES: [&str; 2] = ["NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY"];
/// Variables with the type, address and port of the proxy for gcloud, whose own settings may name another proxy.
const GCLOUD_VARIABLES: [&str; 3] = ["CLOUDSDK_PROXY_TYPE", "CLOUDSDK_PROXY_ADDRESS", "CLOUDSDK_PROXY_PORT"];
/// Variables that name a file of CAs. Their readers, in this order: OpenSSL, Go, Ruby and uv; curl; Python's requests;
/// pip; node; npm; cargo; git; AWS; deno; two libraries of Perl's LWP; bundler; gcloud; Yarn; Nix.
pub(super) const TRUST_VARIABLES: [&str; 16] = [
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
    "PERL_LWP_SSL_CA_FILE",
    "HTTPS_CA_FILE",
    "BUNDLE_SSL_CA_CERT",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "YARN_HTTPS_CA_FILE_PATH",
    "NIX_SSL_CERT_FILE",
];
/// The variable that names a settings file for apt, which has no variable for CAs.
const APT_VARIABLE: &str = "APT_CONFIG";
const APT_FILE: &str = "larder-apt.conf";
/// The variable that names a settings file for wget, in place of `~/.wgetrc`.
const WGET_VARIABLE: &str = "WGETRC";
const WGET_FILE: &str = "larder-wgetrc";
/// The variable with options that every Node process reads.
const NODE_VARIABLE: &str = "NODE_OPTIONS";
const NODE_SCRIPT: &str = include_str!("node_fetch.cjs");
/// Paths of the CA bundles of Debian, Fedora, Alpine and SUSE.
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
        let after = apt_configuration(Some(OsStr::new("/a/my.conf")), Path::new("/a/authorities.pem"));
        assert_eq!(after, format!("#include \"/a/my.conf\";\n{alone}"));
    }

    #[test]
    fn wget_keeps_its_settings_and_trusts_the_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let set: Vec<_> = trust(folder.path(), "").unwrap();
        let value = |name: &str| set.iter().find(|(known, _)| *known == name).unwrap().1.clone();
        let settings = fs::read_to_string(value(WGET_VARIABLE)).unwrap();
        let bundle = value("PERL_LWP_SSL_CA_FILE").into_string().unwrap();
        assert!(settings.ends_with(&format!("\nca_certificate = {bundle}\n")), "{settings}");
        let mode = fs::metadata(value(WGET_VARIABLE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it may hold a password");
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
        let proxy = "127.0.0.1:1".parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut set: Vec<_> = proxy_variables(proxy).into_iter().chain(trust(folder.path(), "").unwrap()).collect();
        let count = set.len();
        assert_eq!(count, names().count());
        set.sort();
        set.dedup_by_key(|(name, _)| *name);
        assert_eq!(set.len(), count);
    }
}
