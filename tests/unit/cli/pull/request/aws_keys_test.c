/* Tests the readers of AWS credentials: the files of the AWS command line, and the answers of
 * services that issue keys. */
#include "cli/pull/request/aws_answer.h"
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/aws_profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"

static const char files[] = "# a comment\n"
                            "aws_access_key_id = of no section\n"
                            "[default]\n"
                            "aws_access_key_id=D\r\n"
                            "region = eu-west-1 \n"
                            "s3 =\n"
                            "  region = not-this-one\n"
                            "\n"
                            "[profile two]\n"
                            "region=ap-south-1\n"
                            "  aws_access_key_id = indented\n"
                            ";region = commented\n"
                            "[two]\n"
                            "aws_access_key_id\t=\tT=with=equals\n"
                            "aws_secret_access_key =\n"
                            "[ profile \"with blanks\" ]\n"
                            "region = first\n"
                            "region = last\n"
                            "[broken\n"
                            "region = kept by the section before it is not";

static void profiles(void **state)
{
    static const struct {
        enum aws_file file;
        const char *profile, *key, *want;
    } cases[] = {
        {AWS_FILE_CREDENTIALS, "default", "aws_access_key_id", "D"},
        {AWS_FILE_CONFIG, "default", "region", "eu-west-1"},
        {AWS_FILE_CONFIG, "two", "region", "ap-south-1"},
        {AWS_FILE_CONFIG, "two", "aws_access_key_id", NULL},
        {AWS_FILE_CREDENTIALS, "two", "aws_access_key_id", "T=with=equals"},
        {AWS_FILE_CREDENTIALS, "two", "aws_secret_access_key", NULL},
        {AWS_FILE_CREDENTIALS, "two", "region", NULL},
        {AWS_FILE_CONFIG, "with blanks", "region", "last"},
        {AWS_FILE_CONFIG, "absent", "region", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = aws_profile_get(STR(files), cases[i].file, cases[i].profile, cases[i].key);
        if (cases[i].want)
            assert_string_equal(got, cases[i].want);
        else
            assert_null(got);
        mem_free(got);
    }
    assert_true(aws_profile_is_there(STR(files), AWS_FILE_CONFIG, "two"));
    assert_false(aws_profile_is_there(STR(files), AWS_FILE_CONFIG, "three"));
    assert_false(aws_profile_is_there(STR(""), AWS_FILE_CREDENTIALS, "default"));
}

#define XML(id, secret, expires)                                                                   \
    "<R><Credentials><AccessKeyId>" id "</AccessKeyId><SecretAccessKey>" secret                    \
    "</SecretAccessKey><SessionToken> S+/= </SessionToken><Expiration>" expires                    \
    "</Expiration></Credentials></R>"
#define JSON(id, expires)                                                                          \
    "{\"Code\":\"Success\",\"AccessKeyId\":" id ",\"SecretAccessKey\":\"x\",\"Token\":\"S+/=\","   \
    "\"Expiration\":" expires "}"

static void answers(void **state)
{
    static const struct {
        bool is_xml, ok;
        const char *text;
        int64_t expires_s;
    } cases[] = {
        {true, true, XML("A", "x", "2026-01-02T03:04:05Z"), 1767323045},
        {true, true, XML("A", "x", "2026-01-02T03:04:05.123Z"), 1767323045},
        {true, false, XML("A", "x", "2026-01-02T03:04:05"), 0},
        {true, false, XML("A", "x", "2026-01-02T03:04:05Zx"), 0},
        {true, false, XML("A", "x", "soon"), 0},
        {true, false, XML("", "x", "2026-01-02T03:04:05Z"), 0},
        {true, false, XML("A b", "x", "2026-01-02T03:04:05Z"), 0},
        {true, false, XML("A", "x\r\nHost: y", "2026-01-02T03:04:05Z"), 0},
        {true, false, XML("A", "&#10;", "2026-01-02T03:04:05Z"), 0},
        {true, false, "<AccessKeyId>A", 0},
        {true, false, "", 0},
        {false, true, JSON("\"A\"", "\"2026-01-02T03:04:05Z\""), 1767323045},
        {false, true, "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"x\",\"Token\":\"S+/=\"}", 0},
        {false, false, JSON("7", "\"2026-01-02T03:04:05Z\""), 0},
        {false, false, JSON("\"A\"", "\"1969-01-02T03:04:05Z\""), 0},
        {false, false, "[]", 0},
        {false, false, "{", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct aws_answer a = {0};
        struct str text = str_from(cases[i].text);
        bool ok = cases[i].is_xml ? aws_answer_read_xml(text, &a) : aws_answer_read_json(text, &a);
        if (ok != cases[i].ok)
            fail_msg("case %zu: %s", i, cases[i].text);
        if (ok) {
            assert_string_equal(a.id, "A");
            assert_string_equal(a.secret, "x");
            assert_string_equal(a.session, "S+/=");
            assert_int_equal(a.expires_s, cases[i].expires_s);
        }
        aws_answer_fini(&a);
    }
}

static void problems(void **state)
{
    static const char *const cases[][2] = {
        {"<ErrorResponse><Error><Code>ExpiredTokenException</Code></Error>",
         "ExpiredTokenException"},
        {"{\"code\": \"Denied\"}", "Denied"},
        {"<Code>\x1b[2J</Code>", ""},
        {"nothing", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char word[64];
        aws_answer_problem(str_from(cases[i][0]), word, sizeof word);
        assert_string_equal(word, cases[i][1]);
    }
}

static void domains(void **state)
{
    static const char *const cases[][2] = {
        {"us-east-1", "amazonaws.com"},
        {"us-gov-west-1", "amazonaws.com"},
        {"cn-north-1", "amazonaws.com.cn"},
        {"cn-northwest-1", "amazonaws.com.cn"},
        {"cn", "amazonaws.com"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(aws_domain(cases[i][0]), cases[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(profiles), cmocka_unit_test(answers),
                                       cmocka_unit_test(problems), cmocka_unit_test(domains)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
