/* Simulates a malicious peer with a valid key. tests/security/test_attacks.py runs this program
 * and reads its output. It connects to the head at ENDPOINT with the key of ROLE in KEYS_DIR,
 * makes one kind of attack and exits: 0 when the attack went as planned, 1 when not. Everything
 * runs in one thread and in the one connection `c`. Every attack is bounded by N, every wait by
 * WAIT_MS.
 *   hostile ENDPOINT KEYS_DIR ROLE ATTACK [N]
 *   matrix   prints for each role and message type whether the key of ROLE may use it
 *   garbage  N sessions with a valid header and a random body in the second frame
 *   huge     N frames that are larger than the limit
 *   flood    N Submits as a gateway, sent without waiting for answers
 *   lies     N results, errors and ends as a worker, for epochs of other replicas */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/keys/key_files.h"
#include "proto/codec/codec.h"
#include "proto/link/link.h"

enum { WAIT_MS = 30000, SEND_MS = 5000, ANSWER_BYTES = 1 << 20, N_IDS = 64, EPOCHS = 8 };
#define CREDIT_BYTES (8u << 20)

static struct {
    const char *endpoint, *keys_dir;
    enum peer_role key_role;
    void *context, *socket;
    struct link link;
    struct arena encode, decode;
    struct strbuf frame;
    struct rng rng;
    char said[256]; /* text of the last Refused or Goodbye */
} c;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "hostile: %s\n", what);
    exit(1);
}

static enum peer_role role_named(const char *name)
{
    for (int r = 0; r < ROLE_COUNT; r++)
        if (strcmp(name, peer_role_name((enum peer_role)r)) == 0)
            return (enum peer_role)r;
    die("no such role");
}

static void connect_anew(void)
{
    struct error err = {0};
    struct curve_keys ours;
    char server[41];
    int zero = 0, wait_ms = WAIT_MS, send_ms = SEND_MS;
    if (c.socket)
        zmq_close(c.socket);
    c.socket = zmq_socket(c.context, ZMQ_DEALER);
    if (keys_load(c.keys_dir, c.key_role, &ours, &err) != STATUS_OK ||
        keys_load_public(c.keys_dir, ROLE_HEAD, server, &err) != STATUS_OK)
        die(err.text);
    zmq_setsockopt(c.socket, ZMQ_CURVE_PUBLICKEY, ours.public_key, 41);
    zmq_setsockopt(c.socket, ZMQ_CURVE_SECRETKEY, ours.secret_key, 41);
    zmq_setsockopt(c.socket, ZMQ_CURVE_SERVERKEY, server, 41);
    zmq_setsockopt(c.socket, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(c.socket, ZMQ_SNDTIMEO, &send_ms, sizeof send_ms);
    zmq_setsockopt(c.socket, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
    if (zmq_connect(c.socket, c.endpoint) != 0)
        die(c.endpoint);
}

static bool send_msg(const struct msg *m)
{
    strbuf_reset(&c.frame);
    if (codec_encode(m, c.link.session, link_next_seq(&c.link), &c.encode, &c.frame) != STATUS_OK)
        die(msg_type_name(m->type)); /* codec_encode cannot encode the message */
    if (zmq_send(c.socket, c.frame.ptr, c.frame.len, 0) < 0)
        return false;
    link_sent(&c.link, m->type, c.frame.len);
    return true;
}

/* Writes a frame into `c.frame`: a header with the valid session and the number `seq`, and any
 * body. */
static void put_raw(enum msg_type type, uint64_t seq, const void *body, uint32_t n)
{
    uint8_t h[FRAME_HEADER_BYTES] = {'C', 'X', PROTOCOL_MAJOR, PROTOCOL_MINOR, (uint8_t)type};
    for (int i = 0; i < 8; i++) {
        h[8 + i] = (uint8_t)(c.link.session >> (8 * i));
        h[16 + i] = (uint8_t)(seq >> (8 * i));
    }
    for (int i = 0; i < 4; i++)
        h[24 + i] = (uint8_t)(n >> (8 * i));
    strbuf_reset(&c.frame);
    strbuf_append(&c.frame, h, sizeof h);
    strbuf_append(&c.frame, body, n);
}

static bool send_raw(enum msg_type type, const void *body, uint32_t n)
{
    put_raw(type, link_next_seq(&c.link), body, n);
    if (zmq_send(c.socket, c.frame.ptr, c.frame.len, 0) < 0)
        return false;
    link_sent(&c.link, type, c.frame.len);
    return true;
}

/* Returns whether `body` happens to be a valid message of this type. Zero bytes are valid (every
 * field is left out), and so is an unknown tag with a number after it. */
static bool is_message(enum msg_type type, const void *body, uint32_t n)
{
    struct frame_header h;
    struct error err;
    struct msg m;
    put_raw(type, 0, body, n);
    struct str frame = {c.frame.ptr, c.frame.len};
    arena_reset(&c.decode);
    return frame_parse_header(frame, &h, &err) == STATUS_OK &&
           codec_decode(frame, &h, &c.decode, &m, &err) == STATUS_OK;
}

/* Receives the next frame. Returns MSG_NONE when none arrives in time. */
static enum msg_type receive(struct frame_header *h, struct msg *m)
{
    static char buf[ANSWER_BYTES];
    struct error err;
    int n = zmq_recv(c.socket, buf, sizeof buf, 0);
    if (n < 0 || n > (int)sizeof buf)
        return MSG_NONE;
    struct str frame = {buf, (size_t)n};
    arena_reset(&c.decode);
    if (frame_parse_header(frame, h, &err) != STATUS_OK ||
        codec_decode(frame, h, &c.decode, m, &err) != STATUS_OK)
        die(err.text);
    if (m->type == MSG_REFUSED)
        snprintf(c.said, sizeof c.said, STR_FMT, STR_ARG(m->refused.text));
    if (m->type == MSG_GOODBYE)
        snprintf(c.said, sizeof c.said, STR_FMT, STR_ARG(m->goodbye.text));
    return m->type;
}

/* Opens a new connection and sends a Hello with the role `said`. Returns false when the head
 * refuses it. */
static bool greet(enum peer_role said)
{
    static const struct kv_group kv = {
        .kind = KV_FULL, .block_tokens = 16, .bytes_per_block = 1024, .n_blocks = 64};
    struct frame_header h;
    struct msg m, hello = {.type = MSG_HELLO,
                           .hello = {.node = STR("hostile"),
                                     .instance = rng_next(&c.rng),
                                     .role = said,
                                     .version = STR("0"),
                                     .credit_bytes = CREDIT_BYTES}};
    if (said == ROLE_WORKER) {
        hello.hello.has_worker = true;
        hello.hello.worker = (struct worker_info){.host = STR("hostile"),
                                                  .ordinal = -1,
                                                  .tp = 2,
                                                  .pp = 1,
                                                  .shard_rank = -1,
                                                  .shard_stage = -1,
                                                  .model = STR("hostile"),
                                                  .max_model_len = 512,
                                                  .vocab_size = 300,
                                                  .kv_groups = &kv,
                                                  .n_kv_groups = 1};
    }
    connect_anew();
    link_init(&c.link, CREDIT_BYTES);
    if (!send_msg(&hello))
        die("no connection");
    switch (receive(&h, &m)) {
    case MSG_WELCOME:
        link_open(&c.link, h.session, m.welcome.credit_bytes);
        return true;
    case MSG_REFUSED:
        return false;
    default:
        die("neither Welcome nor Refused");
    }
}

/* Waits for the head's Goodbye. Returns false when none arrives. */
static bool wait_goodbye(void)
{
    struct frame_header h;
    struct msg m;
    for (uint64_t end = clock_mono_ns() + WAIT_MS * NS_PER_MS; clock_mono_ns() < end;) {
        enum msg_type t = receive(&h, &m);
        if (t == MSG_NONE || t == MSG_GOODBYE)
            return t == MSG_GOODBYE;
    }
    return false;
}

/* Sends the type under test and then a Welcome, which no peer may send. The head's refusal names
 * the first of the two types that it does not accept. */
static void matrix(void)
{
    for (int r = ROLE_NONE + 1; r < ROLE_COUNT; r++) {
        bool ok = greet((enum peer_role)r);
        printf("hello %s %s\n", peer_role_name((enum peer_role)r), ok ? "welcome" : c.said);
    }
    for (int t = MSG_HELLO + 1; t < MSG_TYPE_COUNT; t++) {
        char refusal[64];
        if (!greet(c.key_role))
            die(c.said);
        send_raw((enum msg_type)t, "", 0);
        send_raw(MSG_WELCOME, "", 0);
        bool bye = t != MSG_GOODBYE && wait_goodbye();
        snprintf(refusal, sizeof refusal, "must not send the message %s",
                 msg_type_name((enum msg_type)t));
        bool refused = t == MSG_WELCOME || t == MSG_REFUSED ? bye : bye && strstr(c.said, refusal);
        printf("type %s %s\n", msg_type_name((enum msg_type)t), refused ? "refused" : "allowed");
    }
}

static void garbage(uint64_t n)
{
    static uint8_t noise[4096];
    const enum msg_type type = c.key_role == ROLE_GATEWAY ? MSG_SUBMIT : MSG_RESULT;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t len;
        if (!greet(c.key_role))
            die(c.said);
        do {
            len = (uint32_t)(rng_next(&c.rng) % sizeof noise);
            for (size_t k = 0; k < len; k++)
                noise[k] = (uint8_t)rng_next(&c.rng);
        } while (is_message(type, noise, len));
        send_raw(type, noise, len);
        if (!wait_goodbye()) {
            for (uint32_t k = 0; k < len; k++)
                fprintf(stderr, "%02x", noise[k]);
            die("noise was taken: the bytes above");
        }
    }
}

static void huge(uint64_t n)
{
    const uint32_t size = FRAME_MAX_BYTES + 4096;
    char *body = calloc(1, size);
    if (!body)
        die("no memory");
    for (uint64_t i = 0; i < n; i++) {
        if (!greet(c.key_role))
            die(c.said);
        strbuf_reset(&c.frame);
        zmq_send(c.socket, body, size, 0);
        usleep(100000); /* this wait gives time to send as much of the frame as the head accepts */
    }
    free(body);
}

static void flood(uint64_t n)
{
    uint32_t ids[N_IDS];
    uint64_t sent = 0;
    for (uint32_t i = 0; i < N_IDS; i++)
        ids[i] = i % 200;
    if (!greet(ROLE_GATEWAY))
        die(c.said);
    for (uint64_t i = 0; i < n; i++)
        sent += send_msg(&(struct msg){.type = MSG_SUBMIT,
                                       .submit = {.id = {rng_next(&c.rng), i},
                                                  .attempt = 1,
                                                  .tenant = 66,
                                                  .n_prompt = N_IDS,
                                                  .ids = {ids, N_IDS},
                                                  .sampling = {.top_p = 1,
                                                               .repetition_penalty = 1,
                                                               .n_logprobs = -1,
                                                               .n_prompt_logprobs = -1,
                                                               .max_tokens = 400}}});
    printf("sent %llu\n", (unsigned long long)sent);
    usleep(500000);
}

/* Sends messages with epochs that other replicas have, may have next, or never had, and with
 * steps chosen in the same way. */
static void lies(uint64_t n)
{
    static const uint32_t token[] = {65};
    static const float gap[] = {1};
    for (uint64_t i = 0; i < n; i++) {
        uint64_t epoch = ((rng_next(&c.rng) % EPOCHS) << 32) | (rng_next(&c.rng) % EPOCHS);
        uint64_t step = rng_next(&c.rng) % 2000;
        const struct result_item items[] = {{.ids = {token, 1}, .gaps = {gap, 1}},
                                            {.slot = 1, .ids = {token, 1}, .gaps = {gap, 1}}};
        const struct msg all[] = {
            {.type = MSG_RESULT,
             .result = {.term_epoch = epoch, .step = step, .items = items, .n_items = 2}},
            {.type = MSG_GAP, .gap = {.term_epoch = epoch, .last_step = step, .text = STR("lie")}},
            {.type = MSG_FORMED, .formed = {.term_epoch = epoch}},
            {.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}},
            {.type = MSG_COMM_ERROR, .comm_error = {.term_epoch = epoch, .text = STR("lie")}},
            {.type = MSG_HEARTBEAT,
             .heartbeat = {.term_epoch = epoch, .step_received = step, .step_executed = step}}};
        if (i % 50 == 0 && !greet(ROLE_WORKER))
            die(c.said);
        if (!send_msg(&all[i % (sizeof all / sizeof *all)]))
            die("a lie did not go out");
    }
    usleep(300000);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr,
                "usage: hostile ENDPOINT KEYS_DIR ROLE matrix|garbage|huge|flood|lies [N]\n");
        return 2;
    }
    uint64_t n = argc > 5 ? strtoull(argv[5], NULL, 10) : 1;
    c.endpoint = argv[1];
    c.keys_dir = argv[2];
    c.key_role = role_named(argv[3]);
    c.context = zmq_ctx_new();
    c.rng = (struct rng){clock_mono_ns()};
    arena_init(&c.encode, 0);
    arena_init(&c.decode, 64 << 20);
    strbuf_init(&c.frame, 2 * FRAME_MAX_BYTES);
    if (strcmp(argv[4], "matrix") == 0)
        matrix();
    else if (strcmp(argv[4], "garbage") == 0)
        garbage(n);
    else if (strcmp(argv[4], "huge") == 0)
        huge(n);
    else if (strcmp(argv[4], "flood") == 0)
        flood(n);
    else if (strcmp(argv[4], "lies") == 0)
        lies(n);
    else
        die("no such attack");
    zmq_close(c.socket);
    zmq_ctx_term(c.context);
    arena_fini(&c.encode);
    arena_fini(&c.decode);
    strbuf_fini(&c.frame);
    return 0;
}
