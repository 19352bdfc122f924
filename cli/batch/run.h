#pragma once
/* Sends the lines of a batch file to a gateway, `concurrency` at a time, and writes each answer
 * as a line in the input's order.
 * When a line gets no answer for more than retry_s seconds (no gateway, 429, 502, 503), the run
 * ends. The answers received until then are written, and --resume continues the run. The
 * requests run on separate threads while the caller waits in `batch_run`. */
#include "cli/batch/file.h"
#include "cli/client/gateway_access.h"

struct run_batch_options {
    struct gateway_access gateway;
    const char *input, *output, *output_tmp_dir;
    int64_t concurrency, timeout_s, retry_s;
    bool resume, fail_on_error;
};

struct batch_totals {
    /* counts of this run; n_errors: answers with any status except 200 */
    uint32_t n_answered, n_errors;
};

/* Appends one answer as a line in vLLM's form of OpenAI's batch output. With `status` 200,
 * `body` is the answer. With any other status, `body` is the error. custom_id is NULL when the
 * line has none. */
void batch_answer_write(struct strbuf *out, const char *custom_id, uint64_t id, int status,
                        struct str body);
/* Sends the lines and writes their answers to out_fd. `base` is the gateway's URL without a
 * slash at its end. The position of out_fd is the end of the file. STATUS_CLOSED: a signal
 * interrupted the run. */
MUST_USE enum status batch_run(const struct run_batch_options *o, const char *base,
                               const struct batch_file *f, int out_fd, struct batch_totals *totals,
                               struct error *err);
