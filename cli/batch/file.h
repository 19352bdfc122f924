#pragma once
/* Reads the input file of `cox run-batch`. Every line is checked before the first request is
 * sent. With --resume, the answers of the interrupted run are matched with the lines. One thread
 * fills the struct. Afterwards, any thread may read it. */
#include "common/base/str.h"
#include "common/batch/input.h"

struct batch_file_line {
    /* text of the line, borrowed from the file; empty when an earlier run has answered the line */
    struct str text;
    uint32_t number; /* line number in the file, from 1 */
    char *owned_id;  /* custom_id; NULL = the line has no readable custom_id */
    char *owned_why; /* text of the error answer for the line; NULL = the line is sent */
};

struct batch_file {
    const char *mapped;
    size_t len;
    struct batch_file_line *owned_lines;
    uint32_t n_lines, n_answered, n_refused; /* n_refused: number of lines with `owned_why` */
    uint32_t n_twice; /* number of lines that repeat the custom_id of an earlier line */
    /* [n_ids] indexes of the lines with a custom_id, sorted by custom_id, then by number */
    uint32_t *owned_by_id;
    uint32_t n_ids;
};

/* Opens the file and checks each line. A line that is not a batch request, or has an unsupported
 * url, is kept with `owned_why`. An empty file has no lines. */
MUST_USE enum status batch_file_open(struct batch_file *f, const char *path, struct error *err);
void batch_file_close(struct batch_file *f); /* Frees the struct; accepts a zeroed one. */
/* Marks the lines that have an answer in `answers`, the complete output lines of an earlier run. */
MUST_USE enum status batch_file_resume(struct batch_file *f, struct str answers, const char *path,
                                       struct error *err);
