/* Handles the cluster's LoRA adapters: orders to load and unload, and what each worker holds.
 *
 * Orders come from the admin API and gateways (`adapters_load`, `adapters_unload`). Hellos and
 * answers come from workers. `adapters_turn` advances the states and sends MSG_ADAPTER to
 * workers. The core removes answers and losses.
 *
 * Invariants: everything runs on the loop thread. The code has no clock (time is `c->now_ns`). A
 * bit mask over `adapters.all` has the entries that a worker holds, so at most 64 entries exist.
 * An entry is freed only when no worker holds it. Otherwise the worker's copy becomes a stray
 * and is dropped. */
#include "head/cluster/adapters.h"

#include <stdio.h>
#include <string.h>

#include "common/base/str.h"
#include "head/cluster/eligible.h"
#include "head/cluster/formation.h"

static const unsigned held_states =
    1u << ADAPTER_LOADING | 1u << ADAPTER_READY | 1u << ADAPTER_LEAVING;
static const unsigned place_states = 1u << ADAPTER_READY | 1u << ADAPTER_LEAVING;
static const unsigned room_states =
    1u << ADAPTER_LOADING | 1u << ADAPTER_READY | 1u << ADAPTER_LEAVING | 1u << ADAPTER_UNLOADING;

static bool is_in(const struct adapter *a, unsigned states)
{
    return (states & 1u << a->state) != 0;
}

const char *adapter_state_name(enum adapter_state s)
{
    static const char *const names[ADAPTER_STATE_COUNT] = {"none",    "loading",   "ready",
                                                           "leaving", "unloading", "failed"};
    return (unsigned)s < ADAPTER_STATE_COUNT ? names[s] : "?";
}

static struct adapter *find(struct adapters *t, struct str name, unsigned states)
{
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++)
        if (is_in(&t->all[i], states) && str_eq_c(name, t->all[i].name))
            return &t->all[i];
    return NULL;
}

static uint32_t find_id(const struct adapters *t, uint64_t id)
{
    uint32_t i = 0;
    while (i < ADAPTERS_MAX && (t->all[i].state == ADAPTER_NONE || t->all[i].id != id))
        i++;
    return i;
}

static uint64_t mask_of(const struct adapters *t, unsigned states)
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++)
        mask |= (uint64_t)is_in(&t->all[i], states) << i;
    return mask;
}

/* ---- answers and events ---- */

static void answer(struct adapters *t, struct adapter_asker *to, enum status status,
                   const char *text)
{
    if (to->gateway == 0)
        return;
    /* the oldest answer is dropped; a gateway that reads no answers reaches its own timeout */
    if (t->n_answers == ADAPTERS_ANSWERS)
        memmove(t->answers, t->answers + 1, --t->n_answers * sizeof t->answers[0]);
    struct adapter_answer *a = &t->answers[t->n_answers++];
    *a = (struct adapter_answer){.to = *to, .status = status};
    snprintf(a->text, sizeof a->text, "%s", text);
    to->gateway = 0;
}

static void enter(struct cluster *c, struct adapter *a, enum adapter_state next)
{
    struct adapters *t = &c->adapters;
    bool was_usable = a->state == ADAPTER_READY;
    a->state = next;
    a->since_ns = c->now_ns;
    t->stirred = true;
    t->n_changes += was_usable != (next == ADAPTER_READY);
    t->required = mask_of(t, place_states);
    c->place_dirty = true;
    events_add(c->events, c->now_ns, next == ADAPTER_FAILED ? LOG_WARN : LOG_INFO, "adapter",
               "name=%s id=%016llx state=%s text=%s", log_quote(a->name), (unsigned long long)a->id,
               adapter_state_name(next), log_quote(a->text));
}

static void forget(struct cluster *c, struct adapter *a)
{
    *a = (struct adapter){0};
    c->adapters.stirred = true;
    c->adapters.required = mask_of(&c->adapters, place_states);
}

/* ---- orders ---- */

static enum status check_name(const struct adapter_order *o, struct error *err)
{
    bool plain = o->name.len > 0 && o->name.len < ADAPTERS_NAME_MAX;
    for (size_t i = 0; plain && i < o->name.len; i++)
        plain = (unsigned char)o->name.ptr[i] > ' ' && o->name.ptr[i] != 0x7F;
    if (!plain || str_utf8_valid(o->name) != o->name.len)
        return error_set(err, STATUS_INVALID, "lora_name must have 1 to %u bytes and no blanks",
                         ADAPTERS_NAME_MAX - 1);
    if (o->path.len == 0 || o->path.len >= sizeof((struct adapter *)0)->path ||
        memchr(o->path.ptr, '\0', o->path.len))
        return error_set(err, STATUS_INVALID, "lora_path must be a folder's path of 1 to %zu bytes",
                         sizeof((struct adapter *)0)->path - 1);
    if (str_eq(o->name, o->taken))
        return error_set(err, STATUS_EXISTS,
                         STR_FMT " is the name of the model itself: give the adapter another name",
                         STR_ARG(o->name));
    return STATUS_OK;
}

/* Checks that --max-loras allows one more adapter. A replacement (`in_place`) needs an entry of
 * its own until no request uses the old adapter any more. */
static enum status check_room(const struct adapters *t, bool in_place, struct error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++)
        n += is_in(&t->all[i], room_states);
    if (n < t->max_loras)
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT,
                     "%u adapters are loaded, the most that --max-loras allows: unload one first%s",
                     t->max_loras,
                     in_place ? ", or start the cluster with a larger --max-loras. The old version "
                                "of an adapter keeps its place until no request uses it"
                              : "");
}

/* Returns a free entry, or reuses the oldest FAILED entry. */
static struct adapter *new_entry(struct adapters *t)
{
    struct adapter *oldest = NULL;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++) {
        struct adapter *a = &t->all[i];
        if (a->state == ADAPTER_NONE)
            return a;
        if (a->state == ADAPTER_FAILED && (!oldest || a->since_ns < oldest->since_ns))
            oldest = a;
    }
    return oldest;
}

/* Clears an entry. Workers that still hold the adapter list it as a stray. */
static void drop_entry(struct cluster *c, struct adapter *a)
{
    uint64_t bit = 1ull << (a - c->adapters.all);
    for (struct worker *w = c->workers; w; w = w->next) {
        struct worker_adapters *x = &w->adapters;
        if ((x->has | x->asked) & bit && x->n_strays < ADAPTERS_MAX)
            x->strays[x->n_strays++] = a->id;
        x->has &= ~bit;
        x->asked &= ~bit;
        x->dropping &= ~bit;
        x->failed &= ~bit;
        x->tried &= ~bit;
        x->hopeless &= ~bit;
    }
    forget(c, a);
}

static struct adapter *add(struct cluster *c, uint64_t id, struct str name, struct str path)
{
    struct adapter *failed = find(&c->adapters, name, 1u << ADAPTER_FAILED);
    struct adapter *a = failed ? failed : new_entry(&c->adapters);
    if (!a)
        return NULL;
    drop_entry(c, a);
    a->id = id;
    str_copy(a->name, sizeof a->name, name);
    str_copy(a->path, sizeof a->path, path);
    enter(c, a, ADAPTER_LOADING);
    return a;
}

enum status adapters_load(struct cluster *c, const struct adapter_order *o, struct rng *rng,
                          struct error *err)
{
    struct adapters *t = &c->adapters;
    if (t->max_loras == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the cluster cannot load adapters: it was started without --enable-lora");
    TRY(check_name(o, err));
    if (find(t, o->name, 1u << ADAPTER_LOADING | 1u << ADAPTER_UNLOADING))
        return error_set(err, STATUS_EXISTS,
                         "the adapter " STR_FMT
                         " is being loaded or unloaded: try again when that is done",
                         STR_ARG(o->name));
    if (!o->in_place && find(t, o->name, place_states))
        return error_set(err, STATUS_EXISTS,
                         "the adapter " STR_FMT
                         " is already loaded: unload it first, or set load_inplace to replace it",
                         STR_ARG(o->name));
    TRY(check_room(t, o->in_place, err));
    uint64_t id = 0;
    while (id == 0)
        id = rng_next(rng);
    struct adapter *a = add(c, id, o->name, o->path);
    if (!a)
        return error_set(err, STATUS_LIMIT,
                         "the head's table of adapters is full: unload an adapter first");
    a->asker = o->asker;
    return STATUS_OK;
}

enum status adapters_unload(struct cluster *c, const struct adapter_order *o, struct error *err)
{
    struct adapters *t = &c->adapters;
    struct adapter *loading = find(t, o->name, 1u << ADAPTER_LOADING);
    struct adapter *ready = find(t, o->name, 1u << ADAPTER_READY);
    struct adapter *failed = find(t, o->name, 1u << ADAPTER_FAILED);
    struct adapter *a = ready ? ready : loading ? loading : failed;
    if (!a)
        return error_set(err, STATUS_NOT_FOUND,
                         "no adapter is named " STR_FMT ". `cox lora` lists the adapters",
                         STR_ARG(o->name));
    if (loading) {
        answer(t, &loading->asker, STATUS_CLOSED,
               "the adapter was unloaded before it had been loaded");
        enter(c, loading, ADAPTER_UNLOADING);
    }
    if (failed)
        drop_entry(c, failed);
    if (ready)
        enter(c, ready, ADAPTER_LEAVING);
    if (ready || loading) {
        a->asker = o->asker;
    } else {
        struct adapter_asker to = o->asker;
        answer(t, &to, STATUS_OK, "");
    }
    return STATUS_OK;
}

/* Returns true while the head may still learn from workers which adapters its predecessor had
 * loaded. */
static bool is_young(const struct cluster *c)
{
    return c->adapters.met_ns == 0 || c->now_ns - c->adapters.met_ns < ADAPTERS_YOUNG_NS;
}

enum adapter_use adapters_use(const struct cluster *c, struct str name, uint64_t *id)
{
    struct adapters *t = (struct adapters *)&c->adapters;
    const struct adapter *a = find(t, name, 1u << ADAPTER_READY);
    if (a) {
        *id = a->id;
        return ADAPTER_USABLE;
    }
    bool soon = t->max_loras > 0 && (is_young(c) || find(t, name, 1u << ADAPTER_LOADING));
    return soon ? ADAPTER_SOON : ADAPTER_UNKNOWN;
}

const char *adapters_why_not(const struct cluster *c, struct str name)
{
    const struct adapter *a = find((struct adapters *)&c->adapters, name, 1u << ADAPTER_FAILED);
    return a ? a->text : "";
}

/* ---- messages of workers ---- */

static void add_stray(struct worker *w, uint64_t id)
{
    struct worker_adapters *x = &w->adapters;
    if (x->n_strays < ADAPTERS_MAX)
        x->strays[x->n_strays++] = id;
}

/* Adds an adapter that a worker holds because the head's predecessor had loaded it. An adapter
 * that was given to this head by name and path (--lora-modules) takes precedence. */
static bool take_over(struct cluster *c, const struct msg_adapter *m)
{
    struct adapters *t = &c->adapters;
    struct error ignored;
    struct adapter *same = find(t, m->name, held_states);
    const struct adapter_order o = {.name = m->name, .path = m->path};
    if (t->max_loras == 0 || !is_young(c) || m->id == 0 || check_name(&o, &ignored) != STATUS_OK)
        return false;
    if (!same)
        return check_room(t, false, &ignored) == STATUS_OK && add(c, m->id, m->name, m->path);
    uint64_t bit = 1ull << (same - t->all), touched = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        touched |= w->adapters.has | w->adapters.asked;
    if (same->state != ADAPTER_LOADING || touched & bit || !str_eq_c(m->path, same->path))
        return false;
    /* this adapter was given at the start and no worker was asked for it, so it keeps the id
     * that is in use */
    same->id = m->id;
    return true;
}

/* Returns true when the worker's adapter is this one. The first identity that any worker reports
 * is accepted. A worker with another identity has read other files, so its rows would belong to
 * another adapter. Null devices never report an identity. */
static bool is_it(struct adapter *a, struct adapter_identity said)
{
    if (!adapter_identity_known(a->identity))
        a->identity = said;
    return adapter_identity_same(a->identity, said);
}

void adapters_on_hello(struct cluster *c, struct worker *w, const struct worker_info *i)
{
    w->adapters = (struct worker_adapters){.retry_ns = 0};
    if (c->adapters.met_ns == 0)
        c->adapters.met_ns = c->now_ns;
    for (uint32_t k = 0; k < i->n_adapters; k++) {
        const struct msg_adapter *m = &i->adapters[k];
        uint32_t at = find_id(&c->adapters, m->id);
        if (at == ADAPTERS_MAX && take_over(c, m))
            at = find_id(&c->adapters, m->id);
        if (at < ADAPTERS_MAX && is_it(&c->adapters.all[at], m->identity))
            w->adapters.has |= 1ull << at;
        else
            add_stray(w, m->id);
    }
    c->adapters.stirred = true;
}

static void on_refused(struct cluster *c, struct worker *w, struct adapter *a,
                       const struct msg_adapter_done *m)
{
    struct worker_adapters *x = &w->adapters;
    char text[sizeof a->text];
    uint64_t bit = 1ull << (a - c->adapters.all);
    /* The worker held the adapter. Either it refused the adapter with another shard, or its
     * earlier report was false. */
    bool had = (x->has & bit) != 0;
    struct str said = {m->text.ptr, m->text.len < 380 ? m->text.len : 380};
    said.len = str_utf8_valid(said);
    snprintf(text, sizeof text, "%.64s: " STR_FMT, w->peer->node, STR_ARG(said));
    x->has &= ~bit;
    if (a->state == ADAPTER_LOADING) {
        memcpy(a->text, text, sizeof a->text);
        answer(&c->adapters, &a->asker, m->status, a->text);
        enter(c, a, ADAPTER_FAILED);
        return;
    }
    if (!is_in(a, held_states))
        return;
    memcpy(a->text, text, sizeof a->text);
    x->hopeless |= a->state == ADAPTER_LEAVING ? bit : x->tried & bit;
    x->tried |= bit;
    x->failed |= bit;
    x->retry_ns = c->now_ns + ADAPTERS_RETRY_NS;
    events_add(c->events, c->now_ns, LOG_WARN, "adapter_not_loaded",
               "name=%s instance=%016llx text=%s", log_quote(a->name),
               (unsigned long long)w->peer->instance, log_quote(text));
    if (had && w->replica)
        replica_dissolve(c, w->replica, "a rank has lost an adapter", false);
}

static bool is_refused(const struct cluster *c, uint64_t bit)
{
    const struct worker *w = c->workers;
    while (w && !(w->adapters.tried & bit))
        w = w->next;
    return w != NULL;
}

static void on_loaded(struct cluster *c, struct worker *w, struct adapter *a,
                      const struct msg_adapter_done *m)
{
    struct msg_adapter_done other = {.id = m->id, .on = true, .status = STATUS_INVALID};
    uint64_t bit = 1ull << (a - c->adapters.all);
    if (!is_in(a, held_states) || is_it(a, m->identity)) {
        w->adapters.has |= bit;
        w->adapters.tried &= ~bit;
        w->adapters.hopeless &= ~bit;
        if (is_in(a, place_states) && !is_refused(c, bit))
            a->text[0] = '\0';
        return;
    }
    other.text = STR("the adapter's files changed while the workers loaded it: load it again");
    add_stray(w, m->id);
    on_refused(c, w, a, &other);
}

void adapters_on_done(struct cluster *c, struct worker *w, const struct msg_adapter_done *m)
{
    uint32_t i = find_id(&c->adapters, m->id);
    uint64_t bit = i < ADAPTERS_MAX ? 1ull << i : 0;
    struct worker_adapters *x = &w->adapters;
    c->adapters.stirred = true;
    c->place_dirty = true;
    if (!m->on) {
        x->has &= ~bit;
        x->dropping &= ~bit;
        return;
    }
    x->asked &= ~bit;
    if (m->status == STATUS_OK && !bit)
        add_stray(w, m->id);
    else if (m->status == STATUS_OK)
        on_loaded(c, w, &c->adapters.all[i], m);
    else if (bit)
        on_refused(c, w, &c->adapters.all[i], m);
}

/* ---- progress ---- */

static bool all_have(const struct cluster *c, uint64_t bit)
{
    for (const struct worker *w = c->workers; w; w = w->next)
        if (!(w->adapters.has & bit))
            return false;
    return c->workers != NULL;
}

static bool none_have(const struct cluster *c, uint64_t bit)
{
    for (const struct worker *w = c->workers; w; w = w->next)
        if ((w->adapters.has | w->adapters.asked | w->adapters.dropping) & bit)
            return false;
    return true;
}

static void become_ready(struct cluster *c, struct adapter *a)
{
    struct adapter *old = find(&c->adapters, str_from(a->name), 1u << ADAPTER_READY);
    if (old)
        enter(c, old, ADAPTER_LEAVING);
    answer(&c->adapters, &a->asker, STATUS_OK, "");
    enter(c, a, ADAPTER_READY);
}

static void move_on(struct cluster *c, struct adapter *a)
{
    uint64_t bit = 1ull << (a - c->adapters.all);
    if (a->state == ADAPTER_LOADING && all_have(c, bit)) {
        become_ready(c, a);
    } else if (a->state == ADAPTER_UNLOADING && none_have(c, bit)) {
        answer(&c->adapters, &a->asker, STATUS_OK, "");
        events_add(c->events, c->now_ns, LOG_INFO, "adapter", "name=%s id=%016llx state=gone",
                   log_quote(a->name), (unsigned long long)a->id);
        forget(c, a);
    }
}

static bool tell(struct cluster *c, struct worker *w, const struct msg_adapter *m)
{
    return peers_send(c->peers, w->peer, &(struct msg){.type = MSG_ADAPTER, .adapter = *m}) ==
           STATUS_OK;
}

/* Sends a worker its next order. Sends no drop while a plan waits for this rank's credit, since
 * that plan may have rows of the adapter. */
static void tell_worker(struct cluster *c, struct worker *w)
{
    struct worker_adapters *x = &w->adapters;
    if (!w->peer->open)
        return;
    while (x->n_strays > 0 && !w->plan_unsent &&
           tell(c, w, &(struct msg_adapter){.id = x->strays[x->n_strays - 1]}))
        x->n_strays--;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++) {
        const struct adapter *a = &c->adapters.all[i];
        uint64_t bit = 1ull << i;
        /* a sleeping worker reads its adapters again when it wakes */
        bool sleeps = w->sleep_told != SLEEP_LEVEL_AWAKE || w->sleep_level != SLEEP_LEVEL_AWAKE;
        bool wait = sleeps || (x->failed & bit && c->now_ns < x->retry_ns);
        if (is_in(a, held_states) && !((x->has | x->asked) & bit) && !wait &&
            tell(c, w,
                 &(struct msg_adapter){a->id, true, str_from(a->name), str_from(a->path),
                                       a->identity})) {
            x->asked |= bit;
            x->failed &= ~bit;
        }
        bool goes = a->state == ADAPTER_UNLOADING || a->state == ADAPTER_FAILED;
        if (goes && (x->has | x->asked) & bit && !(x->dropping & bit) && !w->plan_unsent &&
            tell(c, w, &(struct msg_adapter){.id = a->id, .name = str_from(a->name)}))
            x->dropping |= bit;
    }
}

void adapters_turn(struct cluster *c)
{
    if (!c->adapters.stirred)
        return;
    c->adapters.stirred = false;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++)
        move_on(c, &c->adapters.all[i]);
    for (struct worker *w = c->workers; w; w = w->next)
        tell_worker(c, w);
}

/* ---- adapters that block a replica ---- */

/* Fails an adapter and the requests that use it, because a rank cannot load it. */
static void lose(struct cluster *c, struct adapter *a)
{
    struct adapters *t = &c->adapters;
    if (t->n_losses < ADAPTERS_MAX) {
        struct adapter_loss *x = &t->losses[t->n_losses++];
        x->id = a->id;
        snprintf(x->text, sizeof x->text, "the adapter %.64s was lost on a worker: %.380s", a->name,
                 a->text);
    }
    enter(c, a, a->state == ADAPTER_LEAVING ? ADAPTER_UNLOADING : ADAPTER_FAILED);
}

/* Fails adapters when no replica serves and none can form because workers cannot load them. A
 * missing folder must not stop the base model. The function fails as few adapters as necessary.
 * While another replica serves, a worker that cannot load an adapter just waits. */
static void lose_what_blocks(struct cluster *c)
{
    uint64_t hopeless = 0;
    bool all_free = true;
    for (const struct worker *w = c->workers; w; w = w->next) {
        hopeless |= w->adapters.hopeless & c->adapters.required;
        all_free = all_free && worker_is_free(w);
    }
    if (hopeless == 0 || !all_free || eligible_could_form(c, 0) ||
        !eligible_could_form(c, hopeless))
        return;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++)
        if (hopeless >> i & 1 && eligible_could_form(c, hopeless & ~(1ull << i)))
            hopeless &= ~(1ull << i);
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++)
        if (hopeless >> i & 1)
            lose(c, &c->adapters.all[i]);
}

void adapters_tick(struct cluster *c, adapters_in_use_fn *in_use, const void *ctx)
{
    struct adapters *t = &c->adapters;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++)
        if (t->all[i].state == ADAPTER_LEAVING && !in_use(ctx, t->all[i].id))
            enter(c, &t->all[i], ADAPTER_UNLOADING);
    lose_what_blocks(c);
    /* credit may have arrived, a worker may have left, or a retry may be due */
    t->stirred |= t->max_loras > 0;
    adapters_turn(c);
}
