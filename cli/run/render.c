/* Converts a run file to Kubernetes objects (render.h names them).
 * `run_render` walks the file: volumes and imports, the model's pull, config and commands, then
 * the workload and its service. Each `add_…` function appends to the JSON arrays of `struct
 * renderer`.
 * Invariants: a part of the file that a pod cannot have is reported as a problem with its line.
 * Names are made valid and unique by `make_name`. Pods fit Pod Security's "restricted". `struct
 * renderer` owns each JSON value until the value is added to an object. The functions are pure
 * and may run on any thread. */
#include "cli/run/render.h"

#include <stdio.h>
#include <string.h>

#include "cli/run/file/file.h"
#include "cli/run/file/options.h"
#include "cli/run/file/places.h"
#include "cli/run/file/problems.h"
#include "cli/run/file/reader.h"
#include "common/base/version.h"
#include "common/model/info/ref.h"

enum { NAME_BYTES = 46, HASH_BYTES = 7, USER = 65532, GRACE_S = 60, READY_PERIOD_S = 2 };
#define CONFIG_PATH "/etc/coxswain/run"
#define CACHE_PATH  "/cache"

struct renderer {
    const struct run_render *r;
    const struct run_file *f;
    struct run_problems *p;
    struct run_reader texts; /* reader whose arena run_print uses */
    char name[NAME_BYTES];
    json_t *objects, *volumes, *mounts, *inits, *env, *secrets;
    const char *model; /* model for `cox up` in the pod; NULL = commands only */
    bool pulls;        /* an init container fetches the model into the cache */
};

/* ---- helpers ---- */

/* Makes a valid Kubernetes name from a user's name for a run or volume. */
static void make_name(const char *name, char out[NAME_BYTES])
{
    size_t n = 0;
    for (const char *from = name; *from && n < NAME_BYTES - 1; from++) {
        char c = (char)(*from >= 'A' && *from <= 'Z' ? *from - 'A' + 'a' : *from);
        bool is_letter = c >= 'a' && c <= 'z', is_digit = c >= '0' && c <= '9';
        if (is_letter || (is_digit && n > 0))
            out[n++] = c;
        else if (n > 0 && out[n - 1] != '-')
            out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-')
        n--;
    out[n] = '\0';
    if (strcmp(out, name) == 0)
        return;
    uint32_t hash = 2166136261u; /* FNV-1a hash; distinguishes names that would become equal */
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    n = n < NAME_BYTES - 1 - HASH_BYTES ? n : NAME_BYTES - 1 - HASH_BYTES;
    while (n > 0 && out[n - 1] == '-')
        n--;
    snprintf(out + n, HASH_BYTES + 1, "-%06x", (hash ^ hash >> 24) & 0xFFFFFF);
}

static json_t *labels(const struct renderer *k)
{
    return json_pack("{s:s, s:s, s:s}", "app.kubernetes.io/name", k->name,
                     "app.kubernetes.io/part-of", "coxswain", "app.kubernetes.io/managed-by",
                     "cox-run");
}

static json_t *selector(const struct renderer *k)
{
    return json_pack("{s:s, s:s}", "app.kubernetes.io/name", k->name,
                     "app.kubernetes.io/managed-by", "cox-run");
}

static json_t *metadata(const struct renderer *k, const char *name)
{
    json_t *m = json_pack("{s:s, s:o}", "name", name, "labels", labels(k));
    if (k->r->namespace_)
        (void)json_object_set_new(m, "namespace", json_string(k->r->namespace_));
    return m;
}

static json_t *annotations(const struct renderer *k)
{
    json_t *a = json_pack("{s:s}", "coxswain.io/run", k->f->name.s);
    struct strbuf tags;
    strbuf_init(&tags, 0);
    for (size_t i = 0; i < k->f->tags.n; i++)
        strbuf_printf(&tags, "%s%s", i ? "," : "", k->f->tags.items[i]);
    if (k->f->description.s)
        (void)json_object_set_new(a, "coxswain.io/description", json_string(k->f->description.s));
    if (tags.len > 0)
        (void)json_object_set_new(a, "coxswain.io/tags", json_string(tags.ptr));
    strbuf_fini(&tags);
    return a;
}

static json_t *object(struct renderer *k, const char *api, const char *kind, const char *name)
{
    json_t *o = json_pack("{s:s, s:s, s:o}", "apiVersion", api, "kind", kind, "metadata",
                          metadata(k, name));
    json_array_append_new(k->objects, o);
    return o;
}

static json_t *container_security(void)
{
    return json_pack("{s:b, s:b, s:{s:[s]}}", "allowPrivilegeEscalation", 0,
                     "readOnlyRootFilesystem", 1, "capabilities", "drop", "ALL");
}

static void add_volume(struct renderer *k, const char *name, json_t *owned_what, const char *path,
                       bool read_only)
{
    json_t *v = owned_what, *m = json_pack("{s:s, s:s}", "name", name, "mountPath", path);
    (void)json_object_set_new(v, "name", json_string(name));
    if (read_only)
        (void)json_object_set_new(m, "readOnly", json_true());
    json_array_append_new(k->volumes, v);
    json_array_append_new(k->mounts, m);
}

static bool is_mounted(const struct renderer *k, const char *path)
{
    const json_t *m;
    size_t i;
    json_array_foreach(k->mounts, i, m)
    {
        if (strcmp(json_string_value(json_object_get(m, "mountPath")), path) == 0)
            return true;
    }
    return false;
}

static void add_empty(struct renderer *k, const char *name, const char *path)
{
    add_volume(k, name, json_pack("{s:{}}", "emptyDir"), path, false);
}

/* Escapes a value, since Kubernetes expands $(X). In the result, $$ stands for a dollar. */
static const char *escaped(struct renderer *k, const char *s)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    for (; *s; s++)
        strbuf_append(&b, *s == '$' ? "$$" : s, *s == '$' ? 2 : 1);
    const char *out = run_print(&k->texts, "%s", strbuf_str(&b).ptr);
    strbuf_fini(&b);
    return out;
}

/* Appends `s` in single quotes for a shell. */
static void append_quoted(struct strbuf *b, const char *s)
{
    strbuf_append_c(b, "'");
    for (; *s; s++)
        if (*s == '\'')
            strbuf_append_c(b, "'\\''");
        else
            strbuf_append(b, s, 1);
    strbuf_append_c(b, "'");
}

/* ---- images ---- */

static const char *own_image(struct renderer *k)
{
    bool is_cuda = k->f->resources.gpus > 0;
    return run_print(&k->texts, "coxswain:%s%s", COX_VERSION, is_cuda ? "-cuda" : "");
}

static const char *image(struct renderer *k)
{
    return k->f->image.s ? k->f->image.s : own_image(k);
}

/* ---- environment ---- */

static void add_env(struct renderer *k)
{
    bool has_home = false;
    for (size_t i = 0; i < k->f->env.n; i++) {
        const struct run_env *e = &k->f->env.items[i];
        const char *taken = json_string_value(json_object_get(k->r->taken, e->name));
        const char *value = e->is_taken ? taken : e->value;
        has_home |= strcmp(e->name, "HOME") == 0;
        if (!value)
            continue;
        if (!e->is_secret) {
            json_array_append_new(
                k->env, json_pack("{s:s, s:s}", "name", e->name, "value", escaped(k, value)));
            continue;
        }
        (void)json_object_set_new(k->secrets, e->name, json_string(value));
        json_array_append_new(k->env,
                              json_pack("{s:s, s:{s:{s:s, s:s}}}", "name", e->name, "valueFrom",
                                        "secretKeyRef", "name", k->name, "key", e->name));
    }
    if (run_file_hf_home(k->f))
        json_array_append_new(
            k->env, json_pack("{s:s, s:s}", "name", "HF_HOME", "value", run_file_hf_home(k->f)));
    if (!has_home) /* /tmp is the only writable folder, so it replaces the image's HOME */
        json_array_append_new(k->env, json_pack("{s:s, s:s}", "name", "HOME", "value", "/tmp"));
}

/* ---- imports and volumes ---- */

/* Returns the volume that is mounted at `path`: a volume of the run file, or else `ours`. */
static const char *volume_at(struct renderer *k, const char *path, const char *ours)
{
    for (size_t i = 0; i < k->f->imports.n; i++)
        if (strcmp(k->f->imports.items[i].path, path) == 0)
            return run_print(&k->texts, "import-%zu", i);
    for (size_t i = 0; i < k->f->volumes.n; i++)
        if (strcmp(k->f->volumes.items[i].path, path) == 0)
            return run_print(&k->texts, "volume-%zu", i);
    return ours;
}

/* Adds an init container that imports a repository with the image's git, with the same commands
 * as `cox run` on a machine. */
static void import_git(struct renderer *k, const struct run_import *im, const char *volume)
{
    const char *with = k->r->git_image ? k->r->git_image : k->f->image.s;
    struct strbuf b;
    if (!with) {
        run_problem(k->p, im->at,
                    "in a pod, a git import needs an image with `git` and a shell. Give `image` or "
                    "--git-image");
        return;
    }
    if (im->what[0] == '/' || strncmp(im->what, "file:", 5) == 0) {
        run_problem(k->p, im->at, "%.60s is on this machine, so a pod cannot read it", im->what);
        return;
    }
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "git init -q -- ");
    append_quoted(&b, im->path);
    strbuf_append_c(&b, " && cd ");
    append_quoted(&b, im->path);
    strbuf_append_c(&b, " && git fetch -q --depth 1 --no-tags -- ");
    append_quoted(&b, im->what);
    strbuf_append_c(&b, " ");
    append_quoted(&b, im->ref ? im->ref : "HEAD");
    strbuf_append_c(&b, " && git checkout -q --detach FETCH_HEAD");
    json_t *env = json_array();
    static const char *const own[][2] = {{"HOME", "/tmp"},
                                         {"GIT_TERMINAL_PROMPT", "0"},
                                         {"GIT_ALLOW_PROTOCOL", "https:ssh"},
                                         /* git must trust the folder: the folder of a volume is
                                          * owned by root and the pod's group */
                                         {"GIT_CONFIG_COUNT", "1"},
                                         {"GIT_CONFIG_KEY_0", "safe.directory"},
                                         {"GIT_CONFIG_VALUE_0", "*"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        json_array_append_new(env, json_pack("{s:s, s:s}", "name", own[i][0], "value", own[i][1]));
    json_t *mounts = json_pack("[{s:s, s:s}]", "name", volume, "mountPath", im->path);
    if (strcmp(im->path, "/tmp") != 0)
        json_array_append_new(mounts, json_pack("{s:s, s:s}", "name", volume_at(k, "/tmp", "tmp"),
                                                "mountPath", "/tmp"));
    json_array_append_new(
        k->inits, json_pack("{s:s, s:s, s:[s,s,s,s], s:o, s:o, s:o}", "name",
                            run_print(&k->texts, "git-%s", volume), "image", with, "command",
                            "/bin/sh", "-e", "-c", escaped(k, strbuf_str(&b).ptr), "env", env,
                            "volumeMounts", mounts, "securityContext", container_security()));
    strbuf_fini(&b);
}

/* Mounts the claim with the artifact's name. It is read-only unless the artifact is exported. */
static void mount_artifact(struct renderer *k, const struct run_import *im, const char *volume,
                           bool is_read_only)
{
    char claim[NAME_BYTES];
    make_name(im->what, claim);
    run_note(k->p, im->at, "a pod reads the artifact %s from the claim %s, which must exist",
             im->what, claim);
    add_volume(k, volume, json_pack("{s:{s:s}}", "persistentVolumeClaim", "claimName", claim),
               im->path, is_read_only);
}

static void add_exports(struct renderer *k)
{
    for (size_t i = 0; i < k->f->exports.n; i++) {
        const struct run_import *ex = &k->f->exports.items[i];
        bool is_artifact = ex->kind == RUN_IMPORT_ARTIFACT;
        if (is_artifact && run_file_keeps(k->f, ex))
            continue; /* the artifact is already mounted by its import */
        if (is_artifact && !run_file_brings(k->f, ex->path) && !is_mounted(k, ex->path))
            mount_artifact(k, ex, run_print(&k->texts, "export-%zu", i), false);
        else
            run_note(k->p, ex->at,
                     "a pod exports nothing. Use a volume with `claim` to keep these files");
    }
}

static void add_imports(struct renderer *k)
{
    for (size_t i = 0; i < k->f->imports.n; i++) {
        const struct run_import *im = &k->f->imports.items[i];
        const char *volume = run_print(&k->texts, "import-%zu", i);
        bool is_model = im->kind == RUN_IMPORT_MODEL;
        if (is_model && k->f->model.s && strcmp(k->f->model.s, im->path) == 0) {
            k->model = im->what; /* `cox up` finds the model in the cache by its name */
            continue;
        }
        if (im->kind == RUN_IMPORT_ARTIFACT) {
            mount_artifact(k, im, volume, !run_file_keeps(k->f, im));
            continue;
        }
        if (is_model)
            run_problem(k->p, im->at,
                        "a pod cannot import a model. Use `model: %.60s`, or a volume with `claim` "
                        "that contains the model",
                        im->what);
        else if (im->kind == RUN_IMPORT_FILE)
            run_problem(
                k->p, im->at,
                "%.60s is on this machine, so a pod cannot read it. Use a volume with `claim`",
                im->what);
        else
            import_git(k, im, volume);
        add_empty(k, volume, im->path);
    }
    add_exports(k);
}

static void add_volumes(struct renderer *k)
{
    for (size_t i = 0; i < k->f->volumes.n; i++) {
        const struct run_volume *v = &k->f->volumes.items[i];
        const char *name = run_print(&k->texts, "volume-%zu", i);
        const char *claim = v->what;
        if (v->kind == RUN_VOLUME_HOST) {
            run_note(k->p, v->at,
                     "Kubernetes rejects a hostPath volume where Pod Security is baseline or "
                     "restricted. Use `claim` or `size` there");
            add_volume(k, name, json_pack("{s:{s:s}}", "hostPath", "path", v->what), v->path,
                       false);
            continue;
        }
        if (v->kind == RUN_VOLUME_SIZE) {
            claim = run_print(&k->texts, "%s-%zu", k->name, i);
            json_t *o = object(k, "v1", "PersistentVolumeClaim", claim);
            (void)json_object_set_new(o, "spec",
                                      json_pack("{s:[s], s:{s:{s:s}}}", "accessModes",
                                                "ReadWriteOnce", "resources", "requests", "storage",
                                                v->what));
        }
        add_volume(k, name, json_pack("{s:{s:s}}", "persistentVolumeClaim", "claimName", claim),
                   v->path, false);
    }
}

/* Adds an empty, writable volume for each workdir that no import or volume has. */
static void add_workdirs(struct renderer *k)
{
    for (size_t i = 0; i < k->f->commands.n; i++) {
        const char *dir = k->f->commands.items[i].workdir;
        bool is_there = !dir || run_file_brings(k->f, dir) || strcmp(dir, "/tmp") == 0 ||
                        strncmp(dir, "/tmp/", 5) == 0;
        for (size_t j = 0; j < i && !is_there; j++)
            is_there = k->f->commands.items[j].workdir &&
                       strcmp(k->f->commands.items[j].workdir, dir) == 0;
        if (!is_there && !is_mounted(k, dir))
            add_empty(k, run_print(&k->texts, "workdir-%zu", i), dir);
    }
}

/* ---- the model ---- */

static void add_pull(struct renderer *k)
{
    struct model_ref ref;
    struct error err;
    if (!k->model || model_ref_parse(k->model, &ref, &err) != STATUS_OK)
        return;
    bool is_path = ref.kind == MODEL_REF_PATH && !run_file_brings(k->f, k->model);
    k->pulls = run_file_pulls(k->f, &ref);
    model_ref_fini(&ref);
    if (is_path)
        run_problem(k->p, k->f->model.at,
                    "%.60s is on this machine, so a pod cannot read it. Use `model: hf:ORG/NAME`, "
                    "or a volume with `claim` that contains the model",
                    k->model);
    if (!k->pulls)
        return;
    const char *cache = k->f->up.cache_dir;
    if (!cache)
        cache = CACHE_PATH;
    /* a workdir at this path already has a volume */
    if (!run_file_brings(k->f, cache) && !is_mounted(k, cache))
        add_empty(k, "cache", cache);
    json_array_append_new(k->inits,
                          json_pack("{s:s, s:s, s:[s,s,s,s,s], s:O, s:O, s:o}", "name", "pull",
                                    "image", image(k), "command", "/usr/bin/cox", "pull", k->model,
                                    "--cache-dir", cache, "env", k->env, "volumeMounts", k->mounts,
                                    "securityContext", container_security()));
}

/* Returns the text of the pod's up.yaml: the run file's options, and the options that only a pod
 * needs. */
static const char *pod_options(struct renderer *k)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    run_file_options(k->f, &b);
    json_t *all = json_loads(strbuf_str(&b).ptr, 0, NULL);
    bool has_host = json_object_get(all, "host") != NULL;
    bool has_cache = k->f->up.cache_dir != NULL;
    strbuf_reset(&b);
    for (size_t i = 0; i < k->f->options.n; i++)
        strbuf_printf(&b, "%s: %s\n", k->f->options.items[i].name, k->f->options.items[i].json);
    if (!has_host)
        strbuf_append_c(&b, "host: 0.0.0.0\n");
    if (k->pulls && !has_cache)
        strbuf_append_c(&b, "cache-dir: " CACHE_PATH "\n");
    const char *out = run_print(&k->texts, "%s", strbuf_str(&b).ptr);
    json_decref(all);
    strbuf_fini(&b);
    return out;
}

/* ---- the commands ---- */

static const char *script(struct renderer *k)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "set -e\n");
    for (size_t i = 0; i < k->f->commands.n; i++) {
        const struct run_command *c = &k->f->commands.items[i];
        strbuf_append_c(&b, "( cd ");
        append_quoted(&b, c->workdir ? c->workdir : "/tmp");
        strbuf_append_c(&b, " && exec /bin/sh -e -c ");
        append_quoted(&b, c->command);
        strbuf_append_c(&b, " )\n");
    }
    const char *out = run_print(&k->texts, "%s", strbuf_str(&b).ptr);
    strbuf_fini(&b);
    return out;
}

static void add_config(struct renderer *k)
{
    json_t *data = json_object();
    if (k->model)
        (void)json_object_set_new(data, "up.yaml", json_string(pod_options(k)));
    if (k->f->commands.n > 0)
        (void)json_object_set_new(data, "run.sh", json_string(script(k)));
    (void)json_object_set_new(object(k, "v1", "ConfigMap", k->name), "data", data);
    add_volume(k, "config", json_pack("{s:{s:s}}", "configMap", "name", k->name), CONFIG_PATH,
               true);
}

/* Adds the commands as an init container when the pod also serves a model. */
static void add_commands_before(struct renderer *k)
{
    if (!k->model || k->f->commands.n == 0)
        return;
    if (!k->f->image.s) {
        run_problem(
            k->p, k->f->commands.items[0].at,
            "in a pod, commands need an `image` with a shell; Coxswain's own image has none");
        return;
    }
    json_array_append_new(k->inits,
                          json_pack("{s:s, s:s, s:[s,s], s:O, s:O, s:o}", "name", "commands",
                                    "image", k->f->image.s, "command", "/bin/sh",
                                    CONFIG_PATH "/run.sh", "env", k->env, "volumeMounts", k->mounts,
                                    "securityContext", container_security()));
}

/* ---- ports, resources ---- */

static bool is_left_out(const struct renderer *k, const struct run_port *p)
{
    return k->f->monitoring && strcmp(p->name, "prometheus") == 0;
}

static json_t *container_ports(const struct renderer *k)
{
    json_t *all = json_array();
    for (size_t i = 0; i < k->f->ports.n; i++)
        if (!is_left_out(k, &k->f->ports.items[i]))
            json_array_append_new(all, json_pack("{s:s, s:i}", "name", k->f->ports.items[i].name,
                                                 "containerPort", k->f->ports.items[i].port));
    if (k->model && json_array_size(all) == 0 && !k->f->up.uds)
        json_array_append_new(all, json_pack("{s:s, s:I}", "name", "api", "containerPort",
                                             (json_int_t)k->f->up.port));
    return all;
}

static void add_service(struct renderer *k, const json_t *ports)
{
    json_t *all = json_array(), *port;
    size_t i;
    json_array_foreach(ports, i, port) json_array_append_new(
        all, json_pack("{s:O, s:O, s:O}", "name", json_object_get(port, "name"), "port",
                       json_object_get(port, "containerPort"), "targetPort",
                       json_object_get(port, "name")));
    if (i == 0) {
        json_decref(all);
        return;
    }
    (void)json_object_set_new(object(k, "v1", "Service", k->name), "spec",
                              json_pack("{s:o, s:o}", "selector", selector(k), "ports", all));
}

static json_t *resources(const struct renderer *k)
{
    const struct run_resources *r = &k->f->resources;
    json_t *requests = json_object(), *limits = json_object();
    if (r->cpu.s)
        (void)json_object_set_new(requests, "cpu", json_string(r->cpu.s));
    if (r->memory.s) {
        (void)json_object_set_new(requests, "memory", json_string(r->memory.s));
        (void)json_object_set_new(limits, "memory", json_string(r->memory.s));
    }
    if (r->gpus > 0)
        (void)json_object_set_new(limits, "nvidia.com/gpu", json_sprintf("%d", (int)r->gpus));
    return json_pack("{s:o, s:o}", "requests", requests, "limits", limits);
}

/* ---- the pod ---- */

static json_t *main_container(struct renderer *k)
{
    json_t *command = k->model ? json_pack("[s,s,s,s,s]", "/usr/bin/cox", "up", k->model,
                                           "--config", CONFIG_PATH "/up.yaml")
                               : json_pack("[s,s]", "/bin/sh", CONFIG_PATH "/run.sh");
    json_t *ports = container_ports(k);
    add_service(k, ports);
    json_t *c =
        json_pack("{s:s, s:s, s:o, s:O, s:O, s:o, s:o, s:o}", "name", "run", "image", image(k),
                  "command", command, "env", k->env, "volumeMounts", k->mounts, "ports", ports,
                  "resources", resources(k), "securityContext", container_security());
    if (k->model && !k->f->up.uds && k->f->up.ssl.cert_reqs != 2)
        (void)json_object_set_new(c, "readinessProbe",
                                  json_pack("{s:{s:s, s:I, s:s}, s:i}", "httpGet", "path",
                                            "/health", "port", (json_int_t)k->f->up.port, "scheme",
                                            k->f->up.ssl.certfile ? "HTTPS" : "HTTP",
                                            "periodSeconds", READY_PERIOD_S));
    return c;
}

static json_t *pod_annotations(const struct renderer *k)
{
    json_t *a = annotations(k);
    if (!k->f->monitoring)
        return a;
    uint16_t port = k->model ? (uint16_t)k->f->up.port : 0;
    for (size_t i = 0; i < k->f->ports.n && port == 0; i++)
        if (!is_left_out(k, &k->f->ports.items[i]) && k->f->ports.items[i].is_http)
            port = k->f->ports.items[i].port;
    if (port == 0)
        return a;
    (void)json_object_set_new(a, "prometheus.io/scrape", json_string("true"));
    (void)json_object_set_new(a, "prometheus.io/port", json_sprintf("%u", port));
    (void)json_object_set_new(a, "prometheus.io/path", json_string("/metrics"));
    return a;
}

static json_t *pod_template(struct renderer *k)
{
    json_t *containers = json_pack("[o]", main_container(k));
    json_t *spec = json_pack(
        "{s:b, s:b, s:i, s:{s:b, s:i, s:i, s:i, s:s, s:{s:s}}, s:o, s:O}",
        "automountServiceAccountToken", 0, "enableServiceLinks", 0, "terminationGracePeriodSeconds",
        GRACE_S, "securityContext", "runAsNonRoot", 1, "runAsUser", USER, "runAsGroup", USER,
        "fsGroup", USER, "fsGroupChangePolicy", "OnRootMismatch", "seccompProfile", "type",
        "RuntimeDefault", "containers", containers, "volumes", k->volumes);
    if (json_array_size(k->inits) > 0)
        (void)json_object_set(spec, "initContainers", k->inits);
    if (!k->model)
        (void)json_object_set_new(spec, "restartPolicy", json_string("Never"));
    return json_pack("{s:{s:o, s:o}, s:o}", "metadata", "labels", labels(k), "annotations",
                     pod_annotations(k), "spec", spec);
}

static void add_workload(struct renderer *k)
{
    json_t *template = pod_template(k);
    json_t *o = k->model ? object(k, "apps/v1", "Deployment", k->name)
                         : object(k, "batch/v1", "Job", k->name);
    (void)json_object_set_new(json_object_get(o, "metadata"), "annotations", annotations(k));
    (void)json_object_set_new(
        o, "spec",
        k->model
            ? json_pack("{s:i, s:{s:s}, s:{s:o}, s:o}", "replicas", 1, "strategy", "type",
                        "Recreate", "selector", "matchLabels", selector(k), "template", template)
            : json_pack("{s:i, s:o}", "backoffLimit", 0, "template", template));
}

static void check_own_place(struct renderer *k, const char *path, struct yaml_mark at)
{
    if (strcmp(path, CONFIG_PATH) == 0)
        run_problem(k->p, at,
                    "in a pod, " CONFIG_PATH " contains the run's own options. Use another path");
}

static void check_file(struct renderer *k)
{
    for (size_t i = 0; i < k->f->imports.n; i++)
        check_own_place(k, k->f->imports.items[i].path, k->f->imports.items[i].at);
    for (size_t i = 0; i < k->f->volumes.n; i++)
        check_own_place(k, k->f->volumes.items[i].path, k->f->volumes.items[i].at);
    for (size_t i = 0; i < k->f->exports.n; i++)
        check_own_place(k, k->f->exports.items[i].path, k->f->exports.items[i].at);
    make_name(k->f->name.s, k->name);
    if (!k->model && !k->f->image.s && k->f->commands.n > 0)
        run_problem(
            k->p, k->f->commands.items[0].at,
            "in a pod, commands need an `image` with a shell; Coxswain's own image has none");
    if (k->f->monitoring)
        run_note(k->p, k->f->name.at,
                 "in a pod, `monitoring` only adds annotations for a Prometheus that reads them. "
                 "deploy/helm has monitors, rules and dashboards");
}

void run_render(const struct run_render *r, json_t **owned_objects, struct run_problems *p)
{
    struct renderer k = {.r = r,
                         .f = r->file,
                         .p = p,
                         .texts = {.arena = r->arena},
                         .objects = json_array(),
                         .volumes = json_array(),
                         .mounts = json_array(),
                         .inits = json_array(),
                         .env = json_array(),
                         .secrets = json_object(),
                         .model = r->file->model.s};
    check_file(&k);
    add_env(&k);
    if (strcmp(volume_at(&k, "/tmp", ""), "") == 0)
        add_empty(&k, "tmp", "/tmp");
    if (k.model && strcmp(volume_at(&k, "/dev/shm", ""), "") == 0)
        add_volume(&k, "shm", json_pack("{s:{s:s}}", "emptyDir", "medium", "Memory"), "/dev/shm",
                   false);
    add_imports(&k);
    add_volumes(&k);
    add_workdirs(&k);
    add_pull(&k); /* the containers that are added later have all these mounts */
    add_config(&k);
    add_commands_before(&k);
    if (json_object_size(k.secrets) > 0)
        (void)json_object_set(object(&k, "v1", "Secret", k.name), "stringData", k.secrets);
    add_workload(&k);
    json_decref(k.volumes);
    json_decref(k.mounts);
    json_decref(k.inits);
    json_decref(k.env);
    json_decref(k.secrets);
    *owned_objects = k.objects;
}
