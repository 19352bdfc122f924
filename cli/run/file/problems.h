#pragma once
/* The problems of a file, and notes about it: all of them, a line each, in the
 * order of the lines. Bounded: of a file with more problems the rest is counted. */
#include "common/base/arena.h"
#include "common/config/yaml_tree.h"

enum { RUN_PROBLEMS_MAX = 50 };

struct run_problem {
    struct yaml_mark at;
    char text[480];
};

struct run_problems {
    struct run_problem *items, *notes; /* of the heap; RUN_PROBLEMS_MAX each */
    size_t n, n_notes;                 /* n counts those that did not fit, too */
};

void run_problems_init(struct run_problems *p);
void run_problems_fini(struct run_problems *p);
void run_problem(struct run_problems *p, struct yaml_mark at, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
void run_note(struct run_problems *p, struct yaml_mark at, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "run.yaml:12:3: …", a line each, sorted. */
void run_problems_print(struct run_problems *p, const char *path, struct strbuf *out);
void run_notes_print(struct run_problems *p, const char *path, struct strbuf *out);
