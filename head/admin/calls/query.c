#include "head/admin/calls/query.h"

#include <string.h>

static bool find(struct str query, const char *name, struct str *out)
{
    size_t n = strlen(name);
    while (query.len > 0) {
        const char *amp = memchr(query.ptr, '&', query.len);
        struct str one = {query.ptr, amp ? (size_t)(amp - query.ptr) : query.len};
        if (one.len > n && one.ptr[n] == '=' && memcmp(one.ptr, name, n) == 0) {
            *out = (struct str){one.ptr + n + 1, one.len - n - 1};
            return true;
        }
        size_t skip = one.len + (amp != NULL);
        query.ptr += skip;
        query.len -= skip;
    }
    return false;
}

struct str query_word(struct str query, const char *name)
{
    struct str value;
    return find(query, name, &value) ? value : STR("");
}

bool query_number(struct str query, const char *name, uint64_t *out)
{
    struct str value;
    *out = 0;
    return !find(query, name, &value) || str_to_u64(value, out) == STATUS_OK;
}
