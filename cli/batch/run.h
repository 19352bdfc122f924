#pragma once
/* Sends the lines of a batch file to a gateway, so many at once, and writes each answer as a line,
 * in the input's order. A line that cannot be answered for longer than retry_s (no gateway, 429,
 * 502, 503) ends the run; what it has is written, and --resume goes on. Threads of its own; the
 * caller's waits in batch_run. */
#include "cli/batch/file.h"
#include "cli/client/gateway_access.h"

struct run_batch_options {
    struct gateway_access gateway;
    const char *input, *output, *output_tmp_dir;
    int64_t concurrency, timeout_s, retry_s;
    bool resume, fail_on_error;
};

struct batch_totals {
    uint32_t n_answered, n_errors; /* of this run; errors: other than 200 */
};

/* Appends one answer as a line: vLLM's form of OpenAI's. `status` 200: body is the answer, else
 * its error. custom_id NULL: the line has none. */
void batch_answer_write(struct strbuf *out, const char *custom_id, uint64_t id, int status,
                        struct str body);
/* base: the gateway's URL without an end slash. out_fd is at its end. STATUS_CLOSED: interrupted.
 */
MUST_USE enum status batch_run(const struct run_batch_options *o, const char *base,
                               const struct batch_file *f, int out_fd, struct batch_totals *totals,
                               struct error *err);
