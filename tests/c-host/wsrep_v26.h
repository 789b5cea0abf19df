/* The wsrep API, version 26, as far as this host needs it: the same facts as crates/wsrep-sys, in C.
 *
 * Written for the tests of this project from a description of the interface. Names follow wsrep-sys where the interface does
 * not need them to be anything in particular; the layout is the interface. */
#ifndef TRIREME_TEST_WSREP_V26_H
#define TRIREME_TEST_WSREP_V26_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OK, WARNING, TRX_MISSING, TRX_FAIL, BF_ABORT, SIZE_EXCEEDED, CONN_FAIL, NODE_FAIL, FATAL, NOT_IMPLEMENTED, NOT_ALLOWED };
enum { CB_SUCCESS, CB_FAILURE };
enum { VIEW_PRIMARY, VIEW_NON_PRIMARY, VIEW_DISCONNECTED };
enum { KEY_SHARED, KEY_REFERENCE, KEY_UPDATE, KEY_EXCLUSIVE };
enum { STATS_STRING, STATS_INT64, STATS_DOUBLE };
enum { TRX_END = 0x1, ROLLBACK = 0x2, ISOLATION = 0x4, PA_UNSAFE = 0x8, TRX_START = 0x40 };
#define CAP_NBO (1u << 17)
#define NO_TRX UINT64_MAX

typedef int status_t;
typedef int64_t seqno_t;

typedef union { uint8_t data[16]; size_t alignment; } uuid_t_;
typedef struct { uuid_t_ uuid; seqno_t seqno; } gtid_t;
typedef struct { uuid_t_ node; uint64_t trx, conn; } stid_t;
typedef struct { gtid_t gtid; stid_t stid; seqno_t depends_on; } meta_t;
typedef struct { const void *ptr; size_t len; } buf_t;
typedef struct { uint64_t trx_id; void *opaque; } handle_t;
typedef struct { void *opaque; } po_handle_t;
typedef struct { uuid_t_ id; char name[32], incoming[256]; } member_t;
typedef struct {
    gtid_t state_id;
    seqno_t view;
    int status;
    uint32_t capabilities;
    int my_idx, memb_num, proto_ver;
    member_t members[];
} view_t;
typedef struct { const buf_t *key_parts; size_t key_parts_num; } wskey_t;
typedef struct { const buf_t *key; const char (*iv)[32]; void *ctx; } enc_ctx_t;
typedef struct { const char *name; int type; union { int64_t i; double d; const char *s; } value; } stats_var_t;
typedef struct { void *ctx; void (*fun)(void *); } seq_cb_t;

typedef struct {
    void *app_ctx;
    const char *node_name, *node_address, *node_incoming, *data_dir, *options;
    int proto_ver;
    const gtid_t *state_id;
    const buf_t *state;
    void (*logger_cb)(int level, const char *text);
    status_t (*connected_cb)(void *app, const view_t *);
    status_t (*view_cb)(void *app, void *recv_ctx, const view_t *, const char *state, size_t len);
    status_t (*sst_request_cb)(void *app, void **request, size_t *len);
    int (*encrypt_cb)(void *app, enc_ctx_t *, const buf_t *, void *, int direction, bool last);
    status_t (*apply_cb)(void *recv_ctx, const handle_t *, uint32_t flags, const buf_t *, const meta_t *, bool *exit_loop);
    status_t (*unordered_cb)(void *recv_ctx, const buf_t *);
    status_t (*sst_donate_cb)(void *app, void *recv_ctx, const buf_t *request, const gtid_t *, const buf_t *state, bool bypass);
    status_t (*synced_cb)(void *app);
} init_args_t;

typedef struct wsrep wsrep_t;
struct wsrep {
    const char *version;
    status_t (*init)(wsrep_t *, const init_args_t *);
    uint32_t (*capabilities)(wsrep_t *);
    status_t (*options_set)(wsrep_t *, const char *);
    char *(*options_get)(wsrep_t *);
    status_t (*enc_set_key)(wsrep_t *, const buf_t *);
    status_t (*connect)(wsrep_t *, const char *cluster, const char *url, const char *donor, bool bootstrap);
    status_t (*disconnect)(wsrep_t *);
    status_t (*recv)(wsrep_t *, void *recv_ctx);
    status_t (*assign_read_view)(wsrep_t *, handle_t *, const gtid_t *);
    status_t (*certify)(wsrep_t *, uint64_t conn, handle_t *, uint32_t flags, meta_t *);
    status_t (*commit_order_enter)(wsrep_t *, const handle_t *, const meta_t *);
    status_t (*commit_order_leave)(wsrep_t *, const handle_t *, const meta_t *, const buf_t *error);
    status_t (*release)(wsrep_t *, handle_t *);
    status_t (*replay_trx)(wsrep_t *, const handle_t *, void *trx_ctx);
    status_t (*abort_certification)(wsrep_t *, seqno_t bf_seqno, uint64_t victim, seqno_t *victim_seqno);
    status_t (*rollback)(wsrep_t *, uint64_t trx, const buf_t *);
    status_t (*append_key)(wsrep_t *, handle_t *, const wskey_t *, size_t count, int type, bool copy);
    status_t (*append_data)(wsrep_t *, handle_t *, const buf_t *, size_t count, int type, bool copy);
    status_t (*sync_wait)(wsrep_t *, gtid_t *upto, int timeout_s, gtid_t *out);
    status_t (*last_committed_id)(wsrep_t *, gtid_t *);
    status_t (*free_connection)(wsrep_t *, uint64_t conn);
    status_t (*to_execute_start)(wsrep_t *, uint64_t conn, const wskey_t *, size_t keys, const buf_t *, size_t bufs, uint32_t flags, meta_t *);
    status_t (*to_execute_end)(wsrep_t *, uint64_t conn, const buf_t *error);
    status_t (*preordered_collect)(wsrep_t *, po_handle_t *, const buf_t *, size_t, bool copy);
    status_t (*preordered_commit)(wsrep_t *, po_handle_t *, const uuid_t_ *, uint32_t flags, int pa_range, bool commit);
    status_t (*sst_sent)(wsrep_t *, const gtid_t *, int code);
    status_t (*sst_received)(wsrep_t *, const gtid_t *, const buf_t *state, int code);
    status_t (*snapshot)(wsrep_t *, const buf_t *, const char *);
    stats_var_t *(*stats_get)(wsrep_t *);
    void (*stats_free)(wsrep_t *, stats_var_t *);
    void (*stats_reset)(wsrep_t *);
    seqno_t (*pause)(wsrep_t *);
    status_t (*resume)(wsrep_t *);
    status_t (*desync)(wsrep_t *);
    status_t (*resync)(wsrep_t *);
    status_t (*lock)(wsrep_t *, const char *, bool shared, uint64_t owner, int64_t timeout_ns);
    status_t (*unlock)(wsrep_t *, const char *, uint64_t owner);
    bool (*is_locked)(wsrep_t *, const char *, uint64_t *, uuid_t_ *);
    const char *provider_name, *provider_version, *provider_vendor;
    void (*free)(wsrep_t *);
    void *dlh, *ctx;
};

typedef struct { status_t (*allowlist_cb)(void *ctx, int key, const buf_t *value); void *context; } allowlist_service_t;
typedef struct { void (*event_cb)(void *ctx, const char *name, const char *json); void *context; } event_service_t;
typedef struct { int flags; const char *name; union { bool b; int64_t i; double d; const char *s; } value; } parameter_t;
typedef struct { status_t (*get_parameters)(wsrep_t *, status_t (*)(const parameter_t *, void *), void *); } config_service_t;

#endif
