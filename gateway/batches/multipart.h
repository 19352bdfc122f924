#pragma once
/* Reads multipart/form-data (RFC 7578) from a whole body. The fields are views, and nothing is
 * copied. The functions are pure, and usable on any thread. */
#include "common/base/str.h"

enum { MULTIPART_MAX_FIELDS = 16 };

struct multipart_field {
    struct str name, filename, content; /* `filename` is as the client sent it; "" = none */
};

/* Reads all fields. Returns false when the content type or the body is invalid. `why` has the
 * reason. */
bool multipart_read(struct str content_type, struct str body,
                    struct multipart_field fields[MULTIPART_MAX_FIELDS], uint32_t *n,
                    const char **why);
