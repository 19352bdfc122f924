/* Implements scale_peers: all workers and gateways of a large cluster, for bench/scale. The
 * script starts this program, sends commands as lines on its stdin, and reads the lines that it
 * prints.
 *
 *   scale_peers --endpoint tcp://HOST:PORT [--keys-dir DIR] [--groups 125] [--tp 8] [--seqs 32]
 *               [--gateways 2] [--step-us 25000] [--prompt-token-us 10]
 *               [--prompt 1024] [--cached 512] [--least 128] [--most 512]
 *   load   submit the streams to be kept running    count   print the counts as JSON
 *
 * "ready" is printed when every replica serves. The end of stdin ends the program. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench/die.h"
#include "bench/large_cluster/gateways.h"
#include "bench/large_cluster/peers.h"
#include "bench/large_cluster/ranks.h"
#include "bench/large_cluster/send.h"
#include "bench/large_cluster/wire.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/version.h"

enum { BEAT_MS = 250, BATCH_FRAMES = 64, CONNECTING_MAX = 16, READY_S = 60, TIMER_SLACK_NS = 1000 };
#define WINDOW_BYTES (32ull << 20)

/* ---- frames ---- */

static void on_link_msg(struct scale *s, uint32_t i_peer, const struct frame_header *h,
                        const struct msg *m)
{
    struct link *l = &s->peers[i_peer].link;
    switch (m->type) {
    case MSG_WELCOME:
        link_open(l, h->session, m->welcome.credit_bytes);
        s->n_welcomed++;
        break;
    case MSG_CREDIT:
        link_credit(l, m->credit.bytes);
        break;
    case MSG_HEARTBEAT:
        s->counts.n_beats++;
        break;
    case MSG_REFUSED:
        bench_die("refused: " STR_FMT, STR_ARG(m->refused.text));
    case MSG_GOODBYE:
        bench_die("goodbye: " STR_FMT, STR_ARG(m->goodbye.text));
    default:
        if (i_peer < s->n_workers)
            scale_ranks_on_msg(s, i_peer, m);
        else
            scale_gateways_on_msg(s, i_peer - s->n_workers, m);
    }
}

static void on_frame(struct scale *s, uint32_t i_peer, struct str frame)
{
    struct link *l = &s->peers[i_peer].link;
    struct frame_header h;
    struct msg m;
    struct error err = {0};
    uint64_t bytes = 0;
    s->counts.n_frames++;
    if (frame_parse_header(frame, &h, &err) != STATUS_OK || link_received(l, &h, &err) != STATUS_OK)
        bench_die("a frame of the head: %s", err.text);
    if (h.type == MSG_PLAN) {
        scale_ranks_on_plan(s, i_peer, frame, &h);
    } else {
        arena_reset(&s->decode);
        if (codec_decode(frame, &h, &s->decode, &m, &err) != STATUS_OK)
            bench_die("a frame of the head: %s", err.text);
        on_link_msg(s, i_peer, &h, &m);
    }
    if (link_consumed(l, h.type, frame.len, &bytes)) {
        struct msg credit = {.type = MSG_CREDIT, .credit = {.bytes = bytes}};
        scale_send(s, i_peer, &credit);
    }
}

static void drain(struct scale *s)
{
    uint32_t i_peer;
    struct str frame;
    for (int n = 0; n < BATCH_FRAMES; n++) {
        if (scale_wire_receive(s->wire, &i_peer, &frame) != STATUS_OK)
            return;
        if (i_peer >= s->n_peers)
            bench_die("a message of nobody");
        on_frame(s, i_peer, frame);
    }
}

/* Connects more peers, a limited number at a time, as fast as the head accepts them. */
static void connect_more(struct scale *s)
{
    for (; s->n_connected < s->n_peers && s->n_connected - s->n_welcomed < CONNECTING_MAX;
         s->n_connected++) {
        uint32_t i = s->n_connected;
        enum peer_role role = i < s->n_workers ? ROLE_WORKER : ROLE_GATEWAY;
        struct msg m = {.type = MSG_HELLO,
                        .hello = {.node = STR("gateway"),
                                  .instance = s->peers[i].instance,
                                  .role = role,
                                  .version = STR(COX_VERSION),
                                  .credit_bytes = WINDOW_BYTES}};
        if (role == ROLE_WORKER)
            scale_ranks_hello(s, i, &m.hello);
        scale_wire_connect(s->wire, &s->o, i, role);
        scale_send(s, i, &m);
    }
}

/* ---- time ---- */

/* Sends the heartbeats that are due, spread evenly over their interval. Returns the time of the
 * next heartbeat. */
static uint64_t beat(struct scale *s, uint64_t begin_ns)
{
    static uint64_t n_done;
    for (;; n_done++) {
        uint64_t due_ns = begin_ns + n_done * BEAT_MS * NS_PER_MS / s->n_peers;
        if (due_ns > s->now_ns)
            return due_ns;
        uint32_t i = (uint32_t)(n_done % s->n_peers);
        struct msg m = {.type = MSG_HEARTBEAT, .heartbeat = {.time_ns = s->now_ns}};
        if (s->peers[i].link.session == 0)
            continue;
        if (i < s->n_workers)
            scale_ranks_beat(s, i, &m.heartbeat);
        scale_send(s, i, &m);
    }
}

static void print_counts(const struct scale *s)
{
    const struct scale_counts *c = &s->counts;
    printf("{\"tokens\":%llu,\"requests\":%llu,\"steps\":%llu,\"plans\":%llu,\"plan_bytes\":%llu,"
           "\"beats\":%llu,\"frames\":%llu,\"late\":%llu,\"late_ns\":%llu,\"lag_ns\":%llu,"
           "\"aborts\":%llu}\n",
           (unsigned long long)c->n_tokens, (unsigned long long)c->n_requests,
           (unsigned long long)c->n_steps, (unsigned long long)c->n_plans,
           (unsigned long long)c->n_plan_bytes, (unsigned long long)c->n_beats,
           (unsigned long long)c->n_frames, (unsigned long long)c->n_late,
           (unsigned long long)c->late_ns, (unsigned long long)c->lag_ns,
           (unsigned long long)c->n_aborts);
    fflush(stdout);
}

/* Returns false at the end of stdin. */
static bool on_stdin(struct scale *s)
{
    char line[64];
    ssize_t n = read(STDIN_FILENO, line, sizeof line - 1);
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    line[n] = '\0';
    if (strcmp(line, "load\n") == 0)
        scale_gateways_start(s);
    else if (strcmp(line, "count\n") == 0)
        print_counts(s);
    else
        bench_die("unknown: %s", line);
    return true;
}

static void run(struct scale *s)
{
    struct pollfd fds[] = {{.fd = scale_wire_fd(s->wire), .events = POLLIN},
                           {.fd = STDIN_FILENO, .events = POLLIN}};
    uint64_t begin_ns = clock_mono_ns();
    bool was_ready = false;
    for (;;) {
        s->now_ns = clock_mono_ns();
        connect_more(s);
        drain(s);
        uint64_t next_ns = scale_ranks_run(s), beat_ns = beat(s, begin_ns);
        if (!was_ready && s->n_replicas_ready == s->o.n_replicas) {
            was_ready = true;
            printf("ready %.2f\n", (double)(s->now_ns - begin_ns) / (double)NS_PER_S);
            fflush(stdout);
        }
        if (!was_ready && s->now_ns - begin_ns > READY_S * NS_PER_S)
            bench_die("%u of %u groups serve after %d s", s->n_replicas_ready, s->o.n_replicas,
                      READY_S);
        next_ns = beat_ns < next_ns ? beat_ns : next_ns;
        uint64_t now_ns = clock_mono_ns();
        uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
        if (scale_wire_has_input(s->wire))
            wait_ns = 0;
        const struct timespec t = {(time_t)(wait_ns / NS_PER_S), (long)(wait_ns % NS_PER_S)};
        if (ppoll(fds, 2, &t, NULL) > 0 && fds[1].revents && !on_stdin(s))
            return;
    }
}

/* ---- options ---- */

enum {
    ENDPOINT,
    KEYS,
    REPLICAS,
    TP,
    SEQS,
    GATEWAYS,
    STEP,
    PROMPT_TOKEN,
    PROMPT,
    CACHED,
    LEAST,
    MOST
};

static uint32_t number(const char *text)
{
    uint64_t n = 0;
    if (str_to_u64(str_from(text), &n) != STATUS_OK || n > UINT32_MAX)
        bench_die("%s is no number", text);
    return (uint32_t)n;
}

static void parse(int argc, char **argv, struct scale_options *o)
{
    static const struct option rows[] = {{"endpoint", 1, NULL, ENDPOINT},
                                         {"keys-dir", 1, NULL, KEYS},
                                         {"groups", 1, NULL, REPLICAS},
                                         {"tp", 1, NULL, TP},
                                         {"seqs", 1, NULL, SEQS},
                                         {"gateways", 1, NULL, GATEWAYS},
                                         {"step-us", 1, NULL, STEP},
                                         {"prompt-token-us", 1, NULL, PROMPT_TOKEN},
                                         {"prompt", 1, NULL, PROMPT},
                                         {"cached", 1, NULL, CACHED},
                                         {"least", 1, NULL, LEAST},
                                         {"most", 1, NULL, MOST},
                                         {0}};
    for (int i; (i = getopt_long(argc, argv, "", rows, NULL)) != -1;) {
        uint32_t *const numbers[] = {[REPLICAS] = &o->n_replicas,  [TP] = &o->tp,
                                     [SEQS] = &o->n_seqs,          [GATEWAYS] = &o->n_gateways,
                                     [PROMPT] = &o->prompt_tokens, [CACHED] = &o->cached_tokens,
                                     [LEAST] = &o->least_tokens,   [MOST] = &o->most_tokens};
        if (i == '?')
            exit(2);
        else if (i == ENDPOINT)
            o->endpoint = optarg;
        else if (i == KEYS)
            o->keys_dir = optarg;
        else if (i == STEP)
            o->step_ns = number(optarg) * 1000ull;
        else if (i == PROMPT_TOKEN)
            o->prompt_token_ns = number(optarg) * 1000ull;
        else
            *numbers[i] = number(optarg);
    }
    if (!o->endpoint || o->n_gateways == 0 || o->tp == 0 || o->n_replicas == 0 ||
        o->cached_tokens > o->prompt_tokens || o->least_tokens == 0 ||
        o->most_tokens < o->least_tokens)
        bench_die("see the head of bench/large_cluster/main.c");
}

int main(int argc, char **argv)
{
    struct scale s = {.o = {.n_replicas = 125,
                            .tp = 8,
                            .n_gateways = 2,
                            .n_seqs = 32,
                            .prompt_tokens = 1024,
                            .cached_tokens = 512,
                            .least_tokens = 128,
                            .most_tokens = 512,
                            .step_ns = 25 * NS_PER_MS,
                            .prompt_token_ns = 10000},
                      .rng = {1}};
    parse(argc, argv, &s.o);
    log_init("scale", LOG_WARN, LOG_LOGFMT);
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    s.n_workers = s.o.n_replicas * s.o.tp;
    s.n_peers = s.n_workers + s.o.n_gateways;
    s.peers = mem_array(s.n_peers, sizeof *s.peers);
    for (uint32_t i = 0; i < s.n_peers; i++) {
        s.peers[i].instance = rng_next(&s.rng);
        link_init(&s.peers[i].link, WINDOW_BYTES);
    }
    arena_init(&s.encode, 0);
    arena_init(&s.decode, 0);
    strbuf_init(&s.frame, FRAME_MAX_BYTES);
    scale_ranks_open(&s);
    scale_gateways_open(&s);
    s.wire = scale_wire_open();
    run(&s);
    scale_wire_close(s.wire);
    scale_gateways_close(&s);
    scale_ranks_close(&s);
    arena_fini(&s.encode);
    arena_fini(&s.decode);
    strbuf_fini(&s.frame);
    mem_free(s.peers);
    return 0;
}
