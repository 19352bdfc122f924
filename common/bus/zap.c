/* Runs the thread that decides which CURVE keys may connect (ZeroMQ RFC 27). libzmq sends this
 * thread a request for each handshake over inproc://zeromq.zap.01. The answer is 200 with
 * "role:key" as User-Id when the key is in `authorized`, otherwise 400 and a log event.
 * The thread owns `requests` and `stop_in` and closes them. The caller's thread ends it through
 * `stop_out`. The thread reads `authorized` under `lock`, and zap_swap changes the list under
 * `lock`. The thread refuses requests of more than ZAP_PARTS_MAX parts or ZAP_PART_MAX bytes a
 * part. */
#include "common/bus/zap.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/str.h"

enum {
    ZAP_KEY_BYTES = 32,
    ZAP_PART_MAX = 256,
    ZAP_PARTS_MAX = 8,
    /* at most one log event in this time, because the retries of an unknown peer must not fill
     * the log */
    ZAP_LOG_PERIOD_S = 1
};

/* `zap_part` lists the frames of a ZAP request, in their order. */
enum zap_part {
    ZAP_VERSION,
    ZAP_REQUEST_ID,
    ZAP_DOM,
    ZAP_ADDRESS,
    ZAP_IDENTITY,
    ZAP_MECHANISM,
    ZAP_CREDENTIALS,
    ZAP_PART_COUNT
};

struct zap {
    void *requests; /* REP socket for requests; used by the handler's thread only */
    void *stop_in;  /* PAIR socket for the end signal; used by the handler's thread only */
    void *stop_out; /* other end of `stop_in`; used by the caller's thread */
    const struct authorized *authorized; /* keys that may connect; guarded by `lock` */
    pthread_mutex_t lock;
    pthread_t thread;
    uint64_t last_log_ns, n_refused;
};

struct zap_request {
    struct {
        size_t n;
        char bytes[ZAP_PART_MAX];
    } parts[ZAP_PARTS_MAX];
    int n_parts;
    bool too_large;
};

static struct str part(const struct zap_request *r, enum zap_part i)
{
    return (struct str){r->parts[i].bytes, r->parts[i].n};
}

/* Receives one whole request of libzmq. Returns false when the context ends. */
static bool receive(void *socket, struct zap_request *r)
{
    int more = 1;
    size_t size = sizeof more;
    r->n_parts = 0;
    r->too_large = false;
    while (more) {
        char sink[ZAP_PART_MAX];
        bool fits = r->n_parts < ZAP_PARTS_MAX;
        int n = zmq_recv(socket, fits ? r->parts[r->n_parts].bytes : sink, ZAP_PART_MAX, 0);
        if (n < 0)
            return false;
        r->too_large |= !fits || n > ZAP_PART_MAX;
        if (fits)
            r->parts[r->n_parts++].n = (size_t)n > ZAP_PART_MAX ? ZAP_PART_MAX : (size_t)n;
        if (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) < 0)
            return false;
    }
    return true;
}

static const char *find_user(struct zap *z, const struct zap_request *r, char user[64],
                             char key[41])
{
    if (r->too_large || r->n_parts != ZAP_PART_COUNT || !str_eq_c(part(r, ZAP_VERSION), "1.0") ||
        !str_eq_c(part(r, ZAP_DOM), ZAP_DOMAIN) || !str_eq_c(part(r, ZAP_MECHANISM), "CURVE") ||
        part(r, ZAP_CREDENTIALS).len != ZAP_KEY_BYTES)
        return NULL;
    zmq_z85_encode(key, (const uint8_t *)part(r, ZAP_CREDENTIALS).ptr, ZAP_KEY_BYTES);
    const char *found = NULL;
    pthread_mutex_lock(&z->lock);
    for (uint32_t i = 0; i < z->authorized->n_entries && !found; i++)
        if (strcmp(z->authorized->entries[i].public_key, key) == 0) {
            snprintf(user, 64, "%s:%s", peer_role_name(z->authorized->entries[i].role), key);
            found = user;
        }
    pthread_mutex_unlock(&z->lock);
    return found;
}

static void log_refused(struct zap *z, const struct zap_request *r, const char *key)
{
    uint64_t now = clock_mono_ns();
    char address[ZAP_PART_MAX + 1];
    z->n_refused++;
    if (z->last_log_ns && now - z->last_log_ns < ZAP_LOG_PERIOD_S * NS_PER_S)
        return;
    z->last_log_ns = now;
    snprintf(address, sizeof address, STR_FMT,
             STR_ARG(r->n_parts > ZAP_ADDRESS ? part(r, ZAP_ADDRESS) : STR("?")));
    log_warn("peer_refused", "address=%s public_key=%s refused_total=%llu reason=%s",
             log_quote(address), log_quote(key), (unsigned long long)z->n_refused,
             log_quote("the file authorized does not list this key"));
}

static void answer(struct zap *z, const struct zap_request *r)
{
    char buf[64], key[41] = "";
    const char *user = find_user(z, r, buf, key);
    const char *code = user ? "200" : "400", *text = user ? "OK" : "not authorized";
    struct str id = r->n_parts > ZAP_REQUEST_ID ? part(r, ZAP_REQUEST_ID) : STR("");
    if (!user)
        log_refused(z, r, key);
    zmq_send(z->requests, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(z->requests, id.ptr, id.len, ZMQ_SNDMORE);
    zmq_send(z->requests, code, 3, ZMQ_SNDMORE);
    zmq_send(z->requests, text, strlen(text), ZMQ_SNDMORE);
    zmq_send(z->requests, user ? user : "", user ? strlen(user) : 0, ZMQ_SNDMORE);
    zmq_send(z->requests, "", 0, 0);
}

static void *zap_main(void *arg)
{
    struct zap *z = arg;
    struct zap_request r;
    zmq_pollitem_t items[] = {{.socket = z->requests, .events = ZMQ_POLLIN},
                              {.socket = z->stop_in, .events = ZMQ_POLLIN}};
    pthread_setname_np(pthread_self(), "cox-zap");
    while (zmq_poll(items, 2, -1) >= 0 || errno == EINTR) {
        if (items[1].revents)
            break;
        if (items[0].revents) {
            if (!receive(z->requests, &r))
                break;
            answer(z, &r);
        }
    }
    zmq_close(z->requests);
    zmq_close(z->stop_in);
    return NULL;
}

static bool open_sockets(struct zap *z, void *context)
{
    int zero = 0;
    z->requests = zmq_socket(context, ZMQ_REP);
    z->stop_in = zmq_socket(context, ZMQ_PAIR);
    z->stop_out = zmq_socket(context, ZMQ_PAIR);
    if (!z->requests || !z->stop_in || !z->stop_out)
        return false;
    zmq_setsockopt(z->requests, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(z->stop_in, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(z->stop_out, ZMQ_LINGER, &zero, sizeof zero);
    return zmq_bind(z->requests, "inproc://zeromq.zap.01") == 0 &&
           zmq_bind(z->stop_in, "inproc://coxswain.zap.stop") == 0 &&
           zmq_connect(z->stop_out, "inproc://coxswain.zap.stop") == 0;
}

/* Starts the thread with all signals blocked, because signals belong to the loop. */
static int start_thread(struct zap *z)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    /* from here on the thread owns `requests` and `stop_in` */
    int rc = pthread_create(&z->thread, NULL, zap_main, z);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

enum status zap_start(void *context, const struct authorized *authorized, struct zap **out,
                      struct error *err)
{
    struct zap *z = mem_zalloc(sizeof *z);
    z->authorized = authorized;
    pthread_mutex_init(&z->lock, NULL);
    int rc = open_sockets(z, context) ? start_thread(z) : zmq_errno();
    if (rc == 0) {
        *out = z;
        return STATUS_OK;
    }
    void *sockets[] = {z->requests, z->stop_in, z->stop_out};
    for (int i = 0; i < 3; i++)
        if (sockets[i])
            zmq_close(sockets[i]);
    pthread_mutex_destroy(&z->lock);
    mem_free(z);
    return error_set(err, STATUS_IO,
                     "cannot start the thread that checks keys of connections (ZAP): %s",
                     zmq_strerror(rc));
}

void zap_swap(struct zap *z, struct authorized *mine, struct authorized *next)
{
    struct authorized old;
    pthread_mutex_lock(&z->lock);
    old = *mine;
    *mine = *next;
    *next = old;
    pthread_mutex_unlock(&z->lock);
}

void zap_stop(struct zap *z)
{
    if (!z)
        return;
    zmq_send(z->stop_out, "", 0, 0);
    pthread_join(z->thread, NULL);
    zmq_close(z->stop_out);
    pthread_mutex_destroy(&z->lock);
    mem_free(z);
}
