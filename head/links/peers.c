/* Keeps the sessions with workers, gateways and operators.
 *
 * core.c passes each frame to `peers_receive`, which checks the key, session and sequence number
 * and decodes it. The core sends with `peers_send`, and calls `peers_tick` for heartbeats and
 * losses. Frames are sent through `head_io`.
 *
 * Invariants: everything runs on the loop thread, and time is an argument. A message is passed
 * on only if its session is open and its number is the next one. Nothing except free types is
 * sent without credit. Connections are found by ZeroMQ's routing id in a small chained hash.
 * Instances are needed once per Hello and found by walking the table. */
#include "head/links/peers.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/str.h"

#define DECODE_LIMIT_BYTES (256u << 20)
#define REFUSED_QUIET_NS   (60 * NS_PER_S)
#define SCRATCH_KEEP_BYTES (1u << 20)

static uint32_t bucket_of(const struct peers *p, struct bus_peer a)
{
    return (uint32_t)XXH3_64bits(a.id, a.n) & (p->n_buckets - 1);
}

static bool addr_eq(struct bus_peer a, struct bus_peer b)
{
    return a.n == b.n && memcmp(a.id, b.id, a.n) == 0;
}

static struct peer *find_addr(const struct peers *p, struct bus_peer a)
{
    struct peer *x = p->buckets[bucket_of(p, a)];
    while (x && !addr_eq(x->addr, a))
        x = x->next_in_bucket;
    return x;
}

static void bucket_insert(struct peers *p, struct peer *x)
{
    uint32_t b = bucket_of(p, x->addr);
    x->next_in_bucket = p->buckets[b];
    p->buckets[b] = x;
}

static void bucket_remove(struct peers *p, struct peer *x)
{
    struct peer **at = &p->buckets[bucket_of(p, x->addr)];
    while (*at && *at != x)
        at = &(*at)->next_in_bucket;
    if (*at)
        *at = x->next_in_bucket;
    x->next_in_bucket = NULL;
}

void peers_init(struct peers *p, const struct peers_config *c, const struct head_io *io,
                struct events *events, struct rng *rng)
{
    *p = (struct peers){.config = *c, .io = *io, .events = events, .rng = rng};
    p->n_buckets = 16;
    while (p->n_buckets < c->max_peers && p->n_buckets < (1u << 16))
        p->n_buckets *= 2;
    p->all = mem_array(c->max_peers, sizeof *p->all);
    p->buckets = mem_array(p->n_buckets, sizeof *p->buckets);
    arena_init(&p->decode, DECODE_LIMIT_BYTES);
    arena_init(&p->encode, 0);
    strbuf_init(&p->frame, FRAME_MAX_BYTES);
}

void peers_fini(struct peers *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        mem_free(p->all[i]);
    mem_free(p->all);
    mem_free(p->buckets);
    arena_fini(&p->decode);
    arena_fini(&p->encode);
    strbuf_fini(&p->frame);
    *p = (struct peers){0};
}

struct peer *peers_find_instance(const struct peers *p, enum peer_role role, uint64_t instance)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->all[i]->instance == instance && p->all[i]->role == role)
            return p->all[i];
    }
    return NULL;
}

void peers_close_session(struct peers *p, struct peer *peer)
{
    (void)p;
    peer->open = false;
    peer->credit_owed = 0;
}

void peers_remove(struct peers *p, struct peer *peer)
{
    bucket_remove(p, peer);
    p->all[peer->index] = p->all[--p->n];
    p->all[peer->index]->index = peer->index;
    mem_free(peer);
}

/* ---- sending ---- */

static void put_le64(char *at, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        at[i] = (char)(uint8_t)(v >> (8 * i));
}

enum status peers_encode(struct peers *p, const struct msg *m, struct strbuf *out)
{
    strbuf_reset(out);
    return codec_encode(m, 0, 0, &p->encode, out);
}

enum status peers_send_encoded(struct peers *p, struct peer *to, enum msg_type type,
                               struct strbuf *frame)
{
    if (!to->open)
        return STATUS_CLOSED;
    if (!link_has_type(&to->link, type))
        return STATUS_UNSUPPORTED;
    bool is_free = link_is_free(type);
    if (!is_free && (to->blocked || !link_can_send(&to->link, frame->len))) {
        to->blocked = true;
        return STATUS_AGAIN;
    }
    /* session and sequence number are at fixed places of the header (proto/codec/codec.h) */
    put_le64(frame->ptr + 8, to->link.session);
    put_le64(frame->ptr + 16, link_next_seq(&to->link));
    enum status s = p->io.send(p->io.ctx, to->addr, strbuf_str(frame));
    if (s == STATUS_OK) {
        link_sent(&to->link, type, frame->len);
        to->sent_ns = p->now_ns;
        to->told_term = p->term; /* no message from this head has a higher term */
        return STATUS_OK;
    }
    if (s == STATUS_AGAIN)
        return STATUS_AGAIN;
    /* the connection is gone; missing heartbeats decide about the peer */
    peers_close_session(p, to);
    return STATUS_CLOSED;
}

enum status peers_send(struct peers *p, struct peer *to, const struct msg *m)
{
    if (!to->open)
        return STATUS_CLOSED;
    if (to->blocked && !link_is_free(m->type))
        return STATUS_AGAIN;
    TRY(peers_encode(p, m, &p->frame));
    return peers_send_encoded(p, to, m->type, &p->frame);
}

void peers_refuse(struct peers *p, struct bus_peer to, enum status status, const char *text,
                  uint64_t now_ns)
{
    p->n_refused++;
    if (strncmp(text, p->refused_text, sizeof p->refused_text - 1) != 0 ||
        now_ns - p->refused_ns >= REFUSED_QUIET_NS) {
        events_add(p->events, now_ns, LOG_WARN, "peer_refused", "reason=%s text=%s",
                   status_name(status), log_quote(text));
        snprintf(p->refused_text, sizeof p->refused_text, "%s", text);
        p->refused_ns = now_ns;
    }
    struct msg m = {.type = MSG_REFUSED, .refused = {.status = status, .text = str_from(text)}};
    strbuf_reset(&p->frame);
    if (codec_encode(&m, 0, 1, &p->encode, &p->frame) == STATUS_OK)
        /* sending is best effort, because the peer retries */
        (void)p->io.send(p->io.ctx, to, strbuf_str(&p->frame));
}

/* ---- receiving ---- */

static bool role_is_allowed(const struct peers *p, enum peer_role authenticated,
                            enum peer_role said)
{
    if (said != ROLE_GATEWAY && said != ROLE_WORKER && said != ROLE_OPERATOR)
        return false;
    return authenticated == said || (authenticated == ROLE_NONE && p->config.insecure);
}

static enum peers_event receive_hello(struct peers *p, const struct peers_input *in,
                                      const struct frame_header *h, uint64_t now_ns,
                                      struct msg *msg)
{
    struct error err = {0};
    enum status s = STATUS_OK;
    if (h->session != 0 || h->seq != 1)
        s = error_set(&err, STATUS_PROTOCOL,
                      "the connection is refused: a Hello must be frame 1 of session 0. Run the "
                      "same release on every machine");
    if (s == STATUS_OK)
        s = codec_decode(in->frame, h, &p->decode, msg, &err);
    if (s == STATUS_OK && !role_is_allowed(p, in->role, msg->hello.role))
        s = error_set(
            &err, STATUS_DENIED,
            "this key is not registered for a %s: check the role in the head's authorized file",
            peer_role_name(msg->hello.role));
    /* a connection may be older than the removal of its key */
    if (s == STATUS_OK && p->authorized && !authorized_has(p->authorized, in->role, in->key))
        s = error_set(
            &err, STATUS_CLOSED,
            "this key was removed from the head's authorized file. Use a key that the file lists");
    if (s != STATUS_OK) {
        peers_refuse(p, in->from, s, err.text, now_ns);
        return PEERS_NOTHING;
    }
    return PEERS_HELLO;
}

static void return_credit(struct peers *p, struct peer *x)
{
    struct msg m = {.type = MSG_CREDIT, .credit = {.bytes = x->credit_owed}};
    if (x->credit_owed > 0 && peers_send(p, x, &m) == STATUS_OK)
        x->credit_owed = 0;
}

static enum peers_event broken(struct peers *p, struct peer *x, const char *why, uint64_t now_ns)
{
    p->n_broken++;
    events_add(p->events, now_ns, LOG_WARN, "session_broken",
               "role=%s node=%s instance=%016llx text=%s", peer_role_name(x->role),
               log_quote(x->node), (unsigned long long)x->instance, log_quote(why));
    struct msg m = {.type = MSG_GOODBYE, .goodbye = {.text = str_from(why)}};
    if (peers_send(p, x, &m) != STATUS_OK)
        log_debug("goodbye_unsent", "instance=%016llx", (unsigned long long)x->instance);
    peers_close_session(p, x);
    return PEERS_BROKEN;
}

void peers_revoke(struct peers *p, uint64_t now_ns)
{
    p->now_ns = now_ns;
    for (uint32_t i = 0; p->authorized && i < p->n; i++) {
        struct peer *x = p->all[i];
        x->key_gone = !authorized_has(p->authorized, x->role, x->key);
        if (!x->key_gone || !x->open)
            continue;
        events_add(p->events, now_ns, LOG_WARN, "peer_revoked",
                   "role=%s node=%s instance=%016llx public_key=%s", peer_role_name(x->role),
                   log_quote(x->node), (unsigned long long)x->instance, log_quote(x->key));
        struct msg m = {
            .type = MSG_GOODBYE,
            .goodbye = {.text = STR("this key was removed from the head's authorized file")}};
        (void)!peers_send(p, x, &m); /* if this message is lost, the peer detects the silence */
        peers_close_session(p, x);
    }
}

enum peers_event peers_receive(struct peers *p, const struct peers_input *in, uint64_t now_ns,
                               struct peer **peer, struct msg *msg)
{
    struct frame_header h;
    struct error err = {0};
    *peer = NULL;
    p->now_ns = now_ns;
    arena_reset(&p->decode);
    enum status s = frame_parse_header(in->frame, &h, &err);
    if (s == STATUS_VERSION) {
        char text[128];
        snprintf(text, sizeof text,
                 "protocol %u.%u of the peer does not match protocol %u.%u of the head: run the "
                 "same release on every machine",
                 h.major, h.minor, PROTOCOL_MAJOR, PROTOCOL_MINOR);
        peers_refuse(p, in->from, STATUS_VERSION, text, now_ns);
        return PEERS_NOTHING;
    }
    struct peer *x = find_addr(p, in->from);
    if (s != STATUS_OK) {
        p->n_malformed++;
        *peer = x;
        return x && x->open ? broken(p, x, err.text, now_ns) : PEERS_NOTHING;
    }
    if (h.type == MSG_HELLO)
        return receive_hello(p, in, &h, now_ns, msg);
    if (!x || !x->open || h.session != x->link.session) {
        p->n_unknown_session++;
        return PEERS_NOTHING;
    }
    *peer = x;
    if (link_received(&x->link, &h, &err) != STATUS_OK)
        return broken(p, x, err.text, now_ns);
    if (!msg_allowed_from(h.type, x->role)) {
        char text[96];
        snprintf(text, sizeof text, "a %s must not send the message %s", peer_role_name(x->role),
                 msg_type_name(h.type));
        return broken(p, x, text, now_ns);
    }
    if (codec_decode(in->frame, &h, &p->decode, msg, &err) != STATUS_OK) {
        p->n_malformed++;
        return broken(p, x, err.text, now_ns);
    }
    x->heard_ns = now_ns;
    if (x->suspect) {
        x->suspect = false;
        events_add(p->events, now_ns, LOG_INFO, "peer_back", "role=%s node=%s instance=%016llx",
                   peer_role_name(x->role), log_quote(x->node), (unsigned long long)x->instance);
    }
    if (h.type == MSG_HEARTBEAT && x->role == ROLE_GATEWAY)
        x->quiet_ms = msg->heartbeat.next_in_ms < p->config.quiet_ms ? msg->heartbeat.next_in_ms
                                                                     : p->config.quiet_ms;
    uint64_t bytes = 0;
    if (link_consumed(&x->link, h.type, in->frame.len, &bytes)) {
        x->credit_owed += bytes;
        return_credit(p, x);
    }
    if (h.type == MSG_CREDIT) {
        link_credit(&x->link, msg->credit.bytes);
        x->blocked = false;
    }
    return PEERS_MSG;
}

static struct peer *find_or_add(struct peers *p, const struct peers_input *in,
                                const struct msg_hello *h, uint64_t now_ns, bool *known)
{
    struct peer *x = peers_find_instance(p, h->role, h->instance);
    struct peer *at_addr = find_addr(p, in->from);
    *known = x != NULL;
    if (x && !x->key_gone && strcmp(x->key, in->key ? in->key : "") != 0) {
        /* the refusal is temporary: an instance with a new key is accepted once the old session
         * is lost */
        peers_refuse(p, in->from, STATUS_EXISTS, "this instance id is in use with another key",
                     now_ns);
        return NULL;
    }
    if (!x && p->n == p->config.max_peers) {
        peers_refuse(p, in->from, STATUS_LIMIT,
                     "the head has its maximum number of connected processes", now_ns);
        return NULL;
    }
    if (at_addr && at_addr != x) { /* the connection now belongs to another instance */
        peers_close_session(p, at_addr);
        bucket_remove(p, at_addr);
        at_addr->addr = (struct bus_peer){0};
        bucket_insert(p, at_addr);
    }
    if (x) {
        bucket_remove(p, x);
        return x;
    }
    x = mem_zalloc(sizeof *x);
    x->role = h->role;
    x->instance = h->instance;
    x->index = p->n;
    p->all[p->n++] = x;
    return x;
}

struct peer *peers_open(struct peers *p, const struct peers_input *in, const struct msg_hello *h,
                        uint64_t now_ns, bool *known)
{
    struct peer *x = find_or_add(p, in, h, now_ns, known);
    if (!x)
        return NULL;
    x->addr = in->from;
    bucket_insert(p, x);
    str_copy(x->key, sizeof x->key, str_from(in->key));
    str_copy(x->node, sizeof x->node, h->node);
    str_copy(x->version, sizeof x->version, h->version);
    uint64_t session = 0;
    while (session == 0)
        session = rng_next(p->rng);
    link_init(&x->link, p->config.window_bytes);
    link_open(&x->link, session, h->credit_bytes);
    struct frame_header header;
    if (frame_parse_header(in->frame, &header, NULL) == STATUS_OK)
        x->link.minor_there = header.minor;
    x->open = true;
    x->suspect = x->blocked = x->key_gone = false;
    x->credit_owed = 0;
    x->quiet_ms = 0;
    x->opened_ns = x->heard_ns = x->sent_ns = now_ns;
    x->told_term = p->term;
    struct msg m = {.type = MSG_WELCOME,
                    .welcome = {.session = session,
                                .head_instance = p->config.head_instance,
                                .term = p->term,
                                .credit_bytes = p->config.window_bytes,
                                .heartbeat_ms = p->config.heartbeat_ms,
                                .suspect_ms = p->config.suspect_ms,
                                .version = str_from(COX_VERSION),
                                .keeps_grammar = h->role == ROLE_GATEWAY,
                                .quiet_ms = h->role == ROLE_GATEWAY ? p->config.quiet_ms : 0}};
    if (peers_send(p, x, &m) != STATUS_OK)
        peers_close_session(p, x); /* the peer sends Hello again */
    return x;
}

/* ---- time ---- */

/* Returns the silence of a peer, without the time that a quiet gateway has announced. */
static uint64_t silence(const struct peer *x, uint64_t now_ns)
{
    const uint64_t since_ns = x->heard_ns + x->quiet_ms * NS_PER_MS;
    return now_ns > since_ns ? now_ns - since_ns : 0;
}

static uint64_t heartbeat_ns(const struct peers *p, const struct peer *x)
{
    const uint32_t usual = p->config.heartbeat_ms;
    return (x->quiet_ms > usual ? x->quiet_ms : usual) * NS_PER_MS;
}

void peers_tick(struct peers *p, uint64_t now_ns, const struct peers_tick_fns *fns)
{
    p->now_ns = now_ns;
    /* memory for one large message is freed again */
    arena_trim(&p->decode, SCRATCH_KEEP_BYTES);
    arena_trim(&p->encode, SCRATCH_KEEP_BYTES);
    strbuf_trim(&p->frame, SCRATCH_KEEP_BYTES);
    /* the loop runs from the end, because a removal moves the last peer into the empty place */
    for (uint32_t i = p->n; i-- > 0;) {
        struct peer *x = p->all[i];
        uint64_t quiet = silence(x, now_ns);
        if (silence_is_over(&x->is_overdue, quiet, p->config.lost_ms * NS_PER_MS)) {
            fns->on_lost(fns->ctx, x);
            if (i > p->n)
                i = p->n; /* several peers were removed */
            continue;
        }
        if (!x->suspect && quiet >= p->config.suspect_ms * NS_PER_MS) {
            x->suspect = true;
            events_add(p->events, now_ns, LOG_WARN, "peer_suspect",
                       "role=%s node=%s instance=%016llx silent_ms=%llu", peer_role_name(x->role),
                       log_quote(x->node), (unsigned long long)x->instance,
                       (unsigned long long)(quiet / NS_PER_MS));
        }
        if (!x->open)
            continue;
        return_credit(p, x);
        if (now_ns - x->sent_ns >= heartbeat_ns(p, x)) {
            struct msg m = {.type = MSG_HEARTBEAT, .heartbeat = {.time_ns = now_ns}};
            if (fns->fill_heartbeat)
                fns->fill_heartbeat(fns->ctx, x, &m.heartbeat);
            /* if sending fails, the heartbeat is sent at the next tick */
            (void)!peers_send(p, x, &m);
        }
    }
}

void peers_forgive(struct peers *p, uint64_t ns)
{
    for (uint32_t i = 0; i < p->n; i++)
        p->all[i]->heard_ns += ns;
}
