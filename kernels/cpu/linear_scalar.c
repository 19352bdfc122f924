#include "kernels/cpu/linear.h"

#include "kernels/cpu/vec_scalar.h"
/* after it */
#include "kernels/cpu/linear_impl.h"

static const format_table *const tables[] = {&formats_plain_scalar, &formats_blocks_scalar,
                                             &formats_k_scalar, &formats_ours_scalar,
                                             &formats_rare_scalar};
enum { N_TABLES = sizeof tables / sizeof *tables };

void linear_scalar(const struct linear_task *t)
{
    linear_of(format_find(tables, N_TABLES, t->w->dtype), t);
}

void embed_row_scalar(const struct weight *w, uint32_t id, float scale, float *out)
{
    embed_of(format_find(tables, N_TABLES, w->dtype), w, id, scale, out);
}
