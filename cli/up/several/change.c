/* Changes the set of a running `cox up`.
 * set_change_begin reads the new set and compares it with the present set (`compare`). Models
 * that are new, or whose processes differ, get a slot. A thread opens and measures them (`work`),
 * because that starts processes and reads files. Then `finish` divides the memory, stores the
 * file and lets models come and leave; until then nothing has changed, and a fault ends the change.
 * Invariants: one change is under way at a time. A model that stays keeps its processes, ports and
 * memory. A name leads to one model at any time. */
#include "cli/up/several/change.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/up/prepare/machine.h"
#include "cli/up/several/memory.h"
#include "cli/up/several/models.h"
#include "cli/up/several/slot.h"
#include "cli/up/several/state.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/json/yaml_file.h"

enum { KEPT = 16, PORT_TRIES = 256, PORT_STEP = 10, LOOK_TICKS = 10 };

struct set_change {
    struct set_run *r;
    struct set_version *next;
    char *yaml;                              /* text to store; NULL = the file has it already */
    struct running_model *fresh[UP_SET_MAX]; /* [n_fresh] models to prepare */
    struct set_need needs[UP_SET_MAX];
    uint32_t n_fresh, slot_of[UP_SET_MAX];
    bool stays[SET_SLOTS_MAX];
    pthread_t thread;
    bool has_thread;
    struct loop_wakeup *done;
    enum status status;
    struct error err;
};

struct file_mark {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed;
};

struct set_changes {
    uint64_t n; /* changes so far */
    struct {
        enum change_state state;
        char why[SET_WHY_BYTES];
    } kept[KEPT];          /* change n is at n % KEPT */
    struct file_mark seen; /* the file at its last reading */
    uint32_t ticks;
};

/* ---- the file ---- */

static bool mark_of(const char *path, struct file_mark *out)
{
    struct stat st;
    memset(out, 0, sizeof *out);
    if (stat(path, &st) != 0)
        return false;
    out->dev = st.st_dev;
    out->ino = st.st_ino;
    out->size = st.st_size;
    out->changed = st.st_mtim;
    return true;
}

static bool is_same(const struct file_mark *a, const struct file_mark *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* ---- the end of a change ---- */

static void note_end(struct set_run *r, enum status s, const char *why)
{
    struct set_changes *all = r->changes;
    all->kept[all->n % KEPT].state = s == STATUS_OK ? CHANGE_DONE : CHANGE_REFUSED;
    snprintf(all->kept[all->n % KEPT].why, SET_WHY_BYTES, "%s", s == STATUS_OK ? "" : why);
}

static void free_change(struct set_change *c)
{
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    for (uint32_t i = 0; i < SET_SLOTS_MAX; i++)
        if (c->r->models[i].slot == SLOT_PREPARED)
            set_slot_free(c->r, i);
    loop_wakeup_free(c->done);
    set_version_release(c->next);
    mem_free(c->yaml);
    c->r->change = NULL;
    mem_free(c);
}

/* ---- comparison ---- */

/* Returns the slot of the model that runs with the same name and the same processes. */
static uint32_t find_same(const struct set_run *r, const struct set_model *m)
{
    for (uint32_t k = 0; k < r->now->set.n; k++) {
        const struct running_model *x = &r->models[r->slot_of[k]];
        if (strcmp(x->model->name, m->name) == 0 && strcmp(x->model->made_of, m->made_of) == 0)
            return r->slot_of[k];
    }
    return SET_SLOTS_MAX;
}

/* Gives the model a tag that no process has, because old processes may still end. */
static void choose_tag(const struct set_run *r, struct set_model *m)
{
    char stem[UP_SET_TAG_BYTES];
    snprintf(stem, sizeof stem, "%s", m->tag);
    for (uint32_t i = 0, number = 2; i < SET_SLOTS_MAX; i++) {
        const struct running_model *x = &r->models[i];
        if (x->slot != SLOT_FREE && x->model != m && strcmp(x->model->tag, m->tag) == 0) {
            snprintf(m->tag, sizeof m->tag, "%.40s-%u", stem, number++);
            i = UINT32_MAX; /* the loop begins again with the new tag */
        }
    }
}

static bool overlaps(const struct set_run *r, const struct running_model *m)
{
    for (uint32_t i = 0; i < SET_SLOTS_MAX; i++) {
        const struct running_model *x = &r->models[i];
        if (x != m && x->slot != SLOT_FREE &&
            (x->admin_step == m->admin_step || (x->port_step < m->port_step + m->n_ports &&
                                                m->port_step < x->port_step + x->n_ports)))
            return true;
    }
    return false;
}

static bool ports_are_free(const struct running_model *m)
{
    struct error unread;
    for (uint32_t i = 0; i < m->plan.n_children; i++)
        if (up_machine_check_ports(&m->plan.children[i], &unread) != STATUS_OK)
            return false;
    return true;
}

/* Chooses the first ports that no model has and that are free on this machine. */
static enum status choose_ports(struct running_model *m, struct error *err)
{
    int64_t admin = 0;
    for (int64_t step = 0; step < (int64_t)PORT_TRIES * PORT_STEP; step += PORT_STEP) {
        TRY(set_slot_move_ports(m, step, admin, err));
        while (overlaps(m->r, m) && admin < SET_SLOTS_MAX) {
            const int64_t was = admin;
            for (uint32_t i = 0; i < SET_SLOTS_MAX && admin == was; i++)
                if (&m->r->models[i] != m && m->r->models[i].slot != SLOT_FREE &&
                    m->r->models[i].admin_step == admin)
                    admin++;
            if (admin == was)
                break; /* the other ports overlap */
            TRY(set_slot_move_ports(m, step, admin, err));
        }
        if (overlaps(m->r, m))
            continue;
        set_slot_find_place(m);
        TRY(set_slot_build_plan(m, err));
        if (ports_are_free(m))
            return STATUS_OK;
        admin++;
    }
    return error_set(err, STATUS_INVALID,
                     "no free ports are left for the model %s. Remove another model, or end the "
                     "programs that use the ports behind --head-port and --admin-port",
                     m->model->name);
}

static enum status prepare(struct set_change *c, struct set_model *m, uint32_t *slot,
                           struct error *err)
{
    struct set_run *r = c->r;
    uint32_t i = 0;
    while (i < SET_SLOTS_MAX && r->models[i].slot != SLOT_FREE)
        i++;
    if (i == SET_SLOTS_MAX)
        return error_set(err, STATUS_LIMIT,
                         "too many removed models still end their requests. Try again later");
    if ((m->o->device == UP_DEVICE_CUDA) != r->memory.on_gpus && m->o->device != UP_DEVICE_AUTO &&
        m->o->device != UP_DEVICE_NULL)
        return error_set(err, STATUS_INVALID,
                         "the model %s has another kind of device than this cluster", m->name);
    set_slot_take(r, i, c->next, m);
    choose_tag(r, m);
    c->fresh[c->n_fresh++] = &r->models[i];
    *slot = i;
    return choose_ports(&r->models[i], err);
}

static enum status compare(struct set_change *c, struct error *err)
{
    struct set_run *r = c->r;
    for (uint32_t k = 0; k < c->next->set.n; k++) {
        c->slot_of[k] = find_same(r, &c->next->set.models[k]);
        if (c->slot_of[k] < SET_SLOTS_MAX)
            c->stays[c->slot_of[k]] = true;
        else
            TRY(prepare(c, &c->next->set.models[k], &c->slot_of[k], err));
    }
    return STATUS_OK;
}

/* ---- the thread ---- */

/* Says that files are missing. Their own error proposes an option of another command. */
static enum status say_missing(const struct running_model *m, struct error *err)
{
    const char *draft = m->model->o->speculation.model;
    return error_set(err, STATUS_NOT_FOUND,
                     "model %s: %s%s%s is not complete in the cache, and a running cluster does "
                     "not download. Run `cox pull` for it first",
                     m->model->name, m->model->source,
                     draft && draft[0] ? " or its draft model " : "",
                     draft && draft[0] ? draft : "");
}

static enum status open_and_measure(struct set_change *c, struct error *err)
{
    const char *tmp_dir = getenv("TMPDIR");
    for (uint32_t i = 0; i < c->n_fresh; i++) {
        struct running_model *m = c->fresh[i];
        /* a download has no place in a running cluster: it would stop when the command ends */
        m->opened.has_loop = m->model->o->offline = true;
        enum status s = up_model_open(&m->opened, m->model->o, "up", tmp_dir ? tmp_dir : "/tmp",
                                      &c->next->arena, err);
        if (s == STATUS_NOT_FOUND && m->opened.has_not_come)
            return say_missing(m, err);
        if (s != STATUS_OK)
            return error_prefix(err, s, "model %s", m->model->name);
        TRY(set_slot_build_plan(m, err));
    }
    return set_run_measure(c->r, c->fresh, c->n_fresh, c->needs, err);
}

static void *work(void *arg)
{
    struct set_change *c = arg;
    c->status = open_and_measure(c, &c->err);
    loop_wake(c->done);
    return NULL;
}

/* ---- the change itself ---- */

/* Returns true when no model of the new set could serve. A new model has not failed yet. */
static bool have_all_failed(const struct set_change *c)
{
    for (uint32_t k = 0; k < c->next->set.n; k++)
        if (!c->r->models[c->slot_of[k]].failed[0])
            return false;
    return true;
}

static enum status plan_and_store(struct set_change *c, struct error *err)
{
    struct set_run *r = c->r;
    if (have_all_failed(c))
        return error_set(err, STATUS_INVALID,
                         "the models that would remain have all failed, so the cluster would end. "
                         "Add a model that serves first, or end the cluster with `cox stop`");
    TRY(set_run_fit(r, c->fresh, c->stays, c->needs, c->n_fresh, err));
    for (uint32_t i = 0; i < c->n_fresh; i++) {
        set_slot_find_place(c->fresh[i]);
        TRY(set_slot_build_plan(c->fresh[i], err));
    }
    if (!c->yaml)
        return STATUS_OK;
    struct file_mark now;
    const int fd = yaml_file_lock(r->set_file, err);
    if (fd < 0)
        return STATUS_IO;
    enum status s = STATUS_OK;
    if (!mark_of(r->set_file, &now) || !is_same(&now, &r->changes->seen))
        s = error_set(err, STATUS_EXISTS, "%s was changed at the same time. Try again",
                      r->set_file);
    if (s == STATUS_OK)
        s = yaml_file_store(r->set_file, c->yaml, 0600, err);
    if (s == STATUS_OK)
        (void)mark_of(r->set_file, &r->changes->seen);
    close(fd);
    return s;
}

static void apply(struct set_change *c)
{
    struct set_run *r = c->r;
    struct set_version *old = r->now;
    for (uint32_t k = 0; k < old->set.n; k++)
        if (!c->stays[r->slot_of[k]])
            set_model_leave(r, r->slot_of[k]);
    r->now = c->next;
    c->next = NULL;
    memcpy(r->slot_of, c->slot_of, sizeof r->slot_of);
    for (uint32_t i = 0; i < c->n_fresh; i++)
        c->fresh[i]->slot = SLOT_RUNS;
    for (uint32_t i = 0; i < c->n_fresh; i++)
        set_model_arrive(r, (uint32_t)(c->fresh[i] - r->models));
    set_version_release(old);
    set_models_arrived(r);
}

static void finish(void *ctx)
{
    struct set_change *c = ctx;
    struct set_run *r = c->r;
    if (r->is_stopping)
        return; /* set_changes_free ends the change */
    if (c->status == STATUS_OK)
        c->status = plan_and_store(c, &c->err);
    if (c->status == STATUS_OK)
        apply(c);
    else if (!c->yaml)
        supervisor_say(r->supervisor, "warning: the models are not changed: %s", c->err.text);
    note_end(r, c->status, c->err.text);
    free_change(c);
}

static enum status begin(struct set_run *r, struct str yaml, bool stores, struct error *err)
{
    if (r->change)
        return error_set(err, STATUS_EXISTS,
                         "another change of the models is under way. Try again");
    struct set_change *c = r->change = mem_zalloc(sizeof *c);
    c->r = r;
    c->next = set_version_new();
    const char *file = stores ? NULL : r->set_file; /* the text of an order is in no file yet */
    enum status s = up_set_read_again(&r->in, file, yaml, &c->next->arena, &c->next->set, err);
    if (s == STATUS_OK)
        s = compare(c, err);
    if (s == STATUS_OK && stores) {
        c->yaml = mem_alloc(yaml.len + 1);
        memcpy(c->yaml, yaml.ptr, yaml.len);
        c->yaml[yaml.len] = '\0';
    }
    if (s == STATUS_OK) {
        c->done = loop_wakeup_new(r->loop, finish, c);
        c->has_thread = pthread_create(&c->thread, NULL, work, c) == 0;
        if (!c->has_thread)
            s = error_set(err, STATUS_NO_MEMORY, "no thread can be started");
    }
    if (s != STATUS_OK) {
        free_change(c);
        return s;
    }
    r->changes->n++;
    r->changes->kept[r->changes->n % KEPT].state = CHANGE_RUNS;
    return STATUS_OK;
}

enum status set_change_begin(struct set_run *r, struct str yaml, uint64_t *number,
                             struct error *err)
{
    enum status s = begin(r, yaml, true, err);
    *number = r->changes->n;
    return s;
}

enum change_state set_change_look(const struct set_run *r, uint64_t number, const char **why)
{
    const struct set_changes *all = r->changes;
    *why = "";
    if (number == 0 || number > all->n || all->n - number >= KEPT)
        return CHANGE_UNKNOWN;
    *why = all->kept[number % KEPT].why;
    return all->kept[number % KEPT].state;
}

void set_changes_start(struct set_run *r)
{
    r->changes = mem_zalloc(sizeof *r->changes);
    (void)mark_of(r->set_file, &r->changes->seen);
}

void set_changes_look(struct set_run *r)
{
    struct file_mark now;
    struct strbuf text;
    struct error err = {0};
    if (r->change || ++r->changes->ticks % LOOK_TICKS != 0)
        return;
    /* a file that is missing is about to be replaced, or was removed: the set stays */
    if (!mark_of(r->set_file, &now) || is_same(&now, &r->changes->seen))
        return;
    r->changes->seen = now;
    enum status s = up_set_text(r->set_file, &text, &err);
    if (s == STATUS_OK)
        s = begin(r, strbuf_str(&text), false, &err);
    if (s != STATUS_OK)
        supervisor_say(r->supervisor, "warning: the models are not changed: %s", err.text);
    strbuf_fini(&text);
}

void set_changes_free(struct set_run *r)
{
    if (r->change) {
        up_model_stop(); /* the end of the cluster does not wait for a model to be opened */
        free_change(r->change);
    }
    mem_free(r->changes);
    r->changes = NULL;
}
