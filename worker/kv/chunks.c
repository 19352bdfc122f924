#include "worker/kv/chunks.h"

#include "worker/comm/comm.h"

static uint32_t group_of(const struct kv_walk *w, uint32_t i_block)
{
    return w->groups.n > 0 ? w->groups.ptr[i_block] : 0;
}

enum status kv_walk_check(const struct kv_walk *w, struct u32_span n_blocks, struct error *err)
{
    if (w->groups.n != 0 && w->groups.n != w->blocks.n)
        return error_set(err, STATUS_INVALID,
                         "the KV transfer has %u group numbers for %u blocks, but needs one for "
                         "each block or none. Report this bug",
                         w->groups.n, w->blocks.n);
    for (uint32_t i = 0; i < w->blocks.n; i++) {
        uint32_t g = group_of(w, i), block = w->blocks.ptr[i];
        if (g >= w->view->n_groups)
            return error_set(err, STATUS_INVALID,
                             "the transfer names a block of KV group %u, but this rank has %u KV "
                             "groups. Report this bug",
                             g, w->view->n_groups);
        uint32_t n = w->view->groups[g].n_blocks;
        n = g < n_blocks.n && n_blocks.ptr[g] < n ? n_blocks.ptr[g] : n;
        if (block >= n)
            return error_set(
                err, STATUS_INVALID,
                "the transfer names block %u of KV group %u, which has %u blocks. Report this bug",
                block, g, n);
    }
    return STATUS_OK;
}

uint64_t kv_chunks_memory_bytes(void)
{
    return comm_link_bytes() + comm_group_bytes(2, false) + KV_CHUNK_BYTES;
}

uint64_t kv_walk_bytes(const struct kv_walk *w)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->blocks.n; i++) {
        const struct kv_view_group *g = &w->view->groups[group_of(w, i)];
        for (uint32_t p = 0; p < g->n_pieces; p++)
            n += g->pieces[p].block_bytes;
    }
    return n;
}

/* Takes the next part of the current piece, as much as fits. Returns false at the end, or when
 * the piece needs a chunk of its own. */
static bool take_segment(struct kv_walk *w, size_t room, bool is_first, struct kv_segment *out)
{
    const struct kv_view_group *g = &w->view->groups[group_of(w, w->i_block)];
    const struct kv_piece *p = &g->pieces[w->i_piece];
    uint64_t left = p->block_bytes - w->at;
    bool is_small = p->block_bytes < KV_PACK_BYTES;
    if (!is_first && (!is_small || left > room))
        return false;
    size_t n = left < room ? (size_t)left : room;
    *out = (struct kv_segment){p->ptr + w->blocks.ptr[w->i_block] * p->block_bytes + w->at, n};
    w->at += n;
    if (w->at < p->block_bytes)
        return true;
    w->at = 0;
    if (++w->i_piece < g->n_pieces)
        return true;
    w->i_piece = 0;
    w->i_block++;
    return true;
}

bool kv_walk_next(struct kv_walk *w, struct kv_chunk *out)
{
    bool is_packed = true;
    out->n_segments = 0;
    out->n_bytes = 0;
    while (is_packed && w->i_block < w->blocks.n && out->n_segments < KV_CHUNK_SEGMENTS) {
        struct kv_segment *s = &out->segments[out->n_segments];
        const struct kv_view_group *g = &w->view->groups[group_of(w, w->i_block)];
        is_packed = g->pieces[w->i_piece].block_bytes < KV_PACK_BYTES;
        if (!take_segment(w, KV_CHUNK_BYTES - out->n_bytes, out->n_segments == 0, s))
            break;
        out->n_segments++;
        out->n_bytes += s->n_bytes;
    }
    return out->n_segments > 0;
}
