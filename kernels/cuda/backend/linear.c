/* Implements products and rows of weights: this file chooses the kernel by the number of rows,
 * and lays out the scratch. */
#include "kernels/cuda/backend/linear.h"

#include "kernels/cuda/backend/enqueue.h"
#include "kernels/cuda/linear/abi.h"
#include "kernels/cuda/rows/abi.h"

enum { ALIGN = 256 };
#define GATHER_BYTES ((uint64_t)16 << 20) /* most bytes of rows in a matrix's input order */
/* most bytes of sums of products whose K is split over blocks */
#define PARTIAL_BYTES ((uint64_t)16 << 20)
#define VALUES_BYTES  ((uint64_t)64 << 20) /* most bytes of codes converted to bfloat16 */

/* Returns the smaller of a limit and the bytes that a program's largest matrix may need. */
static uint64_t bounded(uint64_t most, uint64_t n_bytes)
{
    n_bytes = (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
    return n_bytes < most ? n_bytes : most;
}

uint64_t cuda_linear_scratch_bytes(const struct scratch_shape *s)
{
    /* A matrix of one output still has a row tile of 16 rows, and rows have at least 8 inputs. */
    uint64_t row_bytes = (s->most_weight_elements + 8) * 2;
    uint64_t gather = ALIGN + bounded(GATHER_BYTES, row_bytes * s->n_rows);
    uint64_t values = GPU_BLAS_WORKSPACE + bounded(VALUES_BYTES, row_bytes * GPU_TILE_N);
    bool many = s->n_rows > GPU_FEW_ROWS || s->n_logits_rows > GPU_FEW_ROWS;
    return gather + (many && values > PARTIAL_BYTES ? values : PARTIAL_BYTES);
}

uint64_t cuda_backend_weight_bytes(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                                   uint32_t group)
{
    struct gpu_matrix m;
    return gpu_matrix_of(dtype, n, k, group, NULL, &m) ? gpu_matrix_bytes(&m) : 0;
}

bool cuda_matrix_of(struct cuda_device *x, const struct weight *w, struct gpu_matrix *out)
{
    struct error err;
    if (w->n == 0)
        return false;
    if (gpu_matrix_of_weight(w, out))
        return true;
    cuda_note(x,
              error_set(&err, STATUS_UNSUPPORTED,
                        "there is no GPU kernel for a matrix of %s with %u outputs and %u inputs "
                        "in groups of %u",
                        dtype_traits(w->dtype).name, w->n, w->k, w->group),
              &err);
    return false;
}

void cuda_backend_embed(struct device *d, const struct embed_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct gpu_matrix m;
    struct error err;
    if (cuda_goes_on(x) && cuda_matrix_of(x, p->w, &m))
        cuda_note(x, cuda_embed(x->stream, &m, p, &err), &err);
}

static enum status run(struct cuda_device *x, const struct gpu_products *p, struct error *err)
{
    return p->n_rows < gpu_many_rows(p->parts[0].w.format) ? cuda_linear_few(x->linear, p, err)
                                                           : cuda_linear_many(x->linear, p, err);
}

/* Returns p for n_rows rows from `first` on. The rows are in p's x, or in the rows gathered from
 * x. */
static struct gpu_products rows_of(const struct gpu_products *p, uint32_t first, uint32_t n_rows)
{
    struct gpu_products part = *p;
    part.n_rows = n_rows;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        uint64_t at = (uint64_t)first * p->parts[i].out.stride;
        part.parts[i].out.data =
            (uint8_t *)p->parts[i].out.data + at * (p->parts[i].to_float ? 4 : 2);
    }
    return part;
}

/* Multiplies by matrices whose inputs are not in the file's order: the columns of x are
 * reordered, some rows at a time. */
static enum status run_in_order(struct cuda_device *x, const struct gpu_products *p,
                                const uint32_t *order, struct error *err)
{
    uint32_t k = p->parts[0].w.k, stride = (k + 7) / 8 * 8;
    uint64_t row_bytes = (uint64_t)stride * 2, room = 0;
    /* The gathered rows are at the end of the scratch. The product uses the part before them,
     * which has at least the bytes that the product needs. */
    bool many = p->n_rows >= gpu_many_rows(p->parts[0].w.format);
    uint64_t least = ALIGN + (many ? GPU_BLAS_WORKSPACE + GPU_TILE_N * row_bytes : 0);
    if (p->scratch_bytes > least)
        room = p->scratch_bytes - least < GATHER_BYTES ? p->scratch_bytes - least : GATHER_BYTES;
    uint64_t most = room / row_bytes;
    if (most == 0)
        return error_set(
            err, STATUS_INTERNAL,
            "there is not enough scratch memory to reorder a row of %u inputs. Report this bug", k);
    for (uint32_t first = 0, n; first < p->n_rows; first += n) {
        n = p->n_rows - first < most ? p->n_rows - first : (uint32_t)most;
        struct gpu_products part = rows_of(p, first, n);
        struct view from = {(uint16_t *)p->x.data + (uint64_t)first * p->x.stride, p->x.stride};
        part.scratch_bytes = (p->scratch_bytes - n * row_bytes) / ALIGN * ALIGN;
        part.x = (struct view){(uint8_t *)p->scratch + part.scratch_bytes, stride};
        TRY(cuda_gather_columns(x->stream, part.x, from, order, n, k, err));
        TRY(run(x, &part, err));
    }
    return STATUS_OK;
}

/* Launches parts of equal format and shape together; most calls need only one launch. */
static enum status linear(struct cuda_device *x, const struct linear_params *p, struct error *err)
{
    struct gpu_matrix m[LINEAR_MAX_PARTS];
    bool done[LINEAR_MAX_PARTS] = {false};
    for (uint32_t i = 0; i < p->n_parts; i++)
        done[i] = !cuda_matrix_of(x, p->parts[i].w, &m[i]);
    if (x->failed != STATUS_OK)
        return STATUS_OK; /* x keeps the error */
    for (uint32_t i = 0; i < p->n_parts; i++) {
        struct gpu_products together = {.x = p->x,
                                        .n_rows = p->n_rows,
                                        .scratch = x->scratch.ptr,
                                        .scratch_bytes = x->scratch.n_bytes};
        const uint32_t *order = p->parts[i].w->order;
        for (uint32_t j = i; j < p->n_parts && !done[i]; j++) {
            const struct linear_part *part = &p->parts[j];
            if (done[j] || m[j].format != m[i].format || m[j].k != m[i].k ||
                m[j].group != m[i].group || part->w->order != order)
                continue;
            together.parts[together.n_parts++] =
                (struct gpu_product){m[j], part->bias, part->out, part->to_float};
            done[j] = j != i;
        }
        if (together.n_parts > 0)
            TRY(order ? run_in_order(x, &together, order, err) : run(x, &together, err));
        done[i] = true;
    }
    return STATUS_OK;
}

/* Returns whether one launch can compute gate, up and their activation. This needs few rows, and
 * matrices of one kind in the file's order of inputs. */
static bool is_one_launch(const struct linear_params *p, const struct gpu_matrix m[2])
{
    const struct linear_part *gate = &p->parts[0], *up = &p->parts[1];
    return p->n_parts == 2 && m[0].format == m[1].format && m[0].n == m[1].n && m[0].k == m[1].k &&
           m[0].group == m[1].group && !gate->w->order && !up->w->order && !gate->to_float &&
           !up->to_float && p->n_rows < gpu_many_rows(m[0].format);
}

static enum status linear_gated(struct cuda_device *x, const struct linear_params *p,
                                const struct gated_params *g, struct error *err)
{
    struct gpu_matrix m[2];
    if (!cuda_matrix_of(x, p->parts[0].w, &m[0]) || !cuda_matrix_of(x, p->parts[1].w, &m[1]))
        return STATUS_OK; /* x keeps the error */
    if (!is_one_launch(p, m)) {
        TRY(linear(x, p, err));
        return cuda_gated(x->stream, g, err);
    }
    const struct gpu_products both = {
        .x = p->x,
        .n_rows = p->n_rows,
        .n_parts = 2,
        .parts = {{m[0], p->parts[0].bias, g->out, false}, {m[1], p->parts[1].bias, g->up, false}},
        .is_gated = true,
        .act = g->act,
        .limit = g->limit,
        .scratch = x->scratch.ptr,
        .scratch_bytes = x->scratch.n_bytes};
    return cuda_linear_few(x->linear, &both, err);
}

void cuda_backend_linear_gated(struct device *d, const struct linear_params *p,
                               const struct gated_params *g)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (p->n_rows > 0 && cuda_goes_on(x))
        cuda_note(x, linear_gated(x, p, g, &err), &err);
}

void cuda_backend_linear(struct device *d, const struct linear_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (p->n_rows > 0 && cuda_goes_on(x))
        cuda_note(x, linear(x, p, &err), &err);
}
