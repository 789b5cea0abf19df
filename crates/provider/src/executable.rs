//! What no call of the interface tells, taken from the server's executable, which exports all that its plugins may use. Where a
//! name is missing, as in a test host or perhaps in a later server, nothing is known.

use std::ffi::{CStr, c_void};

use trireme_types::{Seqno, Uuid};

/// The server's variable `wsrep_gtid_mode`.
pub fn gtid_mode() -> bool {
    let Some(variable) = find(c"wsrep_gtid_mode") else { return false };
    // SAFETY: it is a `my_bool` of the server, one byte that lives as long as the process; a client may be setting it.
    unsafe { variable.cast::<u8>().read_volatile() != 0 }
}

/// The position up to which the storage engines of this process have everything: `bool wsrep_get_SE_checkpoint(XID&)`.
/// `None` before they are open, and where they hold none.
pub fn engine_position() -> Option<(Uuid, Seqno)> {
    let call = find(c"_Z23wsrep_get_SE_checkpointR5xid_t")?;
    // SAFETY: the name holds the types of the arguments; a reference is passed as a pointer. The result may be true for an error.
    let call = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u64) -> u8>(call) };
    // Three numbers and 128 bytes in the servers that we know; there is room for more.
    let mut xid = [0u64; 64];
    // SAFETY: it fills in a transaction's name, and may be called on any thread once the engines run; before, there is none to ask.
    let failed = unsafe { call(xid.as_mut_ptr()) } != 0;
    let bytes: Vec<u8> = xid.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if failed { None } else { position_in(&bytes) }
}

/// A replicated transaction's name: format 1, then, behind two lengths, `WSREPXi`, a version, the history and the seqno.
fn position_in(xid: &[u8]) -> Option<(Uuid, Seqno)> {
    const FORMAT: usize = 0;
    const NAME: usize = 24;
    let number = |at: usize| Some(i64::from_le_bytes(xid.get(at..at + 8)?.try_into().ok()?));
    if number(FORMAT)? != 1 || xid.get(NAME..NAME + 7)? != b"WSREPXi" {
        return None;
    }
    let history = Uuid(xid.get(NAME + 8..NAME + 24)?.try_into().ok()?);
    let seqno = Seqno::from_outside(number(NAME + 24)?)?;
    (!history.is_nil()).then_some((history, seqno))
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a search by name among what the process has loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid(format: i64, prefix: &[u8; 8], history: [u8; 16], seqno: i64) -> Vec<u8> {
        let mut xid = Vec::new();
        for number in [format, 32, 0] {
            xid.extend_from_slice(&number.to_le_bytes());
        }
        xid.extend_from_slice(prefix);
        xid.extend_from_slice(&history);
        xid.extend_from_slice(&seqno.to_le_bytes());
        xid.resize(512, 0);
        xid
    }

    #[test]
    fn only_the_name_of_a_replicated_transaction_is_a_position() {
        let position = Some((Uuid([7; 16]), Seqno(42)));
        for version in [b"WSREPXid", b"WSREPXie", b"WSREPXif"] {
            assert_eq!(position_in(&xid(1, version, [7; 16], 42)), position);
        }
        assert_eq!(position_in(&xid(-1, b"WSREPXif", [7; 16], 42)), None, "the name of no transaction");
        assert_eq!(position_in(&xid(1, b"MySQLXid", [7; 16], 42)), None);
        assert_eq!(position_in(&xid(1, b"WSREPXif", [0; 16], 42)), None);
        assert_eq!(position_in(&xid(1, b"WSREPXif", [7; 16], -1)), None);
        assert_eq!(position_in(&[0; 40]), None);
    }

    #[test]
    fn a_process_that_is_no_server_tells_nothing() {
        assert!(!gtid_mode());
        assert_eq!(engine_position(), None);
    }
}
