#include "cli/admin_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/status_view.h"
#include "common/net/http_client.h"

enum { CALL_TIMEOUT_MS = 5000, ANSWER_LIMIT = 64 << 20, KEY_BYTES = 512 };

static enum status read_key(const char *path, char *out, size_t size, struct error *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(err, STATUS_IO, "%s: %s (--admin-key-file, COX_ADMIN_KEY_FILE)", path,
                         strerror(errno));
    bool got = fgets(out, (int)size, f) != NULL;
    fclose(f);
    if (got)
        out[strcspn(out, "\r\n \t")] = '\0';
    if (!got || !out[0])
        return error_set(err, STATUS_INVALID,
                         "%s holds no key (--admin-key-file, COX_ADMIN_KEY_FILE)", path);
    return STATUS_OK;
}

/* What is to be done about a key that was not taken, by where it came from. */
static enum status refuse(const struct admin_access *o, const char *url, struct error *err)
{
    static const char gateway[] =
        "or is that a gateway, not the head's admin port (--address, the head's --admin-port)?";
    if (o->admin_key)
        return error_set(err, STATUS_DENIED,
                         "%s does not take this admin key (--admin-key, COX_ADMIN_KEY): it has to "
                         "be the one in the file that the head was given as --admin-key-file; %s",
                         url, gateway);
    if (o->admin_key_file)
        return error_set(err, STATUS_DENIED,
                         "%s does not take the admin key in %.200s (--admin-key-file, "
                         "COX_ADMIN_KEY_FILE): give the file that the head was given; %s",
                         url, o->admin_key_file, gateway);
    return error_set(err, STATUS_DENIED,
                     "%s wants the admin key: give the file that the head was given, as "
                     "--admin-key-file FILE or COX_ADMIN_KEY_FILE, or the key itself as "
                     "COX_ADMIN_KEY; %s",
                     url, gateway);
}

static enum status status_of(int code)
{
    switch (code) {
    case 400:
        return STATUS_INVALID;
    case 403:
        return STATUS_DENIED;
    case 404:
        return STATUS_NOT_FOUND;
    case 409:
        return STATUS_EXISTS;
    default:
        return STATUS_PROTOCOL;
    }
}

/* The answer's own words first: they say what to do. It goes to a terminal, and it may have names
 * of whoever joined. */
static enum status judge(const struct admin_access *o, int code, const char *url, json_t *answer,
                         struct error *err)
{
    if (code >= 200 && code < 300)
        return STATUS_OK;
    if (code == 401)
        return refuse(o, url, err);
    const json_t *e = json_object_get(answer, "error");
    const char *text = json_string_value(json_is_object(e) ? json_object_get(e, "message") : e);
    enum status s = status_of(code);
    if (text && text[0])
        (void)error_set(err, s, "%.400s (%.90s answered %d)", text, url, code);
    else
        (void)error_set(err, s, "%.400s answered %d", url, code);
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
    return s;
}

enum status admin_call(const struct admin_access *o, const char *method, const char *path,
                       const char *body, json_t **owned_answer, struct error *err)
{
    char url[1024], key[KEY_BYTES];
    const char *bearer = o->admin_key;
    *owned_answer = NULL;
    int n = snprintf(url, sizeof url, "http://%s%s", o->address, path);
    if (n < 0 || (size_t)n >= sizeof url)
        return error_set(err, STATUS_INVALID, "--address is too long");
    if (!bearer && o->admin_key_file) {
        TRY(read_key(o->admin_key_file, key, sizeof key, err));
        bearer = key;
    }
    struct strbuf text;
    int code = 0;
    strbuf_init(&text, ANSWER_LIMIT);
    const struct http_call call = {.method = method,
                                   .url = url,
                                   .bearer = bearer,
                                   .body = str_from(body),
                                   .timeout_ms = CALL_TIMEOUT_MS};
    enum status s = http_client_call(&call, &code, &text, err);
    if (s != STATUS_OK) {
        strbuf_fini(&text);
        return s;
    }
    json_error_t je;
    json_t *answer = json_loadb(text.ptr ? text.ptr : "", text.len, JSON_REJECT_DUPLICATES, &je);
    strbuf_fini(&text);
    s = judge(o, code, url, answer, err);
    if (s == STATUS_OK && !json_is_object(answer))
        s = error_set(err, STATUS_PROTOCOL, "%s does not answer with a JSON object: %s", url,
                      je.text);
    if (s != STATUS_OK) {
        json_decref(answer);
        return s;
    }
    *owned_answer = answer;
    return STATUS_OK;
}

bool admin_tell_standby(const struct admin_access *o, const char *command)
{
    struct error err = {0};
    struct strbuf text;
    json_t *status;
    enum status s = admin_call(o, "GET", "/api/status", NULL, &status, &err);
    if (s == STATUS_IO || s == STATUS_TIMEOUT)
        fprintf(stderr, "cox %s: %s\n", command, err.text);
    if (s != STATUS_OK) /* of another answer the command's own call says why */
        return s != STATUS_IO && s != STATUS_TIMEOUT;
    strbuf_init(&text, 0);
    if (status_view_is_standby(status)) {
        status_view_render_standby(status, &text);
        fprintf(stderr, "cox %s: " STR_FMT "\n", command, STR_ARG(strbuf_str(&text)));
    }
    strbuf_fini(&text);
    json_decref(status);
    return true;
}
