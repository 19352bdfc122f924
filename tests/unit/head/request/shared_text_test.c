/* Tests that texts that many requests have in common are stored once, and that no tenant can use
 * all the memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "head/request/shared_text.h"

enum { LARGE = 1 << 20, MOST = 256 };

static struct shared_texts texts;
static struct shared_text *held[MOST];
static char bytes[LARGE];

/* Takes a text that is different for each i. */
static enum status take(uint64_t tenant, uint32_t i, bool must, struct shared_text **out)
{
    struct error err = {0};
    memset(bytes, 'x', sizeof bytes);
    snprintf(bytes, sizeof bytes, "%u ", (unsigned)i);
    return shared_text_take(&texts, tenant, (struct str){bytes, sizeof bytes}, must, out, &err);
}

static void release_all(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        shared_text_release(held[i]);
    assert_int_equal(texts.n_bytes, 0);
    for (uint32_t i = 0; i < SHARED_TEXT_TENANTS; i++)
        assert_null(texts.tenants[i]);
}

static void equal_texts_are_one(void **state)
{
    shared_texts_init(&texts);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_int_equal(take(1 + i % 2, i % 4, false, &held[i]), STATUS_OK);
        assert_ptr_equal(held[i], held[i % 4]);
    }
    assert_ptr_not_equal(held[0], held[1]);
    assert_int_equal(texts.n_bytes, 4 * LARGE);
    assert_memory_equal(shared_text_str(held[3]).ptr, bytes, sizeof bytes);
    for (uint32_t i = 4; i < MOST; i++)
        shared_text_release(held[i]); /* other references remain */
    assert_int_equal(shared_text_str(held[0]).ptr[0], '0');
    assert_int_equal(texts.n_bytes, 4 * LARGE);
    release_all(4);
}

static void a_greedy_tenant_leaves_room_to_others(void **state)
{
    uint32_t n = 0, n_greedy = SHARED_TEXTS_BYTES / 2 / LARGE;
    shared_texts_init(&texts);
    while (take(1, n, false, &held[n]) == STATUS_OK)
        n++;
    assert_int_equal(n, n_greedy);
    while (take(2, n, false, &held[n]) == STATUS_OK)
        n++;
    assert_int_equal(n, n_greedy + SHARED_TEXTS_TENANT_BYTES / LARGE);
    struct shared_text *again;
    assert_int_equal(take(1, 5, false, &again), STATUS_OK); /* this text is already stored */
    shared_text_release(again);
    /* A resubmitted request is never refused. */
    assert_int_equal(take(1, n, true, &held[n]), STATUS_OK);
    n++;
    for (uint64_t tenant = 3; take(tenant, n, false, &held[n]) == STATUS_OK; tenant++)
        n++;
    assert_int_equal(texts.n_bytes, SHARED_TEXTS_BYTES);
    release_all(n);
}

/* A tenant can use the memory of texts that it released. A text counts for the tenant that added
 * it first, until the last reference is gone. */
static void what_a_tenant_has_is_what_it_brought(void **state)
{
    uint32_t n = 0;
    struct shared_text *again;
    shared_texts_init(&texts);
    while (n < SHARED_TEXTS_BYTES / 2 / LARGE) {
        assert_int_equal(take(1, n, false, &held[n]), STATUS_OK);
        n++;
    }
    const uint32_t first = n;
    while (take(2, n, false, &held[n]) == STATUS_OK)
        n++;
    /* This tenant is in the same bucket as tenant 2. */
    assert_int_equal(take(2 + SHARED_TEXT_TENANTS, n, false, &held[n]), STATUS_OK);
    n++;
    assert_int_equal(take(3, first, false, &again), STATUS_OK); /* this is a text of tenant 2 */
    shared_text_release(held[first]);
    assert_int_equal(take(2, n, false, &held[first]), STATUS_LIMIT);
    shared_text_release(again);
    assert_int_equal(take(2, n, false, &held[first]), STATUS_OK);
    release_all(n);
}

static void a_key_stays_with_its_text(void **state)
{
    struct shared_text *other;
    shared_texts_init(&texts);
    assert_int_equal(take(1, 0, false, &held[0]), STATUS_OK);
    assert_false(shared_text_key(held[0])->known);
    *shared_text_key(held[0]) = (struct shared_text_key){true, 1, 2, 3};
    assert_int_equal(take(2, 0, false, &held[1]), STATUS_OK);
    assert_int_equal(shared_text_key(held[1])->lo, 3);
    assert_int_equal(take(2, 1, false, &other), STATUS_OK);
    assert_false(shared_text_key(other)->known);
    shared_text_release(other);
    release_all(2);
    assert_int_equal(take(1, 0, false, &held[0]), STATUS_OK);
    assert_false(shared_text_key(held[0])->known); /* the new text does not have the old key */
    release_all(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_texts_are_one),
        cmocka_unit_test(a_greedy_tenant_leaves_room_to_others),
        cmocka_unit_test(what_a_tenant_has_is_what_it_brought),
        cmocka_unit_test(a_key_stays_with_its_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
