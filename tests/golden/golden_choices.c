/* Records which experts a device's routers choose, and makes CPUs follow them.
 * golden_choices_new wraps the device's table of functions. Each router's choices of a pass are
 * copied to a buffer on the device (`keep`). golden_choices_take copies them to the host after
 * the pass. A follower wraps a CPU's table in the same way. For each router it finds the least
 * move of the logits that gives the device's choice (`least_move`), and then forces this choice
 * (`choose_theirs`). The order of the routers in a pass identifies them, so followers must run
 * the same passes as the device. Buffers have space for MAX_ROUTES routers of `rows` rows. One
 * thread calls these functions. Impossible sizes end the program. */
#include "tests/golden/golden_choices.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/golden/golden_file.h"

enum { MAX_ROUTES = 64, MAX_EXPERTS = 1024, DOUBLINGS = 14, HALVINGS = 10 };

struct golden_choices {
    /* `ops` must be first, because a pointer to the device's table of functions is a pointer to
     * this struct */
    struct ops ops;
    const struct ops *real;
    struct device *device;
    uint32_t rows, n_chosen;
    /* number of routers of a pass, and index of the next router to be enqueued */
    uint32_t n_routes, i_route;
    /* choices, [MAX_ROUTES][rows][n_chosen]: `kept` on the device, `taken` on the host */
    uint32_t *kept, *taken;
};

struct golden_follower {
    struct ops ops;
    const struct ops *real;
    struct device *device;
    const struct golden_choices *choices;
    uint32_t i_route, n_passes;
    struct golden_moves moves;
};

static struct golden_choices *choices_of(struct device *d)
{
    return (struct golden_choices *)(uintptr_t)d->ops;
}

static struct golden_follower *follower_of(struct device *d)
{
    return (struct golden_follower *)(uintptr_t)d->ops;
}

/* ---- the device's choices ---- */

static size_t kept_bytes(const struct golden_choices *c)
{
    return sizeof *c->kept * MAX_ROUTES * c->rows * c->n_chosen;
}

static void begin_keeping(struct device *d)
{
    struct golden_choices *c = choices_of(d);
    c->i_route = 0;
    c->real->pass.begin(d);
}

/* Keeps the choices of each router in a buffer of its own. A recorded pass writes to that buffer
 * again although this function is not called. */
static void keep(struct device *d, const struct route_params *p)
{
    struct golden_choices *c = choices_of(d);
    c->real->math.route(d, p);
    if (!c->kept) {
        c->n_chosen = p->n_chosen;
        c->kept = c->real->memory.alloc(d, kept_bytes(c));
        c->taken = mem_zalloc(kept_bytes(c));
    }
    if (!c->kept || p->n_chosen != c->n_chosen || p->n_rows > c->rows || c->i_route == MAX_ROUTES)
        golden_die("choices of %u experts for %u rows, router %u: no room", p->n_chosen, p->n_rows,
                   c->i_route);
    c->real->memory.copy(d, c->kept + (size_t)c->i_route * c->rows * c->n_chosen, p->ids,
                         sizeof *p->ids * p->n_rows * p->n_chosen);
    c->i_route++;
    c->n_routes = c->i_route > c->n_routes ? c->i_route : c->n_routes;
}

struct golden_choices *golden_choices_new(struct device *d, uint32_t rows)
{
    struct golden_choices *c = mem_zalloc(sizeof *c);
    *c = (struct golden_choices){.ops = *d->ops, .real = d->ops, .device = d, .rows = rows};
    c->ops.pass.begin = begin_keeping;
    c->ops.math.route = keep;
    d->ops = &c->ops;
    return c;
}

void golden_choices_free(struct golden_choices *c)
{
    if (!c)
        return;
    c->device->ops = c->real;
    if (c->kept)
        c->real->memory.release(c->device, c->kept, kept_bytes(c));
    mem_free(c->taken);
    mem_free(c);
}

void golden_choices_take(struct golden_choices *c)
{
    struct error err;
    if (c->kept &&
        c->real->memory.read(c->device, c->taken, c->kept, kept_bytes(c), &err) != STATUS_OK)
        golden_die("the device's choices: %s", err.text);
}

/* ---- the followers ---- */

static void begin_following(struct device *d)
{
    struct golden_follower *f = follower_of(d);
    f->i_route = 0;
    f->n_passes++;
    f->real->pass.begin(d);
}

static bool is_chosen(const uint32_t *ids, uint32_t n, uint32_t expert)
{
    for (uint32_t k = 0; k < n; k++)
        if (ids[k] == expert)
            return true;
    return false;
}

/* `favour` names the experts that a move of the logits favours: the chosen experts, or with
 * groups all experts of the chosen groups. An expert that makes its group one of the best need
 * not be chosen itself. */
enum favour { FAVOUR_CHOSEN, FAVOUR_GROUPS };

static bool is_favoured(const struct route_params *row, const uint32_t *ids, enum favour favour,
                        uint32_t expert)
{
    const uint32_t n = favour == FAVOUR_GROUPS ? row->n_experts / row->n_groups : 1;
    for (uint32_t k = 0; k < row->n_chosen; k++)
        if (ids[k] / n == expert / n)
            return true;
    return false;
}

/* Returns true when the router chooses `ids` after the row's logits are moved by `by` in favour
 * of these experts. */
static bool chooses_moved(struct golden_follower *f, const struct route_params *row,
                          const uint32_t *ids, enum favour favour, double by)
{
    float logits[MAX_EXPERTS];
    struct route_params moved = *row;
    for (uint32_t e = 0; e < row->n_experts; e++)
        logits[e] = (float)((double)((const float *)row->logits.data)[e] +
                            (is_favoured(row, ids, favour, e) ? by : -by));
    moved.logits.data = logits;
    f->real->math.route(f->device, &moved);
    return memcmp(moved.ids, ids, sizeof *ids * row->n_chosen) == 0;
}

/* Returns the least move up to `most` with which the router chooses `ids`, or infinity when no
 * move has this effect (for example with NaN). The search starts with small moves. Moves that
 * are too large fail as well, because all sigmoids are then one. */
static double search_move(struct golden_follower *f, const struct route_params *row,
                          const uint32_t *ids, enum favour favour, double most)
{
    double high = most / (1 << DOUBLINGS), low = 0;
    while (high <= most && !chooses_moved(f, row, ids, favour, high)) {
        low = high;
        high *= 2;
    }
    if (!(high <= most))
        return (double)INFINITY;
    for (uint32_t i = 0; i < HALVINGS; i++) {
        double by = (low + high) / 2;
        if (chooses_moved(f, row, ids, favour, by))
            high = by;
        else
            low = by;
    }
    return high;
}

/* Returns the row's move as golden_moves defines it. */
static double least_move(struct golden_follower *f, const struct route_params *row,
                         const uint32_t *ids)
{
    const float *x = row->logits.data;
    double mean = 0, squares = 0, most = 0;
    for (uint32_t e = 0; e < row->n_experts; e++)
        mean += (double)x[e] / row->n_experts;
    for (uint32_t e = 0; e < row->n_experts; e++) {
        double d = (double)x[e] - mean;
        squares += d * d;
        most = fabs(d) > most ? fabs(d) : most;
    }
    double move = search_move(f, row, ids, FAVOUR_CHOSEN, most);
    if (row->n_groups > 1)
        move = fmin(move, search_move(f, row, ids, FAVOUR_GROUPS, most));
    return move / sqrt(squares / row->n_experts);
}

static void note(struct golden_follower *f, uint32_t i_row, double move)
{
    struct golden_moves *m = &f->moves;
    if (m->n++ == 0) {
        m->first_pass = f->n_passes - 1;
        m->first_row = i_row;
    } else if (m->first_pass == f->n_passes - 1 && i_row < m->first_row) {
        m->first_row = i_row; /* this row belongs to a later layer of the same pass */
    }
    if (!(move <= m->largest))
        m->largest = move;
}

/* Makes the router choose `ids`. A bias affects only the choice: a large bias forces it, and the
 * shares still follow from the row's own scores. */
static void choose_theirs(struct golden_follower *f, const struct route_params *row,
                          const uint32_t *ids)
{
    static const float outweighs = 1e6f;
    float bias[MAX_EXPERTS];
    struct route_params forced = *row;
    for (uint32_t e = 0; e < row->n_experts; e++)
        bias[e] = is_chosen(ids, row->n_chosen, e) ? outweighs : 0;
    forced.bias = bias;
    f->real->math.route(f->device, &forced);
    if (memcmp(forced.ids, ids, sizeof *ids * row->n_chosen) != 0)
        /* the device's choice is invalid: it has an expert twice, or is unsorted */
        f->moves.largest = (double)INFINITY;
}

static void follow(struct device *d, const struct route_params *p)
{
    struct golden_follower *f = follower_of(d);
    const struct golden_choices *c = f->choices;
    if (!c->taken || f->i_route >= c->n_routes || p->n_rows > c->rows ||
        p->n_chosen != c->n_chosen || p->n_experts > MAX_EXPERTS)
        golden_die("router %u: the device has not chosen %u of %u experts there", f->i_route,
                   p->n_chosen, p->n_experts);
    const uint32_t *theirs = c->taken + (size_t)f->i_route++ * c->rows * c->n_chosen;
    for (uint32_t i = 0; i < p->n_rows; i++, theirs += p->n_chosen) {
        struct route_params row = *p;
        row.logits.data = (float *)p->logits.data + (size_t)i * p->logits.stride;
        row.n_rows = 1;
        row.ids = p->ids + (size_t)i * p->n_chosen;
        row.shares = p->shares + (size_t)i * p->n_chosen;
        f->moves.n_rows++;
        f->real->math.route(d, &row);
        if (memcmp(row.ids, theirs, sizeof *theirs * p->n_chosen) == 0)
            continue;
        note(f, i, least_move(f, &row, theirs));
        choose_theirs(f, &row, theirs);
    }
}

struct golden_follower *golden_follow(const struct golden_choices *c, struct device *cpu)
{
    struct golden_follower *f = mem_zalloc(sizeof *f);
    *f = (struct golden_follower){.ops = *cpu->ops, .real = cpu->ops, .device = cpu, .choices = c};
    f->ops.pass.begin = begin_following;
    f->ops.math.route = follow;
    cpu->ops = &f->ops;
    return f;
}

void golden_follower_free(struct golden_follower *f)
{
    if (!f)
        return;
    f->device->ops = f->real;
    mem_free(f);
}

void golden_follower_begin(struct golden_follower *f)
{
    f->n_passes = 0;
    f->moves = (struct golden_moves){.first_pass = UINT32_MAX};
}

const struct golden_moves *golden_follower_moves(const struct golden_follower *f)
{
    return &f->moves;
}
