#pragma once
/* One device behind one vtable: what turns a plan into tokens. device/null.c fills the table for
 * the null device, device/model.c for CPUs and GPUs; device/open.h picks one. `struct executor` is
 * embedded first.
 *
 * Threads: open, info, listen, make_comm_id, interrupt and close are called on the loop's thread
 * (close with the compute thread gone); join_comm, abort_comm, reset, step, check, adapter and
 * lost_adapter on the compute thread, one at a time, and may block. interrupt makes whatever blocks
 * there return soon with STATUS_CLOSED; abort_comm follows and clears it. */
#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/options/speculation.h"
#include "proto/limits.h"
#include "proto/messages.h"
#include "worker/kv/view.h"
#include "worker/sequences/sequences.h"

#define COMM_ID_MAX_BYTES      512u
#define EXECUTOR_MAX_IN_FLIGHT 2u

/* A smaller TP that this worker could be a rank of, the blocks it would hold then, and the bytes of
 * one (of the stage whose are largest). */
struct executor_shape {
    uint32_t tp, n_blocks[SEQUENCES_MAX_KV_GROUPS], block_bytes[SEQUENCES_MAX_KV_GROUPS];
};

/* What Hello says and the start-up memory table prints: never changes but for comm_address
 * (listen), the sizes are those of the shard it started with. Strings are owned by the executor. */
struct executor_info {
    enum device_kind device;
    struct str device_name, model;
    const char *tokenizer_path; /* the model's; NULL: it has none */
    uint64_t memory_bytes;      /* of the device */
    char pci[32];               /* of a GPU: where it sits */
    uint32_t isa_level;
    uint8_t config_hash[32], model_hash[32];
    struct str comm_address; /* where other ranks reach this one; "": they need not, or not yet */
    uint64_t weights_bytes, activation_bytes, comm_bytes, kv_bytes;
    uint64_t sampler_bytes;               /* of activation_bytes: what samples, on a CPU's heap */
    uint64_t grammar_bytes;               /* host memory that grammars may take beside all that */
    uint64_t lora_bytes;                  /* room for adapters */
    uint64_t draft_bytes, draft_kv_bytes; /* of a draft model: weights and activations, KV cache */
    struct sequences_limits limits;       /* model length, vocabulary, KV groups */
    uint32_t n_draft, draft_max_seqs;     /* as Hello says them */
    struct executor_shape elastic[PROTO_MAX_ELASTIC]; /* [n_elastic], tp falling */
    uint32_t n_elastic;
};

/* What a Form says, as the communicator needs it. Borrowed for the call. */
struct executor_comm {
    uint64_t term_epoch;
    uint32_t tp, pp, rank, stage, isa_level;
    const struct str *addresses; /* stage-major, [n_addresses] */
    uint32_t n_addresses;
    struct u32_span n_blocks; /* per KV group, agreed */
    struct bytes id;
};
/* What a Form says; id: the communicator's. Borrows what f and id borrow. */
struct executor_comm executor_comm_of(const struct msg_form *f, struct bytes id);

struct executor;
struct grammar_compiler;
struct executor_ops {
    const struct executor_info *(*info)(const struct executor *e);
    /* Other ranks reach this host there from the next join_comm on. NULL: they need not. */
    enum status (*listen)(struct executor *e, const char *host, struct error *err);
    /* Rank 0: an id that every rank gets in Join. *n: room, then bytes used. */
    enum status (*make_comm_id)(struct executor *e, uint8_t *out, uint32_t *n, struct error *err);
    enum status (*join_comm)(struct executor *e, const struct executor_comm *c, struct error *err);
    void (*abort_comm)(struct executor *e); /* drops the sequences too; keeps the weights */
    enum status (*reset)(struct executor *e, struct error *err); /* drops the sequences only */
    /* Executes the plan whole or, when it is refused (STATUS_PROTOCOL), not at all. items of *out
     * are on the arena; only rank 0 of the last stage fills them. STATUS_CLOSED: interrupted.
     * Anything else: the communicator or the device failed. */
    enum status (*step)(struct executor *e, const struct msg_plan *p, struct arena *arena,
                        struct msg_result *out, struct error *err);
    /* Of executors with in_halves, in the place of step, whose device computes while the host goes
     * on: begin checks a plan as step does and enqueues it, with at most EXECUTOR_MAX_IN_FLIGHT
     * under way; finish gives the oldest one's result. is_due: of that one, would finish return at
     * once? What was refused by begin has no finish. p's and the arena's memory stays until finish
     * or abort_comm, which drops what is under way; other calls come when nothing is. */
    enum status (*begin)(struct executor *e, const struct msg_plan *p, struct arena *arena,
                         struct error *err);
    bool (*is_due)(struct executor *e);
    enum status (*finish)(struct executor *e, struct msg_result *out, struct error *err);
    /* Between steps of a replica: STATUS_IO when a peer is out of reach. NULL: there are none. */
    enum status (*check)(struct executor *e, struct error *err);
    /* Between steps: loads an adapter of this rank's shard, or drops it. What is wrong with one is
     * said with file and tensor, and changes nothing. STATUS_EXISTS: it is here. m->identity: what
     * it has to be, then what it is. NULL: it takes none. */
    enum status (*adapter)(struct executor *e, struct msg_adapter *m, struct error *err);
    /* After join_comm, which may read another shard: an adapter that could not be read with it and
     * is not here any more, each once. NULL or false: there is none. */
    bool (*lost_adapter)(struct executor *e, uint64_t *id, struct error *why);
    /* On the loop's thread, before the compute thread is there and between join_comm and
     * abort_comm: where its KV cache lies. NULL or false: it is moved nowhere. */
    bool (*kv_view)(const struct executor *e, struct kv_view *out);
    /* On the loop's thread, at any time: what compiles grammars for this rank while it samples.
     * NULL: it has none, and every grammar is ready. */
    struct grammar_compiler *(*compiler)(const struct executor *e);
    void (*interrupt)(struct executor *e);
    /* The process has to end, and why: its device is lost, or an abort does not come to an end and
     * the compute thread may be stuck in it. On the loop's thread, after each job and once a
     * second. NULL: never so. */
    bool (*lost)(const struct executor *e, struct error *why);
    void (*close)(struct executor *e);
};

struct executor {
    const struct executor_ops *ops;
    bool in_halves;            /* steps are begun and finished; constant from the opening on */
    _Atomic uint64_t progress; /* bumped per operator: "alive but stuck" differs from "slow" */
    /* Whose weights are here, or being loaded: join_comm may change it. -1: none. Any thread reads.
     */
    _Atomic int32_t shard_rank, shard_stage;
    _Atomic uint32_t shard_tp;      /* 0: the one it was started for */
    _Atomic uint32_t load_permille; /* of a shard that join_comm reads now; 0: none */
    /* Spent on steps by this rank, not waiting for others; steps 0: the device does not measure it.
     */
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

/* SHA-256 over the canonical JSON of docs/develop/protocol.md, "Configuration hash". */
struct config_identity {
    struct str model_hashes; /* of the model's files; the null device: its name */
    struct str draft_hashes; /* of the draft model's, where one drafts */
    const char *dtype, *quantisation, *kv_dtype;
    uint32_t block_size, tp, pp, max_model_len, vocab_size;
    uint32_t pass_rows; /* what ranks cut a step by: a replica's have to cut it alike */
    bool expert_parallel;
    struct speculation speculation; /* the ranks draft, or expect draft tokens: the same ones */
};
void executor_config_hash(const struct config_identity *c, uint8_t out[32]);
/* Of the model alone: workers that differ in the rest may serve side by side, in replicas of their
 * own. */
void executor_model_hash(const struct config_identity *c, uint8_t out[32]);
