#include "kernels/cpu/linear.h"

#include "kernels/cpu/vec_avx2.h"
/* after it */
#include "kernels/cpu/linear_impl.h"

static const format_table *const tables[] = {&formats_plain_avx2, &formats_blocks_avx2,
                                             &formats_k_avx2, &formats_ours_avx2,
                                             &formats_rare_avx2};
enum { N_TABLES = sizeof tables / sizeof *tables };

void linear_avx2(const struct linear_task *t)
{
    linear_of(format_find(tables, N_TABLES, t->w->dtype), t);
}

void embed_row_avx2(const struct weight *w, uint32_t id, float scale, float *out)
{
    embed_of(format_find(tables, N_TABLES, w->dtype), w, id, scale, out);
}
