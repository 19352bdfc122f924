#include "gateway/answer/answer_parser.h"

#include <string.h>

size_t parser_run(parser_step *step, const struct answer_parser *p, struct parser_state *s,
                  struct str text, bool end, struct answer *a)
{
    for (size_t at = 0;;) {
        uint32_t before = s->step;
        size_t n = step(p, s, parser_skip(text, at), end, a);
        at += n;
        if (s->step == before && n == 0)
            return end ? text.len : at;
    }
}

size_t parser_find_marker(struct str text, const char *marker, bool *found)
{
    size_t n = strlen(marker);
    const char *end = text.ptr + text.len;
    *found = false;
    for (const char *at = text.ptr;
         text.len > 0 && (at = memchr(at, marker[0], (size_t)(end - at))); at++) {
        size_t left = (size_t)(end - at), k = left < n ? left : n;
        if (memcmp(at, marker, k) == 0) {
            *found = k == n;
            return (size_t)(at - text.ptr);
        }
    }
    return text.len;
}

size_t parser_find_first(struct str text, const char *const *markers, size_t *i_found)
{
    size_t first = text.len;
    *i_found = SIZE_MAX;
    for (size_t i = 0; markers[i]; i++) {
        bool found; /* true when the marker is complete; only a marker before `first` counts */
        const size_t left = text.len - first, n = strlen(markers[i]);
        const struct str within = {text.ptr, first + (n < left ? n : left)};
        size_t at = parser_find_marker(within, markers[i], &found);
        if (at < first || (at == first && found))
            *i_found = found ? i : SIZE_MAX;
        first = at < first ? at : first;
    }
    return first;
}
