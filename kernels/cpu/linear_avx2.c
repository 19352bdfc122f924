#include "kernels/cpu/linear.h"

#include "kernels/cpu/vec_avx2.h"
/* after it */
#include "kernels/cpu/linear_impl.h"

void linear_avx2(const struct linear_task *t)
{
    linear_any(t);
}

void embed_row_avx2(const struct weight *w, uint32_t id, float scale, float *out)
{
    embed_any(w, id, scale, out);
}
