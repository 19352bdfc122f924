/* Tests draft tokens from n-grams. On short texts of few letters they equal those of an
 * exhaustive search. On long texts, where the search is bounded, they follow an earlier match.
 * They depend only on the ids, not on the earlier content of the index. */
#include "worker/sequences/ngram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/random.h"

enum { MAX_IDS = 3000, MAX_DRAFTS = 8 };

static uint32_t draft_token(struct draft_ngram *d, const struct draft_ngram_config *c,
                            uint32_t *ids, uint32_t n_ids, uint32_t n_max)
{
    struct error err = {0};
    uint32_t n;
    if (draft_ngram_propose(d, c, ids, n_ids, n_max, &n, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return n;
}

static void test_texts(void **state)
{
    static const struct {
        const char *text, *want; /* ids before, expected draft tokens; a letter stands for an id */
        uint32_t n_max, n_min, n_drafts;
    } cases[] = {
        {"", "", 4, 2, 4},
        {"a", "", 4, 1, 4},
        {"aa", "a", 4, 1, 4},
        {"ab", "", 4, 1, 4},
        {"abcab", "c", 4, 2, 4}, /* two ids are in common, which gives one draft token */
        {"abcab", "c", 2, 1, 4},
        {"abcab", "", 4, 3, 4},
        {"abcab", "", 2, 2, 0},
        {"abcdefabcde", "fa", 4, 2, 4}, /* five ids are in common, and the longest match is used */
        {"abcdefabcdef", "abc", 4, 2, 4},
        {"abcdefabcdef", "ab", 4, 2, 2},
        {"xabcyabdzab", "d", 2, 2, 4},          /* the latest of equally long matches is used */
        {"xabcyabdxab", "c", 3, 2, 4},          /* a longer match is used instead of a later one */
        {"xabcyabdxab", "d", 2, 2, 4},          /* a match is no longer than n_max */
        {"abcabcabcabcabc", "abcabc", 4, 2, 8}, /* a loop continues past its end */
        {"aaaaaaaaaaaaaaaaa", "aaaaaaaa", 4, 2, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct draft_ngram_config c = {cases[i].n_max, cases[i].n_min};
        struct draft_ngram d = {0};
        uint32_t ids[64], n_ids = (uint32_t)strlen(cases[i].text);
        for (uint32_t k = 0; k < n_ids; k++)
            ids[k] = (uint32_t)cases[i].text[k];
        uint32_t n = draft_token(&d, &c, ids, n_ids, cases[i].n_drafts);
        assert_int_equal(n, strlen(cases[i].want));
        for (uint32_t k = 0; k < n; k++)
            assert_int_equal(ids[n_ids + k], cases[i].want[k]);
        draft_ngram_fini(&d);
    }
}

/* Returns the position after the latest of the longest matches, by an exhaustive search. Returns
 * 0 when there is none. */
static uint32_t look_at_all(const struct draft_ngram_config *c, const uint32_t *ids, uint32_t n_ids)
{
    for (uint32_t n = c->n_max; n >= c->n_min; n--)
        for (uint32_t end = n_ids - 1; end >= n && n < n_ids; end--)
            if (memcmp(ids + end - n, ids + n_ids - n, n * sizeof *ids) == 0)
                return end;
    return 0;
}

static void test_against_a_full_search(void **state)
{
    struct rng rng = {11};
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t n_letters = 1 + (uint32_t)rng_below(&rng, 6), ids[64 + MAX_DRAFTS];
        struct draft_ngram_config c = {.n_min = 1 + (uint32_t)rng_below(&rng, 3)};
        struct draft_ngram d = {0};
        c.n_max = c.n_min + (uint32_t)rng_below(&rng, 4);
        for (uint32_t n_ids = 1; n_ids <= 64; n_ids++) {
            ids[n_ids - 1] = (uint32_t)rng_below(&rng, n_letters);
            if (rng_below(&rng, 3) == 0)
                continue; /* some lengths are not tested */
            uint32_t from = look_at_all(&c, ids, n_ids), n = draft_token(&d, &c, ids, n_ids, 5);
            uint32_t common = 0;
            while (common < from && ids[from - 1 - common] == ids[n_ids - 1 - common])
                common++;
            uint32_t want = common / 2 < 5 ? common / 2 : 5;
            if (n != (from == 0 ? 0 : want > 0 ? want : 1))
                fail_msg("round %u, %u ids: %u draft tokens, from %u", round, n_ids, n, from);
            for (uint32_t k = 0; k < n; k++)
                assert_int_equal(ids[n_ids + k], ids[from + k]);
        }
        draft_ngram_fini(&d);
    }
}

static void test_drafts_follow_from_the_ids(void **state)
{
    static uint32_t ids[MAX_IDS + MAX_DRAFTS], again[MAX_IDS + MAX_DRAFTS];
    const struct draft_ngram_config c = {16, 2};
    struct rng rng = {12};
    struct draft_ngram used = {0};
    for (uint32_t i = 0; i < MAX_IDS; i++)
        /* two different ids make chains far longer than the limit of the search */
        ids[i] = (uint32_t)rng_below(&rng, 2);
    assert_true(draft_token(&used, &c, ids, MAX_IDS, 8) > 0);
    draft_ngram_reset(&used);
    for (uint32_t i = 0; i < MAX_IDS; i++)
        ids[i] = (uint32_t)rng_below(&rng, i % 500 < 250 ? 3 : 40);
    for (uint32_t n_ids = 1; n_ids < MAX_IDS; n_ids += 1 + (uint32_t)rng_below(&rng, 9)) {
        struct draft_ngram fresh = {0};
        memcpy(again, ids, n_ids * sizeof *ids);
        memcpy(again + n_ids, ids + n_ids, MAX_DRAFTS * sizeof *ids);
        uint32_t kept[MAX_DRAFTS], n = draft_token(&used, &c, again, n_ids, MAX_DRAFTS);
        memcpy(kept, again + n_ids, sizeof kept);
        assert_int_equal(draft_token(&fresh, &c, again, n_ids, MAX_DRAFTS), n);
        assert_memory_equal(kept, again + n_ids, sizeof kept);
        draft_ngram_fini(&fresh);
    }
    draft_ngram_fini(&used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_against_a_full_search),
        cmocka_unit_test(test_drafts_follow_from_the_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
