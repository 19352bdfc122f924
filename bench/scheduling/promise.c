/* Measures how long the head takes to predict a first token behind a long queue: the outlook of
 * the scheduler and three replays, as routing/promises.c makes them for each request with a
 * promise. bench/slo --queue builds and runs this program. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/die.h"
#include "bench/seconds.h"
#include "common/base/mem.h"
#include "head/request/request.h"
#include "head/scheduler/outlook.h"
#include "head/scheduler/scheduler.h"

enum { N_TENANTS = 500, N_PROMPT = 400, N_RUNNING = 256, ROUNDS = 1000, LAST_ID = 1 << 20 };

static uint32_t ids[N_PROMPT];

static struct request *new_request(uint32_t i)
{
    struct request *r = NULL;
    struct error err;
    for (uint32_t k = 0; k < N_PROMPT; k++)
        ids[k] = (i * N_PROMPT + k) % LAST_ID;
    const struct msg_submit m = {.id = {1, i},
                                 .attempt = 1,
                                 .tenant = 1 + i % N_TENANTS,
                                 .n_prompt = N_PROMPT,
                                 .ids = {ids, N_PROMPT},
                                 .sampling = {.top_p = 1,
                                              .repetition_penalty = 1,
                                              .n_logprobs = -1,
                                              .n_prompt_logprobs = -1,
                                              .max_tokens = 64}};
    if (request_new(NULL, &m, 4096, 1, &r, &err) != STATUS_OK)
        bench_die("cannot make a request: %s", err.text);
    r->arrival_seq = i + 1;
    return r;
}

static double predict(const struct scheduler *s, const struct request *r,
                      const struct step_cost *cost)
{
    const struct first_token_flight flight = {{1e7, 1e7}, 2};
    struct first_token_work w;
    double ns = 0;
    scheduler_outlook(s, r, &w);
    w.mean_answer = 64;
    for (int i = 0; i < 3; i++) {
        w.later_tokens = 1e-6 * i;
        w.later_requests = 1e-8 * i;
        ns += first_token_ns(&w, cost, &flight);
    }
    return ns / 3;
}

int main(int argc, char **argv)
{
    const uint32_t n_waiting = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 4000;
    const struct step_cost cost = {.cost = {6e6, 8e5, 5e5, 500}, .n_results = 100};
    const struct scheduler_config c = {.max_num_batched_tokens = 512,
                                       .max_num_seqs = N_RUNNING,
                                       .max_waiting = n_waiting + N_RUNNING,
                                       .max_model_len = 4096,
                                       .depth = 2,
                                       .max_partial_prefills = 8,
                                       .n_kv_groups = 1,
                                       .kv_groups = {{.block_tokens = 16, .n_blocks = 65536}}};
    struct scheduler *s = NULL;
    struct error err;
    if (scheduler_new(&c, &s, &err) != STATUS_OK)
        bench_die("cannot make a scheduler: %s", err.text);
    scheduler_reset(s, 1, NULL, NULL);
    for (uint32_t i = 0; i < n_waiting; i++)
        if (scheduler_add(s, new_request(i)) != STATUS_OK)
            bench_die("request %u was not added", i);
    (void)scheduler_step(s, 1);
    struct request *r = new_request(n_waiting);
    double ns = 0, begin = bench_seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < ROUNDS; i++)
        ns += predict(s, r, &cost);
    printf("%u waiting: a first token in %.1f s is predicted in %.1f us\n", n_waiting,
           ns / ROUNDS / 1e9, (bench_seconds(CLOCK_PROCESS_CPUTIME_ID) - begin) / ROUNDS * 1e6);
    return 0; /* the system frees everything */
}
