//! An authority that follows from the secret of a cluster, so that whoever knows the secret can issue certificates that all others take: for the
//! server's scripts for full copies, which know certificates and no secrets.
//!
//! Its key is drawn from the secret alone. Two nodes that make it get certificates of the same name and key, and each accepts what the other
//! has issued. It says what the secret says: "a member".

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::sha::sha256;

use crate::Authority;

impl Authority {
    /// `secret` must be drawn, not chosen: nothing here makes guessing slow.
    pub fn of_secret(secret: &[u8; 32]) -> Result<Authority, ErrorStack> {
        // Tells which secret it is, and nothing about it.
        let hash = sha256(&[b"trireme transfer authority name\0", &secret[..]].concat());
        let name: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Authority::with_key(&format!("trireme {name}"), key_of(secret)?)
    }
}

/// A private key on P-256 that nobody finds without the secret.
fn key_of(secret: &[u8; 32]) -> Result<PKey<Private>, ErrorStack> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    let mut context = BigNumContext::new()?;
    let mut order = BigNum::new()?;
    group.order(&mut order, &mut context)?;
    let mut counter = 0u8;
    // The first that is a key: nearly every number of 256 bits is one.
    let number = loop {
        let number =
            BigNum::from_slice(&sha256(&[b"trireme transfer authority key\0", &[counter][..], &secret[..]].concat()))?;
        if number.num_bits() > 0 && number < order {
            break number;
        }
        counter = counter.wrapping_add(1);
    };
    let mut public = EcPoint::new(&group)?;
    public.mul_generator2(&group, &number, &mut context)?;
    PKey::from_ec_key(EcKey::from_private_components(&group, &number, &public)?)
}

#[cfg(test)]
mod tests {
    use openssl::x509::X509;

    use super::*;
    use crate::Validity;

    #[test]
    fn what_one_node_issues_another_with_the_same_secret_accepts() {
        let (one, other) = (Authority::of_secret(&[7; 32]).unwrap(), Authority::of_secret(&[7; 32]).unwrap());
        let stranger = Authority::of_secret(&[8; 32]).unwrap();
        let cert = X509::from_pem(&one.issue("node1", Validity::YEARS, None).unwrap().cert).unwrap();
        let authority = X509::from_pem(&other.cert().unwrap()).unwrap();
        let accepts = |pem: Vec<u8>| {
            let mut store = openssl::x509::store::X509StoreBuilder::new().unwrap();
            store.add_cert(X509::from_pem(&pem).unwrap()).unwrap();
            let chain = openssl::stack::Stack::new().unwrap();
            let mut context = openssl::x509::X509StoreContext::new().unwrap();
            context.init(&store.build(), &cert, &chain, |context| context.verify_cert()).unwrap()
        };
        assert!(accepts(authority.to_pem().unwrap()));
        assert!(!accepts(stranger.cert().unwrap()));
        assert!(!cert.public_key().unwrap().public_eq(&authority.public_key().unwrap()), "a node's key is its own");
    }
}
