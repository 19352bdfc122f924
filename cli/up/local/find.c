/* Finds the clusters of `cox up` on this machine by their control sockets.
 * `local_cluster_list` sends a request to the socket in each cluster's folder in TMPDIR.
 * `local_cluster_find` chooses a cluster by name or address, and `local_cluster_ask` sends a
 * request to it.
 * Invariants: a folder is read only when it belongs to this user and no other user may enter the
 * folder. Text from a socket is cut, and its control characters are replaced. Calls block for a
 * bounded time. The caller frees lists and JSON. */
#include "cli/up/local/find.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/natural.h"
#include "cli/client/admin.h"
#include "cli/client/gateway_access.h"
#include "common/base/mem.h"
#include "common/http/client/client.h"

enum { ASK_TIMEOUT_MS = 5000, ANSWER_LIMIT = 10 << 20, NAMES_BYTES = 600 };

static enum status call(const char *uds, const char *path, const char *body, uint32_t wait_ms,
                        int *code, struct strbuf *answer, struct error *err)
{
    char url[128];
    snprintf(url, sizeof url, "http://localhost%s", path);
    const struct http_call c = {
        .url = url, .uds = uds, .body = str_from(body), .timeout_ms = wait_ms};
    return http_client_call(&c, code, answer, err);
}

static void copy_text(const json_t *j, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(j, key));
    snprintf(out, size, "%s", text ? text : "");
    /* control characters are replaced, since the text is printed on a terminal */
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
}

/* Requests the description of the cluster from its socket. Returns NULL when there is no answer,
 * or when the answer is not from `cox up`. The caller owns the JSON. */
static json_t *about(const char *socket, uint32_t wait_ms)
{
    struct strbuf answer;
    struct error err;
    int code = 0;
    strbuf_init(&answer, ANSWER_LIMIT);
    bool ok = call(socket, "/", NULL, wait_ms, &code, &answer, &err) == STATUS_OK && code == 200;
    json_t *j = ok ? json_loadb(answer.ptr, answer.len, 0, NULL) : NULL;
    strbuf_fini(&answer);
    if (json_is_string(json_object_get(j, "admin")))
        return j;
    json_decref(j);
    return NULL;
}

static bool look_at(const char *socket, uint32_t wait_ms, struct local_cluster *out)
{
    json_t *j = about(socket, wait_ms);
    *out = (struct local_cluster){.replica_ranks = 1};
    if (!j)
        return false;
    snprintf(out->socket, sizeof out->socket, "%s", socket);
    copy_text(j, "admin", out->admin, sizeof out->admin);
    copy_text(j, "name", out->name, sizeof out->name);
    copy_text(j, "model", out->model, sizeof out->model);
    copy_text(j, "url", out->url, sizeof out->url);
    copy_text(j, "state", out->state, sizeof out->state);
    copy_text(j, "log", out->log_file, sizeof out->log_file);
    out->pid = json_integer_value(json_object_get(j, "pid"));
    out->uptime_s = json_integer_value(json_object_get(j, "uptime_s"));
    out->workers = json_integer_value(json_object_get(j, "workers"));
    out->replica_ranks = json_integer_value(json_object_get(j, "group"));
    out->replica_ranks = out->replica_ranks > 0 ? out->replica_ranks : 1;
    out->max_replicas = json_integer_value(json_object_get(j, "max_groups"));
    json_decref(j);
    return true;
}

/* Returns true for a private folder of this user. Every user may write to TMPDIR, so another
 * user could have made the folder. */
static bool is_ours(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 0077) == 0;
}

const char *local_cluster_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp && tmp[0] ? tmp : "/tmp";
}

static int by_name(const void *a, const void *b)
{
    const struct local_cluster *x = a, *y = b;
    int order = natural_compare(x->name, y->name);
    return order != 0 ? order : natural_compare(x->admin, y->admin);
}

size_t local_cluster_list(uint32_t wait_ms, struct local_cluster **owned_list)
{
    const char *tmp = local_cluster_folder();
    struct local_cluster *all = NULL, found;
    size_t n = 0;
    DIR *d = opendir(tmp);
    for (const struct dirent *e; d && (e = readdir(d)) && n < LOCAL_CLUSTERS_MAX;) {
        char folder[200], socket[220];
        if ((strncmp(e->d_name, "cox-keys-", 9) != 0 && strncmp(e->d_name, "cox-up-", 7) != 0) ||
            snprintf(folder, sizeof folder, "%s/%s", tmp, e->d_name) >= (int)sizeof folder ||
            !is_ours(folder))
            continue;
        snprintf(socket, sizeof socket, "%s/control", folder);
        if (access(socket, F_OK) != 0 || !look_at(socket, wait_ms, &found))
            continue;
        all = mem_realloc(all, (n + 1) * sizeof *all);
        all[n++] = found;
    }
    if (d)
        closedir(d);
    if (n > 0)
        qsort(all, n, sizeof *all, by_name);
    *owned_list = all;
    return n;
}

static bool is_meant(const struct local_cluster *c, const char *name, const char *address)
{
    return (!name || strcmp(name, c->name) == 0) && (!address || strcmp(address, c->admin) == 0);
}

/* Appends the names and addresses of the matching clusters: "demo (127.0.0.1:8265), demo-2
 * (127.0.0.1:9265)". */
static void append_names(const struct local_cluster *all, size_t n, const char *name,
                         const char *address, struct strbuf *out)
{
    for (size_t i = 0; i < n; i++)
        if (is_meant(&all[i], name, address))
            strbuf_printf(out, "%s%s (%s)", out->len > 0 ? ", " : "",
                          all[i].name[0] ? all[i].name : "-", all[i].admin);
}

/* Appends the search terms to an error text: " with the name NAME at ADDRESS", without a part
 * that is NULL. */
static void append_wish(const char *name, const char *address, struct strbuf *out)
{
    if (name)
        strbuf_printf(out, " with the name %.60s", name);
    if (address)
        strbuf_printf(out, " at %.100s", address);
    strbuf_append(out, "", 1);
}

/* Makes the error for a cluster that was not found. The text names the existing clusters. */
static enum status none_is_meant(const char *name, const char *address,
                                 const struct local_cluster *all, size_t n, struct error *err)
{
    struct strbuf wish, names;
    enum status s;
    strbuf_init(&wish, 0);
    strbuf_init(&names, NAMES_BYTES);
    append_wish(name, address, &wish);
    append_names(all, n, NULL, NULL, &names);
    if (n > 0)
        s = error_set(err, STATUS_NOT_FOUND,
                      "this user runs no cluster%s on this machine. Running clusters: " STR_FMT,
                      wish.ptr, STR_ARG(strbuf_str(&names)));
    else
        s = error_set(err, STATUS_NOT_FOUND,
                      "this user runs no cluster%s on this machine (searched for control sockets "
                      "in %s, TMPDIR). Start one with `cox up`, or run this command as the "
                      "cluster's user and with its TMPDIR",
                      wish.ptr, local_cluster_folder());
    strbuf_fini(&names);
    strbuf_fini(&wish);
    return s;
}

enum status local_cluster_find(const char *name, const char *address, struct local_cluster *out,
                               struct error *err)
{
    struct local_cluster *all;
    size_t n = local_cluster_list(ASK_TIMEOUT_MS, &all), n_meant = 0;
    enum status s = STATUS_OK;
    for (size_t i = 0; i < n; i++)
        if (is_meant(&all[i], name, address) && n_meant++ == 0)
            *out = all[i];
    if (n_meant > 1) {
        struct strbuf names;
        strbuf_init(&names, NAMES_BYTES);
        append_names(all, n, name, address, &names);
        s = error_set(err, STATUS_INVALID,
                      "%zu clusters match. Give the name or --address of one of them: " STR_FMT,
                      n_meant, STR_ARG(strbuf_str(&names)));
        strbuf_fini(&names);
    } else if (n_meant == 0) {
        s = none_is_meant(name, address, all, n, err);
    }
    mem_free(all);
    return s;
}

json_t *local_cluster_processes(const struct local_cluster *c)
{
    json_t *j = about(c->socket, ASK_TIMEOUT_MS);
    json_t *names = json_incref(json_object_get(j, "processes"));
    json_decref(j);
    return names;
}

bool local_cluster_is_there(const struct local_cluster *c)
{
    json_t *j = access(c->socket, F_OK) == 0 ? about(c->socket, ASK_TIMEOUT_MS) : NULL;
    json_decref(j);
    return j != NULL;
}

enum status local_cluster_ask(const struct local_cluster *c, const char *path, const char *body,
                              struct strbuf *answer, struct error *err)
{
    int code = 0;
    TRY(call(c->socket, path, body, ASK_TIMEOUT_MS, &code, answer, err));
    if (code == 200)
        return STATUS_OK;
    json_t *j = json_loadb(answer->ptr ? answer->ptr : "", answer->len, 0, NULL);
    const char *text = json_string_value(json_object_get(j, "error"));
    enum status s = error_set(
        err,
        code == 409   ? STATUS_EXISTS
        : code == 404 ? STATUS_NOT_FOUND
                      : STATUS_INVALID,
        "%s", text ? text : "`cox up` rejected the request without a reason. See its log");
    json_decref(j);
    return s;
}

void local_cluster_hint(const char *command, const char *flag, const char *tried)
{
    bool is_url = strcmp(flag, "url") == 0;
    if (strcmp(tried, is_url ? GATEWAY_USUAL_URL : ADMIN_USUAL_ADDRESS) != 0)
        return;
    struct local_cluster *all;
    size_t n = local_cluster_list(ASK_TIMEOUT_MS, &all);
    for (size_t i = 0; i < n; i++) {
        const char *at = is_url ? all[i].url : all[i].admin;
        if (at[0] && strcmp(at, tried) != 0)
            fprintf(stderr, "cox %s: your cluster %s is at %s. Use --%s %s\n", command,
                    all[i].name[0] ? all[i].name : "-", at, flag, at);
    }
    mem_free(all);
}
