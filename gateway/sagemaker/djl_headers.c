#include "gateway/sagemaker/djl_headers.h"

#include <string.h>
#include <strings.h>

static struct str trim(struct str s)
{
    while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t'))
        s.len--;
    while (s.len > 0 && (*s.ptr == ' ' || *s.ptr == '\t'))
        s = (struct str){s.ptr + 1, s.len - 1};
    return s;
}

static bool find_pair(struct str text, char between, const char *name, struct str *out)
{
    while (text.len > 0) {
        const char *end = memchr(text.ptr, between, text.len);
        size_t n = end ? (size_t)(end - text.ptr) : text.len;
        const char *equals = memchr(text.ptr, '=', n);
        size_t n_name = equals ? (size_t)(equals - text.ptr) : 0;
        struct str key = trim((struct str){text.ptr, n_name});
        if (equals && key.len == strlen(name) && strncasecmp(key.ptr, name, key.len) == 0) {
            *out = trim((struct str){equals + 1, n - n_name - 1});
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
