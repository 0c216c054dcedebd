//! Checks that the key of a CA for some hosts is useless for other hosts, and that only CAs created by Larder are used.

use rustls::pki_types::{ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::*;

const YEAR: Duration = Duration::from_hours(365 * 24);

fn patterns(hosts: &[&str]) -> Vec<HostPattern> {
    hosts.iter().map(|host| host.parse().unwrap()).collect()
}

/// Returns whether a strict client that trusts `authority` accepts its certificate for `host`, `after` from now.
fn is_taken(authority: &Authority, host: &str, after: Duration) -> bool {
    let certified = authority.certify(host).unwrap();
    let anchors = [webpki::anchor_from_trusted_cert(&authority.certificate).unwrap()];
    let leaf = EndEntityCert::try_from(&certified.cert[0]).unwrap();
    let now = UnixTime::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + after);
    let algorithms = crate::ground::tls_provider::default_provider().signature_verification_algorithms.all;
    let path = leaf.verify_for_usage(algorithms, &anchors, &[], now, KeyUsage::server_auth(), None, None);
    path.is_ok() && leaf.verify_is_valid_for_subject_name(&ServerName::try_from(host.to_owned()).unwrap()).is_ok()
}

#[test]
fn certificates_are_taken_for_their_host_and_for_a_week() {
    let authority = Authority::generate(&[], YEAR).unwrap();
    let long = format!("{}.example", ["a"; 60].join("."));
    for host in ["pypi.org", "127.0.0.1", "2001:db8::1", &long] {
        assert!(is_taken(&authority, host, Duration::ZERO), "{host}");
        assert!(!is_taken(&authority, host, LEAF_LIFETIME + Duration::from_mins(1)), "{host}");
    }
    let numbers = [(); 2].map(|()| {
        let certified = authority.certify("a.example").unwrap();
        Certificate::from_der(&certified.cert[0]).unwrap().tbs_certificate().serial_number().as_bytes().to_vec()
    });
    assert_ne!(numbers[0], numbers[1], "browsers refuse two certificates with one number");
}

#[test]
fn authority_for_some_hosts_is_of_no_use_for_others() {
    let authority = Authority::generate(&patterns(&["pypi.org", "*.debian.org"]), YEAR).unwrap();
    for host in ["pypi.org", "deb.debian.org", "a.b.debian.org"] {
        assert!(authority.permits(host) && is_taken(&authority, host, Duration::ZERO), "{host}");
    }
    for host in ["bank.example", "xpypi.org", "127.0.0.1", "2001:db8::1"] {
        assert!(!authority.permits(host) && !is_taken(&authority, host, Duration::ZERO), "{host}");
    }
    let addresses = Authority::generate(&patterns(&["192.0.2.1"]), YEAR).unwrap();
    assert!(addresses.permits("192.0.2.1") && is_taken(&addresses, "192.0.2.1", Duration::ZERO));
    for host in ["192.0.2.2", "2001:db8::1", "bank.example"] {
        assert!(!addresses.permits(host) && !is_taken(&addresses, host, Duration::ZERO), "{host}");
    }
}

#[test]
fn authority_ends_when_its_certificate_does() {
    let authority = Authority::generate(&[], Duration::from_hours(1)).unwrap();
    assert!(is_taken(&authority, "a.example", Duration::ZERO));
    assert!(!is_taken(&authority, "a.example", Duration::from_hours(2)));
    let left = authority.expires_at().duration_since(SystemTime::now()).unwrap();
    assert!(left <= Duration::from_hours(1) && left > Duration::from_mins(50), "{left:?}");
}

#[test]
fn authority_that_was_kept_signs_again_and_foreign_ones_are_refused() {
    let made = Authority::generate(&patterns(&["pypi.org"]), YEAR).unwrap();
    let other = Authority::generate(&[], YEAR).unwrap();
    let read = Authority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
    assert!(is_taken(&read, "pypi.org", Duration::ZERO) && !is_taken(&read, "a.example", Duration::ZERO));
    assert_eq!((read.name(), read.permitted().map(<[_]>::len)), (made.name(), Some(1)));
    let foreign = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::OrganizationName, "Somebody else");
    let foreign_authority = params.self_signed(&foreign.signing_key).unwrap().pem();
    let foreign_key = foreign.signing_key.serialize_pem();
    for (certificate, key, told) in [
        (made.certificate_pem(), other.key_pem(), "does not match the private key"),
        (made.certificate_pem(), "nothing".to_owned(), "not in PKCS #8"),
        ("nothing", made.key_pem(), "no certificate"),
        (&foreign.cert.pem(), foreign_key.clone(), "not one of a CA"),
        (&foreign_authority, foreign_key, "not created by"),
    ] {
        let error = Authority::from_pem(certificate, key.as_str()).expect_err(told).to_string();
        assert!(error.contains(told), "{error}");
    }
    assert!(read.fingerprint() == made.fingerprint() && made.fingerprint().len() == 64);
    assert!(!format!("{made:?}").contains("PRIVATE"));
}
