//! How far InnoDB's own log is on disk, read from the status variables that the engine exports to the server by the interface of plugins.
//!
//! Nothing that the server exports makes the engine flush its log whatever its settings: `ha_flush_logs`, which `FLUSH ENGINE LOGS`
//! runs, does nothing with `innodb_flush_log_at_trx_commit=0`, and does not sync with 2. So the engine is watched, not pushed: it
//! flushes by itself every `innodb_flush_log_at_timeout` seconds.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::{mem, ptr};

use trireme_node::EngineLog;

use crate::executable::find;

/// `st_maria_plugin`: what a plugin declares.
#[repr(C)]
struct Plugin {
    kind: c_int,
    /// Null: the end of a list.
    info: *mut c_void,
    name: *const c_char,
    author: *const c_char,
    description: *const c_char,
    license: c_int,
    init: *mut c_void,
    deinit: *mut c_void,
    version: c_uint,
    status_variables: *const Variable,
    system_variables: *mut c_void,
    version_text: *const c_char,
    maturity: c_uint,
}

/// `st_mysql_show_var`: a status variable. A list of them ends with one without a name.
#[repr(C)]
#[derive(Clone, Copy)]
struct Variable {
    name: *const c_char,
    value: *mut c_void,
    kind: c_uint,
}

/// `SHOW_ULONG`, `SHOW_ULONGLONG`, `SHOW_SIZE_T`: eight bytes.
const NUMBERS: [c_uint; 3] = [3, 4, 14];
const SHOW_ARRAY: c_uint = 7;
/// `SHOW_FUNC`, `SHOW_SIMPLE_FUNC`: the value is a function that fills in another variable.
const FUNCTIONS: [c_uint; 2] = [8, 13];
/// Bytes that a function may write its value to.
const SHOW_BUFFER: usize = 1024;
const STORAGE_ENGINE: c_int = 1;
const IS_READY: c_uint = 8;
/// `OPT_GLOBAL`.
const GLOBAL: c_int = 2;
/// No list of ours is as long.
const LIST_MAX: usize = 10_000;

type Show = unsafe extern "C-unwind" fn(*mut c_void, *mut Variable, *mut c_void, *mut c_void, c_int) -> c_int;
type Visit = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void) -> c_char;
type ForEach = unsafe extern "C-unwind" fn(*mut c_void, Visit, c_int, c_uint, *mut c_void) -> u8;

/// Where InnoDB's log ends, and up to where the disk has it. May wait for the engine; for any thread but the group thread. Never once
/// the server shuts its engines down, see [`crate::server::CServer::leave_engines`].
pub fn log() -> EngineLog {
    let Some(innodb) = innodb() else { return EngineLog::Silent };
    let Some(for_each) = find(c"_Z24plugin_foreach_with_maskP3THDPFcS0_P13st_plugin_intPvEijS3_") else {
        return EngineLog::Silent;
    };
    // SAFETY: the name holds the types of the arguments.
    let for_each = unsafe { mem::transmute::<*mut c_void, ForEach>(for_each) };
    let mut visit = Visiting { innodb, found: EngineLog::Closed };
    // SAFETY: it takes no session, and calls `look` with each storage engine that is ready, which stays so meanwhile.
    unsafe { for_each(ptr::null_mut(), look, STORAGE_ENGINE, IS_READY, (&raw mut visit).cast()) };
    visit.found
}

struct Visiting {
    innodb: *const Plugin,
    found: EngineLog,
}

/// For each engine that is ready. True ends the visit.
unsafe extern "C-unwind" fn look(_session: *mut c_void, plugin: *mut c_void, visiting: *mut c_void) -> c_char {
    // SAFETY: `log` passes it, and waits for us.
    let visiting = unsafe { &mut *visiting.cast::<Visiting>() };
    // The server's record of a plugin begins with its name (two words) and the plugin's declaration. One that is laid out in
    // another way is not recognised. SAFETY: three words of an object that has many.
    let declared = unsafe { plugin.cast::<*const Plugin>().add(2).read() };
    if declared != visiting.innodb {
        return 0;
    }
    // SAFETY: the engine is ready.
    visiting.found = unsafe { read(&*declared) };
    1
}

/// # Safety
/// The plugin is InnoDB, and ready.
unsafe fn read(innodb: &Plugin) -> EngineLog {
    // SAFETY: lists of variables as plugins declare them; their names are strings that live as long as the process.
    unsafe {
        let Some(all) = variable(innodb.status_variables, c"Innodb") else { return EngineLog::Silent };
        if !FUNCTIONS.contains(&all.kind) || all.value.is_null() {
            return EngineLog::Silent;
        }
        let show = mem::transmute::<*mut c_void, Show>(all.value);
        let mut buffer = [0u64; SHOW_BUFFER / 8];
        let mut filled = all;
        // It brings the numbers up to date under a lock of the engine, and needs no session for that.
        if show(ptr::null_mut(), &raw mut filled, buffer.as_mut_ptr().cast(), ptr::null_mut(), GLOBAL) != 0
            || filled.kind != SHOW_ARRAY
        {
            return EngineLog::Silent;
        }
        let list = filled.value.cast::<Variable>().cast_const();
        match (number(list, c"lsn_current"), number(list, c"lsn_flushed")) {
            (Some(written), Some(durable)) => EngineLog::At { written, durable },
            _ => EngineLog::Silent,
        }
    }
}

/// # Safety
/// As [`variable`]; the engine may be writing the value.
unsafe fn number(list: *const Variable, name: &CStr) -> Option<u64> {
    // SAFETY: the caller's promise; a number of eight bytes, aligned.
    unsafe {
        let found = variable(list, name).filter(|v| NUMBERS.contains(&v.kind) && !v.value.is_null())?;
        Some(found.value.cast::<u64>().read_volatile())
    }
}

/// # Safety
/// Null, or a list that ends with a variable without a name.
unsafe fn variable(list: *const Variable, name: &CStr) -> Option<Variable> {
    if list.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        (0..LIST_MAX)
            .map(|at| list.add(at).read())
            .take_while(|v| !v.name.is_null())
            .find(|v| CStr::from_ptr(v.name) == name)
    }
}

/// InnoDB's declaration, if it is part of this server and the server's declarations have the form that we know.
fn innodb() -> Option<*const Plugin> {
    let size = find(c"builtin_maria_wsrep_sizeof_struct_st_plugin")?;
    // SAFETY: a constant of the server.
    if unsafe { size.cast::<c_int>().read() } != mem::size_of::<Plugin>() as c_int {
        return None;
    }
    [c"mysql_mandatory_plugins", c"mysql_optional_plugins"].into_iter().find_map(|name| {
        let lists = find(name)?.cast::<*const Plugin>().cast_const();
        // SAFETY: a constant list of lists; the outer one ends with null, each inner one with a plugin without information.
        unsafe {
            (0..LIST_MAX).map(|at| lists.add(at).read()).take_while(|list| !list.is_null()).find_map(|list| {
                (0..LIST_MAX)
                    .map(|at| list.add(at))
                    .take_while(|plugin| !(**plugin).info.is_null())
                    .find(|plugin| (**plugin).kind == STORAGE_ENGINE && CStr::from_ptr((**plugin).name) == c"InnoDB")
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_no_server_tells_nothing() {
        assert_eq!(log(), EngineLog::Silent);
    }

    #[test]
    fn a_variable_is_found_by_its_name_and_only_a_number_is_read() {
        let value = 42u64;
        let at = (&raw const value).cast_mut().cast::<c_void>();
        let list = [
            Variable { name: c"lsn_current".as_ptr(), value: at, kind: 4 },
            Variable { name: c"text".as_ptr(), value: at, kind: 5 },
            Variable { name: ptr::null(), value: ptr::null_mut(), kind: 0 },
        ];
        // SAFETY: a list as it has to be.
        unsafe {
            assert_eq!(number(list.as_ptr(), c"lsn_current"), Some(42));
            assert_eq!(number(list.as_ptr(), c"text"), None);
            assert_eq!(number(list.as_ptr(), c"lsn_flushed"), None);
            assert_eq!(number(ptr::null(), c"lsn_current"), None);
        }
    }

    #[test]
    fn declarations_have_the_size_that_the_server_gives() {
        assert_eq!((mem::size_of::<Plugin>(), mem::size_of::<Variable>()), (104, 24));
    }
}
