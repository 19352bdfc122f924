/* Fuzzes the custom attributes and queries of SageMaker's clients. A value that is found must be
 * inside the input, must have no spaces around it, and must be found under its name in any case. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "gateway/sagemaker/djl_headers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct str text, const char *name, const char *other_case, char between,
                  bool (*find)(struct str, const char *, struct str *))
{
    struct str v, again;
    bool found = find(text, name, &v);
    assert(found == find(text, other_case, &again));
    if (!found)
        return;
    assert(v.len == again.len && (v.len == 0 || v.ptr == again.ptr));
    assert(v.len == 0 || (v.ptr >= text.ptr && v.ptr + v.len <= text.ptr + text.len));
    assert(v.len == 0 || (*v.ptr != ' ' && v.ptr[v.len - 1] != ' '));
    assert(!memchr(v.ptr, between, v.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    check(text, "handler", "HANDLER", ';', djl_attribute);
    check(text, "a", "A", ';', djl_attribute);
    check(text, "model_name", "Model_Name", '&', djl_query_value);
    check(text, "a", "A", '&', djl_query_value);
    const struct djl_headers h = {.attributes = text, .query = text};
    struct str adapter = djl_adapter(&h);
    assert(adapter.len <= size);
    return 0;
}
