//! Settings for Java programs, which use neither the variables nor the files of others.
//!
//! Owns: a trust store in the format that every Java reads, and the options that name it. The caller checks whether
//! Java is installed. Invariant: existing options are kept.
//!
//! The format is JKS, not PKCS#12. A PKCS#12 file is encrypted, which a list of CAs does not need, and early updates of
//! Java 8 read only files with weak ciphers.

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The environment variable with options that every Java reads.
pub(crate) const VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// Returns whether Java seems to be installed, so that the user's command may use it.
pub(crate) fn is_there() -> bool {
    let on_path = |folders: &OsStr| env::split_paths(folders).any(|folder: PathBuf| folder.join("java").is_file());
    env::var_os("JAVA_HOME").is_some() || env::var_os("PATH").is_some_and(|folders| on_path(&folders))
}

/// Writes a Java trust store with the certificates in `bundle` to the path `store`. Returns the options with which Java
/// uses it and the proxy.
pub(crate) fn options(proxy: SocketAddr, bundle: &str, store: &Path) -> io::Result<OsString> {
    fs::write(store, trust_store(bundle))?;
    let host = proxy.ip();
    let port = proxy.port();
    let mut options = env::var_os(VARIABLE).filter(|before| !before.is_empty()).unwrap_or_default();
    if !options.is_empty() {
        options.push(" ");
    }
    for scheme in ["http", "https"] {
        options.push(format!("-D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port} "));
    }
    // Current versions of Maven use the proxy's system properties only with this option.
    options.push("-Daether.connector.http.useSystemProperties=true ");
    options.push(format!("-Dhttp.nonProxyHosts={DIRECT} -Djavax.net.ssl.trustStoreType=JKS "));
    options.push(format!("-Djavax.net.ssl.trustStorePassword={PASSWORD} -Djavax.net.ssl.trustStore="));
    options.push(store);
    Ok(options)
}

/// Encodes certificates as a Java key store: their number, an entry with a name for each, and a digest over all bytes.
fn trust_store(bundle: &str) -> Vec<u8> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(bundle.as_bytes()).filter_map(Result::ok).collect();
    let mut store = [MAGIC, VERSION, certificates.len() as u32].map(u32::to_be_bytes).concat();
    for (number, certificate) in certificates.iter().enumerate() {
        store.extend(TRUSTED.to_be_bytes());
        push_text(&mut store, &format!("larder-{number}"));
        store.extend(0_u64.to_be_bytes());
        push_text(&mut store, "X.509");
        store.extend((certificate.len() as u32).to_be_bytes());
        store.extend_from_slice(certificate);
    }
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    PASSWORD.encode_utf16().for_each(|unit| digest.update(&unit.to_be_bytes()));
    digest.update(SALT);
    digest.update(&store);
    store.extend_from_slice(digest.finish().as_ref());
    store
}

fn push_text(store: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len()).expect("the names are short");
    store.extend(len.to_be_bytes());
    store.extend_from_slice(text.as_bytes());
}

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
/// Tag of an entry of a key store that contains only a certificate.
const TRUSTED: u32 = 2;
const SALT: &[u8] = b"Mighty Aphrodite";
/// The password that Java expects by default. The key store contains no secrets.
const PASSWORD: &str = "changeit";
const DIRECT: &str = "localhost|127.*|[::1]";

#[cfg(test)]
mod tests {
    use super::*;

    /// If Java refused the store, it would trust no certificate. The digest is the one that `keytool` computes for an
    /// empty store.
    #[test]
    fn store_is_as_java_reads_it() {
        let empty = trust_store("");
        let hex: String = empty.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(hex, EMPTY_STORE);
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let one = trust_store(&(made.cert.pem() + &made.cert.pem()));
        assert_eq!(one[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        let der: &[u8] = made.cert.der();
        let entry_len = 4 + 2 + "larder-0".len() + 8 + 2 + "X.509".len() + 4 + der.len();
        assert_eq!(one.len(), 12 + 2 * entry_len + 20);
        assert!(one[..12 + entry_len].ends_with(der));
    }

    #[test]
    fn options_name_proxy_and_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("trust.jks");
        let options = options("127.0.0.1:81".parse().unwrap(), "", &store).unwrap().into_string().unwrap();
        for expected in ["-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=81 ", "-Dhttp.proxyPort=81 "] {
            assert!(options.contains(expected), "{options}");
        }
        assert!(options.ends_with(&format!("-Djavax.net.ssl.trustStore={}", store.display())), "{options}");
    }

    const EMPTY_STORE: &str = "feedfeed0000000200000000e2686e45fb43dfa4d992dd41ceb6b21c6330d792";
}
