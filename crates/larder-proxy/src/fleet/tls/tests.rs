//! Tests of TLS between nodes: handshakes of two nodes, with good certificates and with bad ones.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::ground::{config::TlsIdentity, fault::FaultReport};

/// A CA, and the files of certificates that it has signed.
struct FleetAuthority {
    name: &'static str,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl FleetAuthority {
    fn new(name: &'static str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { name, issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate for `host`, and the CAs that count for its node.
    fn sign(&self, directory: &Path, host: &str, cas: &[&Self], is_expired: bool) -> NodeTls {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        if is_expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let file = |kind: &str| directory.join(format!("{}-{is_expired}-{host}.{kind}", self.name));
        let identity = TlsIdentity { certificate: file("pem"), key: file("key") };
        std::fs::write(&identity.certificate, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        let ca_file = file("ca");
        std::fs::write(&ca_file, cas.iter().map(|ca| ca.pem.as_str()).collect::<String>()).unwrap();
        NodeTls { identity, ca_file }
    }
}

/// The fleet of a node with this TLS, whose nodes are at these hosts.
fn fleet(hosts: &[&str], tls: NodeTls) -> Fleet {
    let nodes = hosts.iter().enumerate().map(|(number, host)| format!("n{number}={host}:1").parse().unwrap());
    Fleet { nodes: nodes.collect(), tls: Some(tls), ..Fleet::default() }
}

fn load(fleet: &Fleet) -> FleetTls {
    FleetTls::load(fleet).unwrap().unwrap()
}

/// Connects from one node to the other at `host`. Returns the errors of the two ends.
async fn connect(client: &FleetTls, server: &FleetTls, host: &str) -> (Result<(), String>, Result<(), String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let serving = async {
        let mut stream = server.acceptor().accept(accepted).await.map_err(|error| error.to_string())?;
        stream.write_all(b"x").await.map_err(|error| error.to_string())
    };
    // A server that refuses the client's certificate says so only after the client's handshake is complete.
    let asking = async {
        let mut stream = client.connect(stream, host).await.map_err(|error| FaultReport::of_node_tls(&error).why)?;
        stream.read_u8().await.map(drop).map_err(|error| error.to_string())
    };
    tokio::join!(asking, serving)
}

#[tokio::test]
async fn nodes_with_certificates_of_one_ca_connect_by_names_and_by_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let ca = FleetAuthority::new("fleet");
    let hosts = ["a.example", "10.0.0.2"];
    let [a, b] = hosts.map(|host| load(&fleet(&hosts, ca.sign(directory.path(), host, &[&ca], false))));
    assert_eq!(connect(&a, &b, "10.0.0.2").await, (Ok(()), Ok(())));
    assert_eq!(connect(&b, &a, "a.example").await, (Ok(()), Ok(())));
    // Nodes that are the addresses of one name have certificates for that name.
    let named = ca.sign(directory.path(), "nodes.example", &[&ca], false);
    let dns = Fleet { nodes: Vec::new(), dns: Some("nodes.example:1".parse().unwrap()), ..fleet(&[], named) };
    assert_eq!(connect(&load(&dns), &load(&dns), "10.0.0.9").await, (Ok(()), Ok(())));
}

/// Guards against a stranger that passes for a node, and an operator who does not learn what is wrong with a
/// certificate.
#[tokio::test]
async fn certificate_that_is_no_nodes_is_refused_by_both_ends_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let ca = FleetAuthority::new("fleet");
    let foreign = FleetAuthority::new("foreign");
    let hosts = ["a.example", "b.example"];
    let good = load(&fleet(&hosts, ca.sign(directory.path(), "a.example", &[&ca], false)));
    let sign = |by: &FleetAuthority, host, is_expired| by.sign(directory.path(), host, &[&ca, &foreign], is_expired);
    for (bad, why, alert) in [
        (
            fleet(&hosts, sign(&foreign, "b.example", false)),
            "no CA in the fleet's `ca_file` has signed it",
            "UnknownCA",
        ),
        (fleet(&hosts, sign(&ca, "b.example", true)), "it has expired", "CertificateExpired"),
        (fleet(&["c.example"], sign(&ca, "c.example", false)), "it does not cover the host's name", "BadCertificate"),
    ] {
        let bad = load(&bad);
        let (asking, _) = connect(&good, &bad, "b.example").await;
        let told = asking.unwrap_err();
        assert!(told.starts_with("its certificate was rejected: ") && told.contains(why), "{told}");
        let (asking, serving) = connect(&bad, &good, "a.example").await;
        let asking = asking.unwrap_err();
        let serving = serving.unwrap_err();
        assert!(asking.contains(alert), "{why}: {asking}");
        assert!(serving.contains("certificate"), "{serving}");
    }
}

#[test]
fn own_certificate_that_the_other_nodes_would_refuse_is_refused_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let ca = FleetAuthority::new("fleet");
    let foreign = FleetAuthority::new("foreign");
    let refused = |fleet: &Fleet| FleetTls::load(fleet).err().unwrap();
    let told = refused(&fleet(&["a.example"], foreign.sign(directory.path(), "a.example", &[&ca], false)));
    assert!(
        told.contains("no CA in the fleet's `ca_file` has signed it: ") && told.ends_with("a.example.pem"),
        "{told}"
    );
    let told = refused(&fleet(&["b.example"], ca.sign(directory.path(), "a.example", &[&ca], false)));
    assert!(told.contains("it does not cover the host of a node: "), "{told}");
    // A certificate that nobody renewed in time must not keep a node down.
    assert!(FleetTls::load(&fleet(&["a.example"], ca.sign(directory.path(), "a.example", &[&ca], true))).is_ok());
    let missing =
        NodeTls { ca_file: directory.path().join("none"), ..ca.sign(directory.path(), "a.example", &[&ca], false) };
    assert!(refused(&fleet(&["a.example"], missing)).contains("none"));
}
