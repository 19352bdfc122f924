/* Fuzzes the reader of step logs with valid checksums and arbitrary events. The reader must
 * return events with numbers in their ranges, or refuse them. The input is the payload of a
 * chunk. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "head/kv/blocks.h"
#include "head/record/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at(const struct step_log_event *e)
{
    struct arena arena;
    struct msg_plan plan;
    struct error err;
    const struct request *r = &e->request;
    if (e->i_replica >= STEP_LOG_MAX_REPLICAS)
        abort();
    if (e->kind == STEP_LOG_ADD && (r->n_prompt == 0 || r->n_prompt > r->n_ids || !r->ids ||
                                    r->n_ids > r->ids_cap || r->ids_cap > BLOCKS_MAX_MODEL_LEN))
        abort();
    if (e->kind == STEP_LOG_REPLICA && e->config.n_kv_groups > SCHEDULER_MAX_KV_GROUPS)
        abort();
    if (e->kind != STEP_LOG_PLAN)
        return;
    arena_init(&arena, 0);
    if (step_log_get_plan(e->plan, &arena, &plan, &err) == STATUS_OK) {
        struct step_log_out again = {0};
        /* the ids of admitted requests are not in the log */
        for (uint32_t i = 0; i < plan.n_admits; i++)
            ((struct plan_admit *)plan.admits)[i].ids.n = 0;
        step_log_put_plan(&again, &plan);
        step_log_out_fini(&again);
    }
    arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct step_log_reader *r;
    struct step_log_event *e = mem_alloc(sizeof *e);
    struct error err;
    size_t n = STEP_LOG_MAGIC_BYTES + STEP_LOG_HEAD_BYTES + size;
    uint8_t *bytes = mem_alloc(n);
    memcpy(bytes, STEP_LOG_MAGIC, STEP_LOG_MAGIC_BYTES);
    if (size > 0)
        memcpy(bytes + STEP_LOG_MAGIC_BYTES + STEP_LOG_HEAD_BYTES, data, size);
    step_log_seal(bytes + STEP_LOG_MAGIC_BYTES, (uint32_t)size, 0);
    if (step_log_open_bytes((struct str){(const char *)bytes, n}, &r, &err) != STATUS_OK)
        abort();
    while (step_log_next(r, e, &err) == STATUS_OK)
        look_at(e);
    step_log_close(r);
    mem_free(bytes);
    mem_free(e);
    return 0;
}
