#include "worker/executor/device/shard.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/draft/model.h"
#include "worker/executor/step/samplers.h"

static void note_shard(struct executor_model *x, uint32_t tp, int32_t rank, int32_t stage)
{
    atomic_store(&x->base.shard_tp, tp);
    atomic_store(&x->base.shard_rank, rank);
    atomic_store(&x->base.shard_stage, stage);
}

static double seconds_since(uint64_t begin_ns)
{
    return (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S;
}

static enum status load(struct executor_model *x, const struct comm_place *at, struct error *err)
{
    note_shard(x, at->tp, (int32_t)at->rank, (int32_t)at->stage);
    atomic_store(&x->base.load_permille, 1); /* opening the files takes time too */
    enum status s = engine_take_rank(x->engine, at->tp, at->rank, at->stage, err);
    atomic_store(&x->base.load_permille, 0);
    if (s != STATUS_OK)
        note_shard(x, 0, -1, -1);
    return s;
}

static enum status change(struct executor_model *x, const struct comm_place *at, struct error *err)
{
    const struct engine *e = x->engine;
    uint64_t begin_ns = clock_mono_ns();
    log_info("shard_changes", "from=%d/%u to=%u/%u from_stage=%d to_stage=%u model=%s",
             atomic_load(&x->base.shard_rank), e->tp, at->rank, at->tp,
             atomic_load(&x->base.shard_stage), at->stage, log_quote(e->info.path));
    TRY(load(x, at, err));
    log_info("shard_changed",
             "rank=%u/%u stage=%u/%u weights_bytes=%llu kv_bytes=%llu kv_blocks=%u seconds=%.2f",
             at->rank, at->tp, at->stage, at->pp, (unsigned long long)e->weights_bytes,
             (unsigned long long)e->kv_bytes, e->kv_groups[0].n_blocks, seconds_since(begin_ns));
    return STATUS_OK;
}

static enum status wake(struct executor_model *x, const struct comm_place *at, struct error *err)
{
    enum sleep_level level = x->engine->sleep_level;
    uint64_t begin_ns = clock_mono_ns();
    if (level == SLEEP_LEVEL_WEIGHTS)
        TRY(load(x, at, err));
    else
        TRY(engine_wake(x->engine, err));
    log_info("woke", "level=%d weights_bytes=%llu seconds=%.3f", (int)level,
             (unsigned long long)x->engine->weights_bytes, seconds_since(begin_ns));
    return STATUS_OK;
}

static enum status take(struct executor_model *x, const struct comm_place *at, struct error *err)
{
    const struct engine *e = x->engine;
    bool held = atomic_load(&x->base.shard_rank) == (int32_t)at->rank &&
                atomic_load(&x->base.shard_stage) == (int32_t)at->stage && e->tp == at->tp;
    if (!held)
        TRY(change(x, at, err));
    else if (e->sleep_level != SLEEP_LEVEL_AWAKE)
        TRY(wake(x, at, err));
    return x->draft_model ? draft_model_wake(x->draft_model, err) : STATUS_OK;
}

static void note_level(struct executor_model *x)
{
    enum sleep_level level = x->engine->sleep_level;
    if (x->draft_model && draft_model_engine(x->draft_model)->sleep_level > level)
        level = draft_model_engine(x->draft_model)->sleep_level;
    atomic_store(&x->base.sleep_level, (uint32_t)level);
}

enum status executor_take_shard(struct executor_model *x, const struct comm_place *at,
                                struct error *err)
{
    /* The sleep ends with the order, not with its success. Hello would otherwise say that a rank
     * sleeps which is loading or cannot load, and the next head would let the cluster sleep. */
    atomic_store(&x->base.sleep_level, SLEEP_LEVEL_AWAKE);
    return take(x, at, err);
}

enum status executor_sleep(struct executor *executor, enum sleep_level level, struct error *err)
{
    struct executor_model *x = (struct executor_model *)executor;
    const struct comm_place at = x->place;
    if (level == SLEEP_LEVEL_AWAKE)
        return executor_take_shard(x, &at, err);
    enum status s = engine_sleep(x->engine, level, err);
    if (s == STATUS_OK && x->draft_model)
        s = draft_model_sleep(x->draft_model, level, err);
    if (x->engine->sleep_level == SLEEP_LEVEL_WEIGHTS)
        executor_samplers_close(x); /* the next join opens them again */
    note_level(x);
    return s;
}
