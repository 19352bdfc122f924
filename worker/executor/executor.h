#pragma once
/* Declares the executor, which turns a plan into tokens: one device behind one vtable.
 * device/null.c fills the table for the null device, device/model.c for CPUs and GPUs.
 * device/open.h selects one of them. An implementation embeds `struct executor` as its first
 * member.
 *
 * Threads: open, info, listen, make_comm_id, interrupt and close are called on the loop thread
 * (close after the compute thread has ended). join_comm, abort_comm, reset, step, check, adapter,
 * lost_adapter and sleep are called on the compute thread, one at a time, and may block. interrupt
 * makes a blocking call return STATUS_CLOSED soon; abort_comm follows and clears the interrupt. */
#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/options/speculation.h"
#include "proto/limits.h"
#include "proto/messages.h"
#include "worker/kv/view.h"
#include "worker/sequences/sequences.h"

#define COMM_ID_MAX_BYTES      512u
#define EXECUTOR_MAX_IN_FLIGHT 2u

/* `executor_shape` is a smaller TP that this worker could serve, with the number of blocks and
 * the bytes per block of each KV group. The bytes are those of the stage with the largest
 * blocks. */
struct executor_shape {
    uint32_t tp, n_blocks[SEQUENCES_MAX_KV_GROUPS], block_bytes[SEQUENCES_MAX_KV_GROUPS];
};

/* `executor_info` describes the executor, for Hello and the memory table at the start. Only
 * comm_address changes later (listen); sizes are those of the first shard. Strings are owned by
 * the executor. */
struct executor_info {
    enum device_kind device;
    struct str device_name, model;
    const char *tokenizer_path; /* path of the tokenizer; NULL = the model has none */
    uint64_t memory_bytes;      /* total memory of the device */
    char pci[32];               /* PCI address of a GPU */
    uint32_t isa_level;
    uint8_t config_hash[32], model_hash[32];
    /* address on which other ranks reach this rank; "" = not needed or not known yet */
    struct str comm_address;
    uint64_t weights_bytes, activation_bytes, comm_bytes, kv_bytes;
    uint64_t sampler_bytes;               /* part of activation_bytes: samplers in a CPU's memory */
    uint64_t grammar_bytes;               /* host memory that grammars may use in addition */
    uint64_t lora_bytes;                  /* device memory reserved for adapters */
    uint64_t draft_bytes, draft_kv_bytes; /* draft model: weights and activations; KV cache */
    struct sequences_limits limits;       /* maximum length, vocabulary, KV groups */
    /* draft tokens per sequence and step; most sequences in a step with draft tokens */
    uint32_t n_draft, draft_max_seqs;
    struct executor_shape elastic[PROTO_MAX_ELASTIC]; /* smaller TPs, [n_elastic], by falling tp */
    uint32_t n_elastic;
};

/* `executor_comm` holds the fields of a Form that the communicator needs. It is borrowed during
 * the call. */
struct executor_comm {
    uint64_t term_epoch;
    uint32_t tp, pp, rank, stage, isa_level;
    const struct str *addresses; /* addresses, [n_addresses]; rank r of stage s is at s * tp + r */
    uint32_t n_addresses;
    struct u32_span n_blocks; /* number of blocks per KV group; the same on all ranks */
    struct bytes id;
};
/* Makes a struct executor_comm from a Form and the communicator's id. The result borrows from
 * both. */
struct executor_comm executor_comm_of(const struct msg_form *f, struct bytes id);

struct executor;
struct grammar_compiler;
struct executor_ops {
    const struct executor_info *(*info)(const struct executor *e);
    /* Sets the address at which other ranks reach this rank, from the next join_comm on. NULL =
     * not needed. */
    enum status (*listen)(struct executor *e, const char *host, struct error *err);
    /* Makes the communicator's id on rank 0; every rank gets the id in Join. *n is the size of
     * `out`, then the bytes used. */
    enum status (*make_comm_id)(struct executor *e, uint8_t *out, uint32_t *n, struct error *err);
    enum status (*join_comm)(struct executor *e, const struct executor_comm *c, struct error *err);
    /* drops communicator and sequences; keeps the weights */
    void (*abort_comm)(struct executor *e);
    enum status (*reset)(struct executor *e, struct error *err); /* drops the sequences only */
    /* Executes the plan as a whole. Nothing of a refused plan (STATUS_PROTOCOL) is executed. The
     * items of *out are on the arena; only the sampling rank fills them. STATUS_CLOSED: the step
     * was interrupted. Any other error: the communicator or the device failed. */
    enum status (*step)(struct executor *e, const struct msg_plan *p, struct arena *arena,
                        struct msg_result *out, struct error *err);
    /* An executor with `in_halves` has these calls instead of `step`, because its device
     * computes while the host continues. `begin` checks a plan like `step` and enqueues it; at
     * most EXECUTOR_MAX_IN_FLIGHT plans are in flight. `finish` returns the result of the oldest
     * plan, and `is_due` returns true when `finish` would return at once. A plan that `begin`
     * refused has no `finish`. The memory of plan and arena must stay valid until `finish`, or
     * until abort_comm, which drops the plans in flight. Other calls are made only when no plan
     * is in flight. */
    enum status (*begin)(struct executor *e, const struct msg_plan *p, struct arena *arena,
                         struct error *err);
    bool (*is_due)(struct executor *e);
    enum status (*finish)(struct executor *e, struct msg_result *out, struct error *err);
    /* Checks the other ranks between steps of a replica. STATUS_IO: a peer cannot be reached.
     * NULL = nothing to check. */
    enum status (*check)(struct executor *e, struct error *err);
    /* Loads an adapter for this rank's shard, or drops it; called between steps. The text of an
     * error names file and tensor. After an error nothing has changed. STATUS_EXISTS: the
     * adapter is loaded already. m->identity is the required identity, and on return the actual
     * one. NULL = no adapters. */
    enum status (*adapter)(struct executor *e, struct msg_adapter *m, struct error *err);
    /* Called after join_comm, which may load another shard. Returns true and describes an
     * adapter that could not be loaded again, once for each. Returns false when no such adapter
     * is left. May be NULL. */
    bool (*lost_adapter)(struct executor *e, uint64_t *id, struct error *why);
    /* Gives memory back at a level, or takes it again at SLEEP_LEVEL_AWAKE with the shard that was
     * held last. Called while the executor is in no communicator. join_comm wakes the executor
     * too. `sleep_level` below has the level afterwards, after an error too. It is
     * SLEEP_LEVEL_AWAKE from the begin of a join or of an order to wake, even if that fails. */
    enum status (*sleep)(struct executor *e, enum sleep_level level, struct error *err);
    /* Describes the memory of the KV cache. Called on the loop thread, before the compute thread
     * starts and between join_comm and abort_comm. Returns false when blocks cannot be moved;
     * may be NULL. */
    bool (*kv_view)(const struct executor *e, struct kv_view *out);
    /* Returns the grammar compiler that this rank uses while it samples. Called on the loop
     * thread at any time. NULL = the device has no grammars, and each one counts as ready. */
    struct grammar_compiler *(*compiler)(const struct executor *e);
    void (*interrupt)(struct executor *e);
    /* Returns true when the process must end, with the reason: the device is lost, or an abort
     * does not end and the compute thread may be stuck in it. Called on the loop thread, after
     * each job and once a second. NULL = never. */
    bool (*lost)(const struct executor *e, struct error *why);
    void (*close)(struct executor *e);
};

struct executor {
    const struct executor_ops *ops;
    bool in_halves; /* the executor uses begin and finish; constant after opening */
    /* incremented per operator, to distinguish a slow step from a stuck one */
    _Atomic uint64_t progress;
    /* Rank and stage of the shard that is loaded or being loaded; -1 = none. join_comm changes
     * them, and any thread reads them. */
    _Atomic int32_t shard_rank, shard_stage;
    _Atomic uint32_t shard_tp;      /* TP of that shard; 0 = the TP of the options */
    _Atomic uint32_t load_permille; /* progress of join_comm's loading in 1/1000; 0 = not loading */
    _Atomic uint32_t sleep_level;   /* enum sleep_level; written by `sleep` and join_comm */
    /* `own_ns` is the time of all steps without waits for other ranks, and `own_steps` is their
     * number. own_steps 0 = the device does not measure the time. */
    _Atomic uint64_t own_ns, own_steps;
};

static inline void executor_worked(struct executor *e, uint64_t own_ns)
{
    atomic_fetch_add_explicit(&e->own_ns, own_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->own_steps, 1, memory_order_relaxed);
}

static inline void executor_bump(struct executor *e)
{
    atomic_fetch_add_explicit(&e->progress, 1, memory_order_relaxed);
}

/* `config_identity` is the input of the hashes below: SHA-256 over the canonical JSON of
 * docs/develop/protocol.md, "Configuration hash". */
struct config_identity {
    struct str model_hashes; /* hash of the model's files; null device: the model's name */
    struct str draft_hashes; /* hash of the draft model's files; "" = none */
    const char *dtype, *quantisation, *kv_dtype;
    uint32_t block_size, tp, pp, max_model_len, vocab_size;
    uint32_t pass_rows; /* the ranks of a replica must cut a step into the same passes */
    bool expert_parallel;
    struct speculation speculation; /* all ranks make or expect the same draft tokens */
};
void executor_config_hash(const struct config_identity *c, uint8_t out[32]);
/* Hashes the model alone. Workers with the same model and other options may serve in separate
 * replicas of one cluster. */
void executor_model_hash(const struct config_identity *c, uint8_t out[32]);
