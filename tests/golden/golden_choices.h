#pragma once
/* Records the experts that a device's routers choose for each row. CPUs that are then compared
 * with the device row by row use the same choices. Another expert is another function: without
 * this, a row whose router was undecided could differ arbitrarily, and so could all rows after
 * it.
 *
 * A follower still evaluates its own router. The distance that the follower's logits would have
 * to move for the same choice shows a wrong choice of the device. The follower computes the
 * shares from its own scores. */
#include "kernels/ops.h"

/* `golden_choices` holds the recorded choices of one device. */
struct golden_choices;
/* Starts recording. From now on d's passes, recorded passes too, leave their choices in device
 * memory. Call it before d's engine is opened. `rows` is the number of rows of the largest pass.
 * The result borrows d. */
struct golden_choices *golden_choices_new(struct device *d, uint32_t rows);
/* Restores the device. Call it after the device's engine is closed. c may be NULL. */
void golden_choices_free(struct golden_choices *c);
/* Reads the choices of the last pass, which followers then follow. Ends the program when the
 * device has failed. */
void golden_choices_take(struct golden_choices *c);

/* `golden_follower` is a CPU that chooses the device's experts, pass by pass. It borrows the CPU
 * and the choices. */
struct golden_follower;
struct golden_follower *golden_follow(const struct golden_choices *c, struct device *cpu);
void golden_follower_free(struct golden_follower *f); /* f may be NULL */

/* `golden_moves` holds the results since golden_follower_begin. */
struct golden_moves {
    /* n: choices that would have differed; n_rows: all choices (one for each row and layer) */
    uint32_t n, n_rows;
    /* Largest distance that all logits of a router must move, up or down, to make the device's
     * choice, as a fraction of their standard deviation in that row. Infinity means that no move
     * makes the choice. */
    double largest;
    /* pass of the first choice that would have differed, from 0; UINT32_MAX = none */
    uint32_t first_pass;
    uint32_t first_row; /* row of that choice in its pass */
};
void golden_follower_begin(struct golden_follower *f);
const struct golden_moves *golden_follower_moves(const struct golden_follower *f);
