#pragma once
/* Figures of a GPU bench beside their bars. Each figure is judged when it is measured. The program
 * prints it in a line, and in a row of the table at the end, which belongs into
 * bench/results/gpu.md. Figures of the emulation are never judged. A part that the program has no
 * time for is cut, and the program says so. */
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/device/abi.h"

/* The bars of issue D: fractions are of what a copy or cuBLAS reaches on that device in the same
 * run. */
#define BAR_DECODE_BF16   0.85 /* of the copy's rate, at batch 1 */
#define BAR_DECODE_CODES  0.65 /* weights of fewer bits */
#define BAR_DECODE_MANY   0.75 /* at batch 64 */
#define BAR_PREFILL       0.65 /* of cuBLAS's rate, a prompt of 8k tokens */
#define BAR_ATTENTION     0.85 /* of the copy's rate, 32 sequences of 8k */
#define BAR_OVERHEAD_US   30.0 /* of a step beside its passes, at batch 1 */
#define BAR_READY_SECONDS 5.0  /* 8B of bfloat16 from the page cache to its first token */
#define BAR_LINK          0.80 /* of the link's rate, while weights are read */

/* Exit statuses of a bench; 77: there is no device. */
enum bars_status { BARS_HELD = 0, BARS_BELOW = 1, BARS_CUT = 75, BARS_NO_DEVICE = 77 };
enum bar_kind { BAR_NONE, BAR_AT_LEAST, BAR_AT_MOST };

enum { BARS_MAX = 64, BARS_WHAT = 96 };
struct bars_row {
    char what[BARS_WHAT]; /* "llama31_8b, decode at batch 1" */
    const char *unit;     /* static: "of a copy's rate" */
    enum bar_kind kind;
    double value, bar;
    bool is_cut;
};
struct bars {
    const char *program; /* static */
    bool is_emulated;
    uint64_t begin_ns, budget_ns; /* 0: as long as it takes */
    struct bars_row rows[BARS_MAX];
    uint32_t n_rows, n_lost; /* n_lost: figures beyond BARS_MAX, which fail */
};

/* The emulation of tests/cuda/emulate calls itself so. */
bool bars_is_emulated(const struct gpu_info *info);
/* seconds 0: no budget. */
void bars_open(struct bars *b, const char *program, bool is_emulated, double seconds);
/* A figure. BAR_NONE: told, not judged. A value that is no number holds no bar. */
void bars_figure(struct bars *b, const char *what, const char *unit, double value,
                 enum bar_kind kind, double bar);
/* Whether there is time for a part that takes so many seconds; false: it is told as cut, and when a
 * figure of it would have been judged the program can not end with BARS_HELD. */
bool bars_has_time(struct bars *b, const char *what, double seconds, bool is_judged);
/* The same for another reason, which the caller has told: "no memory". */
void bars_cut(struct bars *b, const char *what, bool is_judged);
/* Seconds left of the budget; HUGE_VAL without one. */
double bars_seconds_left(const struct bars *b);
/* Rows "| program | what | figure | bar | verdict |", then a line with all of it. */
enum bars_status bars_close(const struct bars *b);
