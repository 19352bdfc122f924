#pragma once
/* Reads settings that SageMaker's clients send outside of the body: in headers, and as pairs in
 * X-Amzn-SageMaker-Custom-Attributes ("name=value;name=value"), which stand for headers. The
 * functions are pure. */
#include "common/base/str.h"

struct djl_headers { /* values of these headers, borrowed from the request; empty = absent */
    struct str adapter_id, attributes, query;
};

/* Finds the first pair with this name, in upper or lower case, and returns its value without
 * spaces around it. Text without = is not a pair. Returns false when there is no such pair. The
 * value may be empty. */
bool djl_attribute(struct str attributes, const char *name, struct str *out);
/* Finds a value in a query, NAME=VALUE&NAME=VALUE. Nothing is decoded. */
bool djl_query_value(struct str query, const char *name, struct str *out);
/* Returns the request's adapter from the header, the attribute or the query; "" = none. */
struct str djl_adapter(const struct djl_headers *h);
