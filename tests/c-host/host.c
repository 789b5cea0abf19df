/* A small host: loads a wsrep provider and runs a group of three nodes in one process, checking every answer.
 *
 *     host <provider.so> <empty directory>
 *
 * It stands for the database server without being one. Each node has receiving threads and a "database": a record of which
 * data closed which seqno. After each scenario all records must agree. What the host checks all the time:
 *   - commit order: every seqno is entered and left once per node, in order, never two at a time, views included;
 *   - a failed call leaves a meta that is wholly undefined, an ordered one a complete meta;
 *   - flags and metas of what is delivered.
 * There are no sleeps: the host waits for conditions, and gives up after LIMIT_S seconds.
 *
 * It was written against Galera's library, so that it tests a provider and not itself. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "wsrep_v26.h"

enum { NODES = 3, THREADS_MAX = 4, SEQNOS = 4096, DATA = 64, LIMIT_S = 60 };

/* --- failing ----------------------------------------------------------------------------------------------------------- */

static const char *scenario = "start";

static void fail(const char *file, int line, const char *format, ...) __attribute__((noreturn, format(printf, 3, 4)));
static void fail(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "FAILED in \"%s\" at %s:%d: ", scenario, file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(NULL);
    _exit(1);
}

#define CHECK(condition) \
    do { \
        if (!(condition)) fail(__FILE__, __LINE__, "%s", #condition); \
    } while (0)

static const char *status_name(int status) {
    static const char *const names[] = {"OK", "WARNING", "TRX_MISSING", "TRX_FAIL", "BF_ABORT", "SIZE_EXCEEDED", "CONN_FAIL",
                                        "NODE_FAIL", "FATAL", "NOT_IMPLEMENTED", "NOT_ALLOWED"};
    return status >= 0 && status <= NOT_ALLOWED ? names[status] : "?";
}

/* Evaluates the call once. */
#define EXPECT(status, call) \
    do { \
        int got_ = (call); \
        if (got_ != (status)) fail(__FILE__, __LINE__, "%s is %s, not %s", #call, status_name(got_), #status); \
    } while (0)

/* --- nodes ------------------------------------------------------------------------------------------------------------- */

typedef struct node node_t;

/* What recv_ctx points at: one server session. */
typedef struct {
    node_t *node;
    pthread_t thread;
    /* In a replay: the handle under which the commit order is entered. */
    const handle_t *original;
    bool busy;
    int last_status;
} session_t;

struct node {
    int index;
    char name[32], dir[512], options[512], address[64];
    int port, ist_port;
    wsrep_t *w;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    session_t sessions[THREADS_MAX];
    int threads;

    /* Everything below is guarded by the mutex. */
    seqno_t closed;     /* last seqno that left commit order; -1: no state */
    bool inside;        /* somebody is in the commit order section */
    char record[SEQNOS][DATA];
    int synced;         /* calls of synced_cb */
    int final_views;
    bool view_since_connected;
    int members, own;   /* of the last view */
    uuid_t_ ids[NODES], own_id;
    uuid_t_ history;
    bool hold;          /* apply_cb waits before entering commit order */
    int held;           /* how many wait */
    uint32_t last_flags;
    meta_t last_meta;
    int dummies;
    bool has_state;     /* a state transfer is impossible from now on: the "server" is running */
};

static node_t nodes[NODES];
static void *library;
static bool verbose;

static void lock(node_t *n) { CHECK(pthread_mutex_lock(&n->mutex) == 0); }
static void unlock(node_t *n) {
    pthread_cond_broadcast(&n->changed);
    CHECK(pthread_mutex_unlock(&n->mutex) == 0);
}

/* Waits, with the node's mutex held, until the condition holds. */
#define AWAIT_LOCKED(n, condition) \
    do { \
        struct timespec until_; \
        clock_gettime(CLOCK_REALTIME, &until_); \
        until_.tv_sec += LIMIT_S; \
        while (!(condition)) \
            if (pthread_cond_timedwait(&(n)->changed, &(n)->mutex, &until_) != 0) \
                fail(__FILE__, __LINE__, "node %d: waited too long for %s (closed %lld, members %d, synced %d)", (n)->index, \
                     #condition, (long long)(n)->closed, (n)->members, (n)->synced); \
    } while (0)

#define AWAIT(n, condition) \
    do { \
        lock(n); \
        AWAIT_LOCKED(n, condition); \
        unlock(n); \
    } while (0)

static bool same_uuid(const uuid_t_ *a, const uuid_t_ *b) { return memcmp(a->data, b->data, 16) == 0; }
static bool no_uuid(const uuid_t_ *a) {
    static const uuid_t_ zero;
    return same_uuid(a, &zero);
}

static const gtid_t NO_GTID = {{{0}}, -1};
static const meta_t NO_META = {{{{0}}, -1}, {{{0}}, NO_TRX, NO_TRX}, -1};

#define CHECK_UNDEFINED(meta) CHECK(no_uuid(&(meta).gtid.uuid) && (meta).gtid.seqno == -1)

/* --- commit order: the host's own idea of it ------------------------------------------------------------------------------- */

static void order_entered(node_t *n, seqno_t seqno) {
    lock(n);
    if (n->inside || seqno != n->closed + 1)
        fail(__FILE__, __LINE__, "node %d entered %lld after %lld%s", n->index, (long long)seqno, (long long)n->closed,
             n->inside ? ", which is still inside" : "");
    n->inside = true;
    unlock(n);
}

/* Before the provider is told: afterwards the next one may be inside already. */
static void order_leaving(node_t *n, seqno_t seqno, const char *what, size_t len) {
    lock(n);
    CHECK(n->inside && seqno == n->closed + 1 && seqno < SEQNOS);
    n->inside = false;
    n->closed = seqno;
    snprintf(n->record[seqno], DATA, "%.*s", (int)len, what);
    unlock(n);
}

/* --- callbacks ---------------------------------------------------------------------------------------------------------------- */

static void on_log(int level, const char *text) {
    CHECK(text != NULL);
    if (verbose || level <= 1) fprintf(stderr, "  [%d] %s\n", level, text);
}

/* With the mutex held. */
static void view_seen(node_t *n, const view_t *view) {
    n->members = view->memb_num;
    n->own = view->my_idx;
    for (int i = 0; i < view->memb_num && i < NODES; i++) {
        n->ids[i] = view->members[i].id;
        /* In a replayed view the own index may be missing although the node is in it. */
        if (same_uuid(&n->ids[i], &n->own_id)) n->own = i;
    }
    if (view->my_idx >= 0) {
        const member_t *me = &view->members[view->my_idx];
        CHECK(n->own == view->my_idx);
        CHECK(same_uuid(&me->id, &n->own_id));
        CHECK(strncmp(me->name, n->name, sizeof me->name) == 0);
    }
}

static status_t on_connected(void *app, const view_t *view) {
    node_t *n = app;
    CHECK(view->status == VIEW_PRIMARY && view->my_idx >= 0 && view->my_idx < view->memb_num);
    CHECK(view->state_id.seqno > 0 && !no_uuid(&view->state_id.uuid));
    CHECK(view->proto_ver >= 1 && view->proto_ver <= 4);
    lock(n);
    n->own_id = view->members[view->my_idx].id;
    n->history = view->state_id.uuid;
    n->view_since_connected = false;
    /* A full copy contains the view that brought the node in: it is not delivered again. */
    view_seen(n, view);
    unlock(n);
    return CB_SUCCESS;
}

static status_t on_view(void *app, void *recv_ctx, const view_t *view, const char *state, size_t len) {
    node_t *n = app;
    session_t *s = recv_ctx;
    (void)state, (void)len;
    CHECK(s != NULL && s->node == n && pthread_equal(s->thread, pthread_self()));
    if (verbose)
        fprintf(stderr, "  node %d: view %lld status %d seqno %lld members %d own %d\n", n->index, (long long)view->view,
                view->status, (long long)view->state_id.seqno, view->memb_num, view->my_idx);
    if (view->status == VIEW_PRIMARY) {
        seqno_t seqno = view->state_id.seqno;
        gtid_t last;
        CHECK(view->view >= 0 && view->memb_num > 0);
        EXPECT(OK, n->w->last_committed_id(n->w, &last));
        lock(n);
        /* The first view after connecting may be a private one, at the position that the node has: it takes no seqno. */
        bool private = !n->view_since_connected && seqno == n->closed;
        n->view_since_connected = true;
        if (private) view_seen(n, view);
        unlock(n);
        if (private) return CB_SUCCESS;
        if (last.seqno >= seqno) /* becomes the view's only when this callback returns */
            fail(__FILE__, __LINE__, "node %d: %lld is committed in the callback of view %lld", n->index, (long long)last.seqno,
                 (long long)seqno);
        for (int i = 0; i < view->memb_num; i++)
            for (int j = 0; j < i; j++) CHECK(!same_uuid(&view->members[i].id, &view->members[j].id));
        order_entered(n, seqno);
        lock(n);
        view_seen(n, view);
        unlock(n);
        order_leaving(n, seqno, "view", 4);
    } else {
        CHECK(view->view == -1);
        lock(n);
        n->members = view->memb_num;
        n->own = view->my_idx;
        if (view->memb_num == 0) {
            CHECK(view->my_idx == -1);
            n->final_views++;
        }
        unlock(n);
    }
    return CB_SUCCESS;
}

static status_t on_sst_request(void *app, void **request, size_t *len) {
    node_t *n = app;
    lock(n);
    bool running = n->has_state;
    unlock(n);
    /* A running server cannot replace its data; it can still catch up. */
    *request = running ? NULL : malloc(8);
    *len = running ? 0 : 8;
    if (!running) memcpy(*request, (char[8]){'h', 'o', 's', 't', 0, (char)('0' + n->index), 0, 0}, 8);
    return CB_SUCCESS;
}

static status_t on_sst_donate(void *app, void *recv_ctx, const buf_t *request, const gtid_t *gtid, const buf_t *state, bool bypass) {
    node_t *n = app;
    const char *text = request->ptr;
    (void)state;
    CHECK(((session_t *)recv_ctx)->node == n);
    CHECK(request->len == 8 && strcmp(text, "host") == 0);
    node_t *joiner = &nodes[text[5] - '0'];
    CHECK(joiner != n);
    lock(n);
    /* With bypass the position is the joiner's own, without it is where the order stands. */
    if (!bypass) CHECK(gtid->seqno == n->closed && !n->inside);
    unlock(n);
    lock(joiner);
    CHECK(!joiner->has_state);
    if (!bypass) joiner->closed = gtid->seqno;
    CHECK(joiner->closed == gtid->seqno);
    joiner->has_state = true;
    unlock(joiner);
    EXPECT(OK, joiner->w->sst_received(joiner->w, gtid, NULL, 0));
    EXPECT(OK, n->w->sst_sent(n->w, gtid, 0));
    return CB_SUCCESS;
}

static status_t on_synced(void *app) {
    node_t *n = app;
    lock(n);
    n->synced++;
    unlock(n);
    return CB_SUCCESS;
}

static status_t on_apply(void *recv_ctx, const handle_t *handle, uint32_t flags, const buf_t *data, const meta_t *meta, bool *exit_loop) {
    session_t *s = recv_ctx;
    node_t *n = s->node;
    buf_t none = {NULL, 0};
    CHECK(!*exit_loop);
    CHECK(pthread_equal(s->thread, pthread_self()));
    CHECK(!s->busy); /* one session is never used twice at a time */
    s->busy = true;
    CHECK(same_uuid(&meta->gtid.uuid, &n->history) && meta->gtid.seqno > 0);
    CHECK(meta->depends_on >= -1 && meta->depends_on < meta->gtid.seqno);
    bool own = same_uuid(&meta->stid.node, &n->own_id);
    CHECK(own == (s->original != NULL)); /* own write sets come back only in a replay */
    bool dummy = flags == (ROLLBACK | TRX_START | TRX_END);
    bool toi = flags == (TRX_START | TRX_END | ISOLATION);
    CHECK(dummy || toi || (flags & ~(uint32_t)PA_UNSAFE) == (TRX_START | TRX_END));
    if (toi) CHECK(meta->stid.trx == NO_TRX && handle->trx_id == NO_TRX && meta->depends_on == meta->gtid.seqno - 1);

    lock(n);
    n->last_flags = flags;
    n->last_meta = *meta;
    /* What it depends on must have left before it may even start. */
    if (!dummy) CHECK(n->closed >= meta->depends_on);
    if (s->original == NULL) {
        n->held++;
        pthread_cond_broadcast(&n->changed);
        AWAIT_LOCKED(n, !n->hold);
        n->held--;
    }
    unlock(n);

    const handle_t *order = s->original ? s->original : handle;
    EXPECT(OK, n->w->commit_order_enter(n->w, order, meta));
    order_entered(n, meta->gtid.seqno);
    if (dummy) {
        lock(n);
        n->dummies++;
        unlock(n);
    }
    order_leaving(n, meta->gtid.seqno, dummy ? "dummy" : data->ptr, dummy ? 5 : data->len);
    EXPECT(OK, n->w->commit_order_leave(n->w, order, meta, &none));
    s->busy = false;
    return CB_SUCCESS;
}

static int allowlist_calls;
static status_t on_allowlist(void *ctx, int key, const buf_t *value) {
    CHECK(ctx == NULL && key == 0);
    CHECK(((const char *)value->ptr)[value->len] == 0); /* read as a C string by the server */
    __atomic_add_fetch(&allowlist_calls, 1, __ATOMIC_SEQ_CST);
    return strcmp(value->ptr, "127.0.0.1") == 0 ? OK : NOT_ALLOWED;
}

/* --- life of a node ---------------------------------------------------------------------------------------------------------------- */

static void *receive(void *arg) {
    session_t *s = arg;
    s->thread = pthread_self();
    s->last_status = s->node->w->recv(s->node->w, s);
    return NULL;
}

static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    close(fd);
    return ntohs(a.sin_port);
}

static wsrep_t *load(void) {
    int (*loader)(wsrep_t *) = (int (*)(wsrep_t *))(uintptr_t)dlsym(library, "wsrep_loader");
    CHECK(loader != NULL);
    /* As the server does it: memory from malloc, content undefined. */
    wsrep_t *w = malloc(sizeof *w);
    memset(w, 0xa5, sizeof *w);
    CHECK(loader(w) == 0);
    for (size_t at = 0; at < offsetof(wsrep_t, dlh); at += sizeof(void *)) {
        uintptr_t field;
        memcpy(&field, (char *)w + at, sizeof field);
        if (field == 0 || field == (uintptr_t)0xa5a5a5a5a5a5a5a5u)
            fail(__FILE__, __LINE__, "the loader left field %zu of the table", at / sizeof(void *));
    }
    CHECK(strcmp(w->version, "26") == 0);
    w->dlh = library;
    return w;
}

static void init(node_t *n, const char *more_options) {
    n->w = load();
    char options[1024];
    snprintf(options, sizeof options, "%s%s", n->options, more_options);
    init_args_t args = {
        .app_ctx = n,
        .node_name = n->name,
        .node_address = n->address,
        .node_incoming = "",
        .data_dir = n->dir,
        .options = options,
        .proto_ver = 4,
        .state_id = &NO_GTID,
        .logger_cb = on_log,
        .connected_cb = on_connected,
        .view_cb = on_view,
        .sst_request_cb = on_sst_request,
        .apply_cb = on_apply,
        .sst_donate_cb = on_sst_donate,
        .synced_cb = on_synced,
    };
    EXPECT(OK, n->w->init(n->w, &args));
}

static void start_receiving(node_t *n) {
    for (int i = 0; i < n->threads; i++) {
        n->sessions[i] = (session_t){.node = n};
        CHECK(pthread_create(&n->sessions[i].thread, NULL, receive, &n->sessions[i]) == 0);
    }
}

static void connect_node(node_t *n, bool bootstrap) {
    char url[256] = "gcomm://";
    if (!bootstrap)
        for (int i = 0; i < NODES; i++)
            sprintf(url + strlen(url), "%s127.0.0.1:%d", i ? "," : "", nodes[i].port);
    lock(n);
    n->synced = 0;
    unlock(n);
    EXPECT(OK, n->w->connect(n->w, "c-host", url, "", bootstrap)); /* no thread receives yet */
    start_receiving(n);
    AWAIT(n, n->synced > 0 && n->own >= 0 && n->members > 0);
}

/* Returns when all receiving threads have. */
static void disconnect_node(node_t *n) {
    int before = n->final_views;
    EXPECT(OK, n->w->disconnect(n->w));
    for (int i = 0; i < n->threads; i++) CHECK(pthread_join(n->sessions[i].thread, NULL) == 0);
    lock(n);
    CHECK(n->final_views == before + 1 && n->members == 0 && !n->inside);
    unlock(n);
}

static void free_node(node_t *n) {
    n->w->free(n->w);
    CHECK(n->w->ctx == NULL);
    n->w->free(n->w); /* as the server does */
    free(n->w);
    n->w = NULL;
}

static void await_members(int count) {
    for (int i = 0; i < NODES; i++)
        if (nodes[i].w) AWAIT(&nodes[i], nodes[i].members == count || nodes[i].members == 0);
}

/* --- clients ------------------------------------------------------------------------------------------------------------------------ */

static uint64_t next_trx(void) {
    static uint64_t trx = 1000;
    return __atomic_add_fetch(&trx, 1, __ATOMIC_SEQ_CST);
}

static void append(node_t *n, handle_t *h, const char *key, const char *data) {
    buf_t parts[3] = {{"db", 2}, {"table", 5}, {key, strlen(key)}};
    wskey_t k = {parts, 3};
    buf_t d = {data, strlen(data)};
    EXPECT(OK, n->w->append_key(n->w, h, &k, 1, KEY_EXCLUSIVE, true));
    EXPECT(OK, n->w->append_data(n->w, h, &d, 1, 0, true));
    CHECK(h->opaque != NULL);
}

static void close_order(node_t *n, handle_t *h, const meta_t *meta, const char *data) {
    buf_t none = {NULL, 0};
    order_entered(n, meta->gtid.seqno);
    order_leaving(n, meta->gtid.seqno, data, strlen(data));
    EXPECT(OK, n->w->commit_order_leave(n->w, h, meta, &none));
}

static void release(node_t *n, handle_t *h) {
    EXPECT(OK, n->w->release(n->w, h));
    CHECK(h->opaque == NULL);
}

static status_t certify(node_t *n, handle_t *h, meta_t *meta) {
    *meta = NO_META;
    status_t status = n->w->certify(n->w, 1, h, TRX_START | TRX_END, meta);
    if (status == OK || meta->gtid.seqno > 0) {
        CHECK(same_uuid(&meta->gtid.uuid, &n->history) && meta->gtid.seqno > 0);
        CHECK(same_uuid(&meta->stid.node, &n->own_id) && meta->stid.trx == h->trx_id);
        CHECK(meta->depends_on < meta->gtid.seqno);
    } else {
        CHECK_UNDEFINED(*meta);
    }
    return status;
}

/* What the server does with a write set that was ordered and failed: it closes its place in the order. */
static void close_failed(node_t *n, handle_t *h, const meta_t *meta) {
    gtid_t before = meta->gtid;
    before.seqno--;
    EXPECT(OK, n->w->commit_order_enter(n->w, h, meta));
    EXPECT(OK, n->w->sync_wait(n->w, &before, INT_MAX, NULL));
    close_order(n, h, meta, "dummy");
}

static status_t transaction(node_t *n, const char *key, const char *data, meta_t *meta) {
    handle_t h = {next_trx(), NULL};
    append(n, &h, key, data);
    status_t status = certify(n, &h, meta);
    if (status == OK) {
        EXPECT(OK, n->w->commit_order_enter(n->w, &h, meta));
        close_order(n, &h, meta, data);
    } else if (meta->gtid.seqno > 0) {
        close_failed(n, &h, meta);
    }
    release(n, &h);
    return status;
}

static seqno_t commit(node_t *n, const char *key, const char *data) {
    meta_t meta;
    EXPECT(OK, transaction(n, key, data, &meta));
    return meta.gtid.seqno;
}

static seqno_t closed(node_t *n) {
    lock(n);
    seqno_t seqno = n->closed;
    unlock(n);
    return seqno;
}

/* All connected nodes reach the highest position, and agree on everything that two of them have seen. */
static void agree(void) {
    seqno_t top = 0;
    for (int i = 0; i < NODES; i++)
        if (nodes[i].w && nodes[i].members > 0 && closed(&nodes[i]) > top) top = closed(&nodes[i]);
    for (int i = 0; i < NODES; i++)
        if (nodes[i].w && nodes[i].members > 0) {
            gtid_t last;
            AWAIT(&nodes[i], nodes[i].closed >= top);
            /* The record is written before the provider is told, so let it catch up. */
            gtid_t upto = {nodes[i].history, top};
            EXPECT(OK, nodes[i].w->sync_wait(nodes[i].w, &upto, LIMIT_S, NULL));
            EXPECT(OK, nodes[i].w->last_committed_id(nodes[i].w, &last));
            CHECK(last.seqno >= top && same_uuid(&last.uuid, &nodes[0].history));
        }
    for (int i = 1; i < NODES; i++)
        for (seqno_t s = 0; s <= top; s++) {
            const char *a = nodes[i - 1].record[s], *b = nodes[i].record[s];
            if (*a && *b && strcmp(a, b) != 0)
                fail(__FILE__, __LINE__, "seqno %lld is '%s' on node %d and '%s' on node %d", (long long)s, a, i - 1, b, i);
        }
}

static void get_stat(node_t *n, const char *name, char *out, size_t size) {
    stats_var_t *vars = n->w->stats_get(n->w);
    CHECK(vars != NULL);
    *out = 0;
    for (stats_var_t *v = vars; v->name; v++)
        if (strcmp(v->name, name) == 0) {
            if (v->type == STATS_STRING) snprintf(out, size, "%s", v->value.s);
            else if (v->type == STATS_INT64) snprintf(out, size, "%lld", (long long)v->value.i);
            else snprintf(out, size, "%g", v->value.d);
        }
    n->w->stats_free(n->w, vars);
}

static bool stat_is(node_t *n, const char *name, const char *expect) {
    char value[256];
    get_stat(n, name, value, sizeof value);
    if (strcmp(value, expect) != 0) fprintf(stderr, "  node %d: %s is '%s'\n", n->index, name, value);
    return strcmp(value, expect) == 0;
}

static void get_option(node_t *n, const char *name, char *out, size_t size) {
    char *all = n->w->options_get(n->w), key[64];
    CHECK(all != NULL);
    snprintf(key, sizeof key, "%s = ", name);
    char *at = strstr(all, key);
    *out = 0;
    if (at) snprintf(out, size, "%.*s", (int)strcspn(at + strlen(key), ";"), at + strlen(key));
    free(all); /* the server frees it: it must be from malloc */
}

/* --- scenarios ------------------------------------------------------------------------------------------------------------------------- */

static void loads(void) {
    const char *const *version = dlsym(library, "wsrep_interface_version");
    CHECK(version != NULL && strcmp(*version, "26") == 0);
    status_t (*allowlist)(allowlist_service_t *) =
        (status_t(*)(allowlist_service_t *))(uintptr_t)dlsym(library, "wsrep_init_allowlist_service_v1");
    CHECK(allowlist != NULL && dlsym(library, "wsrep_deinit_allowlist_service_v1") != NULL);
    static allowlist_service_t service = {on_allowlist, NULL}; /* Galera keeps the pointer */
    EXPECT(0, allowlist(&service));
    int (*isolate)(int) = (int (*)(int))(uintptr_t)dlsym(library, "wsrep_node_isolation_mode_set_v1");
    CHECK(isolate != NULL && isolate(7) == 1);
    /* Nothing is initialised, so nothing may be needed to free it. */
    wsrep_t *w = load();
    w->free(w);
    w->free(w);
    free(w);
}

static void works_before_connecting(void) {
    node_t *n = &nodes[0];
    gtid_t last;
    EXPECT(OK, n->w->last_committed_id(n->w, &last));
    CHECK(last.seqno == -1);
    CHECK(stat_is(n, "local_state", "0"));
    EXPECT(OK, n->w->options_set(n->w, ""));
    EXPECT(OK, n->w->options_set(n->w, "  "));
    EXPECT(NODE_FAIL, n->w->options_set(n->w, "no.such.option=1"));
    CHECK(n->w->capabilities(n->w) & 1);
    handle_t h = {next_trx(), NULL};
    release(n, &h);
    h.trx_id = NO_TRX;
    release(n, &h);
}

static void options_round_trip(void) {
    node_t *n = &nodes[1];
    char value[64], *all = n->w->options_get(n->w);
    EXPECT(OK, n->w->options_set(n->w, all));
    char *again = n->w->options_get(n->w);
    CHECK(strcmp(all, again) == 0);
    free(all);
    free(again);
    EXPECT(OK, n->w->options_set(n->w, "pc.weight=2"));
    get_option(n, "pc.weight", value, sizeof value);
    CHECK(strcmp(value, "2") == 0);
    EXPECT(NODE_FAIL, n->w->options_set(n->w, "pc.weight=x"));
    EXPECT(NODE_FAIL, n->w->options_set(n->w, "pc.weight"));
    EXPECT(OK, n->w->options_set(n->w, "pc.weight=1;"));
    EXPECT(OK, n->w->options_set(n->w, "repl.causal_read_timeout=PT20S; evs.suspect_timeout=PT6S"));
    get_option(n, "repl.causal_read_timeout", value, sizeof value);
    CHECK(strcmp(value, "PT20S") == 0);
    agree(); /* a change of weight may be an event with a seqno */
}

static void members_are_listed_alike(void) {
    for (int i = 0; i < NODES; i++) {
        CHECK(nodes[i].members == NODES);
        CHECK(same_uuid(&nodes[i].ids[nodes[i].own], &nodes[i].own_id));
        for (int m = 0; m < NODES; m++) CHECK(same_uuid(&nodes[i].ids[m], &nodes[0].ids[m]));
        CHECK(stat_is(&nodes[i], "local_state", "4"));
        CHECK(stat_is(&nodes[i], "local_state_comment", "Synced"));
    }
}

enum { CLIENTS = 6, COMMITS = 50 };

static void *client(void *arg) {
    int id = (int)(intptr_t)arg;
    for (int i = 0; i < COMMITS; i++) {
        char key[32], data[32];
        snprintf(key, sizeof key, "row-%d-%d", id, i);
        snprintf(data, sizeof data, "data-%d-%d", id, i);
        commit(&nodes[id % NODES], key, data);
    }
    return NULL;
}

/* The view of an earlier change may close late, and takes a seqno of its own. */
static int commits_since(node_t *n, seqno_t before) {
    int commits = 0;
    lock(n);
    for (seqno_t s = before + 1; s <= n->closed; s++) commits += strcmp(n->record[s], "view") != 0;
    unlock(n);
    return commits;
}

static void commits_in_parallel_on_all_nodes(void) {
    pthread_t threads[CLIENTS];
    seqno_t before = closed(&nodes[0]);
    for (int i = 0; i < CLIENTS; i++) CHECK(pthread_create(&threads[i], NULL, client, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < CLIENTS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    agree();
    CHECK(commits_since(&nodes[0], before) == CLIENTS * COMMITS);
}

static void hold(node_t *n, bool on) {
    lock(n);
    n->hold = on;
    unlock(n);
}

static void conflict_fails_certification(void) {
    node_t *a = &nodes[0], *b = &nodes[1];
    meta_t meta;
    int dummies = a->dummies;
    handle_t h = {next_trx(), NULL};
    hold(b, true);
    seqno_t first = commit(a, "hot", "winner");
    /* Not seen by b's transaction yet: it waits in front of the commit order. */
    AWAIT(b, b->held == 1);
    append(b, &h, "hot", "loser");
    EXPECT(TRX_FAIL, certify(b, &h, &meta));
    CHECK(meta.gtid.seqno == first + 1);
    hold(b, false);
    close_failed(b, &h, &meta);
    release(b, &h);
    agree();
    AWAIT(a, a->dummies == dummies + 1); /* closed as a dummy elsewhere */
    CHECK(stat_is(b, "local_cert_failures", "1"));
    /* The same rows again, seen this time. */
    commit(b, "hot", "later");
    agree();
}

typedef struct {
    node_t *node;
    handle_t *handle;
    meta_t *meta;
    status_t status;
} enter_t;

static void *enter(void *arg) {
    enter_t *e = arg;
    e->status = e->node->w->commit_order_enter(e->node->w, e->handle, e->meta);
    return NULL;
}

static void aborted_in_commit_order_and_replayed(void) {
    node_t *a = &nodes[0], *b = &nodes[1];
    seqno_t victim = 99;
    /* Nobody knows this one: nothing to abort, and that is no failure. */
    EXPECT(OK, b->w->abort_certification(b->w, 5, 987654321, &victim));
    CHECK(victim == -1);

    handle_t h = {next_trx(), NULL};
    meta_t meta;
    pthread_t thread;
    enter_t e = {b, &h, &meta, -1};
    hold(b, true);
    seqno_t blocker = commit(a, "blocker", "blocker");
    AWAIT(b, b->held == 1);
    append(b, &h, "victim", "victim");
    EXPECT(OK, certify(b, &h, &meta));
    CHECK(meta.gtid.seqno == blocker + 1);
    CHECK(pthread_create(&thread, NULL, enter, &e) == 0);
    EXPECT(OK, b->w->abort_certification(b->w, blocker, h.trx_id, &victim));
    CHECK(victim == meta.gtid.seqno);
    CHECK(pthread_join(thread, NULL) == 0);
    EXPECT(BF_ABORT, e.status);
    hold(b, false);

    session_t replayer = {.node = b, .thread = pthread_self(), .original = &h};
    EXPECT(OK, b->w->replay_trx(b->w, &h, &replayer));
    release(b, &h);
    CHECK(strcmp(b->record[meta.gtid.seqno], "victim") == 0);
    CHECK(stat_is(b, "local_replays", "1"));
    agree();
}

static void aborted_before_certification(void) {
    node_t *n = &nodes[2];
    handle_t h = {next_trx(), NULL};
    meta_t meta;
    seqno_t victim = 99;
    append(n, &h, "early", "early");
    EXPECT(OK, n->w->abort_certification(n->w, 1, h.trx_id, &victim));
    CHECK(victim == -1);
    status_t status = certify(n, &h, &meta);
    CHECK(status == CONN_FAIL || status == TRX_FAIL || status == BF_ABORT);
    if (meta.gtid.seqno > 0) fail(__FILE__, __LINE__, "an aborted transaction was ordered"); /* allowed, but nobody does so */
    release(n, &h);
    agree();
}

static void isolation(void) {
    node_t *n = &nodes[2];
    buf_t parts[2] = {{"db", 2}, {"table", 5}}, action = {"ALTER", 5}, none = {NULL, 0};
    wskey_t key = {parts, 2};
    meta_t meta = NO_META;
    EXPECT(OK, n->w->to_execute_start(n->w, 77, &key, 1, &action, 1, TRX_START | TRX_END, &meta));
    CHECK(same_uuid(&meta.stid.node, &n->own_id) && meta.stid.trx == NO_TRX && meta.depends_on == meta.gtid.seqno - 1);
    order_entered(n, meta.gtid.seqno);
    order_leaving(n, meta.gtid.seqno, "ALTER", 5);
    EXPECT(OK, n->w->to_execute_end(n->w, 77, &none));
    agree();
    CHECK(nodes[0].last_flags == (TRX_START | TRX_END | ISOLATION) && nodes[0].last_meta.gtid.seqno == meta.gtid.seqno);
    if (!(n->w->capabilities(n->w) & CAP_NBO)) {
        meta = NO_META;
        EXPECT(NOT_IMPLEMENTED, n->w->to_execute_start(n->w, 77, &key, 1, &action, 1, TRX_START, &meta));
        CHECK_UNDEFINED(meta);
    }
}

static void *commit_on_1(void *arg) {
    commit(&nodes[1], "paused", arg);
    return NULL;
}

static void pause_holds_the_order(void) {
    node_t *n = &nodes[1];
    pthread_t thread;
    EXPECT(OK, n->w->resume(n->w)); /* not paused: harmless */
    seqno_t at = n->w->pause(n->w);
    CHECK(at == closed(n) && at > 0);
    CHECK(pthread_create(&thread, NULL, commit_on_1, (void *)"while paused") == 0);
    seqno_t other = commit(&nodes[0], "elsewhere", "elsewhere");
    AWAIT(&nodes[2], nodes[2].closed >= other);
    CHECK(closed(n) == at);
    EXPECT(OK, n->w->resume(n->w));
    CHECK(pthread_join(thread, NULL) == 0);
    agree();
}

static void desync_is_counted(void) {
    node_t *n = &nodes[2];
    int synced = n->synced;
    EXPECT(OK, n->w->desync(n->w));
    EXPECT(OK, n->w->desync(n->w));
    CHECK(stat_is(n, "desync_count", "2"));
    CHECK(stat_is(n, "local_state_comment", "Donor/Desynced"));
    EXPECT(OK, n->w->resync(n->w));
    commit(n, "desynced", "desynced");
    EXPECT(OK, n->w->resync(n->w));
    AWAIT(n, n->synced > synced);
    CHECK(stat_is(n, "local_state_comment", "Synced"));
    agree();
}

static void causal_reads(void) {
    node_t *n = &nodes[2];
    gtid_t reached, upto;
    seqno_t seqno = commit(&nodes[0], "causal", "causal");
    EXPECT(OK, n->w->sync_wait(n->w, NULL, -1, &reached));
    CHECK(reached.seqno >= seqno && closed(n) >= seqno);
    upto = (gtid_t){n->history, seqno + 1000};
    EXPECT(TRX_FAIL, n->w->sync_wait(n->w, &upto, 1, NULL));
    memset(upto.uuid.data, 9, 16);
    EXPECT(TRX_MISSING, n->w->sync_wait(n->w, &upto, 1, NULL));
    agree();
}

static void too_large_write_sets_fail(void) {
    node_t *n = &nodes[0];
    size_t len = 256 << 10;
    char *data = calloc(1, len), old[32], set[64];
    handle_t h = {next_trx(), NULL};
    meta_t meta;
    get_option(n, "repl.max_ws_size", old, sizeof old);
    EXPECT(OK, n->w->options_set(n->w, "repl.max_ws_size=65536"));
    append(n, &h, "large", "x");
    buf_t d = {data, len};
    status_t appended = n->w->append_data(n->w, &h, &d, 1, 0, true);
    CHECK(appended == OK || appended == SIZE_EXCEEDED);
    /* The server ignores a failed append: certification must remember it. */
    status_t status = certify(n, &h, &meta);
    CHECK(status == SIZE_EXCEEDED || status == TRX_FAIL);
    CHECK_UNDEFINED(meta);
    release(n, &h);
    snprintf(set, sizeof set, "repl.max_ws_size=%s", old);
    EXPECT(OK, n->w->options_set(n->w, set));
    free(data);
    agree();
}

static void status_has_its_order(void) {
    static const char *const first[] = {"local_state_uuid", "protocol_version", "protocol_application", "protocol_replicator",
                                        "protocol_gcs", "last_committed", "replicated"};
    stats_var_t *a = nodes[0].w->stats_get(nodes[0].w), *b = nodes[0].w->stats_get(nodes[0].w);
    CHECK(a != b); /* each call has its own */
    int count = 0;
    for (stats_var_t *v = a; v->name; v++, count++) CHECK(v->type >= STATS_STRING && v->type <= STATS_DOUBLE);
    CHECK(count >= 48);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (strcasecmp(a[i].name, first[i]) != 0) fail(__FILE__, __LINE__, "status variable %zu is %s, not %s", i, a[i].name, first[i]);
    CHECK(strcmp(a[47].name, "incoming_addresses") == 0);
    nodes[0].w->stats_free(nodes[0].w, b);
    nodes[0].w->stats_free(nodes[0].w, a);
    nodes[0].w->stats_reset(nodes[0].w);
}

static void leaves_and_comes_back(void) {
    node_t *n = &nodes[2];
    meta_t meta;
    handle_t h = {next_trx(), NULL};
    disconnect_node(n);
    append(n, &h, "nowhere", "nowhere");
    status_t status = certify(n, &h, &meta);
    CHECK(status == CONN_FAIL || status == NODE_FAIL);
    CHECK_UNDEFINED(meta);
    release(n, &h);
    gtid_t reached;
    CHECK(n->w->sync_wait(n->w, NULL, -1, &reached) != OK);
    CHECK(n->w->stats_get != NULL && stat_is(n, "local_state", "0"));
    await_members(NODES - 1);
    seqno_t missed = commit(&nodes[0], "missed", "missed");
    connect_node(n, false);
    await_members(NODES);
    AWAIT(n, n->closed >= missed);
    CHECK(strcmp(n->record[missed], "missed") == 0); /* caught up, not copied */
    commit(n, "back", "back");
    agree();
}

static void state_file_says(node_t *n, seqno_t seqno, int safe) {
    char path[600], content[512] = "", expect[64];
    snprintf(path, sizeof path, "%sgrastate.dat", n->dir);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    CHECK(fread(content, 1, sizeof content - 1, f) > 0);
    fclose(f);
    snprintf(expect, sizeof expect, "seqno:   %lld\n", (long long)seqno);
    if (!strstr(content, expect)) fail(__FILE__, __LINE__, "node %d: no '%s' in: %s", n->index, expect, content);
    snprintf(expect, sizeof expect, "safe_to_bootstrap: %d\n", safe);
    if (!strstr(content, expect)) fail(__FILE__, __LINE__, "node %d: no '%s' in: %s", n->index, expect, content);
}

static void stops_and_goes_on_where_it_was(void) {
    /* Node 0 leaves last and may start the group again. */
    for (int i = NODES - 1; i >= 0; i--) {
        node_t *n = &nodes[i];
        disconnect_node(n);
        await_members(i);
        free_node(n);
        state_file_says(n, n->closed, i == 0);
    }
    node_t *n = &nodes[0];
    seqno_t before = n->closed;
    uuid_t_ history = n->history;
    init(n, "");
    gtid_t last;
    EXPECT(OK, n->w->last_committed_id(n->w, &last));
    CHECK(last.seqno == before);
    connect_node(n, true);
    CHECK(same_uuid(&n->history, &history));
    CHECK(n->closed == before + 1);
    commit(n, "again", "again");
    state_file_says(n, -1, 1); /* unknown while running */
    /* One that comes back to a group of which it has most. */
    node_t *j = &nodes[1];
    init(j, "");
    lock(j);
    j->has_state = false; /* a starting server can take a copy */
    unlock(j);
    connect_node(j, false);
    await_members(2);
    agree();
    disconnect_node(j);
    free_node(j);
    disconnect_node(n);
    free_node(n);
}

#define RUN(name) \
    do { \
        scenario = #name; \
        printf("%s\n", #name); \
        fflush(stdout); \
        name(); \
    } while (0)

static void bootstraps(void) {
    connect_node(&nodes[0], true);
    CHECK(nodes[0].members == 1 && nodes[0].own == 0 && nodes[0].closed == 1);
    nodes[0].has_state = true;
    CHECK(stat_is(&nodes[0], "local_state", "4"));
    CHECK(stat_is(&nodes[0], "last_committed", "1"));
    commit(&nodes[0], "first", "first");
}

static void joins_with_a_full_copy(void) {
    for (int i = 1; i < NODES; i++) {
        init(&nodes[i], "");
        connect_node(&nodes[i], false);
        CHECK(nodes[i].has_state);
        await_members(i + 1);
    }
    CHECK(__atomic_load_n(&allowlist_calls, __ATOMIC_SEQ_CST) > 0);
    agree();
}

static void initialises(void) { init(&nodes[0], ""); }

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s <provider.so> <empty directory>\n", argv[0]);
        return 2;
    }
    verbose = getenv("VERBOSE") != NULL;
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(__FILE__, __LINE__, "%s", dlerror());
    for (int i = 0; i < NODES; i++) {
        node_t *n = &nodes[i];
        n->index = i;
        n->threads = (int[]){1, 2, THREADS_MAX}[i]; /* one must be enough */
        n->closed = i == 0 ? 0 : -1;
        n->own = -1;
        n->port = free_port();
        n->ist_port = free_port();
        snprintf(n->name, sizeof n->name, "host-%d", i);
        snprintf(n->dir, sizeof n->dir, "%s/%d/", argv[2], i);
        snprintf(n->address, sizeof n->address, "127.0.0.1:%d", n->port);
        snprintf(n->options, sizeof n->options,
                 "gmcast.listen_addr=tcp://127.0.0.1:%d; ist.recv_addr=127.0.0.1:%d; gcache.size=4M; pc.recovery=no;", n->port,
                 n->ist_port);
        if (mkdir(n->dir, 0700) != 0) fail(__FILE__, __LINE__, "%s: %s", n->dir, strerror(errno));
        CHECK(pthread_mutex_init(&n->mutex, NULL) == 0 && pthread_cond_init(&n->changed, NULL) == 0);
    }
    RUN(loads);
    RUN(initialises);
    RUN(works_before_connecting);
    RUN(bootstraps);
    RUN(joins_with_a_full_copy);
    RUN(members_are_listed_alike);
    RUN(options_round_trip);
    RUN(commits_in_parallel_on_all_nodes);
    RUN(conflict_fails_certification);
    RUN(aborted_in_commit_order_and_replayed);
    RUN(aborted_before_certification);
    RUN(isolation);
    RUN(pause_holds_the_order);
    RUN(desync_is_counted);
    RUN(causal_reads);
    RUN(too_large_write_sets_fail);
    RUN(status_has_its_order);
    RUN(leaves_and_comes_back);
    RUN(stops_and_goes_on_where_it_was);
    scenario = "unloading";
    ((void (*)(void))(uintptr_t)dlsym(library, "wsrep_deinit_allowlist_service_v1"))();
    /* Kept mapped where a leak report needs the names of functions. */
    if (!getenv("KEEP_LIBRARY")) CHECK(dlclose(library) == 0);
    printf("passed\n");
    return 0;
}
