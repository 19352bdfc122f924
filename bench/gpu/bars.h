#pragma once
/* Keeps the figures of a GPU bench and their bars. Each figure is judged when it is measured.
 * The program prints a figure in a line, and again in a row of the table at the end, which is
 * copied to bench/results/gpu.md. Figures of the emulation are never judged. A part for which no
 * time is left is cut, and the program reports that. */
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/device/abi.h"

/* These are the bars of issue D. Fractions relate to the rate of a copy or of cuBLAS on that
 * device in the same run. */
#define BAR_DECODE_BF16 0.85 /* fraction of the copy's rate, at batch 1 */
/* fraction of the copy's rate, at batch 1, for weights of fewer bits */
#define BAR_DECODE_CODES 0.65
#define BAR_DECODE_MANY  0.75 /* fraction of the copy's rate, at batch 64 */
#define BAR_PREFILL      0.65 /* fraction of cuBLAS's rate, a prompt of 8k tokens */
#define BAR_ATTENTION    0.85 /* fraction of the copy's rate, 32 sequences of 8k */
#define BAR_OVERHEAD_US  30.0 /* time of a step outside of its passes, at batch 1 */
/* seconds for an 8B model in bfloat16, from the page cache to the first token */
#define BAR_READY_SECONDS 5.0
#define BAR_LINK          0.80 /* fraction of the link's rate, while weights are read */

/* `bars_status` lists the exit statuses of a bench. 77 means that there is no device. */
enum bars_status { BARS_HELD = 0, BARS_BELOW = 1, BARS_CUT = 75, BARS_NO_DEVICE = 77 };
enum bar_kind { BAR_NONE, BAR_AT_LEAST, BAR_AT_MOST };

enum { BARS_MAX = 64, BARS_WHAT = 96 };
struct bars_row {
    char what[BARS_WHAT]; /* for example "llama31_8b, decode at batch 1" */
    const char *unit;     /* static string, such as "of a copy's rate" */
    enum bar_kind kind;
    double value, bar;
    bool is_cut;
};
struct bars {
    const char *program; /* name of the program, a static string */
    bool is_emulated;
    uint64_t begin_ns, budget_ns; /* budget_ns: 0 = no limit */
    struct bars_row rows[BARS_MAX];
    uint32_t n_rows, n_lost; /* n_lost: figures beyond BARS_MAX; they make the run fail */
};

/* Returns true for the emulation of tests/cuda/emulate, by the device's name. */
bool bars_is_emulated(const struct gpu_info *info);
/* Starts the figures of a program. seconds: the program's time budget; 0 = no limit. */
void bars_open(struct bars *b, const char *program, bool is_emulated, double seconds);
/* Adds a figure. BAR_NONE: the figure is printed, not judged. A NaN misses every bar. */
void bars_figure(struct bars *b, const char *what, const char *unit, double value,
                 enum bar_kind kind, double bar);
/* Returns whether there is time for a part that takes this many seconds. When false, the part is
 * reported as cut. If one of its figures would have been judged, the program cannot end with
 * BARS_HELD. */
bool bars_has_time(struct bars *b, const char *what, double seconds, bool is_judged);
/* Reports a part as cut for another reason, such as "no memory", which the caller has printed. */
void bars_cut(struct bars *b, const char *what, bool is_judged);
/* Returns the seconds left of the budget, or HUGE_VAL when there is no budget. */
double bars_seconds_left(const struct bars *b);
/* Prints the rows "| program | what | figure | bar | verdict |" and a summary line, and returns
 * the exit status. */
enum bars_status bars_close(const struct bars *b);
