#include "cli/run/file/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"

void run_problems_init(struct run_problems *p)
{
    *p = (struct run_problems){.items = mem_array(RUN_PROBLEMS_MAX, sizeof *p->items),
                               .notes = mem_array(RUN_PROBLEMS_MAX, sizeof *p->notes)};
}

void run_problems_fini(struct run_problems *p)
{
    mem_free(p->items);
    mem_free(p->notes);
    *p = (struct run_problems){0};
}

static void write_text(struct run_problem *to, struct yaml_mark at, const char *fmt, va_list ap)
{
    to->at = at;
    vsnprintf(to->text, sizeof to->text, fmt, ap);
    for (char *c = to->text; *c; c++) /* a problem stays on one line, whatever the file contains */
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            *c = '?';
    to->text[str_utf8_valid(str_from(to->text))] = '\0';
}

void run_problem(struct run_problems *p, struct yaml_mark at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (p->n++ < RUN_PROBLEMS_MAX)
        write_text(&p->items[p->n - 1], at, fmt, ap);
    va_end(ap);
}

void run_note(struct run_problems *p, struct yaml_mark at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (p->n_notes < RUN_PROBLEMS_MAX)
        write_text(&p->notes[p->n_notes++], at, fmt, ap);
    va_end(ap);
}

static int by_place(const void *a, const void *b)
{
    const struct run_problem *x = a, *y = b;
    if (x->at.line != y->at.line)
        return x->at.line < y->at.line ? -1 : 1;
    return (x->at.column > y->at.column) - (x->at.column < y->at.column);
}

static void print(struct run_problem *all, size_t n, const char *path, const char *kind,
                  struct strbuf *out)
{
    qsort(all, n, sizeof *all, by_place);
    for (size_t i = 0; i < n; i++)
        strbuf_printf(out, "%s:%u:%u: %s%s\n", path, all[i].at.line, all[i].at.column, kind,
                      all[i].text);
}

void run_problems_print(struct run_problems *p, const char *path, struct strbuf *out)
{
    print(p->items, p->n < RUN_PROBLEMS_MAX ? p->n : RUN_PROBLEMS_MAX, path, "", out);
    if (p->n > RUN_PROBLEMS_MAX)
        strbuf_printf(out, "%s: %zu more problems are not shown\n", path, p->n - RUN_PROBLEMS_MAX);
}

void run_notes_print(struct run_problems *p, const char *path, struct strbuf *out)
{
    print(p->notes, p->n_notes, path, "note: ", out);
}
