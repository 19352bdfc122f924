#pragma once
/* The load itself: each prompt sent at its time, every answer streamed and each piece of it
 * stamped when it comes in. One thread, all of it in bench_load_run. */
#include "cli/bench/dataset.h"
#include "cli/bench/progress.h"

/* The result of one request. Times are nanoseconds since the load began. */
struct bench_result {
    bool ok;                   /* answered to its end, with 200 */
    uint64_t start_ns, end_ns; /* sent; the last piece with something in it */
    uint64_t first_ns;         /* from start to the first piece with something in it */
    uint64_t *gaps_ns;         /* [n_gaps] between pieces that follow each other */
    uint32_t n_gaps, cap_gaps;
    uint32_t n_prompt_tokens; /* as the server counts; else as the dataset */
    uint32_t n_output_tokens; /* likewise; else its pieces */
    struct strbuf text;       /* of the answer, with keep_text */
    char *error;              /* why not ok; NULL: never sent */
};

struct bench_load {
    const struct bench_target *target;
    const struct bench_prompts *prompts;
    const double *arrivals_s; /* [prompts->n]; NULL: all at once */
    uint32_t max_concurrency; /* open at once; 0: no bound. Who waits for it has not started */
    bool keep_text;
    struct bench_progress *progress; /* NULL: none */
};

/* results: [prompts->n], zeroed. *duration_s: from the begin to the last answer's end. An answer
 * that fails is in its result; STATUS_CLOSED: interrupted, the open ones have failed. */
MUST_USE enum status bench_load_run(const struct bench_load *l, struct bench_result *results,
                                    double *duration_s, struct error *err);
/* One prompt until it is answered: what may pass (nobody there, 5xx) is tried again for timeout_s.
 */
MUST_USE enum status bench_load_probe(const struct bench_load *l, double timeout_s,
                                      struct error *err);
void bench_results_fini(struct bench_result *results, uint32_t n);
