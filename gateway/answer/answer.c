#include "gateway/answer/answer.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

/* `MAX_PIECE` limits the bytes per feed, because after each marker a parser searches the rest. */
enum { MAX_PIECE = 1024 };

void answer_init(struct answer *a, const struct answer_rules *rules, uint32_t i_choice,
                 const struct prompt *prompt)
{
    struct str text = prompt->text, continued = prompt_continued(prompt);
    *a = (struct answer){.rules = rules, .i_choice = i_choice};
    strbuf_init(&a->before_reasoning, 0);
    strbuf_init(&a->before_tools, 0);
    strbuf_init(&a->bytes, 0);
    if (rules->reasoning && rules->reasoning->init)
        rules->reasoning->init(rules->reasoning, &a->reasoning, text, continued);
    if (rules->tools && rules->tools->init)
        rules->tools->init(rules->tools, &a->tools, text, continued);
}

void answer_fini(struct answer *a)
{
    strbuf_fini(&a->before_reasoning);
    strbuf_fini(&a->before_tools);
    strbuf_fini(&a->bytes);
    mem_free(a->parts);
    *a = (struct answer){0};
}

/* ---- parts given by the parsers ---- */

static struct answer_part *add_part(struct answer *a, enum answer_part_kind kind, uint32_t i_call)
{
    if (a->n_parts == a->cap_parts) {
        a->cap_parts = a->cap_parts ? a->cap_parts * 2 : 4;
        a->parts = mem_realloc(a->parts, a->cap_parts * sizeof *a->parts);
    }
    struct answer_part *p = &a->parts[a->n_parts++];
    *p = (struct answer_part){.kind = kind, .i_call = i_call};
    return p;
}

static void add_text(struct answer *a, enum answer_part_kind kind, uint32_t i_call, struct str text)
{
    struct answer_part *p = a->n_parts ? &a->parts[a->n_parts - 1] : NULL;
    if (text.len == 0)
        return;
    if (!p || p->kind != kind || p->i_call != i_call)
        p = add_part(a, kind, i_call);
    strbuf_append_str(&a->bytes, text);
    p->text.len += text.len;
}

/* Adds a piece of text to the count of reasoning. `text` must point into the parser's input,
 * because its address there gives its position. */
static void count_reasoning(struct answer *a, struct str text)
{
    const struct strbuf *in = &a->before_reasoning;
    if (text.len > 0 && text.ptr >= in->ptr && text.ptr + text.len <= in->ptr + in->len)
        reasoning_count_add(&a->reasoning_count, a->n_before + (uint64_t)(text.ptr - in->ptr),
                            text.len);
}

void answer_reasoning(struct answer *a, struct str text)
{
    count_reasoning(a, text);
    if (!a->rules->drop_reasoning)
        add_text(a, ANSWER_REASONING, 0, text);
}

void answer_past_reasoning(struct answer *a, struct str text)
{
    if (a->rules->tools)
        strbuf_append_str(&a->before_tools, text);
    else
        answer_content(a, text);
}

void answer_content(struct answer *a, struct str text)
{
    add_text(a, ANSWER_CONTENT, 0, text);
}

uint32_t answer_call_of_id(struct answer *a, struct str name, struct str id)
{
    uint32_t i = a->n_calls++;
    if (i > 0 && a->rules->one_call)
        return i;
    struct answer_part *p = add_part(a, ANSWER_CALL, i);
    p->id.len = id.len;
    p->name.len = name.len;
    strbuf_append_str(&a->bytes, id);
    strbuf_append_str(&a->bytes, name);
    return i;
}

/* Writes n letters and digits that are derived from a unique number. */
static void short_id(uint64_t hi, uint64_t lo, uint32_t n, char *out)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t z = (hi ^ (lo << 32 | lo >> 32)) + 0x9E3779B97F4A7C15ull;
    /* splitmix64: neighbouring numbers give very different ids */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    for (uint32_t i = 0; i < n; i++, z /= 62)
        out[i] = letters[z % 62];
    out[n] = '\0';
}

uint32_t answer_call(struct answer *a, struct str name)
{
    const struct answer_rules *r = a->rules;
    /* the number is unique within the request, because choice and call are part of it */
    uint64_t lo = r->id_lo ^ ((uint64_t)a->i_choice << 32 | a->n_calls);
    char id[96];
    if (r->n_call_id)
        short_id(r->id_hi, lo, r->n_call_id, id);
    else
        snprintf(id, sizeof id, "%s%016llx%016llx", r->call_prefix, (unsigned long long)r->id_hi,
                 (unsigned long long)lo);
    return answer_call_of_id(a, name, str_from(id));
}

void answer_arguments(struct answer *a, uint32_t i_call, struct str text)
{
    if (i_call == 0 || !a->rules->one_call)
        add_text(a, ANSWER_ARGUMENTS, i_call, text);
}

/* ---- feeding ---- */

/* Sets the pointers of the parts. While parts are added they have lengths only, because `bytes`
 * may move. */
static void resolve_parts(struct answer *a)
{
    const char *at = a->bytes.ptr;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        struct str *pieces[] = {&a->parts[i].id, &a->parts[i].name, &a->parts[i].text};
        for (size_t k = 0; k < 3; k++) {
            pieces[k]->ptr = at;
            at += pieces[k]->len;
        }
    }
}

static void feed_parser(struct answer *a, const struct answer_parser *p, struct parser_state *s,
                        struct strbuf *in, bool end)
{
    size_t used = p->feed(p, s, strbuf_str(in), end, a);
    strbuf_consume(in, used < in->len ? used : in->len);
}

void answer_reasoning_again(struct answer *a)
{
    if (a->rules->tools)
        feed_parser(a, a->rules->tools, &a->tools, &a->before_tools, false);
}

static void feed_piece(struct answer *a, struct str text, bool end)
{
    const struct answer_rules *r = a->rules;
    if (r->reasoning) {
        strbuf_append_str(&a->before_reasoning, text);
        const size_t n_fed = a->before_reasoning.len;
        feed_parser(a, r->reasoning, &a->reasoning, &a->before_reasoning, end);
        a->n_before += n_fed - a->before_reasoning.len;
    } else {
        strbuf_append_str(&a->before_tools, text);
    }
    if (r->tools)
        feed_parser(a, r->tools, &a->tools, &a->before_tools, end);
}

void answer_feed(struct answer *a, struct str text, bool end, struct answer_delta *out)
{
    const struct answer_rules *r = a->rules;
    if (!r->reasoning && !r->tools) {
        a->only = (struct answer_part){.kind = ANSWER_CONTENT, .text = text};
        out->parts = &a->only;
        out->n_parts = text.len > 0;
        return;
    }
    a->n_parts = 0;
    a->is_cut =
        end && (out->finish == ANSWER_LENGTH || out->stop_string.ptr || out->stop_id != UINT32_MAX);
    strbuf_reset(&a->bytes);
    for (; text.len > MAX_PIECE; text = parser_skip(text, MAX_PIECE))
        feed_piece(a, (struct str){text.ptr, MAX_PIECE}, false);
    feed_piece(a, text, end);
    resolve_parts(a);
    out->parts = a->parts;
    out->n_parts = a->n_parts;
    if (end && a->n_calls > 0 && out->finish == ANSWER_STOP)
        out->finish = ANSWER_TOOL_CALLS;
}
