#pragma once
/* Compares every row of a model's logits on a GPU: whole prompts first, then the reference's
 * tokens one at a time, whatever the device would have sampled. Each row is compared with the
 * float32 reference and with a CPU that rounds to bfloat16 after every operator. The two CPUs
 * use the device's experts (golden_choices.h). No row may be further from one of them than the
 * limits.
 *
 * The float32 reference is a CPU, which also gives the rows of the continuation and of other
 * experts. Where this CPU chose the same experts itself, it must first agree with the golden
 * file. */
#include "tests/golden/golden_engine.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/golden_math.h"

struct golden_device_check {
    const char *model, *title;
    const struct golden_file *want;
    const struct golden_engine_options *options; /* options of the engine, with the device set */
    /* Bounds of the prompts' lengths with their continuation; other prompts are left out. */
    uint32_t shortest, longest;
    /* file_distance: largest distance of a logit of the float32 CPU from the golden file.
     * file_gap: difference between the two best logits below which the CPU's token may differ
     * from the file's. */
    double file_distance, file_gap;
    struct golden_excess *excess; /* sum to which the failures are added */
};
/* Runs the check, prints its results and returns the number of failures. Ends the program when
 * the model cannot be opened. */
uint32_t golden_device_run(const struct golden_device_check *check);
