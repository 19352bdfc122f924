#include "gateway/batches/multipart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TYPE                   "multipart/form-data; boundary=B"
#define PART(headers, content) "--B\r\n" headers "\r\n\r\n" content "\r\n"
#define PURPOSE                PART("Content-Disposition: form-data; name=\"purpose\"", "batch")

static void test_forms(void **state)
{
    static const struct {
        /* `want` holds the parts, as "name/filename=content " each; NULL = the body is refused. */
        const char *type, *body, *want;
    } cases[] = {
        {TYPE, PURPOSE "--B--\r\n", "purpose/=batch "},
        {"Multipart/Form-Data; charset=x; Boundary=\"B\"", PURPOSE "--B--", "purpose/=batch "},
        {TYPE,
         PART("content-disposition: form-data; filename=\"a; name=b\"; name=\"file\"\r\n"
              "Content-Type: x/y",
              "1\r\n--A\n") PURPOSE "--B--",
         "file/a; name=b=1\r\n--A\n purpose/=batch "},
        {TYPE, PART("Content-Disposition: form-data; name=file", "") "--B--", "file/= "},
        {TYPE, "--B--", ""},
        {TYPE, PURPOSE, NULL},
        {TYPE, PURPOSE "--B", NULL},
        {TYPE, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n", NULL},
        {TYPE, "", NULL},
        {TYPE, "{}", NULL},
        {"application/json", PURPOSE "--B--", NULL},
        {"multipart/form-data", PURPOSE "--B--", NULL},
        {"multipart/form-data; boundary=", PURPOSE "--B--", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct multipart_field f[MULTIPART_MAX_FIELDS];
        const char *why;
        uint32_t n;
        struct strbuf b;
        strbuf_init(&b, 0);
        bool ok = multipart_read(str_from(cases[i].type), str_from(cases[i].body), f, &n, &why);
        for (uint32_t k = 0; ok && k < n; k++) {
            strbuf_append_str(&b, f[k].name);
            strbuf_append_c(&b, "/");
            strbuf_append_str(&b, f[k].filename);
            strbuf_append_c(&b, "=");
            strbuf_append_str(&b, f[k].content);
            strbuf_append_c(&b, " ");
        }
        if (ok != (cases[i].want != NULL) || (ok && !str_eq_c(strbuf_str(&b), cases[i].want)))
            fail_msg("%zu: %d \"%s\" %s", i, ok, strbuf_str(&b).ptr, why);
        strbuf_fini(&b);
    }
}

/* The parser refuses every prefix of a good body and reads no byte after the prefix. */
static void test_cuts(void **state)
{
    static const char body[] = PURPOSE "--B--";
    for (size_t len = 0; len < sizeof body - 1; len++) {
        struct multipart_field f[MULTIPART_MAX_FIELDS];
        const char *why;
        uint32_t n;
        char *exact = malloc(len ? len : 1);
        memcpy(exact, body, len);
        assert_false(multipart_read(STR(TYPE), (struct str){exact, len}, f, &n, &why));
        free(exact);
    }
}

static void test_too_many(void **state)
{
    struct multipart_field f[MULTIPART_MAX_FIELDS];
    const char *why;
    uint32_t n;
    struct strbuf b;
    strbuf_init(&b, 0);
    for (int i = 0; i <= MULTIPART_MAX_FIELDS; i++)
        strbuf_append_c(&b, PURPOSE);
    strbuf_append_c(&b, "--B--");
    assert_false(multipart_read(STR(TYPE), strbuf_str(&b), f, &n, &why));
    assert_string_equal(why,
                        "The form has too many fields. Send only the fields purpose and file.");
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
