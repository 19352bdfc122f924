#include "gateway/sagemaker/djl_headers.h"

#include <string.h>
#include <strings.h>

#include "common/base/str.h"

static bool find_pair(struct str text, char between, const char *name, struct str *out)
{
    while (text.len > 0) {
        const char *end = memchr(text.ptr, between, text.len);
        size_t n = end ? (size_t)(end - text.ptr) : text.len;
        const char *equals = memchr(text.ptr, '=', n);
        size_t n_name = equals ? (size_t)(equals - text.ptr) : 0;
        struct str key = str_trim((struct str){text.ptr, n_name}, " \t");
        if (equals && key.len == strlen(name) && strncasecmp(key.ptr, name, key.len) == 0) {
            *out = str_trim((struct str){equals + 1, n - n_name - 1}, " \t");
            return true;
        }
        n += end != NULL;
        text = (struct str){text.ptr + n, text.len - n};
    }
    return false;
}

bool djl_attribute(struct str attributes, const char *name, struct str *out)
{
    return find_pair(attributes, ';', name, out);
}

bool djl_query_value(struct str query, const char *name, struct str *out)
{
    return find_pair(query, '&', name, out);
}

struct str djl_adapter(const struct djl_headers *h)
{
    struct str v;
    if (h->adapter_id.len > 0)
        return h->adapter_id;
    if (djl_attribute(h->attributes, "X-Amzn-SageMaker-Adapter-Identifier", &v) && v.len > 0)
        return v;
    return djl_query_value(h->query, "adapter", &v) ? v : STR("");
}
