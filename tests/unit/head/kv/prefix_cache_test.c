/* Tests the prefix cache, the map from the content of a block to its number. The first tests
 * show single rules: collisions of hashes, equal content twice, parents that were reused. The
 * last test compares random operations with a plain array. Keys point to the test's own ids,
 * which stay valid as long as the cache. `check` verifies the map's invariants after each
 * change. All tests run on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "head/kv/block_pool.h"
#include "head/kv/prefix_cache.h"

enum { BT = 16 };

static void check(const struct prefix_cache *c)
{
    struct error err;
    if (!prefix_cache_check(c, &err))
        fail_msg("%s", err.text);
}

static void fill(uint32_t *ids, uint32_t first)
{
    for (uint32_t i = 0; i < BT; i++)
        ids[i] = first + i;
}

static struct prefix_key key_of(struct block_hash parent, uint64_t parent_content,
                                const uint32_t *ids)
{
    return (struct prefix_key){prefix_hash_block(parent, ids, BT), parent, parent_content, ids, BT};
}

static uint64_t enter(struct prefix_cache *c, uint32_t block, const struct prefix_key *k)
{
    return prefix_cache_register(c, block, k).content;
}

static void hashes_depend_on_salt_adapter_parent_and_ids(void **state)
{
    uint32_t a[BT], b[BT];
    fill(a, 0);
    fill(b, 1);
    struct block_hash root = prefix_hash_root((struct block_hash){1, 0}, STR(""), 0),
                      h[5] = {
                          prefix_hash_block(root, a, BT),
                          prefix_hash_block(root, b, BT),
                          prefix_hash_block(prefix_hash_root((struct block_hash){2, 0}, STR(""), 0),
                                            a, BT),
                          prefix_hash_block(
                              prefix_hash_root((struct block_hash){1, 0}, STR("adapter"), 0), a,
                              BT),
                          prefix_hash_block(prefix_hash_block(root, b, BT), a, BT),
                      };
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_true(h[i].lo != h[k].lo && h[i].hi != h[k].hi);
}

static void a_hit_is_confirmed_by_ids_and_parent(void **state)
{
    struct prefix_cache *c = prefix_cache_new(8, BT);
    struct block_hash root = prefix_hash_root((struct block_hash){0, 0}, STR(""), 0);
    uint32_t a[BT], b[BT];
    fill(a, 0);
    fill(b, 100);
    struct prefix_key first = key_of(root, PREFIX_CONTENT_ROOT, a);
    uint64_t content = enter(c, 3, &first);
    assert_int_equal(prefix_cache_find(c, &first), 3);
    assert_true(prefix_cache_content(c, 3) == content);

    struct prefix_key collision = first; /* this key has the same hash for other tokens */
    collision.ids = b;
    assert_int_equal(prefix_cache_find(c, &collision), BLOCK_NONE);

    struct prefix_key second = key_of(first.hash, content, b);
    enter(c, 5, &second);
    assert_int_equal(prefix_cache_find(c, &second), 5);
    second.parent_content = content + 100; /* this key has the same hash below another parent */
    assert_int_equal(prefix_cache_find(c, &second), BLOCK_NONE);
    second.parent_content = PREFIX_CONTENT_ANY;
    assert_int_equal(prefix_cache_find(c, &second), 5);
    second.parent_hash = root;
    assert_int_equal(prefix_cache_find(c, &second), BLOCK_NONE);
    check(c);
    prefix_cache_free(c);
}

static void equal_content_is_registered_once_and_a_new_parent_wins(void **state)
{
    struct prefix_cache *c = prefix_cache_new(8, BT);
    uint32_t a[BT];
    fill(a, 7);
    struct prefix_key k =
        key_of(prefix_hash_root((struct block_hash){0, 0}, STR(""), 0), PREFIX_CONTENT_ROOT, a);
    uint64_t content = enter(c, 0, &k);
    assert_true(enter(c, 1, &k) == content);
    assert_false(prefix_cache_holds(c, 1));
    k.parent_content = 55; /* the parent's block was reused, so the old entry cannot be found */
    assert_true(enter(c, 2, &k) != content);
    assert_int_equal(prefix_cache_find(c, &k), 2);
    assert_false(prefix_cache_holds(c, 0));
    check(c);
    prefix_cache_free(c);
}

static void random_operations_agree_with_a_model(void **state)
{
    enum { N = 24, N_KINDS = 40 };
    struct prefix_cache *c = prefix_cache_new(N, BT);
    struct block_hash root = prefix_hash_root((struct block_hash){9, 0}, STR(""), 0);
    struct rng rng = {4};
    uint32_t ids[N_KINDS][BT];
    int held[N]; /* kind of tokens in each block; -1 = none */
    memset(held, -1, sizeof held);
    for (uint32_t i = 0; i < N_KINDS; i++)
        fill(ids[i], i * BT);
    for (int i = 0; i < 20000; i++) {
        uint32_t block = (uint32_t)rng_below(&rng, N), kind = (uint32_t)rng_below(&rng, N_KINDS);
        struct prefix_key k = key_of(root, PREFIX_CONTENT_ROOT, ids[kind]);
        uint32_t want = BLOCK_NONE;
        for (uint32_t b = 0; b < N; b++)
            want = held[b] == (int)kind ? b : want;
        assert_int_equal(prefix_cache_find(c, &k), want);
        if (rng_below(&rng, 2)) {
            prefix_cache_forget(c, block);
            held[block] = -1;
        } else if (held[block] == -1) {
            enter(c, block, &k);
            held[block] = want == BLOCK_NONE ? (int)kind : -1;
        }
        if (i % 100 == 0)
            check(c);
    }
    prefix_cache_reset(c);
    for (uint32_t block = 0; block < N; block++)
        assert_false(prefix_cache_holds(c, block));
    check(c);
    prefix_cache_free(c);
}

/* ---- comparison with a simple model, in crowded buckets ---- */

enum { MODEL_BLOCKS = 40 };
struct model_block {
    bool registered;
    struct prefix_key key;
    uint32_t ids[2];
};

static bool same_key(const struct model_block *m, const struct prefix_key *k)
{
    return m->registered && m->key.hash.lo == k->hash.lo && m->key.hash.hi == k->hash.hi &&
           m->key.n == k->n && m->key.parent_content == k->parent_content &&
           memcmp(m->ids, k->ids, k->n * sizeof *k->ids) == 0;
}

/* Returns a random key. Few hashes exist, so that buckets fill up, tags agree and hashes
 * collide. */
static struct prefix_key draw_key(struct rng *r, const uint32_t spread[2], uint32_t ids[2])
{
    struct prefix_key k = {.ids = ids, .n = 1 + (uint32_t)rng_below(r, 2)};
    k.hash.lo = rng_below(r, spread[0]);
    k.hash.hi = rng_below(r, spread[1]) << 32 | rng_below(r, 3);
    k.parent_content = 1 + rng_below(r, 2);
    ids[0] = rng_below(r, 3) ? (uint32_t)k.hash.lo : (uint32_t)rng_below(r, 2);
    ids[1] = 0;
    return k;
}

static void model_register(struct prefix_cache *c, struct model_block *m, uint32_t block,
                           const struct prefix_key *k, uint32_t *n_displaced)
{
    struct prefix_registered got = prefix_cache_register(c, block, k);
    if (got.displaced != BLOCK_NONE)
        m[got.displaced].registered = false;
    *n_displaced += got.displaced != BLOCK_NONE;
    m[block].registered = got.is_new;
    m[block].key = *k;
    memcpy(m[block].ids, k->ids, sizeof m[block].ids);
    assert_int_equal(prefix_cache_content(c, block), got.is_new ? got.content : 0);
}

static uint32_t model_find(const struct model_block *m, uint32_t n, const struct prefix_key *k)
{
    for (uint32_t i = 0; i < n; i++)
        if (same_key(&m[i], k))
            return i;
    return BLOCK_NONE;
}

static void crowded_buckets_do_as_the_model_does(void **state)
{
    struct rng r = {17};
    uint32_t n_displaced = 0;
    for (uint32_t world = 0; world < 60; world++) {
        struct model_block m[MODEL_BLOCKS] = {{0}};
        uint32_t n = 1 + (uint32_t)rng_below(&r, MODEL_BLOCKS);
        const uint32_t spread[2] = {1 + (uint32_t)rng_below(&r, 4), 1 + (uint32_t)rng_below(&r, 4)};
        struct prefix_cache *c = prefix_cache_new(n, 16);
        for (uint32_t i = 0; i < 1000; i++) {
            uint32_t ids[2], block = (uint32_t)rng_below(&r, n), op = (uint32_t)rng_below(&r, 10);
            const struct prefix_key k = draw_key(&r, spread, ids);
            if (op < 3) {
                prefix_cache_forget(c, block);
                m[block].registered = false;
            } else if (op < 6) {
                assert_int_equal(prefix_cache_find(c, &k), model_find(m, n, &k));
            } else {
                model_register(c, m, block, &k, &n_displaced);
            }
            for (uint32_t b = 0; b < n; b++)
                assert_int_equal(prefix_cache_holds(c, b), m[b].registered);
            check(c);
        }
        prefix_cache_free(c);
    }
    assert_true(n_displaced > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowded_buckets_do_as_the_model_does),
        cmocka_unit_test(hashes_depend_on_salt_adapter_parent_and_ids),
        cmocka_unit_test(a_hit_is_confirmed_by_ids_and_parent),
        cmocka_unit_test(equal_content_is_registered_once_and_a_new_parent_wins),
        cmocka_unit_test(random_operations_agree_with_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
