#pragma once
/* Contains the body of an ISA file, which defines ISA and includes a vec/ISA.h first. It defines
 * the level's table of formats, and the functions of linear.h for these formats. */
#include "kernels/cpu/isa_names.h"
#include "kernels/cpu/linear/linear_impl.h"

static const format_table *const tables[] = {&ISA_FN(formats_plain), &ISA_FN(formats_blocks),
                                             &ISA_FN(formats_k), &ISA_FN(formats_ours),
                                             &ISA_FN(formats_rare)};
enum { N_TABLES = sizeof tables / sizeof *tables };

void ISA_FN(linear)(const struct linear_task *t)
{
    linear_of(format_find(tables, N_TABLES, t->w->dtype), t);
}

void ISA_FN(embed_row)(const struct weight *w, uint32_t id, float scale, float *out)
{
    embed_of(format_find(tables, N_TABLES, w->dtype), w, id, scale, out);
}
