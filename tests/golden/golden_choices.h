#pragma once
/* The experts that the rows of a mixture go to. They are recorded while a device computes, and
 * given to CPUs that are then compared with it row by row. Another expert is another function:
 * without this, a row whose router was undecided could differ arbitrarily, and so could all rows
 * after it.
 *
 * A follower still evaluates its own router. A wrong choice shows in how far its logits would
 * have to move for it to choose the device's experts. The shares are its own, from its own
 * scores. */
#include "kernels/ops.h"

/* The recorded choices of one device. */
struct golden_choices;
/* Starts recording. From now on d's passes, recorded ones too, leave their choices in device
 * memory. Must be called before d's engine is opened. rows: rows of the largest pass. Borrows d. */
struct golden_choices *golden_choices_new(struct device *d, uint32_t rows);
/* Restores d. Must be called after its engine is closed. c may be NULL. */
void golden_choices_free(struct golden_choices *c);
/* Takes the choices of the last pass, which followers then follow. Ends the program when the
 * device has failed. */
void golden_choices_take(struct golden_choices *c);

/* A CPU that chooses the device's experts, pass by pass. Borrows both. */
struct golden_follower;
struct golden_follower *golden_follow(const struct golden_choices *c, struct device *cpu);
void golden_follower_free(struct golden_follower *f); /* f may be NULL */

/* Results since golden_follower_begin. */
struct golden_moves {
    /* choices that would have differed; all choices (one for each row and layer) */
    uint32_t n, n_rows;
    /* Largest distance that all logits of a router must move, up or down, to make the device's
     * choice, as a fraction of their standard deviation in that row. Infinity: no move makes it. */
    double largest;
    uint32_t first_pass; /* pass of the first such choice, from 0; UINT32_MAX = none */
    uint32_t first_row;  /* row of the first such choice in that pass */
};
void golden_follower_begin(struct golden_follower *f);
const struct golden_moves *golden_follower_moves(const struct golden_follower *f);
