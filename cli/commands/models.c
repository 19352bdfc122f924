/* Implements `cox models` and `cox rm`, which list the models in the cache and remove them.
 * cli/cache/list.h reads the cache and cli/cache/remove.h removes a model. This file chooses the
 * columns that fit the terminal, and prints a table or JSON.
 * Invariants: names from the cache folder are printed only in their printable form. `cox rm`
 * tries every named model, and its exit code is 1 when at least one model was not removed. The
 * command runs in one thread. The list is freed before the command ends. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/cache/list.h"
#include "cli/cache/remove.h"
#include "cli/commands/command.h"
#include "cli/commands/list.h"
#include "cli/commands/tables.h"
#include "cli/pull/files/progress.h"
#include "common/base/mem.h"
#include "common/host/terminal_width.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/options/rows.h"

struct models_options {
    const char *cache_dir;
    bool json;
};

#define S models_options
const struct option_spec models_specs[] = {
    ROW_CACHE_DIR(S),
    OPT_BOOL(S, json, "json", NULL, "Print one JSON object."),
};
const size_t models_n_specs = sizeof models_specs / sizeof models_specs[0];

enum { RM_MODELS_MAX = 1000 };
const struct option_spec rm_specs[] = {
    {.name = "model",
     .type = OPTION_ARGUMENT,
     .help = "Model to remove, the same as a bare MODEL."},
    ROW_CACHE_DIR(S),
};
const size_t rm_n_specs = sizeof rm_specs / sizeof rm_specs[0];
#undef S

/* Finds the cache folder that the options name. `command` is the command's name for the error
 * text. */
static bool find_cache(const struct models_options *o, const char *command, char out[4096])
{
    model_cache_dir(o->cache_dir, getenv("HOME"), out, 4096);
    if (out[0])
        return true;
    fprintf(stderr,
            "cox %s: the path of the cache folder is too long. Set COX_CACHE to a shorter path\n",
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
        char *path = cache_folder(cache_dir, m->demo, m->entry);
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
        mem_free(path);
        json_array_append_new(models, o);
    }
    json_t *root = json_pack("{s:s, s:o}", "cache", cache_dir, "models", models);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) {
        fprintf(stderr,
                "cox models: cannot print the cache %s as JSON: it contains names that are not "
                "UTF-8. Run cox models without --json\n",
                cache_dir);
        return EXIT_FAILED;
    }
    printf("%s\n", text);
    free(text);
    return EXIT_FINE;
}

/* Formats the revision and commit: "main (c0ffee000000)". */
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

/* ---- the table ---- */

enum { COL_NAME, COL_SIZE, COL_FORMAT, COL_REVISION, COL_FETCHED, COL_USED, COL_STATE, N_COLUMNS };
enum { GAP = 2, NAME_MIN = 8, NAME_WANTED = 24 };

static const char *const titles[N_COLUMNS] = {"NAME",    "SIZE",      "FORMAT", "REVISION",
                                              "FETCHED", "LAST USED", "STATE"};

/* Returns the text of a cell. The caller frees it with `mem_free`. */
static char *cell(const struct cached_model *m, int column)
{
    char text[260];
    switch (column) {
    case COL_NAME:
        return mem_strdup(m->name);
    case COL_SIZE:
        return mem_strdup(pull_bytes_text(text, sizeof text, m->n_bytes));
    case COL_FORMAT:
        return mem_strdup(m->format[0] ? m->format : "-");
    case COL_REVISION:
        return mem_strdup(revision_text(m, text));
    case COL_STATE:
        return mem_strdup(cached_state_name(m->state));
    default:
        time_text(column == COL_USED ? m->used_s : m->fetched_s, "%Y-%m-%d %H:%M", true, text);
        return mem_strdup(text[0] ? text : "-");
    }
}

static size_t table_width(const size_t widths[N_COLUMNS])
{
    size_t all = 0;
    for (int c = 0; c < N_COLUMNS; c++)
        all += widths[c] > 0 ? widths[c] + GAP : 0;
    return all - GAP;
}

/* Chooses the column widths; 0 = the column is left out. Names are cut when no more columns can
 * be left out. */
static void choose_widths(const struct cached_models *l, size_t widths[N_COLUMNS])
{
    static const int left_out[] = {COL_USED, COL_REVISION, COL_FORMAT, COL_FETCHED, COL_SIZE};
    size_t room = terminal_width(STDOUT_FILENO), n_out = 0;
    for (int c = 0; c < N_COLUMNS; c++) {
        widths[c] = strlen(titles[c]);
        for (uint32_t i = 0; i < l->n_items; i++) {
            char *text = cell(&l->items[i], c);
            size_t n = pull_columns_of(text);
            widths[c] = n > widths[c] ? n : widths[c];
            mem_free(text);
        }
    }
    if (room == 0)
        return;
    size_t name = widths[COL_NAME], name_min = name < NAME_WANTED ? name : NAME_WANTED;
    widths[COL_NAME] = name_min;
    while (table_width(widths) > room && n_out < sizeof left_out / sizeof *left_out)
        widths[left_out[n_out++]] = 0;
    size_t others = table_width(widths) - name_min;
    widths[COL_NAME] = room > others + NAME_MIN ? room - others : NAME_MIN;
    widths[COL_NAME] = name < widths[COL_NAME] ? name : widths[COL_NAME];
}

/* Prints one cell. The last column has no spaces at its end. */
static void print_cell(int column, const char *text, size_t width)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    pull_append_name(&b, text, width);
    size_t n = pull_columns_of(b.len > 0 ? strbuf_str(&b).ptr : "");
    int blanks = (int)(width > n ? width - n : 0);
    if (column == COL_SIZE)
        printf("%*s" STR_FMT "  ", blanks, "", STR_ARG(strbuf_str(&b)));
    else if (column == COL_STATE)
        printf(STR_FMT "\n", STR_ARG(strbuf_str(&b)));
    else
        printf(STR_FMT "%*s  ", STR_ARG(strbuf_str(&b)), blanks, "");
    strbuf_fini(&b);
}

static void print_table(const char *cache_dir, const struct cached_models *l)
{
    static const char *const next[CACHED_STATES] = {
        NULL, "damaged: run `cox pull MODEL` to download it again.",
        "parts: run `cox pull MODEL` to continue the download.", NULL};
    size_t widths[N_COLUMNS];
    bool has[CACHED_STATES] = {false};
    if (l->n_items == 0) {
        printf("No model is in the cache (%s). `cox pull MODEL` fetches one.\n", cache_dir);
        return;
    }
    choose_widths(l, widths);
    for (int c = 0; c < N_COLUMNS; c++)
        if (widths[c] > 0)
            print_cell(c, titles[c], widths[c]);
    for (uint32_t i = 0; i < l->n_items; i++) {
        has[l->items[i].state] = true;
        for (int c = 0; c < N_COLUMNS; c++) {
            char *text = widths[c] > 0 ? cell(&l->items[i], c) : NULL;
            if (text)
                print_cell(c, text, widths[c]);
            mem_free(text);
        }
    }
    for (int s = 0; s < CACHED_STATES; s++)
        if (has[s] && next[s])
            printf("%s\n", next[s]);
}

static int refuse_word(const struct command_table *t, const char *name, const char *word)
{
    const struct command *near = command_nearest(t, name);
    fprintf(stderr, "cox models: unknown command \"%.40s\"; ", word);
    if (near)
        fprintf(stderr, "did you mean \"cox %s\"?\n", near->name);
    else
        fprintf(stderr, "use list, add, rm or alias for a running cluster; `cox models` alone "
                        "lists the cache\n");
    return EXIT_USAGE;
}

int cmd_models(const struct command_table *t, int argc, char **argv)
{
    char name[40];
    struct models_options o = {0};
    struct config_result res;
    struct cached_models l = {0};
    struct error err = {0};
    char cache_dir[4096];
    int code;
    const struct command_line line = {.usage = "cox models [list|add|rm|alias] [OPTION...]",
                                      .specs = models_specs,
                                      .n_specs = models_n_specs};
    snprintf(name, sizeof name, "models %.20s", argc > 1 && argv[1][0] != '-' ? argv[1] : "");
    const struct command *sub = command_find(t, name);
    if (sub) {
        argv[1] = name;
        return command_run(t, sub, argc - 1, argv + 1);
    }
    if (argc > 1 && argv[1][0] != '-')
        return refuse_word(t, name, argv[1]);
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        if (!find_cache(&o, "models", cache_dir)) {
            code = EXIT_USAGE;
        } else if (cache_list(cache_dir, &l, &err) != STATUS_OK) {
            fprintf(stderr,
                    "cox models: %s. Check the permissions of the cache folder, or set COX_CACHE "
                    "to another folder\n",
                    err.text);
            code = EXIT_FAILED;
        } else if (o.json) {
            code = print_json(cache_dir, &l);
        } else {
            print_table(cache_dir, &l);
        }
        if (l.has_more)
            command_warn("models", "the cache has more models than the list shows");
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
    /* COX_MODEL names a running cluster's model, which `cox rm` must not remove */
    (void)unsetenv("COX_MODEL");
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        if (res.positional.n_items == 0) {
            fprintf(stderr,
                    "cox rm: the model is missing; usage: %s; `cox models` lists the models\n",
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
