/* Reads `import`, `export` and `volumes` of a run file.
 * file.c calls `run_read_imports`, `run_read_exports` and `run_read_volumes` with YAML nodes,
 * then `run_check_places`. Entries go to `struct run_file`, problems to the list.
 * Invariants: a place is a path below the run's folder, or in a pod. No place is inside another
 * place, so a write to one place cannot change another. A URL for git uses a transport from a
 * fixed list, because `ext::` and similar transports run programs. */
#include "cli/run/file/places.h"

#include <ctype.h>
#include <string.h>

#include "cli/run/file/options.h"
#include "cli/run/file/problems.h"
#include "common/model/info/ref.h"

enum { PLACES_MAX = 64, PATH_MAX_BYTES = 1024, ARTIFACT_NAME_MAX = 100 };

const char *run_read_path(struct run_reader *r, const char *text, struct yaml_mark at)
{
    size_t n = strlen(text);
    while (n > 1 && text[n - 1] == '/')
        n--;
    bool is_good = n > 1 && n <= PATH_MAX_BYTES && text[0] == '/';
    for (size_t i = 0, from = 1; is_good && i <= n; i++) {
        is_good = i == n || ((unsigned char)text[i] >= ' ' && text[i] != 0x7F && text[i] != ':');
        if ((i == n || text[i] == '/') && i > 0) {
            size_t len = i - from;
            /* is_dots is true also for an empty name */
            bool is_dots = len <= 2 && strncmp(text + from, "..", len) == 0;
            is_good = is_good && !is_dots;
            from = i + 1;
        }
    }
    if (is_good)
        return run_print(r, "%.*s", (int)n, text);
    run_problem(r->p, at,
                "\"%.60s\" is not an absolute path without \"..\". Write it like \"/data\"", text);
    return NULL;
}

/* ---- git ---- */

static bool is_plain_text(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7F)
            return false;
    return true;
}

/* Matches user@host:path, as ssh accepts it. */
static bool is_scp_like(const char *s)
{
    size_t n = strcspn(s, ":/");
    return s[n] == ':' && memchr(s, '@', n) && strncmp(s + n, "://", 3) != 0 && s[n + 1] != ':';
}

/* Matches "github.com/…", the form that VESSL uses. */
static bool is_bare_host(const char *s)
{
    size_t n = strcspn(s, "/");
    return s[n] == '/' && memchr(s, '.', n) && !memchr(s, ':', n) && s[0] != '.';
}

/* Returns true for a URL with a password, or with a user in a transport other than ssh. The log
 * and `ps` would show such a secret. */
static bool has_secret(const char *s)
{
    const char *scheme = strstr(s, "://"), *user = scheme ? scheme + 3 : s;
    const char *end = memchr(user, '@', strcspn(user, "/?#"));
    if (!end)
        return false;
    bool is_ssh =
        /* without a scheme, the form is git@host:path */
        scheme ? strncmp(s, "ssh://", 6) == 0 : end[strcspn(end, ":/")] == ':';
    return !is_ssh || memchr(user, ':', (size_t)(end - user));
}

static const char *git_url(struct run_reader *r, const struct yaml_node *v)
{
    const char *s = run_read_text(r, v, "`url`");
    if (!s)
        return NULL;
    if (s[0] == '-' || !is_plain_text(s) || strlen(s) > PATH_MAX_BYTES)
        run_problem(r->p, v->at, "`url` \"%.60s\" is not a valid URL for `git`", s);
    else if (has_secret(s))
        run_problem(r->p, v->at,
                    "`url` contains a user or password, which the log and `ps` would show. Remove "
                    "it, and use a git credential helper, ~/.netrc or an ssh:// URL");
    else if (strncmp(s, "https://", 8) == 0 || strncmp(s, "ssh://", 6) == 0 ||
             strncmp(s, "file:///", 8) == 0 || s[0] == '/' || is_scp_like(s))
        return s;
    else if (is_bare_host(s))
        return run_print(r, "https://%s", s);
    else
        run_problem(
            r->p, v->at,
            "`url` \"%.60s\" is not supported: use https://, ssh://, user@host:path or a path", s);
    return NULL;
}

static void read_git_url(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_import *im = ctx;
    im->what = git_url(r, v);
}

/* Reads a git ref. The function refuses a name that git could interpret as an option, a refspec
 * or a path outside refs/. */
static void read_git_ref(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_import *im = ctx;
    const char *s = run_read_text(r, v, "`ref`");
    bool is_good = s && isalnum((unsigned char)s[0]) && strlen(s) <= 255 && !strstr(s, "..");
    for (const char *c = s; is_good && *c; c++)
        is_good = isalnum((unsigned char)*c) || strchr("._/-+@", *c);
    if (s && !is_good)
        run_problem(r->p, v->at, "`ref` \"%.60s\" is not the name of a branch, tag or commit", s);
    else
        im->ref = s;
}

static void read_git(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    static const struct run_key keys[] = {{"url", read_git_url}, {"ref", read_git_ref}};
    struct run_import *im = ctx;
    size_t n = r->p->n;
    im->kind = RUN_IMPORT_GIT;
    RUN_READ_MAP(r, v, "`git`", keys, im);
    if (!im->what && r->p->n == n)
        run_problem(r->p, v->at, "`git` has no `url`: add it");
}

/* ---- import ---- */

static void set_model(struct run_reader *r, struct run_import *im, const char *s,
                      struct yaml_mark at)
{
    struct model_ref ref;
    struct error err = {0};
    im->kind = RUN_IMPORT_MODEL;
    if (strncmp(s, "hf://", 5) == 0)
        s = run_print(r, "hf:%s", strncmp(s, "hf://huggingface.co/", 20) == 0 ? s + 20 : s + 5);
    if (s[0] == '-')
        run_problem(r->p, at, "\"%.60s\" is not a model. Write it like hf:ORG/NAME", s);
    else if (model_ref_parse(s, &ref, &err) != STATUS_OK)
        run_problem(r->p, at, "%s", err.text);
    else {
        if (ref.kind == MODEL_REF_NULL)
            run_problem(r->p, at, "the null model has no files, so it cannot be imported");
        else
            im->what = s;
        model_ref_fini(&ref);
    }
}

static const char artifact_scheme[] = "vessl-artifact://";

static bool is_artifact(const char *s)
{
    return strncmp(s, artifact_scheme, strlen(artifact_scheme)) == 0;
}

/* Returns true for a name of three parts, each of which is a valid folder name. */
static bool is_artifact_name(const char *s)
{
    size_t n_names = 0;
    for (;; s++) {
        size_t n = strcspn(s, "/");
        bool is_good = n > 0 && n <= ARTIFACT_NAME_MAX && s[0] != '.';
        for (size_t i = 0; i < n && is_good; i++)
            is_good = isalnum((unsigned char)s[i]) || strchr("._-{}", s[i]);
        n_names++;
        s += n;
        if (!is_good || !*s)
            return is_good && n_names == 3;
    }
}

static void set_artifact(struct run_reader *r, struct run_import *im, const struct yaml_node *v)
{
    const char *name = v->text + strlen(artifact_scheme);
    im->kind = RUN_IMPORT_ARTIFACT;
    if (!is_artifact_name(name)) {
        run_problem(
            r->p, v->at,
            "\"%.80s\" is not an artifact: write vessl-artifact://ORGANIZATION/PROJECT/NAME, with "
            "letters, digits, '.', '_' and '-' in each name",
            v->text);
        return;
    }
    if (strpbrk(name, "{}"))
        run_note(r->p, v->at,
                 "\"%.80s\" contains a name in braces, like a placeholder in a document. The "
                 "braces are kept as part of the name",
                 name);
    im->what = name;
}

static void refuse_artifact(struct run_reader *r, const struct yaml_node *v, const char *what)
{
    run_problem(r->p, v->at,
                "%.60s belongs to another platform and cannot be fetched here. Download it and "
                "give file:PATH, or use a volume with `claim` or `host` that contains it",
                what);
}

static void set_file(struct run_reader *r, struct run_import *im, const char *s,
                     struct yaml_mark at)
{
    im->kind = RUN_IMPORT_FILE;
    if (strncmp(s, "//", 2) == 0)
        s += 2;
    if (s[0] != '/')
        run_problem(r->p, at,
                    "file:%.60s is not an absolute path. Write it like file:/home/me/data", s);
    else
        im->what = s;
}

static void read_import_model(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    const char *s = run_read_text(r, v, "`model`");
    if (s)
        set_model(r, ctx, s, v->at);
}

static void read_import_file(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    const char *s = run_read_text(r, v, "`file`");
    if (s)
        set_file(r, ctx, s, v->at);
}

static void read_artifact(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    refuse_artifact(r, v, "`artifact`");
}

static void read_import_text(struct run_reader *r, const struct yaml_node *v, struct run_import *im)
{
    const char *s = v->text;
    if (strncmp(s, "file:", 5) == 0)
        set_file(r, im, s + 5, v->at);
    else if (strncmp(s, "hf:", 3) == 0 || strncmp(s, "s3://", 5) == 0)
        set_model(r, im, s, v->at);
    else if (is_artifact(s))
        set_artifact(r, im, v);
    else if (strstr(s, "://") && strncmp(s, "https://", 8) != 0)
        refuse_artifact(r, v, s);
    else
        run_problem(r->p, v->at,
                    "\"%.60s\" cannot be imported. Give `git: {url: …}`, `model: …`, hf://ORG/NAME "
                    "or file:PATH",
                    s);
}

static const char *read_place(struct run_reader *r, const struct yaml_node *v)
{
    return run_read_path(r, v->key->text, v->key->at);
}

static bool is_places(struct run_reader *r, const struct yaml_node *v, const char *what)
{
    bool is = v->kind == YAML_KIND_MAP && v->n <= PLACES_MAX;
    if (!is)
        run_problem(r->p, v->at, "%s must be a mapping of at most %d paths", what, PLACES_MAX);
    return is;
}

void run_read_imports(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    static const struct run_key keys[] = {{"git", read_git},
                                          {"model", read_import_model},
                                          {"file", read_import_file},
                                          {"artifact", read_artifact}};
    if (!is_places(r, v, "`import`"))
        return;
    for (const struct yaml_node *c = v->first; c; c = c->next) {
        struct run_import *im = RUN_ADD(r, r->f->imports);
        im->at = c->key->at;
        im->path = read_place(r, c);
        if (c->kind == YAML_KIND_TEXT) {
            read_import_text(r, c, im);
            continue;
        }
        RUN_READ_MAP(r, c, "`import`", keys, im);
        if (c->kind == YAML_KIND_MAP && c->n != 1)
            run_problem(r->p, c->at,
                        "an import must have exactly one of `git`, `model` and `file`");
    }
}

void run_read_exports(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    if (!is_places(r, v, "`export`"))
        return;
    for (const struct yaml_node *c = v->first; c; c = c->next) {
        struct run_import *im = RUN_ADD(r, r->f->exports);
        im->at = c->key->at;
        im->path = read_place(r, c);
        if (c->kind == YAML_KIND_TEXT && strncmp(c->text, "file:", 5) == 0)
            set_file(r, im, c->text + 5, c->at);
        else if (c->kind == YAML_KIND_TEXT && is_artifact(c->text))
            set_artifact(r, im, c);
        else if (c->kind == YAML_KIND_TEXT && strstr(c->text, "://"))
            refuse_artifact(r, c, c->text);
        else
            run_problem(r->p, c->at,
                        "the target of an export must be file:FOLDER on this machine or "
                        "vessl-artifact://ORGANIZATION/PROJECT/NAME");
    }
}

/* ---- volumes ---- */

static void read_host(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_volume *vol = ctx;
    const char *s = run_read_text(r, v, "`host`");
    vol->kind = RUN_VOLUME_HOST;
    vol->what = s ? run_read_path(r, s, v->at) : NULL;
}

static void read_claim(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_volume *vol = ctx;
    const char *s = run_read_text(r, v, "`claim`");
    size_t n = s ? strlen(s) : 0;
    bool is_name = n > 0 && n <= 63 && islower((unsigned char)s[0]) && s[n - 1] != '-' &&
                   strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
    vol->kind = RUN_VOLUME_CLAIM;
    if (s && !is_name)
        run_problem(r->p, v->at,
                    "`claim` \"%.60s\" is invalid: use up to 63 lower-case letters, digits and '-'",
                    s);
    else
        vol->what = s;
}

static void read_size(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_volume *vol = ctx;
    const char *s = run_read_text(r, v, "`size`");
    vol->kind = RUN_VOLUME_SIZE;
    if (s && !run_is_quantity(s))
        run_problem(r->p, v->at, "`size` \"%.60s\" is not a size. Write it like 10Gi or 500Mi", s);
    else
        vol->what = s;
}

void run_read_volumes(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    static const struct run_key keys[] = {
        {"host", read_host}, {"claim", read_claim}, {"size", read_size}};
    if (!is_places(r, v, "`volumes`"))
        return;
    for (const struct yaml_node *c = v->first; c; c = c->next) {
        struct run_volume *vol = RUN_ADD(r, r->f->volumes);
        vol->at = c->key->at;
        vol->path = read_place(r, c);
        RUN_READ_MAP(r, c, "a volume", keys, vol);
        if (c->kind == YAML_KIND_MAP && c->n != 1)
            run_problem(
                r->p, c->at,
                "a volume must have exactly one of `host: FOLDER`, `claim: NAME` and `size: 10Gi`");
    }
}

/* ---- all places together ---- */

static bool is_same_artifact(const struct run_import *a, const struct run_import *b)
{
    return a->kind == RUN_IMPORT_ARTIFACT && b->kind == RUN_IMPORT_ARTIFACT && a->path && b->path &&
           a->what && b->what && strcmp(a->path, b->path) == 0 && strcmp(a->what, b->what) == 0;
}

/* Returns true when path `a` is path `b` or lies below `b`. */
static bool lies_in(const char *a, const char *b)
{
    size_t n = strlen(b);
    return strncmp(a, b, n) == 0 && (a[n] == '/' || a[n] == '\0');
}

bool run_file_keeps(const struct run_file *f, const struct run_import *im)
{
    bool is_imported = false, is_exported = false;
    for (size_t i = 0; i < f->imports.n; i++)
        is_imported = is_imported || is_same_artifact(&f->imports.items[i], im);
    for (size_t i = 0; i < f->exports.n; i++)
        is_exported = is_exported || is_same_artifact(&f->exports.items[i], im);
    return is_imported && is_exported;
}

static bool is_hf_home(const char *path)
{
    static const char tail[] = "/.cache/huggingface";
    size_t n = path ? strlen(path) : 0;
    return n >= strlen(tail) && strcmp(path + n - strlen(tail), tail) == 0;
}

const char *run_file_hf_home(const struct run_file *f)
{
    const char *found = NULL;
    for (size_t i = 0; i < f->exports.n; i++)
        found = is_hf_home(f->exports.items[i].path) ? f->exports.items[i].path : found;
    for (size_t i = 0; i < f->volumes.n; i++)
        found = is_hf_home(f->volumes.items[i].path) ? f->volumes.items[i].path : found;
    for (size_t i = 0; i < f->imports.n; i++)
        found = is_hf_home(f->imports.items[i].path) ? f->imports.items[i].path : found;
    for (size_t i = 0; i < f->env.n; i++)
        if (strcmp(f->env.items[i].name, "HF_HOME") == 0)
            return NULL;
    return found;
}

bool run_file_brings(const struct run_file *f, const char *path)
{
    for (size_t i = 0; i < f->imports.n; i++)
        if (f->imports.items[i].path && lies_in(path, f->imports.items[i].path))
            return true;
    for (size_t i = 0; i < f->volumes.n; i++)
        if (f->volumes.items[i].path && lies_in(path, f->volumes.items[i].path))
            return true;
    return false;
}

struct place {
    const char *path;
    struct yaml_mark at;
};

void run_check_places(struct run_reader *r)
{
    struct place all[2 * PLACES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < r->f->imports.n; i++)
        all[n++] = (struct place){r->f->imports.items[i].path, r->f->imports.items[i].at};
    for (size_t i = 0; i < r->f->volumes.n; i++)
        all[n++] = (struct place){r->f->volumes.items[i].path, r->f->volumes.items[i].at};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (all[i].path && all[k].path &&
                (lies_in(all[i].path, all[k].path) || lies_in(all[k].path, all[i].path)))
                run_problem(r->p, all[i].at,
                            "\"%.60s\" and \"%.60s\" of line %u are the same path or inside each "
                            "other. Use separate paths",
                            all[i].path, all[k].path, all[k].at.line);
}
