/* Computes the latency of each token from the head to the client. The head's step log has the
 * results with the time at which the head read each result from its socket (CLOCK_MONOTONIC,
 * like the client's times). Slots of the log and answers of the client are matched by their
 * tokens: prompts differ, so no two answers are the same. Tokens that a gateway lost or changed
 * would match nothing and end the program. */
#include "bench/gateway_load/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/die.h"
#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/base/order.h"
#include "head/record/read.h"

enum { SLOTS_MAX = 1 << 16, PLAN_LIMIT_BYTES = 64 << 20 };

struct sequence {
    char *text;
    uint64_t *time_ns;
    uint32_t n;
};

struct trace {
    uint32_t n_tokens;
    uint32_t of_slot[SLOTS_MAX]; /* index + 1 of the sequence in this slot; 0 = none */
    struct sequence *items;
    uint32_t n, cap;
};

static void admit(struct trace *t, uint32_t slot)
{
    if (slot >= SLOTS_MAX)
        bench_die("step log: slot %u", slot);
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 256;
        t->items = mem_realloc(t->items, t->cap * sizeof *t->items);
    }
    t->items[t->n++] = (struct sequence){.text = mem_array(t->n_tokens, 1),
                                         .time_ns = mem_array(t->n_tokens, sizeof(uint64_t))};
    t->of_slot[slot] = t->n;
}

static void on_plan(struct trace *t, const struct step_log_event *e, struct arena *arena)
{
    struct msg_plan plan;
    struct error err = {0};
    arena_reset(arena);
    if (step_log_get_plan(e->plan, arena, &plan, &err) != STATUS_OK)
        bench_die("step log: %s", err.text);
    for (uint32_t i = 0; i < plan.n_admits; i++)
        admit(t, plan.admits[i].slot);
}

static void on_result(struct trace *t, const struct step_log_event *e)
{
    for (uint32_t i = 0; i < e->result.n_items; i++) {
        const struct result_item *r = &e->result.items[i];
        if (r->slot >= SLOTS_MAX || t->of_slot[r->slot] == 0)
            bench_die("step log: a result for slot %u, which has no sequence", r->slot);
        struct sequence *q = &t->items[t->of_slot[r->slot] - 1];
        for (uint32_t k = 0; k < r->ids.n && q->n < t->n_tokens; k++) {
            q->text[q->n] = (char)r->ids.ptr[k];
            q->time_ns[q->n++] = e->now_ns;
        }
    }
}

static void read_log(struct trace *t, const char *path)
{
    struct step_log_reader *r = NULL;
    struct step_log_event e;
    struct error err = {0};
    struct arena arena;
    enum status s = step_log_open(path, &r, &err);
    arena_init(&arena, PLAN_LIMIT_BYTES);
    while (s == STATUS_OK && (s = step_log_next(r, &e, &err)) == STATUS_OK) {
        if (e.kind == STEP_LOG_PLAN)
            on_plan(t, &e, &arena);
        else if (e.kind == STEP_LOG_RESULT)
            on_result(t, &e);
    }
    if (s != STATUS_CLOSED)
        bench_die("step log %s: %s", path, err.text);
    step_log_close(r);
    arena_fini(&arena);
}

/* ---- pairs ---- */

static uint32_t key_bytes;

static int by_text(const void *a, const void *b)
{
    return memcmp(((const struct sequence *)a)->text, ((const struct sequence *)b)->text,
                  key_bytes);
}

void load_trace_print(const struct load *l)
{
    struct trace *t = mem_zalloc(sizeof *t);
    uint64_t n = 0;
    t->n_tokens = key_bytes = l->o.n_tokens;
    read_log(t, l->o.step_log);
    qsort(t->items, t->n, sizeof *t->items, by_text);
    double *us = mem_array((size_t)l->n_recorded * key_bytes + 1, sizeof *us);
    for (uint32_t i = 0; i < l->n_recorded; i++) {
        const struct load_answer *a = &l->answers[i];
        struct sequence want = {.text = a->text};
        const struct sequence *q = bsearch(&want, t->items, t->n, sizeof *t->items, by_text);
        if (!q)
            bench_die("an answer that the head's step log does not have");
        for (uint32_t k = 0; k < key_bytes; k++)
            us[n++] = ((double)a->time_ns[k] - (double)q->time_ns[k]) / 1e3;
    }
    if (n == 0)
        bench_die("no answer began and ended while it was recorded: more --seconds are wanted");
    qsort(us, n, sizeof *us, order_doubles);
    printf(",\"added_us\":{\"tokens\":%llu,\"least\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,"
           "\"p999\":%.1f,\"most\":%.1f}",
           (unsigned long long)n, us[0], us[n / 2], us[n * 9 / 10], us[n * 99 / 100],
           us[n * 999 / 1000], us[n - 1]);
    for (uint32_t i = 0; i < t->n; i++) {
        mem_free(t->items[i].text);
        mem_free(t->items[i].time_ns);
    }
    mem_free(t->items);
    mem_free(t);
    mem_free(us);
}
