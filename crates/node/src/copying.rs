//! Full copies go by the server's scripts, which know nothing of the group's protection.

use crate::host::Host;

/// Says that a full copy is less protected than the group. For donor and joiner.
pub fn look(host: &Host, request: &[u8]) {
    if let Some(complaint) = complaint(request).filter(|_| host.settings.is_protected()) {
        host.log(host.settings.advice_level(), complaint);
    }
}

/// A request as servers write it: method, zero byte, where the joiner listens. A script that verifies its peer's certificate puts the common
/// name and a secret of its own before the address (`NAME:SECRET@ADDRESS`), which the other end has to repeat.
fn complaint(request: &[u8]) -> Option<String> {
    let mut parts = request.split(|byte| *byte == 0);
    let (method, address) = (parts.next()?, parts.next()?);
    let by_certificates = ["rsync", "rsync_wan", "mariabackup", "backup", "xtrabackup-v2"];
    let method = by_certificates.into_iter().find(|known| known.as_bytes() == method)?;
    if address.contains(&b'@') {
        return None;
    }
    Some(format!(
        "the full copy by '{method}' is not protected as the group is: its scripts verify nobody, and may send all data in clear text. On every \
         node set ssl-mode=VERIFY_CA, tca, tcert and tkey in the section [sst] of my.cnf; with repl.secret_file, \
         `trireme secret transfer` makes the files"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scripts_that_verify_nobody_are_complained_of() {
        for open in [&b"rsync\x0010.0.0.1:4444/rsync_sst\0"[..], b"mariabackup\x0010.0.0.1:4444/xtrabackup_sst//1\0"] {
            let said = complaint(open).unwrap();
            assert!(said.contains("ssl-mode=VERIFY_CA") && said.contains("trireme secret transfer"), "{said}");
        }
        for fine in [
            &b"rsync\0node1:0123abcd@10.0.0.1:4444/rsync_sst\0"[..],
            b"mariabackup\0node1:0123abcd@10.0.0.1:4444/xtrabackup_sst//1\0",
            b"mysqldump\x0010.0.0.1:3306\0",
            b"trivial\0",
            b"",
        ] {
            assert_eq!(complaint(fine), None, "{}", String::from_utf8_lossy(fine));
        }
    }
}
