#include "kernels/cpu/linear.h"

#include "kernels/cpu/vec_avx512.h"
/* after it */
#include "kernels/cpu/linear_impl.h"

static const format_table *const tables[] = {&formats_plain_avx512, &formats_blocks_avx512,
                                             &formats_k_avx512, &formats_ours_avx512,
                                             &formats_rare_avx512};
enum { N_TABLES = sizeof tables / sizeof *tables };

void linear_avx512(const struct linear_task *t)
{
    linear_of(format_find(tables, N_TABLES, t->w->dtype), t);
}

void embed_row_avx512(const struct weight *w, uint32_t id, float scale, float *out)
{
    embed_of(format_find(tables, N_TABLES, w->dtype), w, id, scale, out);
}
