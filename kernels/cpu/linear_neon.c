#include "kernels/cpu/linear.h"

#include "kernels/cpu/vec_neon.h"
/* after it */
#include "kernels/cpu/linear_impl.h"

static const format_table *const tables[] = {&formats_plain_neon, &formats_blocks_neon,
                                             &formats_k_neon, &formats_ours_neon,
                                             &formats_rare_neon};
enum { N_TABLES = sizeof tables / sizeof *tables };

void linear_neon(const struct linear_task *t)
{
    linear_of(format_find(tables, N_TABLES, t->w->dtype), t);
}

void embed_row_neon(const struct weight *w, uint32_t id, float scale, float *out)
{
    embed_of(format_find(tables, N_TABLES, w->dtype), w, id, scale, out);
}
