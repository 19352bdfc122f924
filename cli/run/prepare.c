#include "cli/run/prepare.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/pull/place.h"
#include "cli/run/file/options.h"
#include "common/base/clock.h"

static json_t *ports_json(const struct run_file *f)
{
    json_t *all = json_array();
    const char *host =
        f->model.s && f->up.host && strcmp(f->up.host, "0.0.0.0") != 0 ? f->up.host : "127.0.0.1";
    bool has_prometheus = false, is_v6 = strchr(host, ':') && host[0] != '[';
    char url[400];
    for (size_t i = 0; i < f->ports.n; i++) {
        const struct run_port *p = &f->ports.items[i];
        bool is_own = f->monitoring && strcmp(p->name, "prometheus") == 0;
        has_prometheus |= is_own;
        const char *scheme = !p->is_http                    ? ""
                             : i == 0 && f->up.ssl.certfile ? "https://"
                                                            : "http://";
        snprintf(url, sizeof url, is_v6 && !is_own ? "%s[%.300s]:%u" : "%s%.300s:%u", scheme,
                 is_own ? "127.0.0.1" : host, p->port);
        json_array_append_new(all,
                              json_pack("{s:s, s:s, s:i, s:s}", "name", p->name, "type",
                                        p->is_http ? "http" : "tcp", "port", p->port, "url", url));
    }
    if (f->model.s && f->ports.n == (has_prometheus ? 1u : 0u) && !f->up.uds) {
        snprintf(url, sizeof url, "http://%.300s:%lld", host, (long long)f->up.port);
        json_array_insert_new(all, 0,
                              json_pack("{s:s, s:s, s:I, s:s}", "name", "api", "type", "http",
                                        "port", (json_int_t)f->up.port, "url", url));
    }
    if (f->monitoring && !has_prometheus)
        json_array_append_new(all, json_pack("{s:s, s:s, s:i, s:s}", "name", "prometheus", "type",
                                             "http", "port", 9090, "url", "http://127.0.0.1:9090"));
    return all;
}

/* Returns the environment for `cox run show`: names without values. Any value may be secret,
 * whatever its name is. */
static json_t *env_json(const struct run_file *f)
{
    json_t *all = json_object();
    for (size_t i = 0; i < f->env.n; i++)
        (void)json_object_set_new(all, f->env.items[i].name, json_string("***"));
    return all;
}

static json_t *first_state(const struct run_start *r)
{
    const struct run_file *f = &r->source->file;
    json_t *tags = json_array(), *state;
    char cwd[RUN_PATH_BYTES] = "/";
    struct run_process me;
    (void)run_process_read(getpid(), &me);
    if (!getcwd(cwd, sizeof cwd))
        cwd[0] = '\0';
    for (size_t i = 0; i < f->tags.n; i++)
        json_array_append_new(tags, json_string(f->tags.items[i]));
    state = json_pack(
        "{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:f, s:o, s:s, s:s, s:b, s:o, s:o}", "id", r->id,
        "name", f->name.s, "description", f->description.s ? f->description.s : "", "tags", tags,
        "type", f->model.s ? "model" : "command", "model", f->model.s ? f->model.s : "", "status",
        run_status_name(RUN_PENDING), "created", (double)clock_wall_ns() / 1e9, "keeper",
        run_process_json(&me), "file", r->path, "cwd", cwd, "foreground", r->in_foreground, "ports",
        ports_json(f), "env", env_json(f));
    return state;
}

enum status run_prepare(struct run_start *r, struct error *err)
{
    struct strbuf options;
    TRY(run_store_new(r->store, r->id, r->folder, err));
    json_t *state = first_state(r);
    strbuf_init(&options, 0);
    run_file_options(&r->source->file, &options);
    enum status s = run_store_write(r->folder, "run.yaml", strbuf_str(&r->source->text), err);
    if (s == STATUS_OK)
        s = run_store_write(r->folder, "up.yaml", strbuf_str(&options), err);
    if (s == STATUS_OK)
        s = run_store_write_json(r->folder, "env.json", r->taken, err);
    if (s == STATUS_OK)
        s = state ? run_store_write_state(r->folder, state, false, err)
                  : error_set(err, STATUS_INVALID,
                              "the run file %s contains text that is not UTF-8. Save it as UTF-8",
                              r->path);
    if (s != STATUS_OK) /* without a state, the folder is never listed, so it is removed */
        pull_remove_tree(r->folder);
    strbuf_fini(&options);
    json_decref(state);
    return s;
}
