#pragma once
/* Parses answers that contain AWS keys: XML from STS, and JSON from a container's agent or an
 * instance's metadata service. The sender is not trusted: values that do not look like keys are
 * refused. The functions are pure and may run on any thread. */
#include <stdint.h>

#include "common/base/str.h"

struct aws_answer {
    char *id, *secret, *session; /* session: NULL for permanent keys */
    int64_t expires_s;           /* expiry time in seconds since 1970; 0 = never */
};

MUST_USE bool aws_answer_read_xml(struct str text, struct aws_answer *out);
MUST_USE bool aws_answer_read_json(struct str text, struct aws_answer *out);
/* Copies the error code from an XML or JSON answer; "" when the answer has no error code. */
void aws_answer_problem(struct str text, char *out, size_t size);
void aws_answer_fini(struct aws_answer *a);
