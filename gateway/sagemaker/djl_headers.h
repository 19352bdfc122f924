#pragma once
/* What SageMaker's clients say of a request beside its body: headers of their own, and pairs in
 * X-Amzn-SageMaker-Custom-Attributes ("name=value;name=value"), which stand for headers. Pure. */
#include "common/base/str.h"

struct djl_headers { /* borrowed from the request; empty: not there */
    struct str adapter_id, attributes, query;
};

/* The value of the first pair with the name, in whatever case, without spaces around it. A pair
 * without = is none. False: there is none; *out may be empty where it is true. */
bool djl_attribute(struct str attributes, const char *name, struct str *out);
/* Of a query, NAME=VALUE&NAME=VALUE, as it was sent: nothing is decoded. */
bool djl_query_value(struct str query, const char *name, struct str *out);
/* The adapter that a request is for: the header's, the attribute's, or the query's; "" none. */
struct str djl_adapter(const struct djl_headers *h);
