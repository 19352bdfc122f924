#include "kernels/cpu/linear.h"

#include "kernels/cpu/vec_scalar.h"
/* after it */
#include "kernels/cpu/linear_impl.h"

void linear_scalar(const struct linear_task *t)
{
    linear_any(t);
}

void embed_row_scalar(const struct weight *w, uint32_t id, float scale, float *out)
{
    embed_any(w, id, scale, out);
}
