/* Calls the head's admin API, and finds the serving head when the address is a standby's.
 * `admin_call` sends one request with the key and parses the JSON answer. `judge` turns an HTTP
 * status into an error. `admin_follow` reads the address of the serving head from a standby's
 * answer, and checks that head before commands use it.
 * Invariants: a key goes only to an address of the form HOST:PORT. Text from a server is cut,
 * and its control characters are replaced before it reaches a terminal. The caller owns the
 * answer. Calls block the caller's thread, and only one thread makes them. */
#include "cli/client/admin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/view/status_view.h"
#include "common/http/client/client.h"
#include "common/keys/api_keys.h"

enum { CALL_TIMEOUT_MS = 5000, ANSWER_LIMIT = 64 << 20, KEY_BYTES = 512, INSTANCE_DIGITS = 16 };

/* Reads the first key of a key file. Comments and hashes of keys are skipped. */
static enum status read_key(const char *path, char *out, size_t size, struct error *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(
            err, STATUS_IO,
            "cannot open the admin key file %s: %s (--admin-key-file, COX_ADMIN_KEY_FILE)", path,
            strerror(errno));
    bool got = false;
    while (!got && fgets(out, (int)size, f)) {
        const char *at = out;
        struct str key = key_next_word(&at);
        got = key.len > 0 && key.ptr[0] != '#' && !str_starts(key, STR("sha256:"));
        if (!got)
            continue;
        memmove(out, key.ptr, key.len);
        out[key.len] = '\0';
    }
    fclose(f);
    if (!got)
        return error_set(err, STATUS_INVALID,
                         "the admin key file %s (--admin-key-file, COX_ADMIN_KEY_FILE) contains no "
                         "key. Write a key into it, or give another file",
                         path);
    return STATUS_OK;
}

/* Makes the error for a refused key. The advice in the text depends on the source of the key. */
static enum status refuse(const struct admin_access *o, const char *url, struct error *err)
{
    static const char gateway[] =
        "Also check that --address is the head's admin port (its --admin-port) and not a gateway";
    if (o->admin_key)
        return error_set(err, STATUS_DENIED,
                         "%s rejects this admin key (--admin-key, COX_ADMIN_KEY). Give the key "
                         "from the head's own --admin-key-file. %s",
                         url, gateway);
    if (o->admin_key_file)
        return error_set(
            err, STATUS_DENIED,
            "%s rejects the admin key in %.200s (--admin-key-file, COX_ADMIN_KEY_FILE). Give the "
            "same file as the head's --admin-key-file. %s",
            url, o->admin_key_file, gateway);
    return error_set(err, STATUS_DENIED,
                     "%s requires the admin key. Give the head's key file with --admin-key-file "
                     "FILE or COX_ADMIN_KEY_FILE, or the key itself with COX_ADMIN_KEY. %s",
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

/* Converts an HTTP status to an error. The text of the answer is first in the error text,
 * because it contains the advice. Its control characters are replaced, since it is printed on a
 * terminal and other processes choose the names in it. */
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
        (void)error_set(err, s, "the request failed: %.400s (%.90s answered with status %d)", text,
                        url, code);
    else
        (void)error_set(err, s,
                        "the request failed: %.400s answered with status %d. Check that --address "
                        "is the head's admin port",
                        url, code);
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
    return s;
}

const char *admin_address(const struct admin_access *o)
{
    return o->followed[0] ? o->followed : o->address;
}

enum status admin_call(const struct admin_access *o, const char *method, const char *path,
                       const char *body, json_t **owned_answer, struct error *err)
{
    char url[1024], key[KEY_BYTES];
    const char *bearer = o->admin_key;
    *owned_answer = NULL;
    int n = snprintf(url, sizeof url, "http://%s%s", admin_address(o), path);
    if (n < 0 || (size_t)n >= sizeof url)
        return error_set(err, STATUS_INVALID, "--address is too long. Give a shorter address");
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
                                   .timeout_ms = CALL_TIMEOUT_MS,
                                   .session = o->session};
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
        s = error_set(
            err, STATUS_PROTOCOL,
            "the answer of %s is not a JSON object: %s. Check that this is the head's admin port",
            url, je.text);
    if (s != STATUS_OK) {
        json_decref(answer);
        return s;
    }
    *owned_answer = answer;
    return STATUS_OK;
}

static const json_t *lease_of(const json_t *status)
{
    return json_object_get(status, "lease");
}

/* Returns true when the head `other` serves and holds the lease that the standby reports. The
 * address alone is not enough: another machine's head may listen there. */
static bool is_the_holder(const json_t *waiting, const json_t *other)
{
    const char *role = json_string_value(json_object_get(other, "role"));
    const char *a = json_string_value(json_object_get(lease_of(waiting), "holder"));
    const char *b = json_string_value(json_object_get(lease_of(other), "holder"));
    return role && strcmp(role, "serving") == 0 && a && b && strlen(a) > INSTANCE_DIGITS &&
           strncmp(a, b, INSTANCE_DIGITS) == 0;
}

/* Returns true for a plain HOST:PORT. The key is sent to a URL that contains this text. */
static bool is_authority(const char *text, size_t size)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]");
    return n > 0 && text[n] == '\0' && n < size;
}

static bool find_serving(const struct admin_access *o, const json_t *waiting,
                         struct admin_access *out)
{
    struct error err = {0};
    json_t *status;
    const char *admin = json_string_value(json_object_get(lease_of(waiting), "admin"));
    *out = *o;
    if (!admin || !is_authority(admin, sizeof out->followed) || strcmp(admin, o->address) == 0)
        return false;
    snprintf(out->followed, sizeof out->followed, "%s", admin);
    if (admin_call(out, "GET", "/api/status", NULL, &status, &err) != STATUS_OK)
        return false;
    bool is = is_the_holder(waiting, status);
    json_decref(status);
    return is;
}

static void tell_standby(const json_t *status, const char *command)
{
    struct strbuf text;
    strbuf_init(&text, 0);
    status_view_render_standby(status, &text);
    fprintf(stderr, "cox %s: " STR_FMT "\n", command, STR_ARG(strbuf_str(&text)));
    strbuf_fini(&text);
}

bool admin_follow(struct admin_access *o, const char *command, bool tell)
{
    struct admin_access serving, here = *o;
    struct error err = {0};
    json_t *status = NULL;
    here.followed[0] = '\0';
    enum status s = admin_call(&here, "GET", "/api/status", NULL, &status, &err);
    if (s == STATUS_IO || s == STATUS_TIMEOUT) {
        fprintf(stderr, "cox %s: %s\n", command, err.text);
        return false;
    }
    bool waits = s == STATUS_OK && status_view_is_standby(status);
    if (waits && !o->no_follow && find_serving(&here, status, &serving)) {
        if (strcmp(o->followed, serving.followed) != 0)
            fprintf(stderr,
                    "cox %s: the head at %s is a standby; asking the head at %s, which serves\n",
                    command, o->address, serving.followed);
        memcpy(o->followed, serving.followed, sizeof o->followed);
    } else {
        o->followed[0] = '\0';
        if (waits && tell)
            tell_standby(status, command);
    }
    json_decref(status);
    return true;
}
