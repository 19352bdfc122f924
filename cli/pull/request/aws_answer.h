#pragma once
/* The answers that hold keys: of STS (XML), of a container's agent and of an instance's metadata
 * (JSON). Whoever answers may be anybody: what does not look like keys is none. Pure. */
#include <stdint.h>

#include "common/base/str.h"

struct aws_answer {
    char *id, *secret, *session; /* session: NULL for keys that stay */
    int64_t expires_s;           /* of the epoch; 0: never */
};

MUST_USE bool aws_answer_read_xml(struct str text, struct aws_answer *out);
MUST_USE bool aws_answer_read_json(struct str text, struct aws_answer *out);
/* The word that says what is wrong, out of either kind; "" when there is none. */
void aws_answer_problem(struct str text, char *out, size_t size);
void aws_answer_fini(struct aws_answer *a);
