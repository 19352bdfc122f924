/* Fuzzes the answer parsers. Any text must give the same parts whole and in pieces, nothing may
 * be held back at the end, and a call's id and name must precede its arguments. The first byte
 * selects the tool parser, the second the reasoning parser, the third the cuts. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/answer/answer.h"
#include "gateway/parsers/reasoning.h"
#include "gateway/parsers/tool_parsers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the i-th parser, or NULL behind the last parser. */
static const struct answer_parser *pick(void (*names)(struct strbuf *out),
                                        const struct answer_parser *(*find)(const char *name),
                                        unsigned i)
{
    struct strbuf all;
    char *save = NULL;
    strbuf_init(&all, 0);
    names(&all);
    char *name = strtok_r(all.ptr, ", ", &save);
    for (; name && i > 0; i--)
        name = strtok_r(NULL, ", ", &save);
    const struct answer_parser *p = name ? find(name) : NULL;
    strbuf_fini(&all);
    return p;
}

/* Collects all parts as one text, with a byte for the kind and the call wherever one of them
 * changes. */
struct heard {
    struct strbuf b;
    enum answer_part_kind kind;
    uint32_t i_call, n_calls;
};

static void hear(struct heard *h, const struct answer_delta *d)
{
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct answer_part *p = &d->parts[i];
        if (p->kind == ANSWER_CALL) {
            assert(p->i_call == h->n_calls && p->id.len > 0 && p->name.len > 0);
            h->n_calls++;
            strbuf_append_str(&h->b, p->name);
        } else {
            assert(p->text.len > 0);
            assert(p->kind != ANSWER_ARGUMENTS || p->i_call + 1 == h->n_calls);
        }
        if (h->b.len == 0 || p->kind != h->kind || p->i_call != h->i_call)
            strbuf_printf(&h->b, "|%d.%u|", (int)p->kind, p->i_call);
        h->kind = p->kind;
        h->i_call = p->i_call;
        strbuf_append_str(&h->b, p->text);
    }
}

static void feed(const struct answer_rules *rules, struct str text, size_t step, struct heard *h)
{
    static const struct prompt prompt = {.has_text = true};
    struct answer a;
    *h = (struct heard){.kind = ANSWER_PART_KIND_COUNT};
    strbuf_init(&h->b, 0);
    answer_init(&a, rules, 0, &prompt);
    for (size_t i = 0; i < text.len; i += step) {
        struct answer_delta d = {0};
        size_t n = text.len - i < step ? text.len - i : step;
        answer_feed(&a, (struct str){text.ptr + i, n}, false, &d);
        hear(h, &d);
    }
    struct answer_delta d = {.stop_id = UINT32_MAX};
    answer_feed(&a, STR(""), true, &d);
    hear(h, &d);
    assert(a.before_reasoning.len == 0 && a.before_tools.len == 0);
    answer_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    static json_t *tool_list; /* list with one tool: f(n number, o object) */
    if (!tool_list)
        tool_list =
            json_pack("[{s:{s:s,s:{s:{s:{s:s},s:{s:s}}}}}]", "function", "name", "f", "parameters",
                      "properties", "n", "type", "number", "o", "type", "object");
    assert(tool_list);
    const struct answer_rules rules = {
        .reasoning = pick(reasoning_parser_names, reasoning_parser_find, data[1] % 128),
        .tools = pick(tool_parser_names, tool_parser_find, data[0] % 128),
        .tool_list = tool_list,
        .call_prefix = "call-",
    };
    struct str text = {(const char *)data + 3, size - 3};
    struct heard whole, pieces;
    feed(&rules, text, text.len + 1, &whole);
    feed(&rules, text, 1 + data[2] % 8, &pieces);
    assert(str_eq(strbuf_str(&whole.b), strbuf_str(&pieces.b)));
    strbuf_fini(&whole.b);
    strbuf_fini(&pieces.b);
    return 0;
}
