#include "cli/local_cluster.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/net/http_client.h"

enum { ASK_TIMEOUT_MS = 5000, ANSWER_LIMIT = 10 << 20, NAMES_BYTES = 300 };

static enum status call(const char *uds, const char *path, const char *body, int *code,
                        struct strbuf *answer, struct error *err)
{
    char url[128];
    snprintf(url, sizeof url, "http://localhost%s", path);
    const struct http_call c = {
        .url = url, .uds = uds, .body = str_from(body), .timeout_ms = ASK_TIMEOUT_MS};
    return http_client_call(&c, code, answer, err);
}

/* False: nobody answers there, or it is no `cox up`. */
static bool look_at(const char *socket, struct local_cluster *out)
{
    struct strbuf answer;
    struct error err;
    int code = 0;
    strbuf_init(&answer, ANSWER_LIMIT);
    bool ok = call(socket, "/", NULL, &code, &answer, &err) == STATUS_OK && code == 200;
    json_t *j = ok ? json_loadb(answer.ptr, answer.len, 0, NULL) : NULL;
    const char *admin = json_string_value(json_object_get(j, "admin"));
    if (admin) {
        snprintf(out->socket, sizeof out->socket, "%s", socket);
        snprintf(out->admin, sizeof out->admin, "%s", admin);
        out->workers = json_integer_value(json_object_get(j, "workers"));
        out->group = json_integer_value(json_object_get(j, "group"));
        out->group = out->group > 0 ? out->group : 1;
    }
    json_decref(j);
    strbuf_fini(&answer);
    return admin != NULL;
}

/* A folder of `cox up`, of this user: in a folder that all may write to others could have made it.
 */
static bool is_ours(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 0077) == 0;
}

enum status local_cluster_find(const char *address, struct local_cluster *out, struct error *err)
{
    const char *tmp = getenv("TMPDIR");
    tmp = tmp && tmp[0] ? tmp : "/tmp";
    struct strbuf names;
    uint32_t n = 0;
    strbuf_init(&names, NAMES_BYTES);
    DIR *d = opendir(tmp);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char folder[200], socket[220];
        struct local_cluster found;
        if ((strncmp(e->d_name, "cox-keys-", 9) != 0 && strncmp(e->d_name, "cox-up-", 7) != 0) ||
            snprintf(folder, sizeof folder, "%s/%s", tmp, e->d_name) >= (int)sizeof folder ||
            !is_ours(folder))
            continue;
        snprintf(socket, sizeof socket, "%s/control", folder);
        if (access(socket, F_OK) != 0 || !look_at(socket, &found) ||
            (address && strcmp(address, found.admin) != 0))
            continue;
        strbuf_printf(&names, "%s%s", n > 0 ? ", " : "", found.admin);
        *out = found;
        n++;
    }
    if (d)
        closedir(d);
    enum status s = STATUS_OK;
    if (n > 1)
        s = error_set(err, STATUS_INVALID, "%u clusters run here: which? --address " STR_FMT, n,
                      STR_ARG(strbuf_str(&names)));
    strbuf_fini(&names);
    if (n > 0)
        return s;
    return error_set(err, STATUS_NOT_FOUND,
                     "no cluster%s%s that `cox up` runs here as this user (control sockets in %s, "
                     "TMPDIR): start one, or ask as its user and with its TMPDIR",
                     address ? " at " : "", address ? address : "", tmp);
}

enum status local_cluster_ask(const struct local_cluster *c, const char *path, const char *body,
                              struct strbuf *answer, struct error *err)
{
    int code = 0;
    TRY(call(c->socket, path, body, &code, answer, err));
    if (code == 200)
        return STATUS_OK;
    json_t *j = json_loadb(answer->ptr ? answer->ptr : "", answer->len, 0, NULL);
    const char *text = json_string_value(json_object_get(j, "error"));
    enum status s = error_set(err, STATUS_INVALID, "%s", text ? text : "`cox up` refuses that");
    json_decref(j);
    return s;
}
