#pragma once
/* Sends each prompt at its time, streams every answer, and takes the time of each piece as it
 * arrives. One thread; all of it runs inside `bench_load_run`. */
#include "cli/bench/dataset.h"
#include "cli/bench/progress.h"

/* The result of one request. Times are nanoseconds since the load began. */
struct bench_result {
    bool ok;                   /* answered with 200, to the end */
    uint64_t start_ns, end_ns; /* time when it was sent; time of the last piece with content */
    uint64_t first_ns;         /* time from start_ns to the first piece with content */
    uint64_t *gaps_ns;         /* [n_gaps] times between successive pieces */
    uint32_t n_gaps, cap_gaps;
    uint32_t n_prompt_tokens; /* the server's count, or else the dataset's */
    uint32_t n_output_tokens; /* the server's count, or else the number of pieces */
    struct strbuf text;       /* text of the answer; only with keep_text */
    char *error;              /* reason of a failure; NULL = never sent, or ok */
};

struct bench_load {
    const struct bench_target *target;
    const struct bench_prompts *prompts;
    const double *arrivals_s; /* [prompts->n] seconds from the begin; NULL = all at once */
    /* most requests open at once; 0 = no limit. A request that waits for room has not started */
    uint32_t max_concurrency;
    bool keep_text;
    struct bench_progress *progress; /* NULL = no progress bar */
};

/* Runs the load. `results` [prompts->n] is zeroed by the caller. *duration_s is the time from
 * the begin to the end of the last answer. A failed answer is in its result.
 * STATUS_CLOSED: interrupted; the open requests count as failed. */
MUST_USE enum status bench_load_run(const struct bench_load *l, struct bench_result *results,
                                    double *duration_s, struct error *err);
/* Sends one prompt until it is answered. A failure that may pass (no server yet, 5xx) is tried
 * again for timeout_s seconds. */
MUST_USE enum status bench_load_probe(const struct bench_load *l, double timeout_s,
                                      struct error *err);
void bench_results_fini(struct bench_result *results, uint32_t n);
