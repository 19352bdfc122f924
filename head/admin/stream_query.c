#include "head/admin/stream_query.h"

#include <string.h>

static enum status take_number(struct str value, uint64_t most, uint64_t *out)
{
    return str_to_u64(value, out) == STATUS_OK && *out <= most ? STATUS_OK : STATUS_INVALID;
}

static enum status take(struct stream_query *q, struct str name, struct str value,
                        const char **wanted)
{
    uint64_t n = 0;
    enum status s = STATUS_OK;
    if (str_eq_c(name, "show")) {
        *wanted = "live, waiting, running or ended";
        s = request_show_parse(value, &q->view.show);
    } else if (str_eq_c(name, "sort")) {
        *wanted = "arrival, queue, prefill, decode, prompt, generated or group";
        s = request_sort_parse(value, &q->view.sort);
    } else if (str_eq_c(name, "desc")) {
        *wanted = "0 or 1";
        s = take_number(value, 1, &n);
        q->view.descending = n == 1;
    } else if (str_eq_c(name, "offset")) {
        *wanted = "a number below 2^32";
        s = take_number(value, UINT32_MAX, &n);
        q->view.offset = (uint32_t)n;
    } else if (str_eq_c(name, "limit")) {
        *wanted = "a number of at most 200";
        s = take_number(value, REQUEST_ROWS_PAGE, &n);
        q->view.limit = (uint32_t)n;
    } else if (str_eq_c(name, "group")) {
        *wanted = "the id of a replica";
        s = take_number(value, UINT64_MAX, &q->replica);
        q->wants_kv = true;
    } else if (str_eq_c(name, "kv")) {
        *wanted = "a number from 0 to 7";
        s = take_number(value, 7, &n);
        q->i_kv = (uint32_t)n;
        q->wants_kv = true;
    } else if (str_eq_c(name, "walk")) {
        *wanted = "a number";
        s = take_number(value, UINT64_MAX, &q->walk);
    } else if (str_eq_c(name, "samples")) {
        *wanted = "a number";
        s = take_number(value, UINT64_MAX, &q->next_sample);
    } else if (str_eq_c(name, "events")) {
        *wanted = "a number";
        s = take_number(value, UINT64_MAX, &q->next_event);
    }
    return s;
}

enum status stream_query_parse(struct str query, struct stream_query *out, struct error *err)
{
    *out = (struct stream_query){0};
    while (query.len > 0) {
        const char *wanted = "", *amp = memchr(query.ptr, '&', query.len);
        struct str one = {query.ptr, amp ? (size_t)(amp - query.ptr) : query.len};
        const char *is = memchr(one.ptr, '=', one.len);
        size_t n = is ? (size_t)(is - one.ptr) : one.len;
        struct str name = {one.ptr, n};
        struct str value = is ? (struct str){is + 1, one.len - n - 1} : STR("");
        if (take(out, name, value, &wanted) != STATUS_OK)
            return error_set(err, STATUS_INVALID, "the parameter " STR_FMT " must be %s",
                             STR_ARG(name), wanted);
        size_t skip = one.len + (amp != NULL);
        query.ptr += skip;
        query.len -= skip;
    }
    return STATUS_OK;
}
