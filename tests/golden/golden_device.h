#pragma once
/* A model on a GPU, every row of logits of it: prompts whole, then what follows them a token at a
 * time, the reference's tokens whatever the device would have said. Each row is compared with the
 * float32 reference and with a CPU that rounds to bfloat16 after every operator, both sent to the
 * device's experts (golden_choices.h); no row may be further from either than the limits.
 *
 * The float32 reference is the CPU, which gives rows of what follows and of other experts too;
 * where the experts are its own it has to agree with the golden file first. */
#include "tests/golden/golden_engine.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/golden_math.h"

struct golden_device_check {
    const char *model, *title;
    const struct golden_file *want;
    const struct golden_engine_options *options; /* with the device */
    uint32_t shortest, longest; /* of prompts with what follows them; others are left out */
    /* Of the CPU, in float32, from the golden file: of a logit; and tokens may differ from the
     * file's at closer gaps. */
    double file_distance, file_gap;
    struct golden_excess *excess; /* failures are added to it */
};
/* Prints what it found. Returns the number of failures. Ends the program when the model cannot be
 * opened. */
uint32_t golden_device_run(const struct golden_device_check *check);
