//! Facts that no call of the interface tells, taken from the server's executable, which exports all that its plugins may
//! use. Where a name is missing, as in a test host or perhaps in a later server, nothing is known.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use trireme_node::ServerProcess;
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

/// How the server was started, if the program of this process is one: however it is called, and whatever loaded it. A program that has
/// a server in a library cannot be started again as one.
pub fn process() -> Option<ServerProcess> {
    let main = find(c"_Z11mysqld_mainiPPc").filter(|main| is_of_the_program(*main));
    let arguments = main.and_then(|_| arguments()).or_else(arguments_by_name)?;
    Some(ServerProcess {
        arguments,
        defaults_file: pointed_at(c"my_defaults_file"),
        defaults_extra_file: pointed_at(c"my_defaults_extra_file"),
        base_dir: array(c"mysql_home"),
        plugin_dir: array(c"opt_plugin_dir"),
    })
}

/// The arguments of the server's main function: `int orig_argc; char **orig_argv`.
fn arguments() -> Option<Vec<OsString>> {
    let (count, words) = (find(c"orig_argc")?.cast::<c_int>(), find(c"orig_argv")?.cast::<*const *const c_char>());
    // SAFETY: both are the server's, set once, when its main function begins, which is over when it loads a provider. The words are those
    // that the system gave to the process, and there are as many.
    unsafe {
        let (count, words) = (usize::try_from(count.read()).ok()?, words.read());
        let word = |at: usize| Some(words.add(at).read()).filter(|word| !word.is_null());
        (!words.is_null()).then(|| (0..count).map_while(word).map(|word| os_string(CStr::from_ptr(word))).collect())
    }
}

/// A server that exports nothing is known by its name.
fn arguments_by_name() -> Option<Vec<OsString>> {
    let program = std::fs::read_link("/proc/self/exe").ok()?;
    let name = program.file_name()?.as_bytes();
    if !(name.starts_with(b"mariadbd") || name.starts_with(b"mysqld")) {
        return None;
    }
    let line = std::fs::read("/proc/self/cmdline").ok()?;
    Some(line.strip_suffix(b"\0")?.split(|b| *b == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect())
}

/// Does the symbol belong to the program itself, not to one of its libraries?
fn is_of_the_program(symbol: *mut c_void) -> bool {
    // SAFETY: the number is the address of the program's first instruction. Where a loader was started by hand, it puts it right.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as *mut c_void;
    let base_of = |address: *mut c_void| {
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked for; what is filled in is read only if that worked.
        unsafe { (libc::dladdr(address, found.as_mut_ptr()) != 0).then(|| found.assume_init().dli_fbase) }
    };
    base_of(symbol).is_some_and(|base| base_of(entry) == Some(base))
}

/// A path behind a `char *` of the server, if it is absolute.
fn pointed_at(name: &CStr) -> Option<PathBuf> {
    // SAFETY: the server sets these when it reads its options, before it loads a provider, and never again.
    let text = unsafe { find(name)?.cast::<*const c_char>().read() };
    // SAFETY: as above; what it points at ends with a zero byte.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }).and_then(absolute)
}

/// A path in an array of `char` of the server, if it is absolute.
fn array(name: &CStr) -> Option<PathBuf> {
    // SAFETY: as in `pointed_at`; the array ends with a zero byte.
    absolute(unsafe { CStr::from_ptr(find(name)?.cast()) })
}

fn absolute(path: &CStr) -> Option<PathBuf> {
    Some(PathBuf::from(os_string(path))).filter(|path| path.is_absolute())
}

fn os_string(text: &CStr) -> OsString {
    OsStr::from_bytes(text.to_bytes()).to_owned()
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

pub fn find(name: &CStr) -> Option<*mut c_void> {
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
    fn a_symbol_of_a_library_is_not_of_the_program() {
        let own: fn() = a_symbol_of_a_library_is_not_of_the_program;
        assert!(is_of_the_program(own as *mut c_void));
        assert!(!is_of_the_program(find(c"malloc").expect("there is a C library")));
    }

    #[test]
    fn only_absolute_paths_are_known() {
        assert_eq!(absolute(c"/usr/"), Some("/usr/".into()));
        assert_eq!(absolute(c"./plugins"), None);
        assert_eq!(absolute(c""), None);
    }

    #[test]
    fn a_process_that_is_no_server_tells_nothing() {
        assert!(!gtid_mode());
        assert_eq!(engine_position(), None);
        assert!(process().is_none());
    }
}
