/* Implements the collectives of a rank on a GPU. Each collective is one call of NCCL or one
 * group of calls, on the object's stream. A first call may be in progress for a while, because
 * it connects. The object must wait for such a call; otherwise later work would be enqueued
 * before the call's work. */
#include "kernels/cuda/comm/nccl_state.h"

/* GROUP_CALLS is the largest number of calls in a group. NCCL allows 2048. */
enum { GROUP_CALLS = 512 };

static enum status not_joined(struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "a collective was called before this rank joined a replica. Report this bug");
}

static enum status sum(struct gpu_comm *base, void *x, size_t n, int type, struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    if (base->group.tp == 0)
        return not_joined(err);
    /* a stage of one rank has no communicator */
    if (n == 0 || (base->group.tp == 1 && base->group.pp > 1))
        return STATUS_OK;
    TRY(nccl_enter(c, err));
    int result =
        c->api.all_reduce(x, x, n, type, NCCL_SUM, c->stage, gpu_stream_native(c->o.stream));
    nccl_exit(c);
    return nccl_settle(c, &c->stage, result, "ncclAllReduce", c->o.wait_timeout_ms, err);
}

enum status nccl_sum_bf16(struct gpu_comm *base, void *x, size_t n, struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    if (nccl_oneshot_takes(c, x, n))
        return nccl_oneshot_sum(c, x, n, err);
    return sum(base, x, n, NCCL_BFLOAT16, err);
}

enum status nccl_sum_floats(struct gpu_comm *base, float *x, size_t n, struct error *err)
{
    return sum(base, x, n, NCCL_FLOAT32, err);
}

enum status nccl_broadcast(struct gpu_comm *base, uint32_t root, void *data, size_t n_bytes,
                           struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    uint32_t world = base->group.tp * base->group.pp;
    if (world == 0)
        return not_joined(err);
    if (root >= world)
        return error_set(
            err, STATUS_INVALID,
            "a collective names rank %u as its root, but there are %u ranks. Report this bug", root,
            world);
    if (n_bytes == 0)
        return STATUS_OK;
    TRY(nccl_enter(c, err));
    int result = c->api.broadcast(data, data, n_bytes, NCCL_INT8, (int)root, c->all,
                                  gpu_stream_native(c->o.stream));
    nccl_exit(c);
    return nccl_settle(c, &c->all, result, "ncclBroadcast", c->o.wait_timeout_ms, err);
}

static enum status check_peer(const struct gpu_comm *base, uint32_t peer, struct error *err)
{
    const struct gpu_comm_group *g = &base->group;
    if (g->tp == 0)
        return not_joined(err);
    if (peer >= g->tp * g->pp || peer == g->stage * g->tp + g->rank)
        return error_set(err, STATUS_INVALID,
                         "a transfer names position %u, but it must be one of %u positions and not "
                         "the caller's, %u. Report this bug",
                         peer, g->tp * g->pp, g->stage * g->tp + g->rank);
    return STATUS_OK;
}

enum status nccl_send(struct gpu_comm *base, uint32_t to, const void *data, size_t n_bytes,
                      struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    TRY(check_peer(base, to, err));
    TRY(nccl_enter(c, err));
    int result =
        c->api.send(data, n_bytes, NCCL_INT8, (int)to, c->all, gpu_stream_native(c->o.stream));
    nccl_exit(c);
    return nccl_settle(c, &c->all, result, "ncclSend", c->o.wait_timeout_ms, err);
}

enum status nccl_receive(struct gpu_comm *base, uint32_t from, void *data, size_t n_bytes,
                         struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    TRY(check_peer(base, from, err));
    TRY(nccl_enter(c, err));
    int result =
        c->api.recv(data, n_bytes, NCCL_INT8, (int)from, c->all, gpu_stream_native(c->o.stream));
    nccl_exit(c);
    return nccl_settle(c, &c->all, result, "ncclRecv", c->o.wait_timeout_ms, err);
}

/* ---- columns ---- */

/* Transfers one row. Rank 0 receives the other ranks' columns directly at their places, without
 * scratch or a second copy. Every other rank sends its own columns. */
static int call_row(struct nccl_comm *c, const struct gpu_comm_columns *m, float *row)
{
    void *stream = gpu_stream_native(c->o.stream);
    uint32_t own = c->base.group.rank;
    int first = NCCL_SUCCESS;
    if (own != 0)
        return m->n[own] > 0 ? c->api.send(row, m->n[own], NCCL_FLOAT32, 0, c->stage, stream)
                             : NCCL_SUCCESS;
    for (uint32_t r = 1; r < c->base.group.tp; r++) {
        if (m->n[r] == 0)
            continue;
        int result =
            c->api.recv(row + m->first[r], m->n[r], NCCL_FLOAT32, (int)r, c->stage, stream);
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
            first = result;
    }
    return first;
}

static int call_rows(struct nccl_comm *c, const struct gpu_comm_columns *m, uint32_t i, uint32_t n)
{
    int result = c->api.group_start(), first = NCCL_SUCCESS;
    if (result != NCCL_SUCCESS)
        return result;
    for (uint32_t end = i + n; i < end; i++) {
        result = call_row(c, m, m->x + (size_t)i * m->stride);
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
            first = result;
    }
    result = c->api.group_end();
    return first != NCCL_SUCCESS ? first : result;
}

enum status nccl_gather(struct gpu_comm *base, const struct gpu_comm_columns *m, struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    uint32_t tp = base->group.tp;
    if (tp == 0)
        return not_joined(err);
    if (tp == 1)
        return STATUS_OK;
    uint32_t at_once = GROUP_CALLS / tp;
    for (uint32_t i = 0; i < m->n_rows; i += at_once) {
        uint32_t n = m->n_rows - i < at_once ? m->n_rows - i : at_once;
        TRY(nccl_enter(c, err));
        int result = call_rows(c, m, i, n);
        nccl_exit(c);
        TRY(nccl_settle(c, &c->stage, result, "columns to rank 0", c->o.wait_timeout_ms, err));
    }
    return STATUS_OK;
}
