//! Nodes that connect with certificates. Guards against a stranger that reads or changes what nodes send to each other,
//! and a node that its certificate keeps from serving its clients.

use std::{
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
};

use larder_proxy::{Listener, NodeTls, ProxyConfig, TlsIdentity};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tempfile::TempDir;

use crate::support::{
    Connection, Received, Reply, eventually,
    nodes::{NAMES, Nodes},
    ports::free_address,
    tls_origin::OriginAuthority,
};

fn fresh(received: &Received, number: usize) -> Reply {
    Reply::ok(&["Cache-Control: max-age=600", "ETag: \"1\""], format!("{} {number}", received.target))
}

/// Nodes that connect over TLS, and the addresses where they do.
struct TlsNodes {
    nodes: Nodes,
    addresses: Vec<SocketAddr>,
    authority: Arc<OriginAuthority>,
    directory: TempDir,
}

impl TlsNodes {
    /// Creates nodes. `signers` signs the certificate of each.
    fn new(signers: impl Fn(&Arc<OriginAuthority>, &Path) -> [Arc<OriginAuthority>; 3]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Arc::new(OriginAuthority::new(directory.path(), "fleet-ca"));
        let addresses: Vec<SocketAddr> = NAMES.iter().map(|_| free_address()).collect();
        let signers = signers(&authority, directory.path());
        // Each node accepts the CAs of all certificates, so that a node with a certificate of another CA starts.
        let tls = [0, 1, 2].map(|node| {
            let ca_file = match Arc::ptr_eq(&signers[node], &authority) {
                true => authority.file.clone(),
                false => joined(directory.path(), &authority, &signers[node]),
            };
            NodeTls { identity: identity(directory.path(), NAMES[node], &signers[node]), ca_file }
        });
        let listed: Vec<_> =
            NAMES.iter().zip(&addresses).map(|(name, address)| format!("{name}={address}").parse().unwrap()).collect();
        let own = addresses.clone();
        let nodes = Nodes::started(fresh, move |config: &mut ProxyConfig| {
            let node = NAMES.iter().position(|name| config.fleet.node.as_deref() == Some(*name)).unwrap();
            config.fleet.nodes.clone_from(&listed);
            config.fleet.tls = Some(tls[node].clone());
            config.listeners.push(Listener::for_nodes(own[node]));
        });
        Self { nodes, addresses, authority, directory }
    }

    /// Sends a request to a node over TLS, as a client with this certificate, if any. Returns the status, or `None` if
    /// the connection was refused.
    fn ask(&self, node: usize, identity: Option<&TlsIdentity>, fields: &[&str]) -> Option<u16> {
        let config = client_config(&self.authority, identity);
        let socket = TcpStream::connect(self.addresses[node]).unwrap();
        let name = ServerName::from(self.addresses[node].ip());
        let connection = ClientConnection::new(config, name).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        let request = format!("GET / HTTP/1.1\r\nHost: site.example\r\n{}\r\n", fields.concat());
        std::io::Write::write_all(&mut stream, request.as_bytes()).ok()?;
        let mut head = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut head).ok()?;
        std::str::from_utf8(&head[9..]).unwrap().parse().ok()
    }
}

/// Writes a certificate for 127.0.0.1.
fn identity(directory: &Path, name: &str, signer: &OriginAuthority) -> TlsIdentity {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = directory.join(format!("{name}.pem"));
    let key_file = directory.join(format!("{name}.key"));
    std::fs::write(&certificate, signer.sign_pem(params, &key)).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    TlsIdentity { certificate, key: key_file }
}

/// Writes the certificates of two CAs to one file.
fn joined(directory: &Path, one: &OriginAuthority, other: &OriginAuthority) -> PathBuf {
    let file = directory.join("both-cas");
    let texts = [&one.file, &other.file].map(|file| std::fs::read_to_string(file).unwrap());
    std::fs::write(&file, texts.concat()).unwrap();
    file
}

fn client_config(trusted: &OriginAuthority, identity: Option<&TlsIdentity>) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match identity {
        Some(TlsIdentity { certificate, key }) => {
            let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
        }
        None => builder.with_no_client_auth(),
    })
}

#[test]
fn nodes_share_entries_and_purges_over_tls() {
    let all = TlsNodes::new(|authority, _| [(); 3].map(|()| Arc::clone(authority)));
    let nodes = &all.nodes;
    (0..3).for_each(|node| nodes.until_sure(node));
    let targets: Vec<String> = (0..30).map(|number| format!("/{number}")).collect();
    for target in &targets {
        let texts = [0, 1, 2].map(|node| nodes.get(node, target, &[]).text());
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }
    assert_eq!(nodes.origin.count(), targets.len());
    nodes.purge(2, &targets[0]);
    assert_ne!(nodes.get(2, &targets[0], &[]).text(), format!("{} 0", targets[0]));
}

#[test]
fn only_nodes_with_certificates_connect_and_only_with_the_secret_they_are_served() {
    let all = TlsNodes::new(|authority, _| [(); 3].map(|()| Arc::clone(authority)));
    let foreign = OriginAuthority::new(all.directory.path(), "foreign-ca");
    assert_eq!(all.ask(0, None, &[]), None, "no certificate");
    assert_eq!(all.ask(0, Some(&identity(all.directory.path(), "foreign", &foreign)), &[]), None, "another CA");
    let node = identity(all.directory.path(), "x", &all.authority);
    assert_eq!(all.ask(0, Some(&node), &[]), Some(403), "no secret");
    assert_eq!(all.ask(0, Some(&node), &["Larder-Peer: b a 00 - a:0:0 00\r\n"]), Some(403), "a wrong secret");
    // The address for clients serves no node.
    let log = Connection::open(all.nodes.addresses[0]).request("GET", "/-/purges", &[]);
    assert!(log.status == 403 && log.text().contains("certificates"), "{} {}", log.status, log.text());
}

#[test]
fn node_whose_certificate_is_refused_costs_no_client_its_response() {
    let all = TlsNodes::new(|authority, directory| {
        let foreign = Arc::new(OriginAuthority::new(directory, "foreign-ca"));
        [Arc::clone(authority), foreign, Arc::clone(authority)]
    });
    let nodes = &all.nodes;
    let target = nodes.target_of(1, "x");
    for node in [0, 2, 1] {
        assert_eq!(nodes.get(node, &target, &[]).status, 200, "{node}");
    }
    eventually("it counts as down", || nodes.figures(0).contains("larder_fleet_node_up{node=\"b\"} 0\n"));
}
