/* Tests AWS signatures with the examples of the S3 API reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/keys/aws_sign.h"

#define FRONT                                                                                      \
    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"         \
    "SignedHeaders=host;x-amz-content-sha256;x-amz-date"

static void sign(const char *query, const char *session, struct strbuf *out)
{
    const struct aws_keys keys = {"AKIAIOSFODNN7EXAMPLE",
                                  "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", session, "us-east-1"};
    strbuf_reset(out);
    aws_sign(&keys, "examplebucket.s3.amazonaws.com", "/", query, "20130524T000000Z", out);
}

static void test_examples(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    sign("max-keys=2&prefix=J", NULL, &b);
    assert_string_equal(b.ptr,
                        FRONT ",Signature="
                              "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    sign("lifecycle=", NULL, &b);
    assert_string_equal(b.ptr,
                        FRONT ",Signature="
                              "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    sign("lifecycle=", "token", &b);
    assert_non_null(strstr(b.ptr, FRONT ";x-amz-security-token,Signature="));
    assert_null(strstr(b.ptr, "fea454ca"));
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
