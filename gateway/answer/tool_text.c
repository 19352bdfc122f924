#include "gateway/answer/tool_text.h"

#include <string.h>

#include "gateway/answer/answer.h"

/* `MAX_HELD` is the largest white space after content that is held, because a call may follow.
 * It is the capacity of `parser_state.blanks`. `MAX_BLANK` is the largest white space before any
 * content. Longer white space is content. */
enum { MAX_HELD = 31, MAX_BLANK = 512 };

static const char kinds[] = " \t\r\n";

static size_t blanks_behind(struct str s)
{
    size_t n = 0;
    while (n < s.len && n < MAX_HELD && s.ptr[s.len - n - 1] && strchr(kinds, s.ptr[s.len - n - 1]))
        n++;
    return n;
}

static void keep_blanks(struct parser_state *s, struct str blanks)
{
    s->blanks = 0;
    s->n_blanks = (uint32_t)blanks.len;
    for (size_t i = blanks.len; i-- > 0;)
        s->blanks = s->blanks << 2 | (uint64_t)(strchr(kinds, blanks.ptr[i]) - kinds);
}

static bool is_blank(struct str s)
{
    return s.len <= MAX_BLANK && json_skip_space(s, 0) == s.len;
}

/* Finds the first mark, or the first text that is to be dropped. `dropped` is true for a text to
 * drop. */
static size_t find(const struct tool_text *t, struct str text, size_t *i_mark, bool *dropped)
{
    size_t i_drop = SIZE_MAX, n = parser_find_first(text, t->marks, i_mark);
    const size_t at = t->drop ? parser_find_first(text, t->drop, &i_drop) : text.len;
    *dropped = at < n && i_drop != SIZE_MAX;
    if (at < n) {
        *i_mark = i_drop;
        n = at;
    }
    return n;
}

static void give(const struct tool_text *t, struct parser_state *s, struct str text,
                 struct answer *a)
{
    if (t->strips && !s->said && a->n_calls > 0)
        text = parser_skip(text, json_skip_space(text, 0));
    s->said = s->said || text.len > 0;
    if (!t->last || a->n_calls == 0)
        answer_content(a, text);
}

size_t tool_text_feed(const struct tool_text *t, struct parser_state *s, struct str text, bool end,
                      struct answer *a, size_t *i_mark)
{
    bool dropped;
    size_t n = find(t, text, i_mark, &dropped);
    const bool found = *i_mark != SIZE_MAX;
    s->n_blanks = 0;
    if (end && !found)
        n = text.len;
    const struct str before = {text.ptr, n};
    const bool calls = a->n_calls > 0;
    if (!s->said && is_blank(before) && (found || !end || calls)) {
        if (!found)
            return 0; /* held white space after a call is dropped at the end */
        const size_t n_kept = dropped ? 0 : blanks_behind(before);
        keep_blanks(s, (struct str){before.ptr + n - n_kept, n_kept});
    } else {
        const bool held = t->strips && !dropped && (!end || found || calls);
        const size_t n_held = held ? blanks_behind(before) : 0;
        give(t, s, (struct str){before.ptr, n - n_held}, a);
        if (!found)
            return end ? n : n - n_held;
        keep_blanks(s, (struct str){before.ptr + n - n_held, n_held});
    }
    const char *const *list = dropped ? t->drop : t->marks;
    n += strlen(list[*i_mark]);
    if (dropped)
        *i_mark = SIZE_MAX;
    return n;
}

bool tool_text_hold(struct parser_state *s, struct str text)
{
    if (s->said || !is_blank(text))
        return false;
    const size_t n = blanks_behind(text);
    keep_blanks(s, (struct str){text.ptr + text.len - n, n});
    return true;
}

void tool_text_refuse(struct parser_state *s, const char *mark, struct answer *a)
{
    for (; s->n_blanks > 0; s->n_blanks--, s->blanks >>= 2)
        answer_content(a, (struct str){kinds + (s->blanks & 3), 1});
    if (mark)
        answer_content(a, str_from(mark));
    s->said = true;
}
