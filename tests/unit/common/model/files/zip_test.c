/* Tests the zip reader with correct archives in the two forms, zip and zip64, and with every
 * kind of wrong archive. A member must lie inside the file and apart from the others, and an
 * archive with bytes missing or added must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "common/model/files/zip.h"
#include "tests/unit/common/model/torch_writer.c"

static const struct zip_part parts[] = {{"a/data.pkl", {"pickle", 6}},
                                        {"a/data/0", {"0123456789", 10}},
                                        {"a/none", {"", 0}},
                                        {"a/v", {"3\n", 2}}};
enum { N_PARTS = sizeof parts / sizeof *parts };

static void test_reads(void **state)
{
    for (int is_64 = 0; is_64 < 2; is_64++) {
        struct strbuf b;
        struct zip *z;
        struct error err = {0};
        strbuf_init(&b, 0);
        struct zip_place at = zip_put_archive(&b, parts, N_PARTS, is_64);
        if (zip_open_memory(b.ptr, b.len, "x.zip", &z, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(zip_n_members(z), N_PARTS);
        for (size_t i = 0; i < N_PARTS; i++) {
            const struct zip_member *m = zip_member_at(z, i);
            assert_true(str_eq_c(m->name, parts[i].name) && m->n_bytes == parts[i].data.len);
            assert_ptr_equal(m->data, b.ptr + at.data[i]);
            assert_int_equal(at.data[i] % 64, 0);
            assert_ptr_equal(zip_find(z, str_from(parts[i].name)), m);
        }
        assert_null(zip_member_at(z, N_PARTS));
        assert_null(zip_find(z, STR("a/data")));
        assert_int_equal(zip_directory(z).len, b.len - at.directory);
        zip_close(z);
        strbuf_fini(&b);
    }
    zip_close(NULL);
}

enum record { LOCAL, ENTRY, END, END64, LOCATOR };
static const struct {
    const char *name;
    bool is_64;
    enum record record;
    int member;
    size_t offset, width;
    uint64_t value;
    enum status want;
    const char *text;
} wrong[] = {
    {"no end", 0, END, 0, 0, 4, 0, STATUS_INVALID, "Check that the download is complete"},
    {"a comment", 0, END, 0, 20, 2, 1, STATUS_UNSUPPORTED, "several disks"},
    {"another disk", 0, END, 0, 4, 2, 1, STATUS_UNSUPPORTED, "several disks"},
    {"members elsewhere", 0, END, 0, 8, 2, 3, STATUS_UNSUPPORTED, "several disks"},
    {"too many members", 0, END, 0, 8, 4, 0xFFFEFFFE, STATUS_INVALID, "states 65534 members"},
    {"one member less", 0, END, 0, 8, 4, 0x30003, STATUS_INVALID, "longer than its 3 members"},
    {"one member more", 0, END, 0, 8, 4, 0x50005, STATUS_INVALID, "states 5 members"},
    {"directory beyond", 0, END, 0, 16, 4, 0x7FFFFFFF, STATUS_INVALID, "outside the file"},
    {"directory too long", 0, END, 0, 12, 4, 0x7FFFFFFF, STATUS_INVALID, "outside the file"},
    {"no record there", 1, END64, 0, 0, 4, 0, STATUS_INVALID, "zip64 directory"},
    {"record of 2^60 bytes", 1, END64, 0, 4, 8, 1ull << 60, STATUS_INVALID, "zip64 directory"},
    {"another disk, 64", 1, END64, 0, 16, 4, 1, STATUS_INVALID, "contradict each other"},
    {"members elsewhere, 64", 1, END64, 0, 24, 8, 1, STATUS_INVALID, "contradict each other"},
    {"short record differs", 1, END, 0, 12, 4, 1, STATUS_INVALID, "contradict each other"},
    {"directory at 2^60", 1, END64, 0, 48, 8, 1ull << 60, STATUS_INVALID, "outside the file"},
    {"directory of 2^60", 1, END64, 0, 40, 8, 1ull << 60, STATUS_INVALID, "outside the file"},
    {"record at 2^60", 1, LOCATOR, 0, 8, 8, 1ull << 60, STATUS_INVALID, "zip64 directory"},
    {"record at 2^64 - 1", 1, LOCATOR, 0, 8, 8, UINT64_MAX, STATUS_INVALID, "zip64 directory"},
    {"several disks, 64", 1, LOCATOR, 0, 16, 4, 2, STATUS_INVALID, "zip64 directory"},
    {"no entry", 0, ENTRY, 1, 0, 4, 0, STATUS_INVALID, "damaged"},
    {"encrypted", 0, ENTRY, 1, 8, 2, 1, STATUS_UNSUPPORTED, "a/data/0 is encrypted"},
    {"deflated", 0, ENTRY, 1, 10, 2, 8, STATUS_UNSUPPORTED, "a/data/0 is compressed (method 8)"},
    {"zstd", 0, ENTRY, 1, 10, 2, 93, STATUS_UNSUPPORTED, "a/data/0 is compressed (method 93)"},
    {"a bomb's sizes", 0, ENTRY, 1, 24, 4, 0x7FFFFFFF, STATUS_INVALID,
     "a/data/0: it is not compressed"},
    {"no name", 0, ENTRY, 1, 28, 2, 0, STATUS_INVALID, "whose name has 0 bytes"},
    {"a long name", 0, ENTRY, 1, 28, 2, 0xFFFF, STATUS_INVALID, "whose name has 65535 bytes"},
    {"a long comment", 0, ENTRY, 3, 32, 2, 0xFFFF, STATUS_INVALID, "a member whose name has"},
    {"NUL in a name", 0, ENTRY, 1, 48, 1, 0, STATUS_INVALID, "its name contains a NUL"},
    {"another name", 0, ENTRY, 1, 46, 1, 'b', STATUS_INVALID,
     "b/data/0: its header has a different name"},
    {"begins beyond", 0, ENTRY, 1, 42, 4, 0x7FFFFFFF, STATUS_INVALID,
     "a/data/0: it begins after the end"},
    {"begins elsewhere", 0, ENTRY, 1, 42, 4, 3, STATUS_INVALID, "a/data/0: it has no header"},
    {"short 64 field", 1, ENTRY, 1, 46 + 8 + 8, 2, 16, STATUS_INVALID, "a/data/0: its zip64 field"},
    {"2^60 bytes", 1, ENTRY, 1, 46 + 8 + 10, 8, 1ull << 60, STATUS_INVALID,
     "a/data/0: it is not compressed"},
    {"at 2^60", 1, ENTRY, 1, 46 + 8 + 26, 8, 1ull << 60, STATUS_INVALID,
     "a/data/0: it begins after the end"},
    {"at 2^64 - 1", 1, ENTRY, 1, 46 + 8 + 26, 8, UINT64_MAX, STATUS_INVALID,
     "begins after the end"},
    {"local: no header", 0, LOCAL, 1, 0, 4, 0, STATUS_INVALID, "a/data/0: it has no header"},
    {"local: deflated", 0, LOCAL, 1, 8, 2, 8, STATUS_INVALID, "a/data/0: its header says"},
    {"local: a long name", 0, LOCAL, 1, 26, 2, 0xFFFF, STATUS_INVALID,
     "a/data/0 ends after the end"},
    {"local: a long field", 0, LOCAL, 1, 28, 2, 0xFFFF, STATUS_INVALID,
     "a/data/0 ends after the end"},
    {"local: another name", 0, LOCAL, 1, 30, 1, 'b', STATUS_INVALID,
     "a/data/0: its header has a different name"},
    {"local: into the next", 0, LOCAL, 1, 28, 2, 100, STATUS_INVALID,
     "a/data/0 and a/none overlap"},
};

static size_t place_of(const struct zip_place *at, enum record r, int member)
{
    return r == LOCAL   ? at->local[member]
           : r == ENTRY ? at->entry[member]
           : r == END   ? at->end
           : r == END64 ? at->end64
                        : at->locator;
}

static void test_wrong(void **state)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct strbuf b;
        struct zip *z;
        struct error err = {0};
        strbuf_init(&b, 0);
        struct zip_place at = zip_put_archive(&b, parts, N_PARTS, wrong[i].is_64);
        zip_poke(&b, place_of(&at, wrong[i].record, wrong[i].member) + wrong[i].offset,
                 wrong[i].value, wrong[i].width);
        enum status got = zip_open_memory(b.ptr, b.len, "the-file", &z, &err);
        if (got != wrong[i].want || !strstr(err.text, wrong[i].text) ||
            !strstr(err.text, "the-file") || z)
            fail_msg("%s: %s: %s", wrong[i].name, status_name(got), err.text);
        strbuf_fini(&b);
    }
}

/* The reader must refuse two entries with one name, a member that ends beyond the data, and two
 * members that overlap. */
static void test_two_places(void **state)
{
    static const struct zip_part twice[] = {
        {"a/x", {"12", 2}}, {"a/y", {"34", 2}}, {"a/x", {"56", 2}}};
    struct strbuf b;
    struct zip *z;
    struct error err = {0};
    strbuf_init(&b, 0);
    (void)zip_put_archive(&b, twice, 3, false);
    assert_int_equal(zip_open_memory(b.ptr, b.len, "f", &z, &err), STATUS_INVALID);
    assert_string_equal(err.text, "f contains the member a/x twice. Fetch the file again");
    strbuf_reset(&b);
    struct zip_place at = zip_put_archive(&b, parts, N_PARTS, false);
    zip_poke(&b, at.entry[1] + 20, 0x7FFF0000, 4);
    zip_poke(&b, at.entry[1] + 24, 0x7FFF0000, 4);
    assert_int_equal(zip_open_memory(b.ptr, b.len, "f", &z, &err), STATUS_INVALID);
    assert_non_null(
        strstr(err.text, "f: member a/data/0 ends after the end of the data (2147418112"));
    strbuf_reset(&b);
    at = zip_put_archive(&b, parts, N_PARTS, false);
    zip_poke(&b, at.entry[1] + 20, 64, 4);
    zip_poke(&b, at.entry[1] + 24, 64, 4);
    assert_int_equal(zip_open_memory(b.ptr, b.len, "f", &z, &err), STATUS_INVALID);
    assert_string_equal(err.text,
                        "f: the members a/data/0 and a/none overlap. Fetch the file again");
    strbuf_fini(&b);
}

/* A file that is cut at any byte must be refused, and so must a file with bytes after its end. */
static void test_wrong_length(void **state)
{
    for (int is_64 = 0; is_64 < 2; is_64++) {
        struct strbuf b;
        strbuf_init(&b, 0);
        (void)zip_put_archive(&b, parts, N_PARTS, is_64);
        size_t whole = b.len;
        zip_put(&b, 0, 1);
        for (size_t n = 0; n <= b.len; n++) {
            struct zip *z;
            struct error err = {0};
            char *cut = malloc(n ? n : 1);
            memcpy(cut, b.ptr, n);
            enum status got = zip_open_memory(cut, n, "cut", &z, &err);
            if ((got == STATUS_OK) != (n == whole) || (z != NULL) != (n == whole))
                fail_msg("%zu of %zu bytes: %s", n, whole, status_name(got));
            zip_close(z);
            free(cut);
        }
        strbuf_fini(&b);
    }
}

static void test_flipped_bits(void **state)
{
    struct rng r = {31};
    struct strbuf b;
    int n_good = 0;
    strbuf_init(&b, 0);
    (void)zip_put_archive(&b, parts, N_PARTS, true);
    char *bad = malloc(b.len);
    for (int i = 0; i < 20000; i++) {
        struct zip *z;
        struct error err;
        memcpy(bad, b.ptr, b.len);
        for (uint64_t k = 1 + rng_below(&r, 3); k > 0; k--)
            bad[rng_below(&r, b.len)] ^= (char)(1u << rng_below(&r, 8));
        if (zip_open_memory(bad, b.len, "bad", &z, &err) != STATUS_OK)
            continue;
        n_good++; /* the flip changed data, padding, times or checksums */
        const char *at = bad;
        for (uint64_t k = 0; k < zip_n_members(z); k++) {
            const struct zip_member *m = zip_member_at(z, k);
            assert_true((const char *)m->data >= at);
            at = (const char *)m->data + m->n_bytes;
        }
        assert_true(at <= bad + b.len);
        zip_close(z);
    }
    assert_in_range(n_good, 1, 19999);
    free(bad);
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_two_places),   cmocka_unit_test(test_wrong_length),
        cmocka_unit_test(test_flipped_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
