/* `cox models`, `cox rm`: what lies in the cache, and taking it out. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cache_list.h"
#include "cli/cache_remove.h"
#include "cli/command.h"
#include "cli/pull/pull_progress.h"
#include "cli/tables.h"
#include "common/base/mem.h"
#include "common/model/model_info.h"
#include "common/options/rows.h"

#define S models_options
const struct option_spec models_specs[] = {
    ROW_CACHE_DIR(S),
    OPT_BOOL(S, json, "json", NULL, "Print one JSON object."),
};
const size_t models_n_specs = sizeof models_specs / sizeof models_specs[0];

enum { RM_MODELS_MAX = 1000 };
const struct option_spec rm_specs[] = {
    {.name = "model", .type = OPTION_ARGUMENT, .help = "The same as a bare MODEL."},
    ROW_CACHE_DIR(S),
};
const size_t rm_n_specs = sizeof rm_specs / sizeof rm_specs[0];
#undef S

/* The cache that the options name; the name of the command is for the error. */
static bool find_cache(const struct models_options *o, const char *command, char out[4096])
{
    model_cache_dir(o->cache_dir, getenv("HOME"), out, 4096);
    if (out[0])
        return true;
    fprintf(stderr, "cox %s: the cache folder's path is too long: set COX_CACHE to another place\n",
            command);
    return false;
}

/* ---- models ---- */

static const char *time_text(int64_t s, const char *form, bool is_local, char out[32])
{
    time_t t = (time_t)s;
    struct tm tm;
    out[0] = '\0';
    if (s > 0 && (is_local ? localtime_r(&t, &tm) : gmtime_r(&t, &tm)))
        (void)strftime(out, 32, form, &tm);
    return out;
}

static json_t *time_json(int64_t s)
{
    char text[32];
    return s > 0 ? json_string(time_text(s, "%Y-%m-%dT%H:%M:%SZ", false, text)) : json_null();
}

static int print_json(const char *cache_dir, const struct cached_models *l)
{
    json_t *models = json_array();
    for (uint32_t i = 0; i < l->n_items; i++) {
        const struct cached_model *m = &l->items[i];
        char path[8192];
        snprintf(path, sizeof path, "%s/%s%s%s", cache_dir,
                 strcmp(m->base, "demo") == 0 ? CACHE_DEMO : CACHE_PULLED,
                 strcmp(m->base, "demo") == 0 ? "" : "/",
                 strcmp(m->base, "demo") == 0 ? "" : m->entry);
        json_t *o = json_object();
        json_object_set_new(o, "name", json_string(m->name));
        json_object_set_new(o, "reference", m->reference ? json_string(m->reference) : json_null());
        json_object_set_new(o, "state", json_string(cached_state_name(m->state)));
        json_object_set_new(o, "problem", m->problem[0] ? json_string(m->problem) : json_null());
        json_object_set_new(o, "bytes", json_integer((json_int_t)m->n_bytes));
        json_object_set_new(o, "files", json_integer((json_int_t)m->n_files));
        json_object_set_new(o, "format", m->format[0] ? json_string(m->format) : json_null());
        json_object_set_new(o, "revision", m->revision[0] ? json_string(m->revision) : json_null());
        json_object_set_new(o, "commit", m->commit[0] ? json_string(m->commit) : json_null());
        json_object_set_new(o, "fetched", time_json(m->fetched_s));
        json_object_set_new(o, "last_used", time_json(m->used_s));
        json_object_set_new(o, "path", json_string(path));
        json_array_append_new(models, o);
    }
    json_t *root = json_pack("{s:s, s:o}", "cache", cache_dir, "models", models);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) {
        fprintf(stderr, "cox models: %s: its names are not UTF-8, which JSON is\n", cache_dir);
        return EXIT_FAILED;
    }
    printf("%s\n", text);
    free(text);
    return EXIT_FINE;
}

/* "main (c0ffee000000)" */
static const char *revision_text(const struct cached_model *m, char out[260])
{
    const char *revision = strcmp(m->revision, m->commit) == 0 ? "" : m->revision;
    if (m->commit[0])
        snprintf(out, 260, "%s%s%.12s%s", revision, revision[0] ? " (" : "", m->commit,
                 revision[0] ? ")" : "");
    else
        snprintf(out, 260, "%s", revision[0] ? revision : "-");
    return out;
}

static void print_table(const char *cache_dir, const struct cached_models *l)
{
    static const char *const states[CACHED_STATES] = {"", "damaged: `cox pull` fetches it again",
                                                      "parts; `cox pull` goes on with them",
                                                      "parts; it is being fetched"};
    int name_width = 4, revision_width = 8;
    char size[24], fetched[32], used[32], revision[260];
    for (uint32_t i = 0; i < l->n_items; i++) {
        int n = (int)strlen(l->items[i].name);
        int m = (int)strlen(revision_text(&l->items[i], revision));
        name_width = n > name_width ? n : name_width;
        revision_width = m > revision_width ? m : revision_width;
    }
    if (l->n_items == 0) {
        printf("No model is in the cache (%s). `cox pull MODEL` fetches one.\n", cache_dir);
        return;
    }
    printf("%-*s  %10s  %-11s  %-*s  %-16s  %-16s  STATE\n", name_width, "NAME", "SIZE", "FORMAT",
           revision_width, "REVISION", "FETCHED", "LAST USED");
    for (uint32_t i = 0; i < l->n_items; i++) {
        const struct cached_model *m = &l->items[i];
        time_text(m->fetched_s, "%Y-%m-%d %H:%M", true, fetched);
        time_text(m->used_s, "%Y-%m-%d %H:%M", true, used);
        printf("%-*s  %10s  %-11s  %-*s  %-16s  %-16s  %s\n", name_width, m->name,
               pull_bytes_text(size, sizeof size, m->n_bytes), m->format[0] ? m->format : "-",
               revision_width, revision_text(m, revision), fetched[0] ? fetched : "-",
               used[0] ? used : "-", m->state == CACHED_WHOLE ? "whole" : states[m->state]);
    }
}

int cmd_models(int argc, char **argv)
{
    struct models_options o = {0};
    struct config_result res;
    struct cached_models l = {0};
    struct error err = {0};
    char cache_dir[4096];
    int code;
    const struct command_line line = {
        .usage = "cox models [OPTION...]", .specs = models_specs, .n_specs = models_n_specs};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        if (!find_cache(&o, "models", cache_dir)) {
            code = EXIT_USAGE;
        } else if (cache_list(cache_dir, &l, &err) != STATUS_OK) {
            fprintf(stderr, "cox models: %s: is it yours to read? COX_CACHE names another\n",
                    err.text);
            code = EXIT_FAILED;
        } else if (o.json) {
            code = print_json(cache_dir, &l);
        } else {
            print_table(cache_dir, &l);
        }
        if (l.has_more)
            command_warn("models", "there are more models than are listed");
        cache_list_fini(&l);
    }
    config_fini(&res);
    return code;
}

/* ---- rm ---- */

static enum status remove_one(const char *cache_dir, const char *name, struct error *err)
{
    struct cached_models l;
    struct cache_removed done;
    char freed[24], shared[24];
    enum status s = cache_list(cache_dir, &l, err);
    if (s == STATUS_OK)
        s = cache_remove(cache_dir, name, &l, &done, err);
    cache_list_fini(&l);
    TRY(s);
    char *shown = cache_printable(name);
    printf("%s: removed, %s freed", shown, pull_bytes_text(freed, sizeof freed, done.n_bytes));
    if (done.n_shared_bytes > 0)
        printf(" (%s are still in huggingface_hub's cache)",
               pull_bytes_text(shared, sizeof shared, done.n_shared_bytes));
    printf("\n");
    mem_free(shown);
    return STATUS_OK;
}

int cmd_rm(int argc, char **argv)
{
    struct models_options o = {0};
    struct config_result res;
    char cache_dir[4096];
    int code;
    const struct command_line line = {.usage = "cox rm MODEL... [OPTION...]",
                                      .specs = rm_specs,
                                      .n_specs = rm_n_specs,
                                      .max_positional = RM_MODELS_MAX};
    (void)unsetenv("COX_MODEL"); /* a running cluster's, and none that is to be removed */
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        if (res.positional.n_items == 0) {
            fprintf(stderr, "cox rm: which model? usage: %s; `cox models` shows them\n",
                    line.usage);
            code = EXIT_USAGE;
        } else if (!find_cache(&o, "rm", cache_dir)) {
            code = EXIT_USAGE;
        }
        for (size_t i = 0; code != EXIT_USAGE && i < res.positional.n_items; i++) {
            struct error err = {0};
            if (remove_one(cache_dir, res.positional.items[i], &err) == STATUS_OK)
                continue;
            fflush(stdout);
            fprintf(stderr, "cox rm: %s\n", err.text);
            code = EXIT_FAILED;
        }
    }
    config_fini(&res);
    return code;
}
