#pragma once
/* The files of `cox run-batch`: its lines, checked before the first is sent, and the answers of a
 * run that was broken off. One thread; afterwards lines are read by any. */
#include "common/base/str.h"
#include "common/batch/batch_input.h"

struct batch_file_line {
    struct str text; /* borrowed from the file; empty: answered by an earlier run */
    uint32_t number; /* in the file, from 1 */
    char *owned_id;  /* its custom_id */
};

struct batch_file {
    const char *mapped;
    size_t len;
    struct batch_file_line *owned_lines;
    uint32_t n_lines, n_answered;
    uint32_t *owned_by_id; /* indices of lines, sorted by custom_id */
};

/* Every line must be one of a batch, its url one of those that are run, its custom_id its own. */
MUST_USE enum status batch_file_open(struct batch_file *f, const char *path, struct error *err);
void batch_file_close(struct batch_file *f); /* zeroed is fine */
/* Marks the lines that `answers` answers: what an earlier run wrote, whole lines. */
MUST_USE enum status batch_file_resume(struct batch_file *f, struct str answers, const char *path,
                                       struct error *err);
