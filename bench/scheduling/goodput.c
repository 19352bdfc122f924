/* Compares the goodput of our scheduler and of vLLM's policy in the same simulated replica.
 * Goodput is the share of requests whose first token arrives within a limit and whose following
 * tokens arrive fast enough on average. The table has a row for each scenario, and below it a
 * row for each tenant. Both schedulers get the same arrivals, costs of a step and budgets, with
 * two plans in flight; the time of their decisions is not counted. See bench/sim and
 * tests/sim/timed.h.
 *   bench_goodput [--seeds N] [--first SEED] [scenario ...] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "tests/sim/timed.h"

enum { MAX_LEN = 32768, SECONDS = 60 };

struct limits {
    uint64_t ttft_ns, tpot_ns;
};

struct scenario {
    const char *name, *says;
    const struct cost_model *cost;
    struct limits limits;
    struct scheduler_config scheduler;
    struct load_tenant tenants[LOAD_MAX_TENANTS];
    bool by_priority; /* vLLM's policy is that of --scheduling-policy priority */
    uint64_t loss_every_ns;
};

/* This is an H200 with 128 KiB of KV per token: 110 GB of its 141 GB are left for 52,000 blocks. */
#define H200_WITH(model, drafts, blocks)                                                           \
    .cost = (model), .limits = {500 * NS_PER_MS, 25 * NS_PER_MS},                                  \
    .scheduler = {.max_num_batched_tokens = 8192,                                                  \
                  .max_num_seqs = 256,                                                             \
                  .n_draft = (drafts),                                                             \
                  .kv_groups = {{.kind = KV_FULL, .block_tokens = 16, .n_blocks = (blocks)}}}
#define H200(blocks)       H200_WITH(&cost_h200_8b, 0, blocks)
#define H200_DRAFT(blocks) H200_WITH(&cost_h200_8b_draft, 3, blocks)
#define CHAT(who, rate)                                                                            \
    .name = (who), .per_second = (rate), .prompt = LOAD_SHAREGPT_PROMPT,                           \
    .answer = LOAD_SHAREGPT_ANSWER

static const struct scenario scenarios[] = {
    {"steady", "25 requests/s, lengths like ShareGPT's", H200(52000),
     .tenants = {{CHAT("chat", 25)}}},
    {"bursts", "three of 4/s, and 200 at once every 20, 24 and 28 s", H200(52000),
     .tenants = {{CHAT("a", 4), .burst_every_ns = 20 * NS_PER_S, .burst = 200},
                 {CHAT("b", 4), .burst_every_ns = 24 * NS_PER_S, .burst = 200},
                 {CHAT("c", 4), .burst_every_ns = 28 * NS_PER_S, .burst = 200}}},
    {"mixed tenants", "three of 4/s; a fourth sends 1,000 at once every 30 s", H200(52000),
     .tenants = {{CHAT("a", 4)},
                 {CHAT("b", 4)},
                 {CHAT("c", 4)},
                 {CHAT("flood", 0), .burst_every_ns = 30 * NS_PER_S, .burst = 1000}}},
    {"classes", "10/s of class 0 over the same flood in class 1; vLLM by priority", H200(52000),
     .by_priority = true,
     .tenants = {{CHAT("class 0", 10)},
                 {CHAT("class 1", 0), .priority = 1, .burst_every_ns = 30 * NS_PER_S,
                  .burst = 1000}}},
    {"shared prefixes", "4/s and 64 at once every 10 s, one of 20 system prompts of 2,000 tokens",
     H200(52000),
     .tenants = {{CHAT("chat", 4), .burst_every_ns = 10 * NS_PER_S, .burst = 64,
                  .n_system_prompts = 20, .system_tokens = 2000}}},
    {"agents", "64 at once every 10 s on the same fresh document of 10,000 tokens", H200(52000),
     .tenants = {{.name = "agents",
                  .burst_every_ns = 10 * NS_PER_S,
                  .burst = 64,
                  .prompt = {60, 0.5, 200},
                  .answer = {100, 0.5, 400},
                  .n_system_prompts = 100000,
                  .system_tokens = 10000}}},
    {"long and short", "15/s of chat, 1/s of 12,000 tokens and a short answer", H200(52000),
     .tenants = {{CHAT("chat", 15)},
                 {.name = "documents",
                  .per_second = 1,
                  .prompt = {12000, 0.3, 24000},
                  .answer = {150, 0.5, 500}}}},
    {"tight KV", "16/s, 800 blocks: 12,800 tokens for 256 sequences", H200(800),
     .tenants = {{CHAT("chat", 16)}}},
    {"choices", "4/s that want up to 8 answers each", H200(52000),
     .tenants = {{CHAT("chat", 4), .n_choices = 8}}},
    {"lost ranks", "15/s; a rank is lost every 15 s, which takes 1.5 s; vLLM's requests fail",
     H200(52000), .loss_every_ns = 15 * NS_PER_S, .tenants = {{CHAT("chat", 15)}}},
    {"timeouts", "12/s, 300 at once every 20 s; half give up after 5 s, 1 of 10 hangs up",
     H200(52000),
     .tenants = {{CHAT("chat", 12), .burst_every_ns = 20 * NS_PER_S, .burst = 300,
                  .deadline_permille = 500, .deadline_ms = 5000, .cancel_permille = 100}}},
    {"speculation", "40/s, 3 draft tokens of a 1B model, each right 7 times of 10",
     H200_DRAFT(52000), .tenants = {{CHAT("chat", 40)}}},
    {"draft tokens, tight KV", "the same, 24/s, 800 blocks", H200_DRAFT(800),
     .tenants = {{CHAT("chat", 24)}}},
    {"cpu demo", "1.2/s on two CPU cores", .cost = &cost_cpu_demo,
     .limits = {2 * NS_PER_S, 100 * NS_PER_MS},
     .scheduler = {.max_num_batched_tokens = 256,
                   .max_num_seqs = 64,
                   .kv_groups = {{.kind = KV_FULL, .block_tokens = 16, .n_blocks = 8000}}},
     .tenants = {{CHAT("chat", 1.2)}}},
};

struct times {
    double *ttft_ms, *tpot_ms;
    uint32_t n, n_tpot, n_good, n_requests, cap;
};

static void add_outcome(struct times *t, const struct limits *l, const struct timed_outcome *o)
{
    t->n_requests++;
    if (o->end != TIMED_DONE)
        return;
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 1024;
        t->ttft_ms = mem_realloc(t->ttft_ms, t->cap * sizeof *t->ttft_ms);
        t->tpot_ms = mem_realloc(t->tpot_ms, t->cap * sizeof *t->tpot_ms);
    }
    uint64_t ttft = o->first_ns - o->arrival_ns;
    uint64_t tpot = o->n_tokens > 1 ? (o->last_ns - o->first_ns) / (o->n_tokens - 1) : 0;
    t->ttft_ms[t->n++] = (double)ttft / 1e6;
    if (o->n_tokens > 1)
        t->tpot_ms[t->n_tpot++] = (double)tpot / 1e6;
    t->n_good += ttft <= l->ttft_ns && tpot <= l->tpot_ns;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double quantile(double *values, uint32_t n, double q)
{
    if (n == 0)
        return 0.0;
    qsort(values, n, sizeof *values, by_value);
    return values[(uint32_t)(q * (n - 1) + 0.5)];
}

static void print_pair(double ours, double theirs)
{
    printf("  %8.*f /%8.*f", ours < 100 ? 1 : 0, ours, theirs < 100 ? 1 : 0, theirs);
}

static void print_row(const char *name, struct times *ours, struct times *theirs)
{
    printf("%-18s %7u  %6.1f /%6.1f", name, ours->n_requests,
           100.0 * ours->n_good / ours->n_requests, 100.0 * theirs->n_good / theirs->n_requests);
    print_pair(quantile(ours->ttft_ms, ours->n, 0.5), quantile(theirs->ttft_ms, theirs->n, 0.5));
    print_pair(quantile(ours->ttft_ms, ours->n, 0.99), quantile(theirs->ttft_ms, theirs->n, 0.99));
    print_pair(quantile(ours->tpot_ms, ours->n_tpot, 0.5),
               quantile(theirs->tpot_ms, theirs->n_tpot, 0.5));
    print_pair(quantile(ours->tpot_ms, ours->n_tpot, 0.99),
               quantile(theirs->tpot_ms, theirs->n_tpot, 0.99));
}

/* Runs a scenario once. The results are [0] for all tenants and [1 + i] for tenant i. */
static bool run_one(const struct scenario *s, const struct policy_ops *policy, uint64_t seed,
                    struct times *times, uint64_t *n_preemptions)
{
    struct timed_config c = {
        .load = {.seed = seed, .duration_ns = SECONDS * NS_PER_S, .max_model_len = MAX_LEN},
        .cost = *s->cost,
        .scheduler = s->scheduler,
        .by_priority = s->by_priority,
        .loss_every_ns = s->loss_every_ns};
    struct timed_report r;
    struct error err;
    memcpy(c.load.tenants, s->tenants, sizeof c.load.tenants);
    while (c.load.n_tenants < LOAD_MAX_TENANTS && s->tenants[c.load.n_tenants].name)
        c.load.n_tenants++;
    c.scheduler.max_waiting = 100000;
    c.scheduler.max_model_len = MAX_LEN;
    c.scheduler.depth = 2;
    c.scheduler.enable_prefix_caching = true;
    c.scheduler.n_kv_groups = 1;
    c.scheduler.kv_groups[0].bytes_per_block = 1;
    if (!timed_run(&c, policy, &r, &err)) {
        fprintf(stderr, "%s: %s\n", s->name, err.text);
        timed_report_fini(&r);
        return false;
    }
    for (uint32_t i = 0; i < r.n; i++) {
        add_outcome(&times[0], &s->limits, &r.outcomes[i]);
        add_outcome(&times[1 + r.outcomes[i].i_tenant], &s->limits, &r.outcomes[i]);
    }
    *n_preemptions += r.n_preemptions;
    timed_report_fini(&r);
    return true;
}

/* Runs a scenario and prints its rows. *worse is increased when fewer requests of ours meet the
 * limits. */
static bool run_scenario(const struct scenario *s, uint64_t first, uint64_t n_seeds,
                         uint32_t *worse)
{
    static const struct policy_ops *policies[] = {&policy_cox, &policy_vllm};
    struct times times[2][1 + LOAD_MAX_TENANTS] = {0};
    uint64_t n_preemptions[2] = {0};
    bool ok = true;
    for (uint64_t seed = first; seed < first + n_seeds && ok; seed++)
        for (int p = 0; p < 2 && ok; p++)
            ok = run_one(s, policies[p], seed, times[p], &n_preemptions[p]);
    if (ok) {
        *worse += times[0][0].n_good < times[1][0].n_good;
        print_row(s->name, &times[0][0], &times[1][0]);
        printf("  %6llu /%6llu   %s\n", (unsigned long long)n_preemptions[0],
               (unsigned long long)n_preemptions[1], s->says);
        for (uint32_t i = 0; s->tenants[1].name && i < LOAD_MAX_TENANTS && s->tenants[i].name;
             i++) {
            char name[32];
            snprintf(name, sizeof name, "  %s", s->tenants[i].name);
            print_row(name, &times[0][1 + i], &times[1][1 + i]);
            printf("\n");
        }
    }
    for (int p = 0; p < 2; p++)
        for (uint32_t i = 0; i <= LOAD_MAX_TENANTS; i++) {
            mem_free(times[p][i].ttft_ms);
            mem_free(times[p][i].tpot_ms);
        }
    return ok;
}

static bool wanted(const struct scenario *s, int n, char **names)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], s->name) == 0)
            return true;
    return n == 0;
}

int main(int argc, char **argv)
{
    uint64_t n_seeds = 3, first = 1;
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        uint64_t *value = strcmp(argv[i], "--seeds") == 0   ? &n_seeds
                          : strcmp(argv[i], "--first") == 0 ? &first
                                                            : NULL;
        if (!value || str_to_u64(str_from(argv[i + 1]), value) != STATUS_OK)
            break;
    }
    if (i < argc && argv[i][0] == '-') {
        fprintf(stderr, "usage: bench_goodput [--seeds N] [--first SEED] [scenario ...]\n");
        return 2;
    }
    printf("%-18s %7s  %14s  %18s  %18s  %18s  %18s  %14s\n", "ours / vLLM's", "requests",
           "goodput %", "TTFT p50 ms", "TTFT p99 ms", "TPOT p50 ms", "TPOT p99 ms", "preemptions");
    bool ok = true;
    uint32_t worse = 0;
    for (size_t k = 0; k < sizeof scenarios / sizeof *scenarios && ok; k++)
        if (wanted(&scenarios[k], argc - i, argv + i))
            ok = run_scenario(&scenarios[k], first, n_seeds, &worse);
    if (ok)
        printf("scenarios in which ours is worse: %u\n", worse);
    return ok && worse == 0 ? 0 : 1;
}
