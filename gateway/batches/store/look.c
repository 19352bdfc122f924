#include "gateway/batches/store/disk.h"
#include "gateway/batches/store/gone.h"
#include "gateway/batches/store/open.h"
#include "gateway/batches/store/room.h"

struct state_health state_look(struct state_store *s)
{
    struct error ignored;
    bool open = state_ready(s, &ignored) == STATUS_OK;
    bool swept = open && state_sweep(s);
    bool has_more = open && state_settle(s);
    s->disk_full = s->disk_full && (!open || state_disk_is_full(s));
    return (struct state_health){.is_open = open,
                                 .has_more = swept || has_more,
                                 .disk_full =
                                     open ? s->disk_full : s->why_status == STATUS_NO_MEMORY,
                                 .n_lost = s->n_lost};
}
