/* Lists and edits the models of a running `cox up`.
 * set_run_edit reads the set's file into a tree, changes the tree, and gives its text to
 * set_change_begin (change.h), which checks it like any other file.
 * Invariant: an order never reaches the file before the whole set was read with it. */
#include "cli/up/several/edit.h"

#include <stdlib.h>
#include <string.h>

#include "cli/up/several/change.h"
#include "cli/up/several/state.h"
#include "common/json/aliases.h"
#include "common/json/yaml_file.h"

/* ---- the list ---- */

static const char *state_of(const struct set_run *r, uint32_t i)
{
    const struct running_model *m = &r->models[i];
    const enum demand_state d = r->demand.models[i].state;
    if (m->failed[0])
        return "failed";
    if (d == DEMAND_ON && m->heard.n_replicas > 0)
        return "serving";
    return d == DEMAND_ON || m->model->o->start == UP_START_ALWAYS ? "loading" : "asleep";
}

static json_t *show(const struct set_run *r, uint32_t k)
{
    const struct set_model *m = &r->now->set.models[k];
    const struct running_model *x = &r->models[r->slot_of[k]];
    json_t *aliases = json_array();
    for (size_t i = 1; i < m->names.n_items; i++)
        json_array_append_new(aliases, json_string(m->names.items[i]));
    return json_pack("{s:s,s:o,s:s,s:s,s:s,s:s,s:s,s:I}", "name", m->name, "aliases", aliases,
                     "model", m->source, "start", up_start_names[m->o->start], "state",
                     state_of(r, r->slot_of[k]), "reason", x->failed, "admin", x->admin, "bytes",
                     (json_int_t)set_model_bytes(&x->model->need));
}

json_t *set_run_list(const struct set_run *r, uint64_t change)
{
    static const char *const words[] = {"unknown", "running", "done", "refused"};
    json_t *models = json_array();
    for (uint32_t k = 0; k < r->now->set.n; k++)
        json_array_append_new(models, show(r, k));
    json_t *out = json_pack("{s:o,s:s}", "models", models, "file", r->set_file);
    if (change > 0) {
        const char *why;
        enum change_state s = set_change_look(r, change, &why);
        json_object_set_new(out, "change", json_string(words[s]));
        json_object_set_new(out, "why", json_string(why));
    }
    return out;
}

/* ---- edits ---- */

/* Finds the entry of a model. The file has been read as `set`, whose order is that of the list. */
static enum status find_entry(const struct up_set *set, const char *name, size_t *out,
                              struct error *err)
{
    for (uint32_t i = 0; i < set->n; i++)
        if (strcmp(set->models[i].name, name) == 0) {
            *out = i;
            return STATUS_OK;
        }
    return error_set(err, STATUS_NOT_FOUND,
                     "the cluster has no model of the name %.80s. `cox models list` shows the "
                     "names; an alias is no name",
                     name);
}

static const char *name_in(const json_t *order, struct error *err)
{
    const char *name = json_string_value(json_object_get(order, "name"));
    if (!name || !name[0])
        (void)error_set(err, STATUS_INVALID, "the name of the model is missing");
    return name && name[0] ? name : NULL;
}

static enum status add(json_t *models, const json_t *order, struct error *err)
{
    json_t *entry = json_object_get(order, "entry");
    if (!json_is_object(entry))
        return error_set(err, STATUS_INVALID, "the entry of the new model is missing");
    json_array_append_new(models, json_deep_copy(entry));
    return STATUS_OK;
}

static enum status take_away(json_t *models, const struct up_set *set, const json_t *order,
                             struct error *err)
{
    size_t i = 0;
    const char *name = name_in(order, err);
    if (!name)
        return err->status;
    TRY(find_entry(set, name, &i, err));
    if (json_array_size(models) == 1)
        return error_set(err, STATUS_INVALID,
                         "%.80s is the cluster's last model. `cox stop` ends the cluster", name);
    json_array_remove(models, i);
    return STATUS_OK;
}

static enum status change_aliases(json_t *models, const struct up_set *set, const json_t *order,
                                  struct error *err)
{
    size_t i = 0;
    const char *name = name_in(order, err);
    if (!name)
        return err->status;
    TRY(find_entry(set, name, &i, err));
    return json_aliases_change(json_array_get(models, i), name, json_object_get(order, "add"),
                               json_object_get(order, "rm"), err);
}

static enum status change_tree(json_t *root, const struct up_set *set, const json_t *order,
                               struct error *err)
{
    const char *what = json_string_value(json_object_get(order, "do"));
    json_t *models = json_object_get(root, "models");
    if (what && strcmp(what, "add") == 0)
        return add(models, order, err);
    if (what && strcmp(what, "rm") == 0)
        return take_away(models, set, order, err);
    if (what && strcmp(what, "alias") == 0)
        return change_aliases(models, set, order, err);
    return error_set(err, STATUS_INVALID, "the order must be add, rm or alias");
}

enum status set_run_edit(struct set_run *r, const json_t *order, uint64_t *change,
                         struct error *err)
{
    struct strbuf text;
    struct arena nodes;
    struct up_set set = {0};
    json_t *root = NULL;
    char *yaml = NULL;
    if (!r->changes)
        return error_set(err, STATUS_EXISTS, "the cluster has not started yet. Try again");
    arena_init(&nodes, 0);
    enum status s = up_set_text(r->set_file, &text, err);
    if (s == STATUS_OK)
        s = up_set_read_again(&r->in, r->set_file, strbuf_str(&text), &nodes, &set, err);
    if (s == STATUS_OK)
        s = yaml_file_tree(strbuf_str(&text), &root, err);
    if (s == STATUS_OK)
        s = change_tree(root, &set, order, err);
    if (s == STATUS_OK && !(yaml = json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER)))
        s = error_set(err, STATUS_INVALID, "the change cannot be written as JSON");
    if (s == STATUS_OK)
        s = set_change_begin(r, str_from(yaml), change, err);
    free(yaml);
    json_decref(root);
    up_set_free(&set);
    arena_fini(&nodes);
    strbuf_fini(&text);
    return s;
}
