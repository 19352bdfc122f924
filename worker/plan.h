#pragma once
/* `cox plan MODEL`: what each rank of a group is going to take, and what fits in its memory, by the
 * code that measures a worker before it loads. A folder is read by its config.json alone, a GGUF by
 * its header: no weight is read, and there need not be any. */
#include "common/base/str.h"
#include "common/options/plan.h"
#include "proto/messages.h"
#include "worker/program.h"

struct plan_rank {
    uint32_t rank, stage; /* rank 0 .. tp - 1 of the stage */
    uint64_t weights_bytes, activation_bytes, comm_bytes, lora_bytes, kv_bytes, total_bytes;
    uint32_t n_kv_groups;
    struct kv_group kv_groups[PROGRAM_MAX_KV_GROUPS]; /* as many blocks as a worker takes */
    uint32_t most_blocks[PROGRAM_MAX_KV_GROUPS];      /* as there is room for */
    bool fits;
    struct error reason; /* when it does not fit */
};

struct plan {
    char *model, *family;
    bool is_gguf;
    const char *dtype, *kv_dtype; /* of most weights; static */
    uint32_t tp, pp, max_model_len, block_tokens, n_threads, n_ranks;
    uint64_t memory_bytes; /* of each rank */
    bool memory_found;     /* here, not given */
    struct plan_rank *ranks;
};

/* What is not supported is named; that it does not fit is no error. plan_fini is due either way. */
MUST_USE enum status plan_make(const char *model, const struct plan_options *o, struct plan *out,
                               struct error *err);
void plan_fini(struct plan *p);
bool plan_fits(const struct plan *p);
void plan_print(const struct plan *p, struct strbuf *out);
void plan_print_json(const struct plan *p, struct strbuf *out);
/* cox-worker's mode. Returns the exit code: 0 it fits, 1 it does not, 2 usage or configuration. */
int plan_main(int argc, char **argv);
