/* Tests that sketches of vocabularies tell different models apart, and are equal for one model
 * in other files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/vocabulary.h"

/* Describes the tokens `from` to `to` - 1, whose names have `kind`. Their ids are moved by
 * `shift`. */
struct part {
    uint32_t from, to, shift;
    char kind;
};

static struct vocabulary sketch(const struct part *parts, uint32_t n_parts)
{
    struct vocabulary_sketcher k;
    struct vocabulary out;
    uint32_t n = 0;
    vocabulary_begin(&k);
    for (uint32_t p = 0; p < n_parts; p++) {
        for (uint32_t i = parts[p].from; i < parts[p].to; i++, n++) {
            uint8_t text[16];
            int len = snprintf((char *)text, sizeof text, "%c%u", parts[p].kind, i);
            vocabulary_add(&k, i + parts[p].shift, text, (size_t)len);
        }
    }
    vocabulary_end(&k, n, &out);
    return out;
}

static bool same(struct vocabulary a, struct vocabulary b)
{
    assert_int_equal(vocabulary_is_same(&a, &b), vocabulary_is_same(&b, &a));
    return vocabulary_is_same(&a, &b);
}

#define SKETCH(...)                                                                                \
    sketch((const struct part[]){__VA_ARGS__},                                                     \
           sizeof(struct part[]){__VA_ARGS__} / sizeof(struct part))

static void the_order_of_tokens_is_nothing(void **state)
{
    assert_true(same(SKETCH({0, 1000, 0, 'a'}), SKETCH({500, 1000, 0, 'a'}, {0, 500, 0, 'a'})));
}

static void another_models_tokens_differ(void **state)
{
    static const uint32_t sizes[] = {2, 10, 259, 1000, 32000, 151643, 262144};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_false(same(SKETCH({0, sizes[i], 0, 'a'}), SKETCH({0, sizes[i], 0, 'b'})));
    /* The same tokens with other ids belong to another model. */
    assert_false(same(SKETCH({0, 32000, 0, 'a'}), SKETCH({0, 32000, 1, 'a'})));
    /* One vocabulary continues where another ends, for example when a model extends another
     * model. */
    assert_false(same(SKETCH({0, 100256, 0, 'a'}), SKETCH({0, 128000, 0, 'a'})));
    assert_false(same(SKETCH({0, 32000, 0, 'a'}), SKETCH({0, 55296, 0, 'a'})));
    /* Many models share bytes and the first merges. */
    assert_false(same(SKETCH({0, 300, 0, 'a'}, {300, 50257, 0, 'b'}), SKETCH({0, 50257, 0, 'a'})));
    assert_false(same(SKETCH({0, 1, 0, 'a'}), SKETCH({0, 0, 0, 'a'})));
}

static void added_and_padding_tokens_are_taken(void **state)
{
    assert_true(
        same(SKETCH({0, 151643, 0, 'a'}), SKETCH({0, 151643, 0, 'a'}, {151643, 151936, 0, 'p'})));
    assert_true(same(SKETCH({0, 256000, 0, 'a'}), SKETCH({0, 262144, 0, 'a'})));
    assert_true(
        same(SKETCH({0, 32000, 0, 'a'}), SKETCH({0, 32000, 0, 'a'}, {32000, 32064, 0, 'p'})));
    assert_true(same(SKETCH({0, 300, 0, 'a'}), SKETCH({0, 304, 0, 'a'})));
    assert_true(same(SKETCH({0, 0, 0, 'a'}), SKETCH({0, 0, 0, 'b'})));
}

/* The two sides may have other architectures and builds, so the protocol fixes these bytes. */
static void the_sketch_is_fixed(void **state)
{
    struct vocabulary v = SKETCH({0, 2, 0, 'a'});
    uint32_t n = 0;
    assert_int_equal(v.n_tokens, 2);
    for (uint32_t i = 0; i < VOCABULARY_PLACES; i++)
        n += v.sketch[2 * i] != 0 || v.sketch[2 * i + 1] != 0;
    assert_int_equal(n, 2);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < VOCABULARY_BYTES; i++)
        sum = sum * 31 + v.sketch[i];
    assert_int_equal(sum, 0x7695cb50c1ec3defull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_tokens_is_nothing),
        cmocka_unit_test(another_models_tokens_differ),
        cmocka_unit_test(added_and_padding_tokens_are_taken),
        cmocka_unit_test(the_sketch_is_fixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
