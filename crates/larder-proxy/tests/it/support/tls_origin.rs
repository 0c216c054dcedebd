//! An origin over TLS with a certificate of any kind, and the CA that signs it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

/// An authority of origins.
pub(crate) struct OriginAuthority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) der: CertificateDer<'static>,
    pub(crate) file: PathBuf,
}

impl OriginAuthority {
    /// Creates a CA, with its certificate in a file of this name in `directory`.
    pub(crate) fn new(directory: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let file = directory.join(name);
        std::fs::write(&file, certificate.pem()).unwrap();
        Self { der: certificate.der().clone(), issuer: Issuer::new(params, key), file }
    }

    /// Returns the configuration of an origin whose certificate for `localhost` is signed by this CA and changed by
    /// `change`.
    pub(crate) fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        server_config((vec![leaf.der().clone()], &key.serialize_der()), None)
    }

    /// Returns a certificate for the holder of a key, in PEM form.
    pub(crate) fn sign_pem(&self, params: CertificateParams, key: &KeyPair) -> String {
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    /// As [`OriginAuthority::sign`], but the origin requests an optional client certificate.
    pub(crate) fn sign_asking(&self) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let asking = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let asking = asking.allow_unauthenticated().build().unwrap();
        server_config((vec![leaf.der().clone()], &key.serialize_der()), Some(asking))
    }
}

/// Returns the configuration of an origin that presents this chain.
pub(crate) fn server_config(
    (chain, key): (Vec<CertificateDer<'static>>, &[u8]),
    asking: Option<Arc<dyn ClientCertVerifier>>,
) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = match asking {
        Some(asking) => builder.with_client_cert_verifier(asking),
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
    builder.with_single_cert(chain, key).unwrap()
}

/// A listening origin. It answers every request with its target, storable for a minute, and echoes all bytes after an
/// upgrade.
pub(crate) struct TlsOrigin {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TlsOrigin {
    /// Starts an origin, whose threads end with the process.
    pub(crate) fn start(config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let counted = Arc::clone(&connections);
        let seen = Arc::clone(&heads);
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                counted.fetch_add(1, SeqCst);
                let config = Arc::clone(&config);
                let seen = Arc::clone(&seen);
                // A client that refuses the certificate breaks off.
                std::thread::spawn(move || drop(serve(socket.unwrap(), config, &seen)));
            }
        });
        Self { address, connections, heads }
    }

    pub(crate) fn authority(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Returns the heads of the received requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(socket: TcpStream, config: Arc<ServerConfig>, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config).unwrap(), socket));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        seen.lock().unwrap().push(head.clone());
        if head.to_ascii_lowercase().contains("\r\nupgrade: websocket\r\n") {
            let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.get_mut().write_all(switched.as_bytes())?;
            let mut line = String::new();
            stream.read_line(&mut line)?;
            return stream.get_mut().write_all(line.as_bytes());
        }
        let body = head.split_whitespace().nth(1).unwrap_or_default();
        let lifetime = if body.contains("stale") { "max-age=0\r\nETag: \"1\"" } else { "max-age=60" };
        let length = body.len();
        let text = format!("HTTP/1.1 200 OK\r\nCache-Control: {lifetime}\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.get_mut().write_all(text.as_bytes())?;
    }
}
