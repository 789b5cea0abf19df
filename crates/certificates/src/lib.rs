//! An authority and the certificates it issues, for test clusters (`trireme cluster up --tls`), tests, and full copies between nodes that share a
//! secret ([`of_secret`]).
//!
//! Keys are on the curve P-256, unless RSA is asked for. Nothing is kept secret beyond file permissions, and what is revoked is remembered by nobody: a cluster that
//! matters gets its certificates from whoever issues them there (docs/operations/tls.md).

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use openssl::asn1::{Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::symm::Cipher;
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage};
use openssl::x509::{X509, X509Builder, X509CrlBuilder, X509Extension, X509NameBuilder, X509RevokedBuilder};

mod of_secret;

const DAY: i64 = 24 * 3600;

/// From when until when a certificate holds, in days from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    pub from: i64,
    pub until: i64,
}

impl Validity {
    /// Long enough for a test cluster that somebody forgets; begun yesterday, because clocks differ.
    pub const YEARS: Validity = Validity { from: -1, until: 10 * 365 };
    pub const OVER: Validity = Validity { from: -2, until: -1 };
}

/// The kind of key in what an authority issues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keys {
    P256,
    Rsa2048,
}

/// A key and a certificate that signs itself.
pub struct Authority {
    key: PKey<Private>,
    cert: X509,
    issues: Keys,
}

/// A node's key and certificate as PEM.
pub struct Issued {
    pub key: Vec<u8>,
    pub cert: Vec<u8>,
}

impl Authority {
    pub fn new(name: &str) -> Result<Authority, ErrorStack> {
        Authority::with_key(name, new_key()?)
    }

    /// It issues RSA keys of 2048 bits: a handshake with one costs the server more than with any other usual key.
    pub fn with_rsa(name: &str) -> Result<Authority, ErrorStack> {
        Ok(Authority { issues: Keys::Rsa2048, ..Authority::new(name)? })
    }

    fn with_key(name: &str, key: PKey<Private>) -> Result<Authority, ErrorStack> {
        let mut builder = begin(name, &key, Validity::YEARS)?;
        builder.set_issuer_name(&*subject(name)?)?;
        builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        builder.append_extension(KeyUsage::new().critical().key_cert_sign().crl_sign().build()?)?;
        builder.sign(&key, MessageDigest::sha256())?;
        Ok(Authority { key, cert: builder.build(), issues: Keys::P256 })
    }

    /// The files that `of_dir` keeps.
    pub const FILES: [&str; 2] = ["ca-key.pem", "ca.pem"];

    /// The authority that is kept in `dir`, made if there is none.
    pub fn of_dir(dir: &Path) -> io::Result<Authority> {
        let [key, cert] = Authority::FILES.map(|name| dir.join(name));
        match std::fs::read(&key) {
            Ok(pem) => {
                let (key, cert) = (PKey::private_key_from_pem(&pem)?, X509::from_pem(&std::fs::read(&cert)?)?);
                Ok(Authority { key, cert, issues: Keys::P256 })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let authority = Authority::new("trial cluster")?;
                replace(&cert, &authority.cert()?, 0o644)?;
                replace(&key, &authority.key.private_key_to_pem_pkcs8()?, 0o600)?;
                Ok(authority)
            }
            Err(error) => Err(error),
        }
    }

    /// The certificate that peers are checked against (`socket.ssl_ca`), as PEM.
    pub fn cert(&self) -> Result<Vec<u8>, ErrorStack> {
        self.cert.to_pem()
    }

    /// A certificate for either end of a connection. `password` encrypts the key.
    pub fn issue(&self, name: &str, validity: Validity, password: Option<&str>) -> Result<Issued, ErrorStack> {
        self.issue_with(name, validity, password, None)
    }

    /// A revocation list of this authority, as PEM, valid from now on for `days`. `certs`: the certificates that it has taken back, as PEM.
    pub fn revoke(&self, certs: &[&[u8]], days: i64) -> Result<Vec<u8>, ErrorStack> {
        let now = Asn1Time::days_from_now(0)?;
        let mut list = X509CrlBuilder::new()?;
        list.set_issuer_name(self.cert.subject_name())?;
        list.set_last_update(&*Asn1Time::from_unix(unix_now() - 2 * DAY)?)?;
        list.set_next_update(&*Asn1Time::from_unix(unix_now() + days * DAY)?)?;
        for cert in certs {
            let mut entry = X509RevokedBuilder::new()?;
            entry.set_serial_number(X509::from_pem(cert)?.serial_number())?;
            entry.set_revocation_date(&now)?;
            list.add_revoked(entry.build())?;
        }
        list.sort()?;
        // Both have to be there. The first names no key, since there is one per authority; the second is the number 1.
        for (nid, der) in [(Nid::AUTHORITY_KEY_IDENTIFIER, &[0x30, 0][..]), (Nid::CRL_NUMBER, &[0x02, 1, 1])] {
            let oid = Asn1Object::from_str(nid.short_name()?)?;
            list.append_extension(X509Extension::new_from_der(&oid, false, &*Asn1OctetString::new_from_bytes(der)?)?)?;
        }
        list.sign(&self.key, MessageDigest::sha256())?;
        list.build()?.to_pem()
    }

    /// A certificate that only one who connects may show: what a laptop gets.
    pub fn issue_to_client(&self, name: &str) -> Result<Issued, ErrorStack> {
        self.issue_with(name, Validity::YEARS, None, Some(ExtendedKeyUsage::new().client_auth()))
    }

    fn issue_with(
        &self,
        name: &str,
        validity: Validity,
        password: Option<&str>,
        usage: Option<&ExtendedKeyUsage>,
    ) -> Result<Issued, ErrorStack> {
        let key = match self.issues {
            Keys::P256 => new_key()?,
            Keys::Rsa2048 => PKey::from_rsa(Rsa::generate(2048)?)?,
        };
        let mut builder = begin(name, &key, validity)?;
        builder.set_issuer_name(self.cert.subject_name())?;
        builder.append_extension(BasicConstraints::new().critical().build()?)?;
        if let Some(usage) = usage {
            builder.append_extension(usage.build()?)?;
        }
        builder.sign(&self.key, MessageDigest::sha256())?;
        let key = match password {
            Some(password) => key.private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), password.as_bytes())?,
            None => key.private_key_to_pem_pkcs8()?,
        };
        Ok(Issued { key, cert: builder.build().to_pem()? })
    }
}

/// Where the files of one node are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    pub key: PathBuf,
    pub cert: PathBuf,
    pub ca: PathBuf,
}

impl Files {
    pub fn below(dir: &Path) -> Files {
        Files { key: dir.join("key.pem"), cert: dir.join("cert.pem"), ca: dir.join("ca.pem") }
    }

    /// Writes them, each at once, so that whoever reads sees an old file or a new one.
    pub fn write(&self, issued: &Issued, ca: &Authority) -> io::Result<()> {
        replace(&self.key, &issued.key, 0o600)?;
        replace(&self.cert, &issued.cert, 0o644)?;
        replace(&self.ca, &ca.cert()?, 0o644)
    }

    /// As provider options.
    pub fn options(&self) -> String {
        format!(
            "socket.ssl_key={};socket.ssl_cert={};socket.ssl_ca={}",
            self.key.display(),
            self.cert.display(),
            self.ca.display()
        )
    }
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&fresh)?;
    io::Write::write_all(&mut file, bytes)?;
    std::fs::rename(&fresh, path)
}

fn new_key() -> Result<PKey<Private>, ErrorStack> {
    PKey::from_ec_key(EcKey::generate(&*EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?)?)
}

fn subject(name: &str) -> Result<openssl::x509::X509Name, ErrorStack> {
    let mut subject = X509NameBuilder::new()?;
    subject.append_entry_by_text("CN", name)?;
    Ok(subject.build())
}

fn unix_now() -> i64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() as i64)
}

fn begin(name: &str, key: &PKey<Private>, validity: Validity) -> Result<X509Builder, ErrorStack> {
    let mut builder = X509::builder()?;
    builder.set_version(2)?; // which is X.509 v3
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::MAYBE_ZERO, false)?;
    builder.set_serial_number(&*serial.to_asn1_integer()?)?;
    builder.set_subject_name(&*subject(name)?)?;
    builder.set_pubkey(key)?;
    let at = |days: i64| Asn1Time::from_unix(unix_now() + days * DAY);
    builder.set_not_before(&*at(validity.from)?)?;
    builder.set_not_after(&*at(validity.until)?)?;
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_made_once_and_signs_for_ever() {
        let dir = std::env::temp_dir().join(format!("trireme-certificates-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let issued = Authority::of_dir(&dir).unwrap().issue("a", Validity::YEARS, None).unwrap();
        let again = Authority::of_dir(&dir).unwrap();
        let cert = X509::from_pem(&issued.cert).unwrap();
        assert!(cert.verify(&again.cert.public_key().unwrap()).unwrap());
        assert!(!cert.verify(&Authority::new("x").unwrap().cert.public_key().unwrap()).unwrap());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
