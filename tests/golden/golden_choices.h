#pragma once
/* Which experts the rows of a mixture go to: kept while a device computes, and given to CPUs that
 * are then compared with it row by row. Another expert is another function: without this a row
 * whose router was undecided could be anything, and so could all rows behind it.
 *
 * A follower still looks at its own router: how far its logits would have to move for it to choose
 * what the device chose is what a wrong choice shows in. Shares are its own, of its own scores. */
#include "kernels/ops.h"

/* Of one device. */
struct golden_choices;
/* From now on d's passes, recorded ones too, leave their choices in memory of the device. Before
 * d's engine is opened; rows: of the largest pass. Borrows d. */
struct golden_choices *golden_choices_new(struct device *d, uint32_t rows);
/* d is as it was. Behind the closing of its engine; NULL is fine. */
void golden_choices_free(struct golden_choices *c);
/* The choices of the pass that came last are what followers follow. Ends the program when the
 * device has failed. */
void golden_choices_take(struct golden_choices *c);

/* A CPU that chooses as the device did, pass by pass. Borrows both. */
struct golden_follower;
struct golden_follower *golden_follow(const struct golden_choices *c, struct device *cpu);
void golden_follower_free(struct golden_follower *f); /* NULL is fine */

/* Since golden_follower_begin. */
struct golden_moves {
    uint32_t n, n_rows; /* choices that would have been others; of so many, a row in a layer */
    /* How far all logits of a router have to move, up or down, for the device's choice, as a share
     * of their standard deviation in that row; infinity: no move makes it. */
    double largest;
    uint32_t first_pass; /* where the first one is, passes counted from 0; UINT32_MAX: nowhere */
    uint32_t first_row;  /* of that pass */
};
void golden_follower_begin(struct golden_follower *f);
const struct golden_moves *golden_follower_moves(const struct golden_follower *f);
