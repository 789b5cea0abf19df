/* Prints what a C compiler makes of the interface: "type size align" and "type.field offset", for comparison with wsrep-sys. */
#include <stdio.h>

#include "wsrep_v26.h"

#define TYPE(rust, c) printf(#rust " %zu %zu\n", sizeof(c), _Alignof(c))
#define FIELD(rust, c, field) printf(#rust "." #field " %zu\n", offsetof(c, field))

int main(void) {
    TYPE(Uuid, uuid_t_);
    TYPE(Gtid, gtid_t);
    FIELD(Gtid, gtid_t, seqno);
    TYPE(Stid, stid_t);
    FIELD(Stid, stid_t, trx);
    FIELD(Stid, stid_t, conn);
    TYPE(TrxMeta, meta_t);
    FIELD(TrxMeta, meta_t, stid);
    FIELD(TrxMeta, meta_t, depends_on);
    TYPE(Buf, buf_t);
    FIELD(Buf, buf_t, len);
    TYPE(WsHandle, handle_t);
    FIELD(WsHandle, handle_t, opaque);
    TYPE(PoHandle, po_handle_t);
    TYPE(MemberInfo, member_t);
    FIELD(MemberInfo, member_t, name);
    FIELD(MemberInfo, member_t, incoming);
    TYPE(ViewInfo, view_t);
    FIELD(ViewInfo, view_t, view);
    FIELD(ViewInfo, view_t, status);
    FIELD(ViewInfo, view_t, capabilities);
    FIELD(ViewInfo, view_t, my_idx);
    FIELD(ViewInfo, view_t, memb_num);
    FIELD(ViewInfo, view_t, proto_ver);
    FIELD(ViewInfo, view_t, members);
    TYPE(Key, wskey_t);
    FIELD(Key, wskey_t, key_parts_num);
    TYPE(EncCtx, enc_ctx_t);
    FIELD(EncCtx, enc_ctx_t, iv);
    FIELD(EncCtx, enc_ctx_t, ctx);
    TYPE(StatsVar, stats_var_t);
    FIELD(StatsVar, stats_var_t, value);
    TYPE(SeqCb, seq_cb_t);
    FIELD(SeqCb, seq_cb_t, fun);
    TYPE(InitArgs, init_args_t);
    FIELD(InitArgs, init_args_t, node_name);
    FIELD(InitArgs, init_args_t, options);
    FIELD(InitArgs, init_args_t, proto_ver);
    FIELD(InitArgs, init_args_t, state_id);
    FIELD(InitArgs, init_args_t, logger_cb);
    FIELD(InitArgs, init_args_t, connected_cb);
    FIELD(InitArgs, init_args_t, view_cb);
    FIELD(InitArgs, init_args_t, sst_request_cb);
    FIELD(InitArgs, init_args_t, encrypt_cb);
    FIELD(InitArgs, init_args_t, apply_cb);
    FIELD(InitArgs, init_args_t, unordered_cb);
    FIELD(InitArgs, init_args_t, sst_donate_cb);
    FIELD(InitArgs, init_args_t, synced_cb);
    TYPE(Wsrep, wsrep_t);
    FIELD(Wsrep, wsrep_t, init);
    FIELD(Wsrep, wsrep_t, options_get);
    FIELD(Wsrep, wsrep_t, connect);
    FIELD(Wsrep, wsrep_t, recv);
    FIELD(Wsrep, wsrep_t, certify);
    FIELD(Wsrep, wsrep_t, commit_order_enter);
    FIELD(Wsrep, wsrep_t, release);
    FIELD(Wsrep, wsrep_t, abort_certification);
    FIELD(Wsrep, wsrep_t, append_key);
    FIELD(Wsrep, wsrep_t, sync_wait);
    FIELD(Wsrep, wsrep_t, to_execute_start);
    FIELD(Wsrep, wsrep_t, preordered_commit);
    FIELD(Wsrep, wsrep_t, sst_sent);
    FIELD(Wsrep, wsrep_t, snapshot);
    FIELD(Wsrep, wsrep_t, stats_get);
    FIELD(Wsrep, wsrep_t, pause);
    FIELD(Wsrep, wsrep_t, lock);
    FIELD(Wsrep, wsrep_t, provider_name);
    FIELD(Wsrep, wsrep_t, free);
    FIELD(Wsrep, wsrep_t, dlh);
    FIELD(Wsrep, wsrep_t, ctx);
    TYPE(AllowlistService, allowlist_service_t);
    FIELD(AllowlistService, allowlist_service_t, context);
    TYPE(EventService, event_service_t);
    FIELD(EventService, event_service_t, context);
    TYPE(Parameter, parameter_t);
    FIELD(Parameter, parameter_t, name);
    FIELD(Parameter, parameter_t, value);
    TYPE(ConfigService, config_service_t);
    return 0;
}
