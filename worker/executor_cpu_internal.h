#pragma once
/* Between executor_cpu.c, executor_cpu_draft.c, executor_cpu_sample.c and plan.c. */
#include "worker/batch.h"
#include "worker/comm/comm.h"
#include "worker/draft_model.h"
#include "worker/engine.h"
#include "worker/executor.h"
#include "worker/sampler.h"

/* One sampled row, for whichever thread takes it. */
struct sampling {
    struct sampler_row row;
    struct sampler_choice choice;
};

struct executor_cpu {
    struct executor base; /* shard_rank: written by the compute thread */
    struct executor_info info;
    uint32_t tp;
    struct comm *comm; /* NULL: tp is 1 */
    struct engine *engine;
    struct speculation speculation;
    struct draft_model *draft_model; /* NULL: n-grams, or no guesses */
    struct sequences *sequences;
    struct batch batch;
    /* Rank 0's, which alone draws: */
    struct sampler **samplers; /* [n_samplers], one of the threads each; NULL: another rank */
    uint32_t n_samplers;
    struct sampling *samplings; /* [RUNNER_LOGITS_ROWS] */
    bool warned_not_finite;
    char *served_name;
    char device_name[160];
    uint8_t made_id[COMM_ID_BYTES]; /* by this rank; the loop's thread writes before Join */
    bool has_made_id;
    _Atomic bool interrupted;
};

/* The samplers come and go with the rank. */
MUST_USE enum status cpu_samplers_open(struct executor_cpu *x, struct error *err);
void cpu_samplers_close(struct executor_cpu *x); /* NULL is fine */
uint64_t cpu_samplers_bytes(const struct executor_cpu *x);
/* The same before there are any: of a rank with so many threads that draws. */
uint64_t cpu_samplers_measure(uint32_t n_threads, uint32_t vocab_size);

/* What an option says of the engine, and what this device does not do of what options ask for. */
struct engine_setup executor_cpu_setup(const struct worker_options *o);
MUST_USE enum status executor_cpu_check(const struct worker_options *o, struct error *err);

/* Guesses behind the runs of p, the plan that was applied, on all ranks the same. The arena is the
 * step's. Errors as runner_forward and comm_broadcast have them; STATUS_NO_MEMORY. */
MUST_USE enum status cpu_guess(struct executor_cpu *x, const struct msg_plan *p,
                               struct sequence_runs runs, struct arena *arena, struct error *err);

/* What a step draws: a place behind the last id of each run with `sample`, and one behind each of
 * its guesses. A run's places lie side by side, runs in the order of the plan. */
struct drawn {
    uint32_t n_places, n_items; /* what there is room for: places, runs with `sample` */
    bool guessed;               /* some place is behind a guess; a run may have none at all */
    uint32_t *ids; /* [n_places + n_items]: behind the ids how many of each run count */
    float *gaps;   /* [n_places] rank 0's, as all that follows */
    struct logprob_row *logprobs; /* [n_places]; NULL: nobody asked */
    uint32_t n_done;              /* places sampled so far */
    struct result_item *items;    /* [n_items] */
};
/* Room for runs' draws, on the arena. */
MUST_USE enum status cpu_drawn_init(struct drawn *d, struct sequence_runs runs, struct arena *arena,
                                    struct error *err);
/* Adds the tokens of x->batch's sampled rows. Every rank calls it; the others' ids stay as they
 * are. */
MUST_USE enum status cpu_sample_pass(struct executor_cpu *x, struct arena *arena,
                                     struct drawn *drawn, struct error *err);
/* After the last pass: what rank 0 drew counts as far as the guesses were right, all ranks append
 * it, and rank 0 has the items. */
MUST_USE enum status cpu_append_drawn(struct executor_cpu *x, struct drawn *drawn,
                                      struct error *err);
