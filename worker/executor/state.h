#pragma once
/* Declares the state of the executor of a model, in parts. The comment of each part names the
 * file that writes it. The state belongs to the compute thread, except atomics and fields that
 * are written only when the executor is opened. */
#include "worker/collectives/gpu.h"
#include "worker/comm/stages.h"
#include "worker/executor/device_kind.h"
#include "worker/executor/executor.h"
#include "worker/executor/sampled.h"
#include "worker/sampling/sampler.h"
#include "worker/sequences/batch.h"

/* `executor_ranks` is the communication with the other ranks (ranks.h). */
struct executor_ranks {
    const struct ranks_ops *ops; /* table of the replica that the process was started for */
    const struct ranks_ops *in;  /* table of the present replica */
    struct comm_stages comms;
    /* ranks_cpu.c uses `comm` and the next fields. */
    struct comm *comm;
    struct collectives_comm collectives; /* collectives over `comms` */
    /* ranks_gpu.c uses `gpus` and the next fields. */
    struct collectives_gpu *gpus;
    void *tell;          /* device memory for data that is sent to all ranks */
    bool refused_record; /* this device refused to record a pass in a replica */
    /* `made_id` is the communicator id that this rank made, used by device/model.c. The loop
     * thread writes it before Join. */
    uint8_t made_id[GPU_COMM_ID_BYTES];
    bool has_made_id;
};

/* `executor_loss` describes a device that fails or hangs (device_loss.c). */
struct executor_loss {
    _Atomic bool is_lost; /* true when the process must end */
    struct error why;     /* reason of the loss; written once, before is_lost is set */
    uint64_t stuck_ns;    /* a device that is busy for longer counts as hung */
    /* start of the running `begin`, time of the interrupt; 0 = none */
    _Atomic uint64_t entered_ns, interrupted_ns;
};

/* `executor_ahead` holds sequences that wait for a sampled id on a stage before the last, in the
 * order in which the ids arrive (step/pipeline_ids.c). */
#define EXECUTOR_AHEAD_IDS    4096u
#define EXECUTOR_AHEAD_PASSES 64u
struct executor_ahead {
    struct sequence *waiting[EXECUTOR_AHEAD_IDS]; /* sequences in a ring; the oldest is at i_id */
    /* number of ids of each pass; a ring, the oldest is at i_pass */
    uint32_t n_of[EXECUTOR_AHEAD_PASSES];
    uint32_t i_id, n_ids, i_pass, n_passes;
};

/* `sampling` and the next struct are for sampling on the host (step/samplers.c): the state of
 * one row, then everything that the sampling rank needs. */
struct sampling { /* state of one row */
    struct sampler_row row;
    struct sampler_choice choice;
    /* reason why the row's mask allows no id: 0, RESULT_DEAD_END or RESULT_MASK_COST */
    float end_gap;
    /* mask_units: cost of the row's mask; matcher_kib: memory of its matcher */
    uint32_t mask_units, matcher_kib;
};
struct executor_host {
    struct sampler **samplers; /* samplers, one per thread, [n_samplers]; NULL on other ranks */
    uint32_t n_samplers;
    struct sampling *samplings; /* rows that are sampled at once, [RUNNER_LOGITS_ROWS] */
    struct grammars *grammars;
    /* compiler of grammars; never NULL after opening, idle on other ranks */
    struct grammar_compiler *compiler;
    uint32_t *masks, n_mask_words; /* masks of the rows, [RUNNER_LOGITS_ROWS][n_mask_words] */
};

/* `executor_steps` holds the steps in flight (step/step.c). */
struct executor_steps {
    /* steps in a ring; the oldest is at i_oldest */
    struct step_in_flight in_flight[EXECUTOR_MAX_IN_FLIGHT];
    uint32_t i_oldest, n_in_flight;
    /* end of the newest step; time of the last check of the ranks; collectives.spent_ns when the
     * newest step ended */
    uint64_t finished_ns, looked_ns, spent_seen_ns;
};

struct draft_model;
struct executor_model {
    struct executor base; /* the compute thread writes shard_rank and shard_stage */
    struct executor_info info;
    const struct executor_device *device;
    struct executor_found found; /* found.device NULL = the engine opens its own device */
    struct comm_place place;
    struct engine *engine;
    struct sequences *sequences;
    struct batch batch;
    /* copies of blocks; NULL = the host can access the KV cache, or blocks are not moved */
    struct kv_copies *copies;
    struct speculation speculation;
    struct draft_model *draft_model; /* draft model; NULL = n-grams, or no draft tokens */
    struct executor_ranks ranks;
    struct executor_loss loss;
    struct executor_ahead ahead;
    struct executor_host host;
    /* The device's sampler, which allows two steps in flight; NULL = the host samples. This
     * field and the next two belong to step/device_sample.c. */
    struct gpu_sampler *device_sampler;
    struct sample_lists *lists;
    uint32_t *pending; /* slots of pending rows, [pass_rows]; see row_batch */
    struct executor_steps steps;
    char *served_name;
    char device_name[160];
    bool warned_not_finite;
    _Atomic bool interrupted;
};

/* Returns true on rank 0 of the last stage. */
static inline bool executor_is_sampling_rank(const struct executor_model *x)
{
    return comm_place_samples(&x->place);
}
