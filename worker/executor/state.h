#pragma once
/* The executor of a model, part by part; each part's comment names the file that writes it. On the
 * compute thread, but for what is atomic and what only the opening writes. */
#include "worker/collectives/gpu.h"
#include "worker/comm/stages.h"
#include "worker/executor/device_kind.h"
#include "worker/executor/executor.h"
#include "worker/executor/sampled.h"
#include "worker/sampling/sampler.h"
#include "worker/sequences/batch.h"

/* The way to the other ranks (ranks.h). */
struct executor_ranks {
    const struct ranks_ops *ops; /* of the replica that it was started for */
    const struct ranks_ops *in;  /* of the replica at hand */
    struct comm_stages comms;
    /* ranks_cpu.c */
    struct comm *comm;
    struct collectives_comm collectives; /* over comms */
    /* ranks_gpu.c */
    struct collectives_gpu *gpus;
    void *tell;          /* of the device: what is told to all */
    bool refused_record; /* by this device, in a replica */
    /* device/model.c: the id that this rank made; the loop's thread writes before Join */
    uint8_t made_id[GPU_COMM_ID_BYTES];
    bool has_made_id;
};

/* A device that fails or hangs (device_loss.c). */
struct executor_loss {
    _Atomic bool is_lost; /* the process has to end, why: */
    struct error why;     /* written once, before */
    uint64_t stuck_ns;    /* a device that has not come to an end by then hangs */
    _Atomic uint64_t entered_ns, interrupted_ns; /* begin, the interrupt; 0: not now */
};

/* Whose tokens are sampled, in the order in which they come to a stage in front of the last
 * (step/pipeline_ids.c). */
#define EXECUTOR_AHEAD_IDS    4096u
#define EXECUTOR_AHEAD_PASSES 64u
struct executor_ahead {
    struct sequence *waiting[EXECUTOR_AHEAD_IDS]; /* the oldest first, from i_id on */
    uint32_t n_of[EXECUTOR_AHEAD_PASSES];         /* of a pass: from i_pass on */
    uint32_t i_id, n_ids, i_pass, n_passes;
};

/* Tokens sampled on the host (step/samplers.c): one row's, and all that the sampling rank needs for
 * it. */
struct sampling { /* of one row */
    struct sampler_row row;
    struct sampler_choice choice;
    float end_gap;                    /* of its mask: 0, RESULT_DEAD_END, RESULT_MASK_COST */
    uint32_t mask_units, matcher_kib; /* its part of the time of the step's masks; its memory */
};
struct executor_host {
    struct sampler **samplers; /* [n_samplers], one of the threads each; NULL: another rank */
    uint32_t n_samplers;
    struct sampling *samplings; /* [RUNNER_LOGITS_ROWS] */
    struct grammars *grammars;
    struct grammar_compiler *compiler; /* never NULL; idle on other ranks */
    uint32_t *masks, n_mask_words;     /* [RUNNER_LOGITS_ROWS][n_mask_words] */
};

/* Steps under way (step/step.c). */
struct executor_steps {
    struct step_in_flight
        in_flight[EXECUTOR_MAX_IN_FLIGHT]; /* the oldest first, from i_oldest on */
    uint32_t i_oldest, n_in_flight;
    uint64_t finished_ns, looked_ns, spent_seen_ns; /* newest step; other ranks; collectives' */
};

struct draft_model;
struct executor_model {
    struct executor base; /* shard_rank, shard_stage: written by the compute thread */
    struct executor_info info;
    const struct executor_device *device;
    struct executor_found found; /* device NULL: the engine has its own */
    struct comm_place place;
    struct engine *engine;
    struct sequences *sequences;
    struct batch batch;
    struct kv_copies *copies; /* NULL: the host reaches the KV cache, or it is moved nowhere */
    struct speculation speculation;
    struct draft_model *draft_model; /* NULL: n-grams, or no draft tokens */
    struct executor_ranks ranks;
    struct executor_loss loss;
    struct executor_ahead ahead;
    struct executor_host host;
    /* A device that samples, and so lets two steps be under way; NULL: the host does. Of
     * step/device_sample.c, as the next two. */
    struct gpu_sampler *device_sampler;
    struct sample_lists *lists;
    uint32_t *pending; /* [pass_rows] as row_batch has them */
    struct executor_steps steps;
    char *served_name;
    char device_name[160];
    bool warned_not_finite;
    _Atomic bool interrupted;
};

/* Rank 0 of the last stage. */
static inline bool executor_is_sampling_rank(const struct executor_model *x)
{
    return comm_place_samples(&x->place);
}
