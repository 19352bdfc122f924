#pragma once
/* Keeps the problems of a run file and notes about it, one per line, in the order of the file's
 * lines. At most RUN_PROBLEMS_MAX problems are kept. Further problems are only counted. */
#include "common/base/arena.h"
#include "common/config/yaml_tree.h"

enum { RUN_PROBLEMS_MAX = 50 };

struct run_problem {
    struct yaml_mark at;
    char text[480];
};

struct run_problems {
    struct run_problem *items, *notes; /* arrays of [RUN_PROBLEMS_MAX], on the heap */
    size_t n, n_notes; /* n: number of problems, including those that were not kept */
};

void run_problems_init(struct run_problems *p);
void run_problems_fini(struct run_problems *p);
void run_problem(struct run_problems *p, struct yaml_mark at, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
void run_note(struct run_problems *p, struct yaml_mark at, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Appends the problems, one per line, sorted by position: "run.yaml:12:3: …". */
void run_problems_print(struct run_problems *p, const char *path, struct strbuf *out);
void run_notes_print(struct run_problems *p, const char *path, struct strbuf *out);
