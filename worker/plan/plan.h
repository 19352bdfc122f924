#pragma once
/* Computes `cox plan MODEL`: the memory that each rank of a replica will use, and the number of
 * sequences that fit. The code is the same that measures a worker before it loads. For a folder
 * it reads only config.json, and for a GGUF only the header. It reads no weights, and the files
 * of weights need not exist. */
#include "common/base/str.h"
#include "common/options/plan.h"
#include "proto/messages.h"
#include "worker/model/program.h"

struct plan_rank {
    uint32_t rank, stage; /* rank: 0 .. tp - 1 within the stage */
    uint64_t weights_bytes, activation_bytes, comm_bytes, lora_bytes, kv_bytes, total_bytes;
    uint32_t n_kv_groups;
    /* n_blocks: the blocks that a worker takes by default */
    struct kv_group kv_groups[PROGRAM_MAX_KV_GROUPS];
    uint32_t most_blocks[PROGRAM_MAX_KV_GROUPS]; /* blocks that fit in memory */
    bool fits;
    struct error reason; /* reason why the rank does not fit; set only then */
};

/* `plan_counts` holds the figures of the whole model on which its speed depends. */
struct plan_counts {
    /* all weights; n_read: weights outside experts that every token uses */
    double n_params, n_read;
    double n_of_experts; /* weights of all experts */
    double chosen;       /* fraction of the experts that a token uses; 0 = no experts */
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, intermediate, vocab_size;
    bool is_latent;
};

struct plan {
    char *model, *family;
    bool is_gguf, is_foreseen;
    bool activations_estimated;   /* true for a GPU, in a build without CUDA kernels */
    struct plan_counts counts;    /* set in a plan for one rank */
    const char *dtype, *kv_dtype; /* main type of the weights, type of the KV cache; static */
    uint32_t tp, pp, max_model_len, block_tokens, n_threads, n_ranks;
    uint64_t memory_bytes; /* memory of each rank */
    bool memory_found;     /* the memory was found on this machine, not given by the user */
    struct plan_rank *ranks;
};

/* Makes a plan for this machine. An unsupported model is an error that names the reason. A model
 * that does not fit is not an error. Call plan_fini in any case. */
MUST_USE enum status plan_make(const char *model, const struct plan_options *o, struct plan *out,
                               struct error *err);
/* Like plan_make, for GPUs with o->memory_bytes that this machine does not have. A build without
 * CUDA counts weights and KV cache with its own packing and estimates the activations. */
MUST_USE enum status plan_foresee(const char *model, const struct plan_options *o, struct plan *out,
                                  struct error *err);
/* `plan_pass` is the input of the estimate of a GPU's activations. */
struct plan_pass {
    uint64_t widths; /* sum over the program's buffers */
    uint32_t n_rows, vocab_size;
    /* mixture of experts on this rank; zeros when there is none */
    uint32_t n_chosen, hidden, expert_width;
};
/* Returns an estimate within 6 % of the counted bytes for the models of bench/models, as
 * test_plan_gpus.py checks. The model called negligible gets twice its counted bytes. */
uint64_t plan_estimate_activations(const struct plan_pass *p);
/* Returns the KV cache bytes of one token over all ranks, while the token is still in every
 * window. */
uint64_t plan_token_bytes(const struct plan *p);
/* Returns the number of sequences of full length that fit at once. */
uint64_t plan_max_batch(const struct plan *p);
void plan_fini(struct plan *p);
bool plan_fits(const struct plan *p);
void plan_print(const struct plan *p, struct strbuf *out);
void plan_print_json(const struct plan *p, struct strbuf *out);
