/* Implements a relay between the head and its peers. The relay damages frames in ways that CURVE
 * would never deliver. It repeats, swaps, drops, cuts and changes frames, and sends frames of an
 * earlier session or another version. It has the keys of both sides. For test_bad_frames.py and
 * test_mixed_versions.py:
 *   frame_relay KEYS_DIR HEAD_PORT SEED PERIOD_MS [another-version | newer | older]
 * It prints "port N" and then a line for each strike, and ends when its standard input ends.
 * another-version: it only changes every worker's Hello to the next major version. newer: each
 * side sees the peer as the next minor version, with unknown fields in every frame. older: each
 * side sees the peer as minor 0, with that version's Hello; a frame of a later type is fatal.
 * With newer and older it prints a line for the first frame of each type. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/keys/key_files.h"
#include "proto/codec/codec.h"

enum {
    N_PEERS = 64,
    FRAME_BYTES = 1 << 20,
    OLD_BYTES = 4096,
    AT_MAJOR = 2,
    AT_MINOR = 3,
    AT_BODY_BYTES = 24
};
enum mode { STRIKES, ANOTHER_VERSION, NEWER, OLDER, MODE_COUNT };
static const char *const mode_names[] = {"strikes", "another-version", "newer", "older"};
enum way { TO_HEAD, TO_PEER, WAY_COUNT };
enum strike {
    REPEAT,
    SWAP,
    DROP,
    CUT,
    SPOIL_HEADER,
    SPOIL_BODY,
    EARLIER_SESSION,
    OTHER_VERSION,
    STRIKE_COUNT
};
static const char *const strike_names[] = {"repeat", "swap", "drop",        "cut",
                                           "header", "body", "old-session", "version"};

struct frame {
    size_t n;
    uint8_t bytes[FRAME_BYTES];
};

/* `peer` is a connection of a gateway or worker. When there are too many, the oldest connection
 * is closed. */
struct peer {
    enum peer_role role;
    uint8_t id[32];
    size_t n_id;
    void *to_head;
    struct frame *held; /* frame that is sent after the next frame of its direction */
    enum way held_way;
};

struct relay {
    const char *keys_dir;
    char head_endpoint[64], head_public_key[41];
    void *context, *front;
    struct peer peers[N_PEERS];
    uint32_t n_accepted;
    struct rng rng;
    uint64_t period_ns, last_ns[WAY_COUNT][ROLE_COUNT];
    uint64_t n_tokens,
        /* n_tokens: frames with tokens so far; tokens_then: their number at the last strike */
        tokens_then[WAY_COUNT][ROLE_COUNT];
    uint32_t n_strikes[WAY_COUNT][ROLE_COUNT];
    enum mode mode;
    bool is_seen[WAY_COUNT][ROLE_COUNT][MSG_TYPE_COUNT];
    struct { /* `old` keeps the first frame of an earlier session for later use */
        size_t n;
        uint8_t bytes[OLD_BYTES];
    } old[WAY_COUNT][ROLE_COUNT];
};

static void die(const char *what)
{
    fprintf(stderr, "frame_relay: %s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(1);
}

static void send_frame(struct relay *r, struct peer *p, enum way way, const void *bytes, size_t n)
{
    if (way == TO_HEAD) {
        if (zmq_send(p->to_head, bytes, n, ZMQ_DONTWAIT) < 0)
            fprintf(stderr, "frame_relay: the head takes no more\n");
    } else if (zmq_send(r->front, p->id, p->n_id, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
        zmq_send(r->front, bytes, n, ZMQ_DONTWAIT); /* a peer that has left gets no frames */
    }
}

static void say(const struct peer *p, enum way way, enum msg_type type, const char *what)
{
    const char *role = peer_role_name(p->role);
    printf("%s %s %s %s\n", what, way == TO_HEAD ? role : "head", way == TO_HEAD ? "head" : role,
           msg_type_name(type));
    fflush(stdout);
}

/* ---- strikes ---- */

static void spoil_header(struct relay *r, struct frame *f)
{
    static const uint8_t places[] = {0, 1, 6, 8, 12, 16, 17, 24, 28, 31};
    f->bytes[places[rng_below(&r->rng, sizeof places)]] ^= (uint8_t)(1u << rng_below(&r->rng, 8));
}

/* Sends `f`, or a damaged frame in its place. */
static void strike(struct relay *r, struct peer *p, enum way way, struct frame *f, enum msg_type t)
{
    enum strike what = (enum strike)(r->n_strikes[way][p->role]++ % STRIKE_COUNT);
    if (what == EARLIER_SESSION && r->old[way][p->role].n == 0)
        what = REPEAT;
    if (what == SPOIL_BODY && f->n == FRAME_HEADER_BYTES)
        what = CUT;
    say(p, way, t, strike_names[what]);
    switch (what) {
    case REPEAT:
        send_frame(r, p, way, f->bytes, f->n);
        break;
    case SWAP:
        p->held = malloc(sizeof *p->held);
        p->held_way = way;
        *p->held = *f;
        return;
    case DROP:
        return;
    case CUT:
        f->n = rng_below(&r->rng, f->n);
        break;
    case SPOIL_HEADER:
        spoil_header(r, f);
        break;
    case SPOIL_BODY: /* 0xFF bytes give a number that no field has */
        memset(f->bytes + FRAME_HEADER_BYTES, 0xFF, f->n - FRAME_HEADER_BYTES);
        break;
    case EARLIER_SESSION:
        send_frame(r, p, way, r->old[way][p->role].bytes, r->old[way][p->role].n);
        break;
    default:
        f->bytes[AT_MAJOR]++;
        break;
    }
    send_frame(r, p, way, f->bytes, f->n);
}

/* Returns true when it is this link's turn. Frames that open a session are never damaged,
 * because no session would open. Between two strikes on one kind of link, tokens must pass: on a
 * busy machine, a session takes longer than a period to open. */
static bool is_time(struct relay *r, enum way way, enum peer_role role, enum msg_type t)
{
    uint64_t now = clock_mono_ns(), *last_ns = &r->last_ns[way][role];
    bool small_talk = t == MSG_HEARTBEAT || t == MSG_CREDIT;
    bool no_progress = r->n_strikes[way][role] > 0 && r->n_tokens == r->tokens_then[way][role];
    if (r->mode != STRIKES || now - *last_ns < r->period_ns || no_progress || t == MSG_HELLO ||
        t == MSG_WELCOME || (small_talk && rng_below(&r->rng, 8) > 0))
        return false;
    *last_ns = now;
    r->tokens_then[way][role] = r->n_tokens;
    return true;
}

/* ---- other minor versions ---- */

/* Appends two unknown fields to the known fields: number 1000, a varint, and number 1001, a
 * string. */
static void make_newer(struct frame *f)
{
    static const uint8_t unknown[] = "\xC0\x3E\x01\xCA\x3E\x05newer";
    uint32_t n_body = (uint32_t)(f->n - FRAME_HEADER_BYTES + sizeof unknown - 1);
    if (f->n + sizeof unknown - 1 > FRAME_BYTES)
        die("a frame that is too large");
    memcpy(f->bytes + f->n, unknown, sizeof unknown - 1);
    f->n += sizeof unknown - 1;
    f->bytes[AT_MINOR]++;
    /* The copy works because all test machines are little-endian. */
    memcpy(f->bytes + AT_BODY_BYTES, &n_body, sizeof n_body);
}

/* Removes the fields that version 2.0 did not have. */
static void remove_later_fields(struct msg *m)
{
    if (m->type == MSG_SUBMIT) {
        m->submit.slo_ttft_ms = 0;
        return;
    }
    m->hello.worker.kv_address = (struct str){0};
    m->hello.worker.replica_role = (enum replica_role)0;
    memset(m->hello.worker.model_hash, 0, sizeof m->hello.worker.model_hash);
    m->hello.worker.n_elastic = m->hello.worker.shard_tp = m->hello.worker.replica_tp = 0;
    m->hello.has_vocabulary = false;
    m->hello.worker.sleep_level = SLEEP_LEVEL_AWAKE;
    m->hello.model = (struct str){0};
}

static void make_older(struct frame *f, const struct frame_header *h)
{
    struct arena a, scratch;
    struct strbuf out;
    struct msg m;
    struct error err = {0};
    if (msg_since_minor(h->type) > 0) {
        fprintf(stderr, "frame_relay: 2.0 has no %s\n", msg_type_name(h->type));
        exit(1);
    }
    if (h->type == MSG_HELLO || h->type == MSG_SUBMIT) {
        arena_init(&a, 16u << 20);
        arena_init(&scratch, 0);
        strbuf_init(&out, FRAME_BYTES);
        if (codec_decode((struct str){(const char *)f->bytes, f->n}, h, &a, &m, &err) != STATUS_OK)
            die(err.text);
        remove_later_fields(&m);
        if (codec_encode(&m, h->session, h->seq, &scratch, &out) != STATUS_OK)
            die("a frame of 2.0");
        memcpy(f->bytes, out.ptr, out.len);
        f->n = out.len;
        strbuf_fini(&out);
        arena_fini(&scratch);
        arena_fini(&a);
    }
    f->bytes[AT_MINOR] = 0;
}

static void make_other_minor(struct relay *r, struct peer *p, enum way way, struct frame *f,
                             const struct frame_header *h)
{
    bool *seen = &r->is_seen[way][p->role][h->type];
    if (!*seen)
        say(p, way, h->type, mode_names[r->mode]);
    *seen = true;
    if (r->mode == NEWER)
        make_newer(f);
    else
        make_older(f, h);
}

static void pass(struct relay *r, struct peer *p, enum way way, struct frame *f)
{
    struct frame_header h;
    if (frame_parse_header((struct str){(const char *)f->bytes, f->n}, &h, NULL) != STATUS_OK)
        die("a frame of our own programs is malformed");
    if (r->mode == ANOTHER_VERSION && h.type == MSG_HELLO && p->role == ROLE_WORKER)
        f->bytes[AT_MAJOR]++;
    if (r->mode == NEWER || r->mode == OLDER)
        make_other_minor(r, p, way, f, &h);
    if (r->old[way][p->role].n == 0 && h.session != 0 && h.type != MSG_WELCOME &&
        f->n <= OLD_BYTES) {
        r->old[way][p->role].n = f->n;
        memcpy(r->old[way][p->role].bytes, f->bytes, f->n);
    }
    struct frame *held = p->held_way == way ? p->held : NULL;
    r->n_tokens += h.type == MSG_TOKENS;
    if (!p->held && is_time(r, way, p->role, h.type))
        strike(r, p, way, f, h.type);
    else
        send_frame(r, p, way, f->bytes, f->n);
    if (held) {
        send_frame(r, p, way, held->bytes, held->n);
        free(held);
        p->held = NULL;
    }
}

/* ---- connections ---- */

static void secure(void *socket, const struct curve_keys *own, const char *server)
{
    int yes = 1, no = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &no, sizeof no);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, own->public_key, 41);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own->secret_key, 41);
    int rc = server ? zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server, 41)
                    : zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes);
    if (rc != 0)
        die("keys");
}

/* The first frame of a connection is a Hello, which has its sender's role. */
static enum peer_role role_in(const struct frame *f)
{
    struct str bytes = {(const char *)f->bytes, f->n};
    struct frame_header h;
    struct arena a;
    struct msg m = {0};
    arena_init(&a, 16u << 20);
    enum peer_role role = ROLE_NONE;
    if (frame_parse_header(bytes, &h, NULL) == STATUS_OK && h.type == MSG_HELLO &&
        codec_decode(bytes, &h, &a, &m, NULL) == STATUS_OK)
        role = m.hello.role;
    arena_fini(&a);
    return role;
}

static struct peer *accept_peer(struct relay *r, const uint8_t *id, size_t n_id,
                                const struct frame *first)
{
    struct curve_keys keys;
    struct error err = {0};
    enum peer_role role = role_in(first);
    if (role == ROLE_NONE)
        return NULL; /* this frame is the rest of a connection that this relay closed */
    struct peer *p = &r->peers[r->n_accepted++ % N_PEERS];
    if (p->to_head)
        zmq_close(p->to_head);
    free(p->held);
    *p = (struct peer){.role = role, .n_id = n_id};
    memcpy(p->id, id, n_id);
    p->to_head = zmq_socket(r->context, ZMQ_DEALER);
    if (keys_load(r->keys_dir, role, &keys, &err) != STATUS_OK)
        die(err.text);
    secure(p->to_head, &keys, r->head_public_key);
    if (zmq_connect(p->to_head, r->head_endpoint) != 0)
        die(r->head_endpoint);
    return p;
}

static struct peer *find_peer(struct relay *r, const uint8_t *id, size_t n_id)
{
    for (int i = 0; i < N_PEERS; i++)
        if (r->peers[i].to_head && r->peers[i].n_id == n_id &&
            memcmp(r->peers[i].id, id, n_id) == 0)
            return &r->peers[i];
    return NULL;
}

static void from_peers(struct relay *r, struct frame *f)
{
    uint8_t id[32];
    int n_id, n;
    while ((n_id = zmq_recv(r->front, id, sizeof id, ZMQ_DONTWAIT)) >= 0) {
        n = zmq_recv(r->front, f->bytes, sizeof f->bytes, 0);
        if (n < 0 || n > FRAME_BYTES)
            die("a frame of a peer");
        f->n = (size_t)n;
        struct peer *p = find_peer(r, id, (size_t)n_id);
        if (!p)
            p = accept_peer(r, id, (size_t)n_id, f);
        if (p)
            pass(r, p, TO_HEAD, f);
    }
}

static void from_head(struct relay *r, struct peer *p, struct frame *f)
{
    int n;
    while ((n = zmq_recv(p->to_head, f->bytes, sizeof f->bytes, ZMQ_DONTWAIT)) >= 0) {
        if (n > FRAME_BYTES)
            die("a frame of the head");
        f->n = (size_t)n;
        pass(r, p, TO_PEER, f);
    }
}

static void open_front(struct relay *r)
{
    struct curve_keys keys;
    struct error err = {0};
    char endpoint[64];
    size_t n = sizeof endpoint;
    r->context = zmq_ctx_new();
    r->front = zmq_socket(r->context, ZMQ_ROUTER);
    if (keys_load(r->keys_dir, ROLE_HEAD, &keys, &err) != STATUS_OK)
        die(err.text);
    memcpy(r->head_public_key, keys.public_key, 41);
    secure(r->front, &keys, NULL);
    if (zmq_bind(r->front, "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(r->front, ZMQ_LAST_ENDPOINT, endpoint, &n) != 0)
        die("bind");
    printf("port %s\n", strrchr(endpoint, ':') + 1);
    fflush(stdout);
}

static void run(struct relay *r)
{
    static struct frame f;
    zmq_pollitem_t items[2 + N_PEERS];
    do {
        int n = 2;
        items[0] = (zmq_pollitem_t){.fd = STDIN_FILENO, .events = ZMQ_POLLIN};
        items[1] = (zmq_pollitem_t){.socket = r->front, .events = ZMQ_POLLIN};
        for (int i = 0; i < N_PEERS; i++)
            if (r->peers[i].to_head)
                items[n++] = (zmq_pollitem_t){.socket = r->peers[i].to_head, .events = ZMQ_POLLIN};
        if (zmq_poll(items, n, -1) < 0)
            die("poll");
        from_peers(r, &f);
        for (int i = 0; i < N_PEERS; i++)
            if (r->peers[i].to_head)
                from_head(r, &r->peers[i], &f);
    } while (!(items[0].revents & (ZMQ_POLLIN | ZMQ_POLLERR)));
}

static enum mode find_mode(const char *name)
{
    for (int m = 0; m < MODE_COUNT; m++)
        if (strcmp(name, mode_names[m]) == 0)
            return (enum mode)m;
    fprintf(stderr, "frame_relay: %s is no mode\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    static struct relay r;
    if (argc < 5) {
        fprintf(stderr, "usage: frame_relay KEYS_DIR HEAD_PORT SEED PERIOD_MS [MODE]\n");
        return 2;
    }
    r.mode = argc > 5 ? find_mode(argv[5]) : STRIKES;
    r.keys_dir = argv[1];
    snprintf(r.head_endpoint, sizeof r.head_endpoint, "tcp://127.0.0.1:%s", argv[2]);
    r.rng = (struct rng){strtoull(argv[3], NULL, 10)};
    r.period_ns = strtoull(argv[4], NULL, 10) * NS_PER_MS;
    open_front(&r);
    run(&r);
    for (int i = 0; i < N_PEERS; i++) {
        if (r.peers[i].to_head)
            zmq_close(r.peers[i].to_head);
        free(r.peers[i].held);
    }
    zmq_close(r.front);
    zmq_ctx_term(r.context);
    return 0;
}
