/* Tests the pages of an S3 bucket: a valid page is read the same for every cut into two pieces,
 * and invalid pages are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/pull/sources/s3_xml.h"

#define HEAD   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define OPEN   "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define CLOSE  "</ListBucketResult>"
#define END    "<IsTruncated>false</IsTruncated>" CLOSE
#define OBJECT "<Contents><Key>k</Key><Size>1</Size></Contents>"

struct seen {
    char text[512];
    uint32_t n, refuse_at;
};

static enum status on_object(void *ctx, const struct s3_object *o, struct error *err)
{
    struct seen *s = ctx;
    size_t at = strlen(s->text);
    if (++s->n == s->refuse_at)
        return error_set(err, STATUS_LIMIT, "enough");
    if (o->is_folder)
        snprintf(s->text + at, sizeof s->text - at, "{%s}", o->key);
    else
        snprintf(s->text + at, sizeof s->text - at, "[%s|%llu|%s]", o->key,
                 (unsigned long long)o->n_bytes, o->etag);
    return STATUS_OK;
}

static enum status read_page(const char *xml, struct seen *s, struct s3_page *page,
                             struct error *err)
{
    memset(s, 0, sizeof *s);
    return s3_xml_read(str_from(xml), on_object, s, page, err);
}

static void test_good(void **state)
{
    static const struct {
        const char *xml, *seen, *token;
    } cases[] = {
        {HEAD OPEN END, "", ""},
        {OPEN OBJECT END "\n", "[k|1|]", ""},
        {"<ListBucketResult/>", "", ""},
        {HEAD OPEN
         "<Name>b</Name><Prefix/><Contents><Key>a/b c+\xc3\xa4&amp;&lt;&#228;&#x1F600;</Key>"
         "<ETag>&quot;e&quot;</ETag><Size>18446744073709551615</Size><Owner><ID>x</ID></Owner>"
         "</Contents>" OBJECT END,
         "[a/b c+\xc3\xa4&<\xc3\xa4\xf0\x9f\x98\x80|18446744073709551615|\"e\"][k|1|]", ""},
        {OPEN "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;=/</"
              "NextContinuationToken>" CLOSE,
         "", "t&=/"},
        {OPEN "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes><Key>no</Key>" END, "{p/}", ""},
        {OPEN OBJECT "<CommonPrefixes><Prefix>p/1_P/</Prefix><Other>x</Other></CommonPrefixes>"
                     "<CommonPrefixes><Prefix>p&amp;/</Prefix></CommonPrefixes>" OBJECT END,
         "[k|1|]{p/1_P/}{p&/}[k|1|]", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen s;
        struct s3_page page;
        struct error err = {0};
        if (read_page(cases[i].xml, &s, &page, &err) != STATUS_OK)
            fail_msg("%s: %s", cases[i].xml, err.text);
        assert_string_equal(s.text, cases[i].seen);
        assert_string_equal(page.next_token, cases[i].token);
        assert_int_equal(page.is_truncated, cases[i].token[0] != '\0');
    }
}

static void test_bad(void **state)
{
    static const char *const cases[] = {
        "",
        "x",
        "<",
        HEAD,
        "<Other></Other>",
        HEAD HEAD OPEN END,
        "<!DOCTYPE a>" OPEN END,
        OPEN "<!-- a -->" END,
        OPEN "<![CDATA[a]]>" END,
        OPEN "<?a?>" END,
        OPEN END "x",
        OPEN END OPEN END,
        OPEN "<a></b>" END,
        OPEN "<a b></a>" END,
        OPEN "<a b=c></a>" END,
        OPEN "<a b=\"<\"></a>" END,
        OPEN "<a b=\"\" c=\"\" d=\"\" e=\"\" f=\"\" g=\"\" h=\"\" i=\"\" j=\"\"/>" END,
        OPEN "<a><b><c><d><e><f/></e></d></c></b></a>" END,
        OPEN "<Name>&unknown;</Name>" END,
        OPEN "<Name>&#0;</Name>" END,
        OPEN "<Name>&#xD800;</Name>" END,
        OPEN "<Name>&#x110000;</Name>" END,
        OPEN "<Name>&#99999999999;</Name>" END,
        OPEN "<Name>&#;</Name>" END,
        OPEN "<Name>&#xZ;</Name>" END,
        OPEN "<Name>\x01</Name>" END,
        OPEN "<Name>\xff</Name>" END,
        OPEN "<Contents><Key>k</Key></Contents>" END,
        OPEN "<Contents><Size>1</Size></Contents>" END,
        OPEN "<Contents><Key></Key><Size>1</Size></Contents>" END,
        OPEN "<Contents><Key>k</Key><Key>k</Key><Size>1</Size></Contents>" END,
        OPEN "<Contents><Key>k</Key><Size>-1</Size></Contents>" END,
        OPEN "<Contents><Key>k</Key><Size>1 </Size></Contents>" END,
        OPEN "<Contents><Key>k</Key><Size>18446744073709551616</Size></Contents>" END,
        OPEN "<IsTruncated>perhaps</IsTruncated>" CLOSE,
        OPEN "<IsTruncated>true</IsTruncated>" CLOSE,
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen s;
        struct s3_page page;
        struct error err = {0};
        if (read_page(cases[i], &s, &page, &err) != STATUS_PROTOCOL || !err.text[0])
            fail_msg("%s is taken", cases[i]);
    }
}

/* Texts and names of any length, and pages that end anywhere, are read within the bounds. */
static void test_bounds(void **state)
{
    static char large[8192];
    struct seen s;
    struct s3_page page;
    struct error err = {0};
    for (size_t n = 2040; n < 2056; n++) {
        int at = snprintf(large, sizeof large,
                          OPEN "<IsTruncated>true</IsTruncated><NextContinuationToken>");
        memset(large + at, 't', n);
        snprintf(large + at + n, sizeof large - (size_t)at - n, "</NextContinuationToken>" CLOSE);
        enum status got = read_page(large, &s, &page, &err);
        assert_int_equal(got, n <= 2047 ? STATUS_OK : STATUS_PROTOCOL);
        if (got == STATUS_OK)
            assert_int_equal(strlen(page.next_token), n);
    }
    static const char whole[] = HEAD OPEN OBJECT END;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        memset(&s, 0, sizeof s);
        assert_int_equal(s3_xml_read((struct str){whole, n}, on_object, &s, &page, &err),
                         STATUS_PROTOCOL);
    }
    s = (struct seen){.refuse_at = 2};
    assert_int_equal(s3_xml_read(str_from(OPEN OBJECT OBJECT END), on_object, &s, &page, &err),
                     STATUS_LIMIT);
    assert_string_equal(err.text, "enough");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad),
                                       cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
