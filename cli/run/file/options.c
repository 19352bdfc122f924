/* Reads `options` and `resources` of a run file and checks them with the table of `cox up`. Keys
 * become entries of `struct run_file`. `run_check_options` writes them to a file in memory and
 * passes it to the parser of --config, first each option alone, then all together. Invariants:
 * each option is checked alone, so a problem has that option's line. A problem of several
 * options together is reported at `model`. `up_owned` owns the parsed strings. */
#include "cli/run/file/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/run/file/problems.h"
#include "cli/up/plan/options.h"
#include "cli/up/plan/plan.h"
#include "common/base/mem.h"

enum { OPTIONS_MAX = 256 };

/* Returns true for a quantity in Kubernetes' notation, in its usual forms: 2, 1.5, 500m, 10Gi. */
bool run_is_quantity(const char *s)
{
    static const char *const suffixes[] = {"",  "m",  "k",  "M",  "G",  "T",
                                           "P", "Ki", "Mi", "Gi", "Ti", "Pi"};
    size_t n = strspn(s, "0123456789"), more = s[n] == '.' ? strspn(s + n + 1, "0123456789") : 0;
    if (n == 0 || n > 15 || more > 9 || (s[n] == '.' && more == 0) || strspn(s, "0.") == n + more)
        return false;
    s += n + (more ? more + 1 : 0);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcmp(s, suffixes[i]) == 0)
            return true;
    return false;
}

/* ---- resources ---- */

static void read_quantity(struct run_reader *r, const struct yaml_node *v, struct run_text *out,
                          const char *what)
{
    const char *s = run_read_text(r, v, what);
    if (s && !run_is_quantity(s))
        run_problem(r->p, v->at, "%s \"%.60s\" is not a quantity. Write it like 4, 500m or 10Gi",
                    what, s);
    else if (s)
        *out = (struct run_text){s, v->at};
}

static void read_cpu(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    read_quantity(r, v, &r->f->resources.cpu, "`cpu`");
}

static void read_memory(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    read_quantity(r, v, &r->f->resources.memory, "`memory`");
}

static void read_gpus(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    (void)run_read_int(r, v, "`gpus`", 0, 1024, &r->f->resources.gpus);
}

static void read_as_option(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct strbuf json;
    strbuf_init(&json, 0);
    if (v->kind == YAML_KIND_TEXT) {
        yaml_node_append_json(v, &json);
        run_add_option(r, v->at, "`resources`", v->key->text, run_print(r, "%s", json.ptr));
    } else {
        run_problem(r->p, v->at, "`%s` must be a number or a word", v->key->text);
    }
    strbuf_fini(&json);
}

static void read_elsewhere(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    if (run_read_text(r, v, v->key->text))
        run_note(r->p, v->at, "`%s` names nothing here and is not used", v->key->text);
}

void run_read_resources(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    static const struct run_key keys[] = {
        {"workers", read_as_option}, {"tp", read_as_option},      {"pp", read_as_option},
        {"device", read_as_option},  {"gpus", read_gpus},         {"cpu", read_cpu},
        {"memory", read_memory},     {"cluster", read_elsewhere}, {"preset", read_elsewhere}};
    r->f->resources.at = v->at;
    RUN_READ_MAP(r, v, "`resources`", keys, NULL);
}

/* ---- options ---- */

static const struct option_spec *find_spec(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < up_n_specs; i++) {
        const char *s = up_specs[i].name;
        size_t k = 0;
        while (k < n && s[k] && (s[k] == name[k] || (s[k] == '-' && name[k] == '_')))
            k++;
        if (k == n && !s[k])
            return &up_specs[i];
        for (const char *a = up_specs[i].aliases; a && *a; a += strcspn(a, ",")) {
            a += *a == ',';
            k = 0;
            while (k < n && (a[k] == name[k] || (a[k] == '-' && name[k] == '_')))
                k++;
            if (k == n && (!a[k] || a[k] == ','))
                return &up_specs[i];
        }
    }
    return NULL;
}

static const struct run_option *given(const struct run_reader *r, const char *name)
{
    const struct option_spec *spec = find_spec(name);
    for (size_t i = 0; i < r->f->options.n; i++)
        if (spec && find_spec(r->f->options.items[i].name) == spec)
            return &r->f->options.items[i];
    return NULL;
}

static void add(struct run_reader *r, struct yaml_mark at, const char *name, const char *json)
{
    *(struct run_option *)RUN_ADD(r, r->f->options) = (struct run_option){name, json, at};
}

void run_add_option(struct run_reader *r, struct yaml_mark at, const char *from, const char *name,
                    const char *json)
{
    const struct run_option *other = given(r, name);
    if (other)
        run_problem(r->p, at, "%s and line %u both set `%s`. Remove one of them", from,
                    other->at.line, name);
    else
        add(r, at, name, json);
}

void run_read_options(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    if (v->kind != YAML_KIND_MAP || v->n > OPTIONS_MAX) {
        run_problem(r->p, v->at, "`options` must be a mapping of `cox up` options");
        return;
    }
    for (const struct yaml_node *c = v->first; c; c = c->next) {
        const struct option_spec *spec = find_spec(c->key->text);
        struct strbuf json;
        if (spec && spec->type == OPTION_ARGUMENT) {
            run_problem(r->p, c->key->at,
                        "`options` cannot contain the model. Put it at the top level as `model`");
            continue;
        }
        strbuf_init(&json, 2ul * RUN_FILE_MAX_BYTES);
        yaml_node_append_json(c, &json);
        run_add_option(r, c->key->at, "`options`", c->key->text, run_print(r, "%s", json.ptr));
        strbuf_fini(&json);
    }
}

void run_file_options(const struct run_file *f, struct strbuf *out)
{
    strbuf_append_c(out, "{");
    for (size_t i = 0; i < f->options.n; i++) {
        strbuf_append_c(out, i ? ",\n" : "\n");
        strbuf_append_json(out, str_from(f->options.items[i].name));
        strbuf_append_c(out, ": ");
        strbuf_append_c(out, f->options.items[i].json);
    }
    strbuf_append_c(out, "\n}\n");
}

/* ---- check by the parser of `cox up` ---- */

/* Parses `text` through a file in memory. `path` receives that file's short path. */
static enum status parse_options(struct str text, struct up_options *o, struct config_result *res,
                                 char path[64], struct error *err)
{
    int fd = memfd_create("options", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text.ptr, text.len) != (ssize_t)text.len) {
        if (fd >= 0)
            close(fd);
        return error_set(err, STATUS_IO,
                         "cannot start the run: there is not enough memory for its options");
    }
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    char name[] = "cox up", flag[] = "--config";
    enum status s = config_parse(up_specs, up_n_specs, 3, (char *[]){name, flag, path, NULL}, NULL,
                                 o, res, err);
    close(fd);
    return s;
}

/* Returns the error text without its first part, the position in the file in memory, such as
 * "/proc/self/fd/5:2: max_model_len: …". */
static const char *without_place(const char *text, const char *path)
{
    const char *at = strstr(text, path);
    size_t n = strlen(path);
    if (!at || at != text || at[n] != ':')
        return text;
    at += n + 1;
    at += strspn(at, "0123456789");
    return at[0] == ':' && at[1] == ' ' ? at + 2 : at;
}

static bool check_one(struct run_reader *r, const struct run_option *option)
{
    struct strbuf text;
    struct up_options *o = mem_zalloc(sizeof *o);
    struct config_result res = {0};
    struct error err = {0};
    char path[64] = "";
    strbuf_init(&text, 0);
    strbuf_append_c(&text, "{");
    strbuf_append_json(&text, str_from(option->name));
    strbuf_printf(&text, ": %s}", option->json);
    enum status s = parse_options(strbuf_str(&text), o, &res, path, &err);
    if (s != STATUS_OK)
        run_problem(r->p, option->at, "`options`: %s", without_place(err.text, path));
    for (size_t i = 0; s == STATUS_OK && i < res.warnings.n_items; i++)
        if (!strstr(res.warnings.items[i], "has no effect without"))
            run_note(r->p, option->at, "%s", without_place(res.warnings.items[i], path));
    config_fini(&res);
    strbuf_fini(&text);
    mem_free(o);
    return s == STATUS_OK;
}

/* Checks all options together, and reports the errors that `cox up` would report before it
 * starts a process. */
static void check_together(struct run_reader *r)
{
    struct strbuf text;
    struct up_plan plan = {0};
    struct error err = {0};
    struct arena arena;
    char path[64] = "";
    const struct up_place place = {
        .bin_dir = "/", .keys_dir = "/", .own_name = "run", .n_cores = 1};
    strbuf_init(&text, 0);
    arena_init(&arena, 0);
    run_file_options(r->f, &text);
    enum status s = parse_options(strbuf_str(&text), &r->f->up, &r->f->up_owned, path, &err);
    if (s == STATUS_OK)
        s = up_plan_build(&r->f->up, r->f->model.s, &place, &arena, &plan, &err);
    if (s != STATUS_OK)
        run_problem(r->p, r->f->model.at, "`cox up %.60s` would reject these options: %s",
                    r->f->model.s, without_place(err.text, path));
    arena_fini(&arena);
    strbuf_fini(&text);
}

void run_check_options(struct run_reader *r)
{
    bool good = r->p->n == 0;
    for (size_t i = 0; i < r->f->options.n; i++) {
        const struct run_option *o = &r->f->options.items[i];
        if (!r->f->model.s && good)
            run_problem(r->p, o->at,
                        "`%.60s` is an option of `cox up`, but the file has no `model`. Add "
                        "`model`, or remove this option",
                        o->name);
        else if (!check_one(r, o))
            good = false;
    }
    if (good && r->f->model.s)
        check_together(r);
}
