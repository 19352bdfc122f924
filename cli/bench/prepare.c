#include "cli/bench/prepare.h"

#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/bench/interrupt.h"
#include "cli/bench/loopback.h"
#include "cli/bench/tokens.h"
#include "common/base/clock.h"

enum { PAUSE_MS = 200 };

int bench_fail(const char *owner, enum status s, const struct error *err)
{
    fprintf(stderr, "cox %s: %s\n", owner, err->text);
    return s == STATUS_INVALID || s == STATUS_UNSUPPORTED ? EXIT_USAGE : EXIT_FAILED;
}

/* Waits until the server answers /health. Any status below 500 counts, because other servers
 * have no /health. */
static enum status wait_for_server(const struct bench_target *t, double ready_s, struct error *err)
{
    bool waits_here = ready_s >= 0, said = false;
    ready_s = waits_here ? ready_s : -ready_s;
    uint64_t end_ns = clock_mono_ns() + (uint64_t)(ready_s * 1e9);
    for (;;) {
        int code = 0;
        json_t *answer = NULL;
        enum status s = bench_target_ask(t, "/health", NULL, &code, &answer, err);
        json_decref(answer);
        if (s == STATUS_OK && code < 500)
            return STATUS_OK;
        if (s == STATUS_OK)
            s = error_set(
                err, STATUS_IO,
                "the server is not ready: %s/health answered with status %d. See the server's log",
                t->base, code);
        if (bench_is_interrupted())
            return error_set(err, STATUS_CLOSED, "the command was interrupted by a signal");
        bool passes = s == STATUS_IO || s == STATUS_TIMEOUT;
        if (s == STATUS_IO && code == 0 && !waits_here && !t->gateway.uds)
            passes = !bench_is_closed_here(t->base);
        if (!passes || clock_mono_ns() + PAUSE_MS * NS_PER_MS >= end_ns)
            return s;
        if (!said)
            fprintf(stderr, "cox %s: %s. Waiting up to %.0f s (--ready-check-timeout-sec)\n",
                    t->owner, err->text, ready_s);
        said = true;
        (void)usleep(PAUSE_MS * 1000);
    }
}

enum status bench_connect(struct bench_target *target, const struct bench_access *a,
                          const char *endpoint, bool is_chat, double ready_s, const char *owner,
                          struct error *err)
{
    char url[300];
    struct gateway_access g = a->gateway;
    if (!g.url) {
        bool is_v6 = strchr(a->host, ':') != NULL && a->host[0] != '[';
        snprintf(url, sizeof url, is_v6 ? "http://[%.200s]:%d" : "http://%.200s:%d", a->host,
                 (int)a->port);
        g.url = url;
    }
    TRY(bench_target_open(target, &g, endpoint, is_chat, err));
    target->gateway.url = NULL; /* the URL is now in `base` */
    target->owner = owner;
    TRY(wait_for_server(target, ready_s, err));
    return bench_target_find_model(target, a->served_model_name ? a->served_model_name : a->model,
                                   err);
}

enum status bench_prepare(struct bench_prompts *out, const struct bench_target *target,
                          const struct bench_access *a, const struct bench_dataset_options *o,
                          struct error *err)
{
    struct bench_tokens *tokens = NULL;
    const char *path = a->tokenizer;
    if (!path && a->model && access(a->model, R_OK) == 0)
        path = a->model;
    TRY(bench_tokens_open(&tokens, path, target, err));
    enum status s = bench_dataset_load(o, tokens, out, err);
    bench_tokens_close(tokens);
    return s;
}
