//! Sizes and offsets on the 64-bit System V ABI, checked when this crate is compiled.
#![cfg(all(target_pointer_width = "64", unix))]

use core::mem::{align_of, offset_of, size_of};

use crate::*;

macro_rules! layout {
    ($type:ty, $size:literal / $align:literal $(, $field:ident $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            assert!(align_of::<$type>() == $align);
            $(assert!(offset_of!($type, $field) == $offset);)*
        };
    };
}

layout!(Uuid, 16 / 8, data 0);
layout!(Gtid, 24 / 8, uuid 0, seqno 16);
layout!(Stid, 32 / 8, node 0, trx 16, conn 24);
layout!(TrxMeta, 64 / 8, gtid 0, stid 24, depends_on 56);
layout!(Buf, 16 / 8, ptr 0, len 8);
layout!(WsHandle, 16 / 8, trx_id 0, opaque 8);
layout!(PoHandle, 8 / 8, opaque 0);
layout!(MemberInfo, 304 / 8, id 0, name 16, incoming 48);
layout!(ViewInfo, 56 / 8, state_id 0, view 24, status 32, capabilities 36, my_idx 40, memb_num 44, proto_ver 48, members 56);
layout!(Key, 16 / 8, key_parts 0, key_parts_num 8);
layout!(EncCtx, 24 / 8, key 0, iv 8, ctx 16);
layout!(StatsVar, 24 / 8, name 0, ty 8, value 16);
layout!(SeqCb, 16 / 8, ctx 0, fun 8);
layout!(
    InitArgs, 144 / 8, app_ctx 0, node_name 8, node_address 16, node_incoming 24, data_dir 32, options 40, proto_ver 48,
    state_id 56, state 64, logger_cb 72, connected_cb 80, view_cb 88, sst_request_cb 96, encrypt_cb 104, apply_cb 112,
    unordered_cb 120, sst_donate_cb 128, synced_cb 136,
);
layout!(AllowlistService, 16 / 8, allowlist_cb 0, context 8);
layout!(EventService, 16 / 8, event_cb 0, context 8);
layout!(ConfigService, 8 / 8, get_parameters 0);
layout!(Parameter, 24 / 8, flags 0, name 8, value 16);
layout!(
    Wsrep, 360 / 8, version 0, init 8, capabilities 16, options_set 24, options_get 32, enc_set_key 40, connect 48,
    disconnect 56, recv 64, assign_read_view 72, certify 80, commit_order_enter 88, commit_order_leave 96, release 104,
    replay_trx 112, abort_certification 120, rollback 128, append_key 136, append_data 144, sync_wait 152,
    last_committed_id 160, free_connection 168, to_execute_start 176, to_execute_end 184, preordered_collect 192,
    preordered_commit 200, sst_sent 208, sst_received 216, snapshot 224, stats_get 232, stats_free 240, stats_reset 248,
    pause 256, resume 264, desync 272, resync 280, lock 288, unlock 296, is_locked 304, provider_name 312,
    provider_version 320, provider_vendor 328, free 336, dlh 344, ctx 352,
);
const _: () = assert!(size_of::<bool>() == 1 && align_of::<bool>() == 1);
