#include "common/model/files/pickle_machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

const char *const pickle_kind_names[] = {
    "a mark",  "None",   "a bool", "an integer", "a float",   "a string",
    "a tuple", "a list", "a dict", "a name",     "a storage", "a tensor",
};

enum status pickle_refuse(const struct pickle_machine *m, enum status s, const char *fmt, ...)
{
    char text[384];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return error_set(m->err, s, "%s: the pickle in this file cannot be read at byte %zu: %s",
                     m->path, (size_t)(m->op - m->bytes), text);
}

enum status pickle_damaged(const struct pickle_machine *m, const char *what)
{
    return pickle_refuse(m, STATUS_INVALID, "%s", what);
}

enum status pickle_pool_add(const struct pickle_machine *m, struct pickle_pool *p, size_t size,
                            uint32_t limit, const void *element)
{
    if (p->n == limit)
        return pickle_refuse(m, STATUS_LIMIT, "it has more than %u values, tensors or dicts",
                             limit);
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->at = mem_realloc(p->at, p->cap * size);
    }
    memcpy((char *)p->at + p->n++ * size, element, size);
    return STATUS_OK;
}

enum status pickle_push(struct pickle_machine *m, struct pickle_value v)
{
    return pickle_pool_add(m, &m->stack, sizeof v, PICKLE_MAX_STACK, &v);
}

struct pickle_value *pickle_top(const struct pickle_machine *m)
{
    return (struct pickle_value *)m->stack.at + m->stack.n - 1;
}

enum status pickle_pop(struct pickle_machine *m, struct pickle_value *out)
{
    *out = (struct pickle_value){.kind = PICKLE_NONE};
    if (m->stack.n == 0 || pickle_top(m)->kind == PICKLE_MARK)
        return pickle_damaged(m, "the opcode needs a value, but the stack is empty");
    *out = *pickle_top(m);
    m->stack.n--;
    return STATUS_OK;
}

enum status pickle_pop_kind(struct pickle_machine *m, enum pickle_kind kind, const char *what,
                            struct pickle_value *out)
{
    TRY(pickle_pop(m, out));
    if (out->kind != kind)
        return pickle_refuse(m, STATUS_INVALID, "%s is %s, but must be %s", what,
                             pickle_kind_names[out->kind], pickle_kind_names[kind]);
    return STATUS_OK;
}

enum status pickle_pop_marked(struct pickle_machine *m, const struct pickle_value **v, uint32_t *n)
{
    const struct pickle_value *stack = m->stack.at;
    uint32_t i = m->stack.n;
    *v = NULL;
    *n = 0;
    while (i > 0 && stack[i - 1].kind != PICKLE_MARK)
        i--;
    if (i == 0)
        return pickle_damaged(m, "the opcode needs a mark, but the stack has none");
    *v = stack + i;
    *n = m->stack.n - i;
    m->stack.n = i - 1;
    return STATUS_OK;
}

const struct pickle_value *pickle_items(const struct pickle_machine *m, struct pickle_value tuple)
{
    return tuple.n > 0 ? (const struct pickle_value *)m->items.at + tuple.at : NULL;
}

enum status pickle_take(struct pickle_machine *m, uint64_t n, const uint8_t **out)
{
    *out = m->at;
    if (n > (uint64_t)(m->end - m->at))
        return pickle_damaged(m, "it ends in the middle of this opcode");
    m->at += n;
    return STATUS_OK;
}

/* Reads a little-endian number of n <= 8 bytes after the opcode. */
enum status pickle_take_number(struct pickle_machine *m, unsigned n, uint64_t *out)
{
    const uint8_t *p;
    *out = 0;
    TRY(pickle_take(m, n, &p));
    for (unsigned i = 0; i < n; i++)
        *out |= (uint64_t)p[i] << 8 * i;
    return STATUS_OK;
}

enum status pickle_take_line(struct pickle_machine *m, struct str *out)
{
    const uint8_t *end = memchr(m->at, '\n', (size_t)(m->end - m->at));
    *out = (struct str){(const char *)m->at, 0};
    if (!end)
        return pickle_damaged(m, "it ends in the middle of a name");
    out->len = (size_t)(end - m->at);
    m->at = end + 1;
    return STATUS_OK;
}

enum status pickle_push_dict(struct pickle_machine *m)
{
    if (m->n_dicts == PICKLE_MAX_DICTS)
        return pickle_refuse(m, STATUS_LIMIT, "it has more than %d dicts", PICKLE_MAX_DICTS);
    return pickle_push(m, (struct pickle_value){.kind = PICKLE_DICT, .at = m->n_dicts++});
}
