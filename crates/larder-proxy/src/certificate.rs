//! Reads the few parts of an X.509 certificate (RFC 5280) that the proxy needs of the operator's own files.
//!
//! Owns: the decoding (DER, X.690 10), and nothing else: no signature is checked, and nothing is decided. A library for
//! all of X.509 brings 12 crates. Invariant: a part is returned only if everything before it has the form that RFC 5280
//! 4.1 gives it. Cost: no allocation but the list of extensions.

use jiff::{civil::DateTime, tz::TimeZone};
use std::str;

/// Tags of DER (X.690 8).
mod tag {
    pub(super) const BOOLEAN: u8 = 0x01;
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const GENERALIZED_TIME: u8 = 0x18;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    /// The strings in which a name is text: UTF8String, PrintableString, IA5String.
    pub(super) const TEXTS: [u8; 3] = [0x0C, 0x13, 0x16];
    /// `[0]` around the version, and before the permitted names of a CA.
    pub(super) const CONTEXT_0: u8 = 0xA0;
    /// `[3]` around the extensions.
    pub(super) const EXTENSIONS: u8 = 0xA3;
    /// The unique identifiers of version 2, `[1]` and `[2]`.
    pub(super) const UNIQUE_IDENTIFIERS: [u8; 2] = [0x81, 0x82];
    /// The general names `[2]` and `[7]` (RFC 5280 4.2.1.6).
    pub(super) const DNS_NAME: u8 = 0x82;
    pub(super) const IP_ADDRESS: u8 = 0x87;
}

/// Object identifiers, in their encoded form.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1D, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1D, 0x13];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1D, 0x1E];

/// A certificate.
#[derive(Debug)]
pub(crate) struct Certificate<'a> {
    /// The issuer's name, encoded.
    pub(crate) issuer: &'a [u8],
    /// The subject's name, encoded.
    pub(crate) subject: &'a [u8],
    /// The start of its validity, in seconds of Unix time.
    pub(crate) not_before: i64,
    /// The end of its validity, in seconds of Unix time.
    pub(crate) not_after: i64,
    /// The public key with its algorithm, encoded.
    pub(crate) public_key: &'a [u8],
    extensions: Vec<Extension<'a>>,
}

#[derive(Debug)]
struct Extension<'a> {
    identifier: &'a [u8],
    value: &'a [u8],
}

/// A name that a CA may sign for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermittedName<'a> {
    Dns(&'a str),
    /// An address and its mask.
    Address(&'a [u8]),
}

impl<'a> Certificate<'a> {
    /// Reads a certificate. Returns `None` if `der` is none, or is followed by other bytes.
    pub(crate) fn read(der: &'a [u8]) -> Option<Self> {
        let mut certificate = Elements::only(der, tag::SEQUENCE)?;
        let mut signed = Elements(certificate.next(tag::SEQUENCE)?.content);
        signed.skip(tag::CONTEXT_0);
        signed.next(tag::INTEGER)?;
        signed.next(tag::SEQUENCE)?;
        let issuer = signed.next(tag::SEQUENCE)?.whole;
        let mut validity = Elements(signed.next(tag::SEQUENCE)?.content);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = signed.next(tag::SEQUENCE)?.whole;
        let public_key = signed.next(tag::SEQUENCE)?.whole;
        tag::UNIQUE_IDENTIFIERS.into_iter().for_each(|tag| signed.skip(tag));
        let extensions = match signed.any() {
            Some(element) if element.tag == tag::EXTENSIONS => extensions(element.content)?,
            Some(_) => return None,
            None => Vec::new(),
        };
        Some(Self { issuer, subject, not_before, not_after, public_key, extensions })
    }

    /// Returns the first common name of the subject.
    pub(crate) fn common_name(&self) -> Option<&'a str> {
        let mut parts = Elements::only(self.subject, tag::SEQUENCE)?;
        while let Some(part) = parts.next(tag::SET) {
            let mut attribute = Elements::only(part.content, tag::SEQUENCE)?;
            if attribute.next(tag::OBJECT_IDENTIFIER)?.content == COMMON_NAME {
                let value = attribute.any().filter(|value| tag::TEXTS.contains(&value.tag))?;
                return str::from_utf8(value.content).ok();
            }
        }
        None
    }

    /// Returns whether the certificate is one of a CA (RFC 5280 4.2.1.9).
    pub(crate) fn is_ca(&self) -> bool {
        let constraints = self.extension(BASIC_CONSTRAINTS).and_then(|value| Elements::only(value, tag::SEQUENCE));
        constraints.and_then(|mut found| found.next(tag::BOOLEAN)).is_some_and(|is_ca| is_ca.content == [0xFF])
    }

    /// Returns whether the certificate has alternative names (RFC 5280 4.2.1.6).
    pub(crate) fn has_alternative_names(&self) -> bool {
        self.extension(SUBJECT_ALTERNATIVE_NAME).is_some()
    }

    /// Returns the names that a CA may sign for (RFC 5280 4.2.1.10). `None` if it is not constrained; the list is empty
    /// if its constraints cannot be read.
    pub(crate) fn permitted_names(&self) -> Option<Vec<PermittedName<'a>>> {
        let value = self.extension(NAME_CONSTRAINTS)?;
        let permitted = Elements::only(value, tag::SEQUENCE).and_then(|mut lists| lists.next(tag::CONTEXT_0));
        let mut subtrees = Elements(permitted.map_or(&[][..], |list| list.content));
        let mut names = Vec::new();
        while let Some(subtree) = subtrees.next(tag::SEQUENCE) {
            match Elements(subtree.content).any() {
                Some(Element { tag: tag::DNS_NAME, content, .. }) => {
                    names.extend(str::from_utf8(content).ok().map(PermittedName::Dns));
                }
                Some(Element { tag: tag::IP_ADDRESS, content, .. }) => names.push(PermittedName::Address(content)),
                _ => {}
            }
        }
        Some(names)
    }

    fn extension(&self, identifier: &[u8]) -> Option<&'a [u8]> {
        self.extensions.iter().find(|extension| extension.identifier == identifier).map(|extension| extension.value)
    }
}

/// Reads the list of extensions.
fn extensions(der: &[u8]) -> Option<Vec<Extension<'_>>> {
    let mut list = Elements::only(der, tag::SEQUENCE)?;
    let mut extensions = Vec::new();
    while !list.0.is_empty() {
        let mut extension = Elements(list.next(tag::SEQUENCE)?.content);
        let identifier = extension.next(tag::OBJECT_IDENTIFIER)?.content;
        extension.skip(tag::BOOLEAN);
        extensions.push(Extension { identifier, value: extension.next(tag::OCTET_STRING)?.content });
    }
    Some(extensions)
}

/// One element of DER.
#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// The element with its tag and length.
    whole: &'a [u8],
}

/// The elements that are still to be read.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// Returns the elements in the only element of `der`.
    fn only(der: &'a [u8], tag: u8) -> Option<Self> {
        let mut outer = Self(der);
        let content = outer.next(tag)?.content;
        outer.0.is_empty().then_some(Self(content))
    }

    /// Reads the next element if it has this tag.
    fn next(&mut self, tag: u8) -> Option<Element<'a>> {
        if *self.0.first()? != tag { None } else { self.any() }
    }

    /// Reads the next element and ignores it, if it has this tag.
    fn skip(&mut self, tag: u8) {
        _ = self.next(tag);
    }

    /// Reads the next element. Returns `None` at the end, and if it is malformed.
    fn any(&mut self) -> Option<Element<'a>> {
        let (&tag, &first) = (self.0.first()?, self.0.get(1)?);
        let (header_bytes, len) = match first {
            0..=0x7F => (2, usize::from(first)),
            // A length in one to four octets. DER has no indefinite length.
            0x81..=0x84 => {
                let octets = self.0.get(2..2 + usize::from(first - 0x80))?;
                (2 + octets.len(), octets.iter().fold(0_usize, |len, octet| len << 8 | usize::from(*octet)))
            }
            _ => return None,
        };
        let end = header_bytes.checked_add(len)?;
        let whole = self.0.get(..end)?;
        self.0 = &self.0[end..];
        Some(Element { tag, content: &whole[header_bytes..], whole })
    }

    /// Reads a time (RFC 5280 4.1.2.5), in seconds of Unix time.
    fn time(&mut self) -> Option<i64> {
        let element = self.any()?;
        let digits = str::from_utf8(element.content.strip_suffix(b"Z")?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let (year, rest) = match (element.tag, digits.len()) {
            (tag::UTC_TIME, 12) => {
                let year: i16 = digits[..2].parse().ok()?;
                (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
            }
            (tag::GENERALIZED_TIME, 14) => (digits[..4].parse().ok()?, &digits[4..]),
            _ => return None,
        };
        let pair = |index: usize| rest[2 * index..2 * index + 2].parse::<i8>().ok();
        let moment = DateTime::new(year, pair(0)?, pair(1)?, pair(2)?, pair(3)?, pair(4)?, 0).ok()?;
        Some(moment.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CidrSubnet, DnType, GeneralSubtree, IsCa, KeyPair, NameConstraints,
        PublicKeyData as _, date_time_ymd,
    };

    fn signed(change: impl FnOnce(&mut CertificateParams)) -> (Vec<u8>, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["site.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "Näme");
        (params.not_before, params.not_after) = (date_time_ymd(1999, 12, 31), date_time_ymd(2051, 2, 3));
        change(&mut params);
        (params.self_signed(&key).unwrap().der().to_vec(), key)
    }

    #[test]
    fn parts_are_those_that_were_signed() {
        let (der, key) = signed(|_| {});
        let certificate = Certificate::read(&der).unwrap();
        assert_eq!(certificate.public_key, key.subject_public_key_info());
        assert_eq!(certificate.issuer, certificate.subject);
        assert_eq!(certificate.common_name(), Some("Näme"));
        assert_eq!((certificate.not_before, certificate.not_after), (946_598_400, 2_558_995_200));
        assert!(certificate.has_alternative_names() && !certificate.is_ca());
        assert_eq!(certificate.permitted_names(), None);
    }

    #[test]
    fn constraints_of_a_ca_are_found() {
        let (der, _) = signed(|params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.subject_alt_names.clear();
            let permitted = vec![
                GeneralSubtree::DnsName("a.example".to_owned()),
                GeneralSubtree::IpAddress(CidrSubnet::V4([10, 0, 0, 0], [255, 0, 0, 0])),
            ];
            params.name_constraints =
                Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: Vec::new() });
        });
        let certificate = Certificate::read(&der).unwrap();
        assert!(certificate.is_ca() && !certificate.has_alternative_names());
        let expected = [PermittedName::Dns("a.example"), PermittedName::Address(&[10, 0, 0, 0, 255, 0, 0, 0])];
        assert_eq!(certificate.permitted_names().unwrap(), expected);
    }

    /// At stake: a panic because of a file that is damaged, or no certificate at all.
    #[test]
    fn no_bytes_panic_and_no_part_of_a_certificate_is_one() {
        let (der, _) = signed(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        for end in 0..der.len() {
            assert!(Certificate::read(&der[..end]).is_none(), "the first {end} bytes");
        }
        for position in 0..der.len() {
            for change in [1, 0x7F, 0x80, 0xFF] {
                let mut changed = der.clone();
                changed[position] ^= change;
                if let Some(certificate) = Certificate::read(&changed) {
                    std::hint::black_box((
                        certificate.common_name(),
                        certificate.is_ca(),
                        certificate.permitted_names(),
                    ));
                }
            }
        }
        let longer = [&der[..], &[0]].concat();
        assert!(Certificate::read(&longer).is_none());
    }
}
