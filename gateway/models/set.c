/* Keeps the models of a gateway in step with the file of --models, and finds models by name.
 * `apply` compares the file's entries with the models: an unknown name becomes a new model, a
 * changed entry a second model that replaces the first one when it is open (`promote`), and a
 * missing entry makes its model leave. Only `list_names` changes what a name leads to.
 * Every model is in the list from `first`. A model that is in `listed` has names; a pending one
 * waits to replace a listed one of the same name; a leaving one ends its requests and is freed at
 * the end of a turn, so no callback loses the model that it runs for. */
#include "gateway/models/set.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "gateway/models/peek.h"

#define NOT_READ "the set of models has not been read from Redis yet"

/* ---- the list ---- */

static void add(struct model_set *s, struct served_model *m)
{
    struct served_model **at = &s->first;
    while (*at)
        at = &(*at)->next;
    *at = m;
    m->serving.draining = m->link.engine.ends = s->draining;
}

static struct served_model *listed_as(const struct model_set *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_listed; i++)
        if (strcmp(s->listed[i]->name, name) == 0)
            return s->listed[i];
    return NULL;
}

static bool is_listed(const struct model_set *s, const struct served_model *m)
{
    return listed_as(s, m->name) == m;
}

/* Returns the model that waits to replace the listed one of this name, or NULL. */
static struct served_model *pending_of(const struct model_set *s, const char *name)
{
    for (struct served_model *m = s->first; m; m = m->next)
        if (!m->is_leaving && strcmp(m->name, name) == 0 && !is_listed(s, m))
            return m;
    return NULL;
}

/* Makes the routes of the file lead to the listed models. */
static void list_routes(struct model_set *s)
{
    mem_free(s->routes);
    s->n_routes = s->file.n_routes;
    s->routes = mem_array(s->n_routes + 1, sizeof *s->routes);
    for (uint32_t i = 0; i < s->n_routes; i++) {
        struct model_route *route = &s->routes[i];
        route->file = &s->file.routes[i];
        for (uint32_t k = 0; k < route->file->n_targets; k++)
            route->targets[k] = listed_as(s, route->file->targets[k].model);
        route->mirror = route->file->mirror ? listed_as(s, route->file->mirror) : NULL;
    }
}

/* Fills the table of names from the routes and the listed models. A route may have the name of a
 * model: the name then leads to the route. */
static void list_names(struct model_set *s)
{
    uint32_t n = s->file.n_routes;
    list_routes(s);
    for (uint32_t i = 0; i < s->n_listed; i++)
        n += s->listed[i]->n_names;
    model_names_reset(&s->names, n);
    for (uint32_t i = 0; i < s->n_routes; i++)
        (void)model_names_add(&s->names, &(struct model_name){.text = s->routes[i].file->name,
                                                              .route = &s->routes[i]});
    for (uint32_t i = 0; i < s->n_listed; i++) {
        struct served_model *m = s->listed[i];
        for (uint32_t k = 0; k < m->n_names; k++)
            (void)model_names_add(&s->names, &(struct model_name){.text = m->names[k], .model = m});
        m->max_requests = s->path ? s->file.entries[i].max_requests : 0;
        const char *fallback = s->path ? s->file.entries[i].fallback : NULL;
        m->fallback = fallback ? listed_as(s, fallback) : NULL;
    }
}

/* ---- following the file ---- */

/* Returns the model that is to serve an entry: the listed one if its options are the same, else
 * a new one. The new one replaces the listed one at once when that one cannot serve. */
static struct served_model *model_of(struct model_set *s, const struct models_file_entry *e)
{
    struct served_model *now = listed_as(s, e->name), *next = pending_of(s, e->name);
    struct served_model *same = now && strcmp(now->options, e->options) == 0     ? now
                                : next && strcmp(next->options, e->options) == 0 ? next
                                                                                 : NULL;
    if (next && next != same)
        served_model_leave(next);
    if (!same) {
        same = served_model_new(&s->world, e);
        add(s, same);
    }
    served_model_rename(same, e->names, e->n_names);
    served_model_mark(same, e->reason);
    if (!now || now == same || now->phase == SERVED_FAILED)
        return same;
    served_model_rename(now, e->names, e->n_names);
    served_model_mark(now, e->reason);
    return now;
}

/* Takes over the content of the file. */
static void apply(struct model_set *s, struct models_file *f)
{
    struct served_model **before = s->listed, **after = mem_array(f->n_entries + 1, sizeof *after);
    const uint32_t n_before = s->n_listed;
    for (uint32_t i = 0; i < f->n_entries; i++)
        after[i] = model_of(s, &f->entries[i]);
    s->listed = after;
    s->n_listed = f->n_entries;
    for (uint32_t i = 0; i < n_before; i++)
        if (!is_listed(s, before[i]))
            served_model_leave(before[i]);
    for (struct served_model *m = s->first; m; m = m->next)
        if (!m->is_leaving && !listed_as(s, m->name))
            served_model_leave(m); /* it waited to replace a model that the file no longer has */
    mem_free(before);
    model_names_fini(&s->names); /* names of routes point into the earlier file */
    models_file_fini(&s->file);
    s->file = *f;
    *f = (struct models_file){0};
    list_names(s);
}

/* Lets each pending model that is open take the place of the listed one. */
static void promote(struct model_set *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->n_listed; i++) {
        struct served_model *next = pending_of(s, s->listed[i]->name);
        if (!next || next->phase != SERVED_OPEN || !next->serving.cluster.link_up)
            continue;
        served_model_leave(s->listed[i]);
        s->listed[i] = next;
        any = true;
    }
    if (any)
        list_names(s);
}

/* Frees the models whose last request has ended, and the series of names that nothing counts for
 * any more. */
static void free_gone(struct model_set *s)
{
    for (struct served_model **at = &s->first; *at;) {
        struct served_model *m = *at;
        if (!served_model_is_gone(m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        gateway_link_goodbye(&m->link, "the gateway no longer serves this model");
        log_info("model_left", "model=%s", log_quote(m->name));
        bool is_last = true;
        for (const struct served_model *other = s->first; other; other = other->next)
            is_last &= strcmp(other->name, m->name) != 0;
        char *name = mem_strdup(m->name);
        served_model_free(m);
        if (is_last)
            metrics_drop(s->world.metrics, "model_name", str_from(name));
        mem_free(name);
    }
}

/* Reads the file, and notes its state before it is read, so that a later write is news. */
static enum status read_file(struct model_set *s, struct models_file *f, struct error *err)
{
    const int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        key_file_opened(&s->watch, fd);
        close(fd);
    }
    return models_file_read(s->path, f, err);
}

/* Takes over a set that was read, or tells why it could not be. */
static void end_reload(struct model_set *s, enum status st, struct models_file *f,
                       const struct error *err)
{
    if (st == STATUS_OK) {
        apply(s, f);
        s->awaits_set = false;
        log_info("models_read", "models=%u", s->n_listed);
    } else {
        log_error("models_not_read", "kept=%u why=%s", s->n_listed, log_quote(err->text));
        models_file_fini(f);
    }
}

enum status model_set_reload(struct model_set *s, struct error *err)
{
    struct models_file f;
    const enum status st = read_file(s, &f, err);
    end_reload(s, st, &f, err);
    return st;
}

/* Handles a new text of the set in Redis. */
static void on_store_text(void *ctx, struct str text)
{
    struct model_set *s = ctx;
    struct models_file f;
    struct error err = {0};
    const enum status st = models_file_parse(text, s->path, &f, &err);
    end_reload(s, st, &f, &err);
}

void model_set_look(struct model_set *s)
{
    struct error err = {0};
    promote(s);
    for (struct served_model *m = s->first; m && s->path; m = m->next)
        served_model_try_again(m);
    if (s->store)
        models_store_look(s->store);
    else if (s->path && key_file_is_news(&s->watch, s->path))
        (void)!model_set_reload(s, &err);
}

/* Begins without models, until Redis answers. */
static enum status open_store(struct model_set *s, struct error *err)
{
    const struct models_store_options o = {
        .loop = s->world.loop, .url = s->path, .on_text = on_store_text, .ctx = s};
    TRY(models_store_open(&o, &s->store, err));
    s->path = models_store_label(s->store);
    s->awaits_set = true;
    list_names(s);
    return STATUS_OK;
}

enum status model_set_open(struct model_set *s, struct error *err)
{
    struct models_file f;
    struct served_model *own = NULL;
    enum status st;
    s->path = s->world.config->models;
    s->world.due = &s->due;
    s->rng.state = random_secure_u64();
    mirror_init(&s->mirror, s->world.metrics);
    if (models_store_is_url(s->path))
        return open_store(s, err);
    if (s->path) {
        st = read_file(s, &f, err);
        if (st == STATUS_OK)
            apply(s, &f);
        else
            models_file_fini(&f);
        return st;
    }
    st = served_model_own(&s->world, &own, err);
    add(s, own);
    s->listed = mem_array(1, sizeof *s->listed);
    s->listed[s->n_listed++] = own;
    if (st == STATUS_OK)
        list_names(s);
    return st;
}

/* ---- finding a model ---- */

static struct served_model *adapter_base(const struct model_set *s, struct str name)
{
    for (uint32_t i = 0; i < s->n_listed; i++)
        if (gateway_adapters_find(&s->listed[i]->adapters, name))
            return s->listed[i];
    return NULL;
}

struct served_model *model_set_find(const struct model_set *s, struct str name)
{
    const struct model_name *found = model_names_find(&s->names, name);
    if (!found)
        return adapter_base(s, name);
    return found->route ? found->route->targets[0] : found->model;
}

struct served_model *model_set_only(const struct model_set *s)
{
    return s->path ? NULL : s->listed[0];
}

static bool may_know(void *ctx, const char *text)
{
    return limits_allow_model(ctx, str_from(text));
}

void model_set_unknown(const struct model_set *s, const struct api_key *key, struct str name,
                       struct api_error *e)
{
    const char *near[MODEL_NEAREST_MAX];
    struct strbuf text;
    const uint32_t n = model_names_nearest(&s->names, name, may_know, (void *)key, near);
    strbuf_init(&text, 0);
    strbuf_printf(&text, "The model `%.*s` does not exist.", (int)(name.len < 200 ? name.len : 200),
                  name.ptr);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(&text, "%s`%.200s`%s", i == 0 ? " Did you mean " : " or ", near[i],
                      i + 1 == n ? "?" : "");
    e->code = "model_not_found";
    api_error_set(e, 404, "model", "%.*s", (int)text.len, text.ptr);
    strbuf_fini(&text);
}

/* Chooses the model of a name for one request. Returns NULL and the error. */
static struct served_model *choose(struct model_set *s, struct str name, struct serving_request *q,
                                   struct api_error *e)
{
    const struct model_name *found = model_names_find(&s->names, name);
    struct served_model *m = found ? found->model : adapter_base(s, name);
    if ((!found && !m) || !limits_allow_model(q->key, name)) {
        model_set_unknown(s, q->key, name, e);
        return NULL;
    }
    q->is_ours = found != NULL; /* an adapter may leave before its request is prepared */
    if (m)
        return m;
    m = model_route_choose(found->route, q->target, q->key, &s->rng);
    if (!m)
        api_error_set(
            e, 400, "model",
            "The header x-coxswain-model asks for `%.*s`, which is no target of the route "
            "`%.100s`.",
            (int)(q->target.len < 100 ? q->target.len : 100), q->target.ptr,
            found->route->file->name);
    else if (found->route->mirror && found->route->mirror != m) {
        q->admitted = mirror_send;
        q->admitted_ctx = &s->mirror;
        q->mirror = &found->route->mirror->serving;
    }
    return m;
}

static bool peek(const struct serving_request *q, char buf[MODEL_PEEK_MAX], struct str *name)
{
    const size_t at = q->model_at ? q->model_at : model_peek_find(q->body);
    return model_peek_name(q->body, at, buf, name);
}

struct serving *model_set_serving(struct model_set *s, struct serving_request *q,
                                  struct api_error *e)
{
    char buf[MODEL_PEEK_MAX];
    struct str name = q->model;
    if (!s->path)
        return &s->listed[0]->serving;
    if (s->awaits_set) {
        e->retry_after_s = 1;
        api_error_set(e, 503, NULL, "%s: try again later.", NOT_READ);
        return NULL;
    }
    if (name.len == 0 && !peek(q, buf, &name)) {
        api_error_set(e, 400, "model",
                      "The body must be a JSON object with the name of a model in `model`. This "
                      "server has several models: GET /v1/models lists their names.");
        return NULL;
    }
    struct served_model *m = choose(s, name, q, e);
    if (!m)
        return NULL;
    if (!served_model_is_out(m)) {
        q->find_fallback = m->fallback ? served_model_fallback : NULL;
        q->fallback_ctx = m;
        return &m->serving;
    }
    struct serving *fallback = served_model_fallback(m);
    if (fallback) {
        q->fallback_of = m->name;
        return fallback;
    }
    if (!served_model_is_full(m))
        return &m->serving; /* serving says why it cannot answer, or lets the request wait */
    e->retry_after_s = 1;
    api_error_set(e, 429, NULL, "The model `%s` has its most open requests (%u): try again later.",
                  m->name, m->max_requests);
    return NULL;
}

/* ---- all models together ---- */

void model_set_on_abort(struct model_set *s, const void *reply)
{
    struct served_model *m = s->first;
    if (s->store && models_store_on_abort(s->store, reply))
        return;
    while (m && !gateway_adapters_on_abort(&m->adapters, reply))
        m = m->next;
}

bool model_set_healthy(const struct model_set *s, const char **why)
{
    *why = s->awaits_set ? NOT_READ : "the gateway has no model";
    for (uint32_t i = 0; i < s->n_listed; i++) {
        struct served_model *m = s->listed[i];
        if (m->phase == SERVED_OPEN && !served_model_failure(m) &&
            serving_healthy(&m->serving, why))
            return true;
        if (m->phase != SERVED_OPEN || served_model_failure(m))
            *why = "no model of this gateway can serve";
    }
    return false;
}

bool model_set_is_refused(const struct model_set *s)
{
    for (uint32_t i = 0; i < s->n_listed; i++)
        if (serving_is_of_another_model(&s->listed[i]->serving))
            return true;
    return false;
}

uint32_t model_set_n_requests(const struct model_set *s)
{
    uint32_t n = 0;
    for (const struct served_model *m = s->first; m; m = m->next)
        n += m->serving.n_requests - m->serving.n_copies;
    return n;
}

uint32_t model_set_max_len(const struct model_set *s)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->n_listed; i++) {
        const uint32_t n = serving_max_model_len(&s->listed[i]->serving);
        most = n > most ? n : most;
    }
    return most;
}

bool model_set_has_one_class(const struct model_set *s)
{
    for (uint32_t i = 0; i < s->n_listed; i++)
        if (s->listed[i]->serving.cluster.one_class)
            return true;
    return false;
}

void model_set_tick(struct model_set *s)
{
    for (struct served_model *m = s->first; m; m = m->next) {
        serving_tick(&m->serving);
        gateway_adapters_tick(&m->adapters, clock_mono_ns());
    }
}

void model_set_engine_tick(struct model_set *s)
{
    for (struct served_model *m = s->first; m; m = m->next)
        if (m->link.has_engine) {
            m->link.engine.in_use =
                m->serving.n_requests > 0 || gateway_adapters_has_calls(&m->adapters);
            engine_client_tick(&m->link.engine, clock_mono_ns());
        }
}

void model_set_turn_end(struct model_set *s)
{
    bool any_gone = false;
    struct due *d;
    struct due_list again = {0};
    while ((d = due_pop(&s->due))) {
        struct served_model *m = d->owner;
        gateway_link_turn_end(&m->link);
        if (m->names)
            serving_sweep(&m->serving);
        const bool is_gone = served_model_is_gone(m);
        any_gone |= is_gone;
        if (!is_gone && (m->is_leaving || m->serving.dead)) {
            d->is_in = true; /* so that nobody adds it to the other list meanwhile */
            d->next = again.first;
            again.first = d;
        }
    }
    s->due = again;
    if (any_gone)
        free_gone(s);
}

void model_set_drain(struct model_set *s)
{
    s->draining = true;
    for (struct served_model *m = s->first; m; m = m->next)
        m->serving.draining = m->link.engine.ends = true;
}

void model_set_end_all(struct model_set *s)
{
    for (struct served_model *m = s->first; m; m = m->next)
        serving_end_all(&m->serving);
}

void model_set_goodbye(struct model_set *s)
{
    for (struct served_model *m = s->first; m; m = m->next)
        gateway_link_goodbye(&m->link, "the gateway is shutting down");
}

void model_set_stop_compilers(struct model_set *s)
{
    for (struct served_model *m = s->first; m; m = m->next)
        compilers_stop(m->model.compilers);
}

void model_set_fini(struct model_set *s)
{
    models_store_close(s->store);
    for (struct served_model *m = s->first, *next; m; m = next) {
        next = m->next;
        served_model_free(m);
    }
    mem_free(s->listed);
    mem_free(s->routes);
    model_names_fini(&s->names);
    models_file_fini(&s->file);
}
