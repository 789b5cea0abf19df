//! The array of status variables that `stats_get` hands out and `stats_free` takes back.
//!
//! One block from `malloc`: the variables, the terminating entry, then all strings. So freeing needs no bookkeeping, and
//! several arrays can be out at once.

use std::ffi::c_char;
use std::mem::size_of;
use std::ptr;

use trireme_node::StatValue;
use trireme_wsrep_sys as sys;

use crate::server::c_string;

/// Null when there is no memory, which the server takes for "no variables".
pub fn allocate(pairs: &[(String, StatValue)]) -> *mut sys::StatsVar {
    let strings: Vec<_> = pairs
        .iter()
        .map(|(name, value)| match value {
            StatValue::Text(text) => (c_string(name), Some(c_string(text))),
            StatValue::Int(_) | StatValue::Double(_) => (c_string(name), None),
        })
        .collect();
    let length = |s: &std::ffi::CString| s.as_bytes_with_nul().len();
    let text: usize = strings.iter().map(|(name, value)| length(name) + value.as_ref().map_or(0, length)).sum();
    let table = (pairs.len() + 1) * size_of::<sys::StatsVar>();

    // SAFETY: plain allocation.
    let block = unsafe { libc::malloc(table + text) }.cast::<u8>();
    if block.is_null() {
        return ptr::null_mut();
    }
    let vars = block.cast::<sys::StatsVar>();
    let mut end = table;
    let mut put = |s: &std::ffi::CString| -> *const c_char {
        let bytes = s.as_bytes_with_nul();
        // SAFETY: `end` advances by exactly the lengths that were added up above.
        let at = unsafe { block.add(end) };
        // SAFETY: as above; source and target are different blocks.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        end += bytes.len();
        at.cast()
    };
    for (at, ((_, value), (name, value_text))) in pairs.iter().zip(&strings).enumerate() {
        let name = put(name);
        let (ty, value) = match value {
            StatValue::Text(_) => {
                (sys::STATS_STRING, sys::StatsValue { s: value_text.as_ref().map_or(ptr::null(), &mut put) })
            }
            StatValue::Int(i) => (sys::STATS_INT64, sys::StatsValue { i: *i }),
            StatValue::Double(d) => (sys::STATS_DOUBLE, sys::StatsValue { d: *d }),
        };
        // SAFETY: within the table; malloc's alignment suffices.
        unsafe { vars.add(at).write(sys::StatsVar { name, ty, value }) };
    }
    let terminator =
        sys::StatsVar { name: ptr::null(), ty: sys::STATS_STRING, value: sys::StatsValue { s: ptr::null() } };
    // SAFETY: the table has one entry more than there are pairs.
    unsafe { vars.add(pairs.len()).write(terminator) };
    vars
}

/// # Safety
/// `vars` is null or came from [`allocate`] and has not been freed.
pub unsafe fn free(vars: *mut sys::StatsVar) {
    // SAFETY: malloc, by the caller's promise.
    unsafe { libc::free(vars.cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn variables_come_out_in_order_with_their_types() {
        let pairs = [
            ("name".to_owned(), StatValue::Text("te\0xt".into())),
            ("int".to_owned(), StatValue::Int(-5)),
            ("double".to_owned(), StatValue::Double(0.5)),
            ("empty".to_owned(), StatValue::Text(String::new())),
        ];
        let vars = allocate(&pairs);
        // SAFETY: the array ends with a null name, and its strings are alive until `free`.
        unsafe {
            let text = |p| CStr::from_ptr(p).to_str().unwrap();
            let var = |n: usize| *vars.add(n);
            assert_eq!((text(var(0).name), var(0).ty, text(var(0).value.s)), ("name", sys::STATS_STRING, "te xt"));
            assert_eq!((text(var(1).name), var(1).ty, var(1).value.i), ("int", sys::STATS_INT64, -5));
            assert_eq!((text(var(2).name), var(2).ty, var(2).value.d), ("double", sys::STATS_DOUBLE, 0.5));
            assert_eq!((text(var(3).name), text(var(3).value.s)), ("empty", ""));
            assert!(var(4).name.is_null());
            free(vars);
        }
    }

    #[test]
    fn no_variables_are_an_array_with_an_end() {
        let vars = allocate(&[]);
        // SAFETY: as above.
        unsafe {
            assert!((*vars).name.is_null());
            free(vars);
            free(ptr::null_mut());
        }
    }
}
