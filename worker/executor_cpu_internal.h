#pragma once
/* Between the files of executor_cpu*.c, and plan.c. */
#include "worker/batch.h"
#include "worker/comm/stages.h"
#include "worker/draft_model.h"
#include "worker/engine.h"
#include "worker/executor.h"
#include "worker/sampler.h"

/* One sampled row, for whichever thread takes it. */
struct sampling {
    struct sampler_row row;
    struct sampler_choice choice;
};

/* What a step draws: a place behind the last id of each run with `sample`, and one behind each of
 * its guesses. A run's places lie side by side, runs in the order of the plan. */
struct drawn {
    uint32_t n_places, n_items; /* what there is room for: places, runs with `sample` */
    bool guessed;               /* some place is behind a guess; a run may have none at all */
    uint32_t *ids; /* [n_places + n_items]: behind the ids how many of each run count */
    float *gaps;   /* [n_places] the drawing rank's, as all that follows */
    struct logprob_row *logprobs; /* [n_places]; NULL: nobody asked */
    uint32_t n_done;              /* places sampled so far */
    struct result_item *items;    /* [n_items] */
};

/* A step that this stage has run, and whose tokens the last one has not told it yet. */
#define CPU_STEPS_AHEAD 4u
struct step_ahead {
    struct arena arena;
    struct sequence_runs runs;
    struct drawn drawn;
};

struct executor_cpu {
    struct executor base; /* shard_rank, shard_stage: written by the compute thread */
    struct executor_info info;
    struct comm_place place; /* rank and stage: the compute thread's */
    struct comm *comm;       /* NULL: one rank */
    struct comm_stages comms;
    struct step_ahead ahead[CPU_STEPS_AHEAD]; /* the oldest first, from i_ahead on */
    uint32_t i_ahead, n_ahead;
    size_t ahead_bytes; /* of ids that are on their way */
    struct engine *engine;
    struct speculation speculation;
    struct draft_model *draft_model; /* NULL: n-grams, or no guesses */
    struct sequences *sequences;
    struct batch batch;
    /* The drawing rank's (cpu_draws): */
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

/* Rank 0 of the last stage. */
static inline bool cpu_draws(const struct executor_cpu *x)
{
    return comm_place_draws(&x->place);
}

/* The samplers come and go with the seat. */
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

/* Room for runs' draws, on the arena. */
MUST_USE enum status cpu_drawn_init(struct drawn *d, struct sequence_runs runs, struct arena *arena,
                                    struct error *err);
/* Adds the tokens of x->batch's sampled rows. Every rank of the last stage calls it; the others'
 * ids stay as they are. */
MUST_USE enum status cpu_sample_pass(struct executor_cpu *x, struct arena *arena,
                                     struct drawn *drawn, struct error *err);
/* After the last pass: what was drawn counts as far as the guesses were right, all ranks append it,
 * and the drawing rank has the items. */
MUST_USE enum status cpu_append_drawn(struct executor_cpu *x, struct sequence_runs runs,
                                      struct drawn *drawn, struct error *err);

/* The same in a stage in front of the last, which need not wait for it: the tokens are taken when a
 * plan asks for them. */
MUST_USE enum status cpu_run_ahead(struct executor_cpu *x, struct sequence_runs runs,
                                   struct drawn *drawn, struct error *err);
/* Before p is applied, which has not been checked yet: takes the tokens of earlier steps if p has
 * to do with them. */
MUST_USE enum status cpu_settle_for(struct executor_cpu *x, const struct msg_plan *p,
                                    struct error *err);
/* All of them. */
MUST_USE enum status cpu_settle(struct executor_cpu *x, struct error *err);
void cpu_ahead_drop(struct executor_cpu *x); /* they will not come any more */
void cpu_ahead_init(struct executor_cpu *x);
void cpu_ahead_fini(struct executor_cpu *x);
