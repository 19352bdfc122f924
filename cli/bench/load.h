#pragma once
/* Sends each prompt at its time, streams every answer, and records the arrival time of each
 * piece. One thread does all of this inside `bench_load_run`. */
#include "cli/bench/dataset.h"
#include "cli/bench/progress.h"

/* `bench_result` holds the result of one request. Times are nanoseconds since the load began. */
struct bench_result {
    bool ok; /* the server answered with 200, and the answer is complete */
    /* time when the request was sent; time of the last piece with content */
    uint64_t start_ns, end_ns;
    uint64_t first_ns; /* time from start_ns to the first piece with content */
    uint64_t *gaps_ns; /* [n_gaps] times between successive pieces */
    uint32_t n_gaps, cap_gaps;
    /* number of prompt tokens that the server reports, or else the dataset's count */
    uint32_t n_prompt_tokens;
    /* number of output tokens that the server reports, or else the number of pieces */
    uint32_t n_output_tokens;
    struct strbuf text; /* text of the answer; filled only with keep_text */
    char *error;        /* reason of a failure; NULL = never sent, or succeeded */
};

struct bench_load {
    const struct bench_target *target;
    const struct bench_prompts *prompts;
    /* [prompts->n] send times in seconds since the load began; NULL = all at once */
    const double *arrivals_s;
    /* most requests open at once; 0 = no limit. A request above the limit is not sent yet */
    uint32_t max_concurrency;
    bool keep_text;
    struct bench_progress *progress; /* progress bar; NULL = none */
};

/* Runs the load. `results` [prompts->n] is zeroed by the caller. *duration_s is the time in
 * seconds from the start to the end of the last answer. A failed request is recorded in its
 * result and does not change the status.
 * STATUS_CLOSED: a signal interrupted the load. The open requests count as failed. */
MUST_USE enum status bench_load_run(const struct bench_load *l, struct bench_result *results,
                                    double *duration_s, struct error *err);
/* Sends one prompt until the server answers it. After a temporary failure (no server yet, 5xx)
 * the prompt is sent again, for up to timeout_s seconds. */
MUST_USE enum status bench_load_probe(const struct bench_load *l, double timeout_s,
                                      struct error *err);
void bench_results_fini(struct bench_result *results, uint32_t n);
