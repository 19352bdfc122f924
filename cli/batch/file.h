#pragma once
/* The files of `cox run-batch`: its lines, each checked before the first is sent, and the answers
 * of a run that was broken off. One thread; afterwards lines are read by any. */
#include "common/base/str.h"
#include "common/batch/input.h"

struct batch_file_line {
    struct str text; /* borrowed from the file; empty: answered by an earlier run */
    uint32_t number; /* in the file, from 1 */
    char *owned_id;  /* its custom_id; NULL: it cannot be read */
    char *owned_why; /* why it is not sent and answered with an error; NULL: it is sent */
};

struct batch_file {
    const char *mapped;
    size_t len;
    struct batch_file_line *owned_lines;
    uint32_t n_lines, n_answered, n_refused; /* n_refused: lines with owned_why */
    uint32_t n_twice;                        /* lines whose custom_id an earlier line has */
    uint32_t *owned_by_id;                   /* [n_ids] lines with an id, sorted by it and number */
    uint32_t n_ids;
};

/* A line that is none of a batch, or whose url is not run, is kept with owned_why. An empty file
 * has no lines. */
MUST_USE enum status batch_file_open(struct batch_file *f, const char *path, struct error *err);
void batch_file_close(struct batch_file *f); /* zeroed is fine */
/* Marks the lines that `answers` answers: what an earlier run wrote, whole lines. */
MUST_USE enum status batch_file_resume(struct batch_file *f, struct str answers, const char *path,
                                       struct error *err);
