#pragma once
/* Between the files of executor_model*.c, those of the devices (device_cpu.c ...), and plan.c. */
#include "kernels/cuda/backend/draw.h"
#include "worker/collectives/gpu.h"
#include "worker/comm/stages.h"
#include "worker/draft/model.h"
#include "worker/engine/engine.h"
#include "worker/executor/executor.h"
#include "worker/executor/step/prompt_logprobs.h"
#include "worker/sampling/sampler.h"
#include "worker/sequences/batch.h"

struct sampling { /* of one row */
    struct sampler_row row;
    struct sampler_choice choice;
    float end_gap;                    /* of its mask: 0, RESULT_DEAD_END, RESULT_MASK_COST */
    uint32_t mask_units, matcher_kib; /* its part of the time of the step's masks; its memory */
};

/* Whose tokens are drawn, in the order in which they come to a stage in front of the last. */
#define EXECUTOR_AHEAD_IDS    4096u
#define EXECUTOR_AHEAD_PASSES 64u
struct executor_ahead {
    struct sequence *waiting[EXECUTOR_AHEAD_IDS]; /* the oldest first, from i_id on */
    uint32_t n_of[EXECUTOR_AHEAD_PASSES];         /* of a pass: from i_pass on */
    uint32_t i_id, n_ids, i_pass, n_passes;
};

/* What a step draws: a place behind the last id of each run with `sample`, and one behind each of
 * its guesses. A run's places lie side by side, runs in the order of the plan. */
struct drawn {
    uint32_t n_places, n_items; /* what there is room for: places, runs with `sample` */
    bool guessed;               /* some place is behind a guess; a run may have none at all */
    uint32_t *ids; /* [n_places + n_items]: behind the ids how many of each run count */
    float *gaps;   /* [n_places] the drawing rank's, as all that follows */
    struct logprob_row *logprobs;       /* [n_places]; NULL: nobody asked */
    uint32_t *mask_units, *matcher_kib; /* [n_places]; both NULL: nobody has a grammar */
    uint32_t n_done;                    /* places sampled so far */
    struct result_item *items;          /* [n_items] */
};

/* What a step under way has drawn, or will have, of a run with `sample`, which may be gone then. */
struct begun_item {
    uint32_t slot, position; /* of the id in the sequence */
    uint64_t serial;
    bool logprobs;
    struct f32_span vector;
};

/* A step between begin and finish. */
struct begun_step {
    uint64_t term_epoch, step, begun_ns, enqueued_ns;
    uint32_t n_drafted, i_draws; /* i_draws: of the drawing device's steps */
    bool on_device;              /* what was drawn has not come to the host */
    struct arena *arena;         /* of the job: drawn, items and what they point to */
    struct drawn drawn;
    struct scored scored;      /* on_device: at the places behind drawn's */
    struct begun_item *items;  /* [drawn.n_items]; on_device without guesses */
    struct sequence_runs runs; /* on_device with guesses: no plan is applied before it is settled */
};

/* What is one kind of device's alone; the rest of executor_model*.c is for all that run a model. */
struct executor_model;
struct executor_device {
    enum device_kind kind;
    const char *activations; /* their numbers, as the configuration hash has them */
    uint32_t draft_max_seqs; /* guesses pay in steps of at most so many sequences */
    /* What it adds to executor_model_setup, or does not do of the options. NULL: nothing. */
    enum status (*setup)(const struct worker_options *o, const struct executor_found *found,
                         struct engine_setup *s, struct error *err);
    uint64_t (*memory_bytes)(const struct executor_model *x); /* of the device */
    void (*name)(const struct executor_model *x, char *out, size_t size);
    void (*place)(const struct executor_model *x, char *out, size_t size); /* info.pci; or NULL */
    /* What sync would say, without waiting: STATUS_AGAIN while at work. NULL: calls wait. */
    enum status (*query)(struct executor_model *x, struct error *err);
    /* Said at the end of a start that took so long; or NULL. */
    void (*say_loaded)(const struct executor_model *x, uint64_t elapsed_ns);
    /* Ranks that talk by other means than struct comm. NULL: by that. */
    const struct executor_group *group;
    /* A device that draws, of a model that is measured and not loaded. NULL: the host draws. */
    enum status (*open_draws)(struct executor_model *x, struct gpu_draws **out, struct error *err);
    /* For memory that the host does not reach; or NULL. */
    enum status (*open_copies)(struct executor_model *x, struct kv_copies **out, struct error *err);
};

struct executor_model {
    struct executor base; /* shard_rank, shard_stage: written by the compute thread */
    struct executor_info info;
    const struct executor_device *device;
    struct executor_found found;             /* device NULL: the engine has its own */
    struct comm_place place;                 /* the compute thread's */
    const struct executor_group *group, *in; /* executor_model_group.h; in: compute thread's, now */
    /* The groups' own: */
    struct comm *comm;
    struct comm_stages comms;
    struct collectives_comm collectives; /* over comms */
    struct collectives_gpu *gpus;
    void *tell;            /* with gpus, of the device: what is told to all */
    _Atomic bool is_lost;  /* the process has to end, why: */
    struct error why_lost; /* written once, before */
    struct executor_ahead ahead;
    struct engine *engine;
    struct kv_copies *copies; /* NULL: the host reaches the KV cache, or it is moved nowhere */
    struct speculation speculation;
    struct draft_model *draft_model; /* NULL: n-grams, or no guesses */
    struct sequences *sequences;
    struct batch batch;
    /* The drawing rank's (executor_draws): */
    struct sampler **samplers; /* [n_samplers], one of the threads each; NULL: another rank */
    uint32_t n_samplers;
    struct sampling *samplings; /* [RUNNER_LOGITS_ROWS] */
    struct grammars *grammars;
    struct grammar_compiler *compiler; /* never NULL; idle on other ranks */
    uint32_t *masks, n_mask_words;     /* [RUNNER_LOGITS_ROWS][n_mask_words] */
    /* A device that draws, and so lets two steps be under way; NULL: the host does. */
    struct gpu_draws *draws;
    struct draw_lists *lists;
    uint32_t *late;                              /* [pass_rows] as row_batch has them */
    struct begun_step steps[EXECUTOR_MAX_BEGUN]; /* the oldest first, from i_oldest on */
    uint32_t i_oldest, n_begun;
    uint64_t finished_ns, looked_ns, spent_seen_ns; /* newest step; other ranks; collectives' */
    uint64_t stuck_ns; /* a device that has not come to an end by then hangs */
    _Atomic uint64_t entered_ns, interrupted_ns; /* begin, the interrupt; 0: not now */
    char *served_name;
    char device_name[160];
    uint8_t made_id[GPU_COMM_ID_BYTES]; /* by this rank; the loop's thread writes before Join */
    bool warned_not_finite, has_made_id, refused_record; /* the last by this device, in a group */
    _Atomic bool interrupted;
};

/* Rank 0 of the last stage. */
static inline bool executor_draws(const struct executor_model *x)
{
    return comm_place_draws(&x->place);
}

/* The samplers come and go with the seat. */
MUST_USE enum status executor_samplers_open(struct executor_model *x, struct error *err);
void executor_samplers_close(struct executor_model *x); /* NULL is fine */
/* Theirs and of grammars; before there are any, of a rank that draws: _measure. */
uint64_t executor_samplers_bytes(const struct executor_model *x);
uint64_t executor_samplers_measure(uint32_t n_threads, uint32_t vocab_size);

/* Opens the model on the device that was found; NULL: on the CPU. */
MUST_USE enum status executor_model_open(const struct executor_device *d,
                                         const struct executor_found *found,
                                         const struct worker_options *o, struct executor **out,
                                         struct error *err);
/* What an option says of the engine, and what no device does of what options ask for. */
struct engine_setup executor_model_setup(const struct worker_options *o);
MUST_USE enum status executor_model_check(const struct worker_options *o, struct error *err);

/* Guesses behind the runs of p, the plan that was applied, on all ranks the same. The arena is the
 * step's. Errors as runner_forward and comm_broadcast have them; STATUS_NO_MEMORY. */
MUST_USE enum status executor_guess(struct executor_model *x, const struct msg_plan *p,
                                    struct sequence_runs runs, struct arena *arena,
                                    struct error *err);

/* Room for runs' draws, on the arena. */
MUST_USE enum status drawn_init(struct drawn *d, struct sequence_runs runs, struct arena *arena,
                                struct error *err);
/* Adds the pass's rows of pooling requests, on the drawing rank; vectors are on the arena. */
MUST_USE enum status executor_pool_pass(struct executor_model *x, struct arena *arena,
                                        struct error *err);
/* Adds the tokens of x->batch's sampled rows, on every rank of the last stage; others' ids stay. */
MUST_USE enum status executor_sample_pass(struct executor_model *x, struct arena *arena,
                                          struct drawn *drawn, struct error *err);
/* After the last pass, on all ranks: what was drawn counts as far as guesses were right. */
MUST_USE enum status executor_append_drawn(struct executor_model *x, struct sequence_runs runs,
                                           struct drawn *drawn, struct error *err);
/* An id that came from the drawing rank. */
MUST_USE enum status executor_append_id(struct executor_model *x, struct sequence *q, uint32_t id,
                                        struct error *err);
/* The drawing rank's items, when all ids are appended. */
void executor_put_items(struct drawn *drawn, struct sequence_runs runs);

/* Behind a pass: the last stage appends what was drawn, the others a place for it. */
MUST_USE enum status
executor_end_pass(struct executor_model *x, struct drawn *drawn,
                  struct error *err); /* Before a pass: waits for the ids of its rows. */
MUST_USE enum status executor_find_late(struct executor_model *x, struct error *err);
/* Before p, which has not been checked, is applied: sequences that leave wait for nothing. */
MUST_USE enum status executor_settle_for(struct executor_model *x, const struct msg_plan *p,
                                         struct error *err);
/* Waits for all ids. */
MUST_USE enum status executor_settle(struct executor_model *x, struct error *err);
void executor_ahead_drop(struct executor_model *x); /* they will not come any more */
/* executor_model_steps.c: the step of executor_ops, whole or in halves. */
MUST_USE enum status executor_begin(struct executor *e, const struct msg_plan *p,
                                    struct arena *arena, struct error *err);
bool executor_is_due(struct executor *e);
MUST_USE enum status executor_finish(struct executor *e, struct msg_result *out, struct error *err);
MUST_USE enum status executor_step(struct executor *e, const struct msg_plan *p,
                                   struct arena *arena, struct msg_result *out, struct error *err);
void executor_drop_steps(struct executor_model *x); /* nobody wants their results */

/* Plans name slots and adapters; nothing is executed of one that names what is not here. */
MUST_USE enum status executor_check_adapters(const struct executor_model *x,
                                             const struct msg_plan *p, struct error *err);
void executor_take_adapters(struct executor_model *x, const struct msg_plan *p);
