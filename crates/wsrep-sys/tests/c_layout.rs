//! The declarations of this crate against the opinion of a C compiler.
//!
//! `tests/c-host/layout.c` prints sizes, alignments and offsets of independently written C declarations; the lines must be the
//! same, one by one.

use std::fmt::Write;
use std::mem::{align_of, offset_of, size_of};
use std::path::Path;
use std::process::Command;

use trireme_wsrep_sys::*;

#[test]
fn layouts_equal_those_of_the_c_compiler() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/c-host");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(sources.join("layout.c"))
        .status()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(status.success());
    let output = Command::new(&program).output().expect("the program was just built");
    let c = String::from_utf8(output.stdout).expect("it prints ASCII");
    let rust = ours();
    for (c, rust) in c.lines().zip(rust.lines()) {
        assert_eq!(rust, c);
    }
    assert_eq!(rust.lines().count(), c.lines().count());
}

fn ours() -> String {
    let mut out = String::new();
    macro_rules! ty {
        ($type:ident) => {
            writeln!(out, "{} {} {}", stringify!($type), size_of::<$type>(), align_of::<$type>()).unwrap()
        };
    }
    macro_rules! field {
        ($type:ident, $field:ident) => {
            writeln!(out, "{}.{} {}", stringify!($type), stringify!($field), offset_of!($type, $field)).unwrap()
        };
    }
    ty!(Uuid);
    ty!(Gtid);
    field!(Gtid, seqno);
    ty!(Stid);
    field!(Stid, trx);
    field!(Stid, conn);
    ty!(TrxMeta);
    field!(TrxMeta, stid);
    field!(TrxMeta, depends_on);
    ty!(Buf);
    field!(Buf, len);
    ty!(WsHandle);
    field!(WsHandle, opaque);
    ty!(PoHandle);
    ty!(MemberInfo);
    field!(MemberInfo, name);
    field!(MemberInfo, incoming);
    ty!(ViewInfo);
    field!(ViewInfo, view);
    field!(ViewInfo, status);
    field!(ViewInfo, capabilities);
    field!(ViewInfo, my_idx);
    field!(ViewInfo, memb_num);
    field!(ViewInfo, proto_ver);
    field!(ViewInfo, members);
    ty!(Key);
    field!(Key, key_parts_num);
    ty!(EncCtx);
    field!(EncCtx, iv);
    field!(EncCtx, ctx);
    ty!(StatsVar);
    field!(StatsVar, value);
    ty!(SeqCb);
    field!(SeqCb, fun);
    ty!(InitArgs);
    field!(InitArgs, node_name);
    field!(InitArgs, options);
    field!(InitArgs, proto_ver);
    field!(InitArgs, state_id);
    field!(InitArgs, logger_cb);
    field!(InitArgs, connected_cb);
    field!(InitArgs, view_cb);
    field!(InitArgs, sst_request_cb);
    field!(InitArgs, encrypt_cb);
    field!(InitArgs, apply_cb);
    field!(InitArgs, unordered_cb);
    field!(InitArgs, sst_donate_cb);
    field!(InitArgs, synced_cb);
    ty!(Wsrep);
    field!(Wsrep, init);
    field!(Wsrep, options_get);
    field!(Wsrep, connect);
    field!(Wsrep, recv);
    field!(Wsrep, certify);
    field!(Wsrep, commit_order_enter);
    field!(Wsrep, release);
    field!(Wsrep, abort_certification);
    field!(Wsrep, append_key);
    field!(Wsrep, sync_wait);
    field!(Wsrep, to_execute_start);
    field!(Wsrep, preordered_commit);
    field!(Wsrep, sst_sent);
    field!(Wsrep, snapshot);
    field!(Wsrep, stats_get);
    field!(Wsrep, pause);
    field!(Wsrep, lock);
    field!(Wsrep, provider_name);
    field!(Wsrep, free);
    field!(Wsrep, dlh);
    field!(Wsrep, ctx);
    ty!(AllowlistService);
    field!(AllowlistService, context);
    ty!(EventService);
    field!(EventService, context);
    ty!(Parameter);
    field!(Parameter, name);
    field!(Parameter, value);
    ty!(ConfigService);
    out
}
