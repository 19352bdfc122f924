#include "gateway/generation/stop_strings.h"

#include <assert.h>

#include "common/base/mem.h"

static uint16_t *failure_table(struct str s)
{
    uint16_t *fail = mem_array(s.len + 1, sizeof *fail);
    for (size_t i = 1, k = 0; i < s.len; i++) {
        while (k > 0 && s.ptr[i] != s.ptr[k])
            k = fail[k];
        if (s.ptr[i] == s.ptr[k])
            k++;
        fail[i + 1] = (uint16_t)k;
    }
    return fail;
}

void stop_set_init(struct stop_set *s, const struct str *strings, uint32_t n)
{
    assert(n <= STOP_MAX_STRINGS);
    *s = (struct stop_set){.n = n, .strings = n ? mem_array(n, sizeof *s->strings) : NULL};
    for (uint32_t i = 0; i < n; i++) {
        assert(strings[i].len > 0 && strings[i].len <= STOP_MAX_BYTES);
        s->strings[i].text =
            (struct str){mem_strndup(strings[i].ptr, strings[i].len), strings[i].len};
        s->strings[i].fail = failure_table(strings[i]);
    }
}

void stop_set_fini(struct stop_set *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        mem_free((void *)s->strings[i].text.ptr);
        mem_free(s->strings[i].fail);
    }
    mem_free(s->strings);
    *s = (struct stop_set){0};
}

static bool advance(struct stop_matcher *m, const struct stop_set *s, uint32_t i, char c)
{
    const struct str p = s->strings[i].text;
    const uint16_t *fail = s->strings[i].fail;
    size_t k = m->state[i];
    if (k == p.len)
        /* the complete match before was ignored, so matching continues after it */
        k = fail[k];
    while (k > 0 && p.ptr[k] != c)
        k = fail[k];
    if (p.ptr[k] == c)
        k++;
    m->state[i] = (uint16_t)k;
    return k == p.len;
}

bool stop_matcher_feed(struct stop_matcher *m, const struct stop_set *s, struct str text,
                       bool ignore, struct stop_match *out)
{
    for (size_t at = 0; at < text.len; at++) {
        *out = (struct stop_match){.end = at + 1};
        for (uint32_t i = 0; i < s->n; i++)
            if (advance(m, s, i, text.ptr[at]) && s->strings[i].text.len > out->bytes)
                *out = (struct stop_match){
                    .i_string = i, .end = at + 1, .bytes = s->strings[i].text.len};
        if (out->bytes > 0 && !ignore)
            return true;
    }
    return false;
}

size_t stop_matcher_held(const struct stop_matcher *m, const struct stop_set *s)
{
    size_t held = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        size_t k = m->state[i];
        if (k == s->strings[i].text.len)
            k = s->strings[i].fail[k];
        if (k > held)
            held = k;
    }
    return held;
}
