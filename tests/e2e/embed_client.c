/* Implements a minimal gateway for test_pooling.py: it sends pooling requests to the head and
 * prints the answers.
 *   embed_client ENDPOINT KEYS_DIR < REQUESTS
 * A request is a line "last|mean|none 0|1 ID ID ..", where 1 = normalised. All requests are sent
 * at once. Each answer is a line of JSON, in the order of the requests. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/keys/key_files.h"
#include "proto/codec/codec.h"
#include "proto/link/link.h"

enum { MAX_REQUESTS = 64, MAX_IDS = 4096, POLL_MS = 100, BEAT_MS = 250, GIVE_UP_S = 60 };
#define CREDIT_BYTES (8u << 20)

static struct {
    void *socket;
    struct link link;
    struct arena encode, decode;
    struct strbuf frame;
    char *answers[MAX_REQUESTS];
    uint32_t n_requests, n_answers;
} c;

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "embed_client: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static void send_msg(const struct msg *m)
{
    strbuf_reset(&c.frame);
    if (codec_encode(m, c.link.session, link_next_seq(&c.link), &c.encode, &c.frame) != STATUS_OK)
        die("cannot encode a %s", msg_type_name(m->type));
    if (zmq_send(c.socket, c.frame.ptr, c.frame.len, 0) < 0)
        die("a send: %s", zmq_strerror(zmq_errno()));
    link_sent(&c.link, m->type, c.frame.len);
}

static void connect_to(const char *endpoint, const char *keys_dir)
{
    struct error err = {0};
    struct curve_keys ours;
    char server[41];
    c.socket = zmq_socket(zmq_ctx_new(), ZMQ_DEALER);
    if (keys_load(keys_dir, ROLE_GATEWAY, &ours, &err) != STATUS_OK ||
        keys_load_public(keys_dir, ROLE_HEAD, server, &err) != STATUS_OK)
        die("%s", err.text);
    zmq_setsockopt(c.socket, ZMQ_CURVE_PUBLICKEY, ours.public_key, 41);
    zmq_setsockopt(c.socket, ZMQ_CURVE_SECRETKEY, ours.secret_key, 41);
    zmq_setsockopt(c.socket, ZMQ_CURVE_SERVERKEY, server, 41);
    if (zmq_connect(c.socket, endpoint) != 0)
        die("%s: %s", endpoint, zmq_strerror(zmq_errno()));
    send_msg(&(struct msg){.type = MSG_HELLO,
                           .hello = {.node = STR("embed_client"),
                                     .instance = (uint64_t)time(NULL) << 20 | (uint64_t)clock(),
                                     .role = ROLE_GATEWAY,
                                     .version = STR(COX_VERSION),
                                     .credit_bytes = CREDIT_BYTES}});
}

static void submit(char *line)
{
    static uint32_t ids[MAX_IDS];
    static const char *const kinds[POOLING_COUNT] = {"none", "last", "mean"};
    char *save, *word = strtok_r(line, " \n", &save), *normalise = strtok_r(NULL, " \n", &save);
    uint32_t n = 0, kind = 0;
    if (!word || !normalise || c.n_requests == MAX_REQUESTS)
        die("a line that is no request, or one too many");
    while (kind < POOLING_COUNT && strcmp(word, kinds[kind]) != 0)
        kind++;
    for (char *id; (id = strtok_r(NULL, " \n", &save)) && n < MAX_IDS;)
        ids[n++] = (uint32_t)strtoul(id, NULL, 10);
    send_msg(&(struct msg){.type = MSG_SUBMIT,
                           .submit = {.id = {7, c.n_requests++},
                                      .attempt = 1,
                                      .tenant = 1,
                                      .n_prompt = n,
                                      .ids = {ids, n},
                                      .sampling = {.top_p = 1,
                                                   .repetition_penalty = 1,
                                                   .n_logprobs = -1,
                                                   .n_prompt_logprobs = -1,
                                                   .max_tokens = 4,
                                                   .pooling = (enum pooling_kind)kind,
                                                   .pooling_normalise = normalise[0] == '1'}}});
}

static void submit_all(void)
{
    static char line[MAX_IDS * 12];
    while (fgets(line, sizeof line, stdin))
        submit(line);
}

static void on_item(const struct tokens_item *t)
{
    struct strbuf b;
    if (t->finish == FINISH_NONE || t->id.lo >= c.n_requests || c.answers[t->id.lo])
        return;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "{\"finish\":\"%s\",\"n_ids\":%u,\"n_cached\":%u,\"text\":",
                  finish_reason_name(t->finish), t->start + t->ids.n, t->n_cached);
    strbuf_append_json(&b, t->text);
    strbuf_printf(&b, ",\"vector\":[");
    for (uint32_t i = 0; i < t->vector.n; i++)
        strbuf_printf(&b, "%s%.9g", i ? "," : "", (double)t->vector.ptr[i]);
    strbuf_printf(&b, "]}");
    c.answers[t->id.lo] = b.ptr; /* the answer is printed at the end */
    c.n_answers++;
}

static void on_msg(const struct frame_header *h, const struct msg *m)
{
    if (m->type == MSG_WELCOME) {
        link_open(&c.link, h->session, m->welcome.credit_bytes);
        submit_all();
    } else if (m->type == MSG_TOKENS) {
        for (uint32_t i = 0; i < m->tokens.n_items; i++)
            on_item(&m->tokens.items[i]);
    } else if (m->type == MSG_REFUSED) {
        die("refused: " STR_FMT, STR_ARG(m->refused.text));
    } else if (m->type == MSG_GOODBYE) {
        die("goodbye: " STR_FMT, STR_ARG(m->goodbye.text));
    }
}

static void receive(void)
{
    zmq_msg_t part;
    struct frame_header h;
    struct msg m;
    struct error err = {0};
    zmq_msg_init(&part);
    while (zmq_msg_recv(&part, c.socket, ZMQ_DONTWAIT) >= 0) {
        struct str frame = {zmq_msg_data(&part), zmq_msg_size(&part)};
        arena_reset(&c.decode);
        if (frame_parse_header(frame, &h, &err) != STATUS_OK ||
            link_received(&c.link, &h, &err) != STATUS_OK ||
            codec_decode(frame, &h, &c.decode, &m, &err) != STATUS_OK)
            die("a frame of the head: %s", err.text);
        on_msg(&h, &m);
    }
    zmq_msg_close(&part);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: embed_client ENDPOINT KEYS_DIR < REQUESTS");
    arena_init(&c.encode, 0);
    arena_init(&c.decode, 0);
    strbuf_init(&c.frame, 0);
    link_init(&c.link, CREDIT_BYTES);
    connect_to(argv[1], argv[2]);
    time_t end = time(NULL) + GIVE_UP_S;
    for (uint32_t waited_ms = 0; c.n_requests == 0 || c.n_answers < c.n_requests;) {
        zmq_pollitem_t item = {.socket = c.socket, .events = ZMQ_POLLIN};
        zmq_poll(&item, 1, POLL_MS);
        receive();
        waited_ms += POLL_MS;
        if (c.link.session != 0 && waited_ms >= BEAT_MS) {
            send_msg(&(struct msg){.type = MSG_HEARTBEAT});
            waited_ms = 0;
        }
        if (time(NULL) > end)
            die("%u of %u answers after %d s", c.n_answers, c.n_requests, GIVE_UP_S);
    }
    for (uint32_t i = 0; i < c.n_requests; i++)
        puts(c.answers[i]);
    send_msg(&(struct msg){.type = MSG_GOODBYE, .goodbye = {.text = STR("done")}});
    zmq_close(c.socket);
    return 0;
}
