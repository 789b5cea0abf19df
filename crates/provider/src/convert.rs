//! Between the C values and ours. Sentinels (-1, the zero UUID, null) become `None` here and nowhere else.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int};
use std::slice;

use trireme_node::{Code, ConnId, Gtid, Handle, KeyKind, Meta, Source, TrxId};
use trireme_types::{NUMBER_MAX, Seqno, Uuid};
use trireme_wsrep_sys as sys;

pub fn status(code: Code) -> sys::Status {
    match code {
        Code::Ok => sys::OK,
        Code::TrxMissing => sys::TRX_MISSING,
        Code::TrxFail => sys::TRX_FAIL,
        Code::BfAbort => sys::BF_ABORT,
        Code::SizeExceeded => sys::SIZE_EXCEEDED,
        Code::ConnFail => sys::CONN_FAIL,
        Code::NodeFail => sys::NODE_FAIL,
        Code::Fatal => sys::FATAL,
        Code::NotImplemented => sys::NOT_IMPLEMENTED,
        Code::NotAllowed => sys::NOT_ALLOWED,
    }
}

pub fn seqno_in(seqno: sys::Seqno) -> Option<Seqno> {
    Seqno::from_outside(seqno)
}

/// Every number that a node can count up to from [`NUMBER_MAX`] fits, and nothing above that gets in; it must not turn into
/// "undefined".
pub fn seqno_out(seqno: Option<Seqno>) -> sys::Seqno {
    seqno.map_or(sys::SEQNO_UNDEFINED, |s| number_out(s.raw()))
}

/// See [`seqno_out`].
pub fn number_out(number: u64) -> i64 {
    i64::try_from(number).expect("numbers from outside are at most NUMBER_MAX, and are counted up one by one")
}

const _: () = assert!(NUMBER_MAX - 1 <= i64::MAX as u64 / 2);

pub fn uuid_out(uuid: Uuid) -> sys::Uuid {
    sys::Uuid { data: uuid.0 }
}

pub fn gtid_in(gtid: &sys::Gtid) -> Gtid {
    Gtid { history: Uuid(gtid.uuid.data), seqno: seqno_in(gtid.seqno) }
}

/// A position without a history is no position: the server takes either half for "defined".
pub fn gtid_out(gtid: Gtid) -> sys::Gtid {
    if gtid.history.is_nil() {
        return sys::Gtid::UNDEFINED;
    }
    sys::Gtid { uuid: uuid_out(gtid.history), seqno: seqno_out(gtid.seqno) }
}

pub fn handle_in(handle: &sys::WsHandle) -> Handle {
    Handle { trx: TrxId(handle.trx_id), opaque: handle.opaque as usize as u64 }
}

pub fn handle_out(handle: Handle) -> sys::WsHandle {
    sys::WsHandle { trx_id: handle.trx.0, opaque: handle.opaque as usize as *mut _ }
}

/// `None` for a meta without a position: of a write set that was never ordered.
pub fn meta_in(meta: &sys::TrxMeta) -> Option<Meta> {
    Some(Meta {
        gtid_history: Uuid(meta.gtid.uuid.data),
        seqno: seqno_in(meta.gtid.seqno)?,
        origin: Uuid(meta.stid.node.data),
        source: Source { trx: TrxId(meta.stid.trx), conn: ConnId(meta.stid.conn) },
        depends_on: seqno_in(meta.depends_on),
    })
}

/// Wholly undefined or complete: the server takes either half for "ordered".
pub fn meta_out(meta: Option<Meta>) -> sys::TrxMeta {
    meta.map_or(sys::TrxMeta::UNDEFINED, |m| sys::TrxMeta {
        gtid: sys::Gtid { uuid: uuid_out(m.gtid_history), seqno: seqno_out(Some(m.seqno)) },
        stid: sys::Stid { node: uuid_out(m.origin), trx: m.source.trx.0, conn: m.source.conn.0 },
        depends_on: seqno_out(m.depends_on),
    })
}

pub fn key_kind(kind: c_int) -> Option<KeyKind> {
    match kind {
        sys::KEY_SHARED => Some(KeyKind::Shared),
        sys::KEY_REFERENCE => Some(KeyKind::Reference),
        sys::KEY_UPDATE => Some(KeyKind::Update),
        sys::KEY_EXCLUSIVE => Some(KeyKind::Exclusive),
        _ => None,
    }
}

/// Null counts as the empty string.
///
/// # Safety
/// Clause **argument**: null, or a string that outlives `'a`.
pub unsafe fn text<'a>(text: *const c_char) -> Cow<'a, str> {
    if text.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: not null, and by the caller's promise a string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

/// Null counts as no elements, whatever the length says.
///
/// # Safety
/// Clause **argument**: null, or `len` readable elements that outlive `'a`.
pub unsafe fn elements<'a, T>(first: *const T, len: usize) -> &'a [T] {
    if first.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: not null, and by the caller's promise that many elements.
    unsafe { slice::from_raw_parts(first, len) }
}

/// # Safety
/// As [`elements`].
pub unsafe fn bytes<'a>(buf: &sys::Buf) -> &'a [u8] {
    // SAFETY: the caller's promise, for bytes.
    unsafe { elements(buf.ptr.cast(), buf.len) }
}

/// As [`bytes`]; a null buffer is empty.
///
/// # Safety
/// Clause **argument**: null, or a valid buffer that outlives `'a`.
pub unsafe fn optional_bytes<'a>(buf: *const sys::Buf) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { buf.as_ref().map_or(&[], |b| bytes(b)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unordered_meta_is_wholly_undefined() {
        assert_eq!(meta_out(None), sys::TrxMeta::UNDEFINED);
        assert_eq!(meta_in(&sys::TrxMeta::UNDEFINED), None);
    }

    #[test]
    fn a_complete_meta_comes_back_unchanged() {
        for depends_on in [None, Some(Seqno(0)), Some(Seqno(6))] {
            let meta = Meta {
                gtid_history: Uuid([1; 16]),
                seqno: Seqno(7),
                origin: Uuid([2; 16]),
                source: Source { trx: TrxId(3), conn: ConnId(4) },
                depends_on,
            };
            assert_eq!(meta_in(&meta_out(Some(meta))), Some(meta));
        }
    }

    #[test]
    fn sentinels_become_none() {
        assert_eq!((seqno_in(-1), seqno_in(i64::MIN), seqno_in(0)), (None, None, Some(Seqno(0))));
        assert_eq!((seqno_out(None), seqno_out(Some(Seqno(5)))), (-1, 5));
        assert_eq!(gtid_in(&sys::Gtid::UNDEFINED), Gtid::default());
        assert_eq!(gtid_out(Gtid::default()), sys::Gtid::UNDEFINED);
        assert_eq!(gtid_out(Gtid { history: Uuid::NIL, seqno: Some(Seqno(0)) }), sys::Gtid::UNDEFINED);
        assert_eq!(key_kind(4), None);
    }

    #[test]
    fn no_number_that_a_node_takes_or_counts_up_to_is_out_of_range() {
        for seqno in [i64::MAX, (1 << 62) + 1] {
            assert_eq!(seqno_in(seqno), None, "not taken from the server");
        }
        assert_eq!(seqno_in(1 << 62), Some(Seqno(NUMBER_MAX)));
        assert_eq!(seqno_out(Some(Seqno(NUMBER_MAX).next())), (1 << 62) + 1);
        assert_eq!(number_out(2 * NUMBER_MAX - 1), i64::MAX);
    }

    #[test]
    fn null_is_nothing() {
        // SAFETY: null is allowed.
        unsafe {
            assert_eq!(text(std::ptr::null()), "");
            assert_eq!(elements::<u64>(std::ptr::null(), 5), &[] as &[u64]);
            assert_eq!(optional_bytes(std::ptr::null()), b"");
        }
    }
}
