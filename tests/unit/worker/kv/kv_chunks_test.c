/* Tests how blocks are cut into chunks: all bytes occur once and in order, and the cut does not
 * depend on the blocks' addresses. */
#include "worker/kv/chunks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_BLOCKS = 700, LIST = 600 };

static const struct {
    const char *name;
    uint32_t n_groups, n_pieces;
    uint64_t bytes[2][2]; /* bytes of a block in each piece of each group */
    uint32_t n_listed;
    uint32_t want_chunks;
} cases[] = {
    {"eight bytes each: by the number of pieces", 1, 1, {{8}}, LIST, 2},
    {"small ones fill a chunk", 1, 1, {{60000}}, 35, 3}, /* a chunk holds 17 blocks */
    {"large ones go alone", 1, 1, {{KV_PACK_BYTES}}, 5, 5},
    {"in parts of a chunk, odd ends too", 1, 1, {{2 * KV_CHUNK_BYTES + 3}}, 2, 6},
    {"two groups, two pieces", 2, 2, {{100, 200000}, {300, 7}}, 4, 5},
    {"a stage that has no layers of a group", 2, 1, {{0}, {4096}}, 10, 1},
};

static void test_cut(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kv_view v = {.n_groups = cases[i].n_groups};
        uint32_t groups[LIST], blocks[LIST], n = cases[i].n_listed, n_chunks = 0;
        for (uint32_t g = 0; g < v.n_groups; g++) {
            v.groups[g].n_blocks = N_BLOCKS;
            v.groups[g].n_pieces = cases[i].n_pieces;
            /* The addresses have no memory behind them. */
            for (uint32_t p = 0; p < cases[i].n_pieces; p++)
                v.groups[g].pieces[p] = (struct kv_piece){
                    (uint8_t *)((g + 1ull) << 48 | (p + 1ull) << 40), cases[i].bytes[g][p]};
        }
        for (uint32_t b = 0; b < n; b++) {
            groups[b] = b * v.n_groups / n;
            blocks[b] = (b * 37 + 11) % N_BLOCKS;
        }
        struct kv_walk w = {.view = &v, .groups = {groups, n}, .blocks = {blocks, n}};
        struct kv_chunk *c = malloc(sizeof *c);
        uint64_t total = kv_walk_bytes(&w), seen = 0, in_block = 0;
        uint32_t i_block = 0, i_piece = 0;
        while (kv_walk_next(&w, c)) {
            size_t n_bytes = 0;
            n_chunks++;
            assert_in_range(c->n_segments, 1, KV_CHUNK_SEGMENTS);
            for (uint32_t s = 0; s < c->n_segments; s++) {
                const struct kv_piece *p = &v.groups[groups[i_block]].pieces[i_piece];
                assert_ptr_equal(c->segments[s].ptr,
                                 p->ptr + blocks[i_block] * p->block_bytes + in_block);
                n_bytes += c->segments[s].n_bytes;
                in_block += c->segments[s].n_bytes;
                assert_true(in_block <= p->block_bytes);
                if (in_block < p->block_bytes)
                    continue;
                in_block = 0;
                i_piece = (i_piece + 1) % cases[i].n_pieces;
                i_block += i_piece == 0;
            }
            assert_int_equal(n_bytes, c->n_bytes);
            assert_true(n_bytes <= KV_CHUNK_BYTES);
            seen += n_bytes;
        }
        if (seen != total || i_block != n || n_chunks != cases[i].want_chunks)
            fail_msg("%s: %llu of %llu bytes, %u of %u blocks, %u chunks", cases[i].name,
                     (unsigned long long)seen, (unsigned long long)total, i_block, n, n_chunks);
        free(c);
    }
}

static void test_check(void **state)
{
    struct kv_view v = {
        .n_groups = 2, .groups = {{.n_pieces = 1, .n_blocks = 10}, {.n_pieces = 1, .n_blocks = 5}}};
    static const struct {
        uint32_t groups[2], blocks[2], n_groups, agreed[2], n_agreed;
        enum status want;
    } lists[] = {{{0, 1}, {9, 4}, 2, {0}, 0, STATUS_OK},
                 {{0}, {0, 9}, 0, {0}, 0, STATUS_OK},
                 {{0}, {0, 10}, 0, {0}, 0, STATUS_INVALID},
                 {{0, 1}, {9, 5}, 2, {0}, 0, STATUS_INVALID},
                 {{0, 2}, {0, 0}, 2, {0}, 0, STATUS_INVALID},
                 {{0}, {0, 0}, 1, {0}, 0, STATUS_INVALID},
                 {{0, 1}, {7, 4}, 2, {8, 5}, 2, STATUS_OK},
                 {{0, 1}, {8, 4}, 2, {8, 5}, 2, STATUS_INVALID},
                 {{0}, {0, 9}, 0, {99, 99}, 2, STATUS_OK},
                 {{0}, {0, UINT32_MAX}, 0, {UINT32_MAX, 0}, 2, STATUS_INVALID}};
    struct error err;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const struct kv_walk w = {.view = &v,
                                  .groups = {lists[i].groups, lists[i].n_groups},
                                  .blocks = {lists[i].blocks, 2}};
        assert_int_equal(
            kv_walk_check(&w, (struct u32_span){lists[i].agreed, lists[i].n_agreed}, &err),
            lists[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut), cmocka_unit_test(test_check)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
