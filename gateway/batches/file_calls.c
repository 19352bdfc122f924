/* Does the work of the calls of /v1/files, in OpenAI's form. download.c reads a file's content. */
#include <stdio.h>
#include <string.h>

#include "gateway/batches/file_calls.h"
#include "gateway/batches/multipart.h"

static void write_file(struct strbuf *b, const struct stored_file *f)
{
    strbuf_append_c(b, "{\"id\":");
    strbuf_append_json(b, str_from(f->id));
    strbuf_printf(b, ",\"object\":\"file\",\"bytes\":%llu,\"created_at\":%llu,\"filename\":",
                  (unsigned long long)f->bytes, (unsigned long long)f->created_s);
    strbuf_append_json(b, str_from(f->filename));
    strbuf_append_c(b, ",\"purpose\":");
    strbuf_append_json(b, str_from(f->purpose));
    strbuf_append_c(b, ",\"status\":\"processed\"}");
}

static bool fits(char *out, size_t size, struct str s)
{
    if (s.len >= size || memchr(s.ptr, '\0', s.len))
        return false;
    snprintf(out, size, "%.*s", (int)s.len, s.ptr);
    return true;
}

/* Reads the form's fields `purpose` and `file`. All other fields are ignored. */
static bool read_form(struct state_call *c, struct stored_file *f, struct str *content)
{
    struct multipart_field fields[MULTIPART_MAX_FIELDS];
    const char *why;
    uint32_t n;
    bool has_file = false;
    if (!multipart_read(c->content_type, c->body, fields, &n, &why))
        return api_error_set(&c->error, 400, NULL, "%s", why);
    for (uint32_t i = 0; i < n; i++) {
        if (str_eq_c(fields[i].name, "purpose") && str_eq_c(fields[i].content, "batch")) {
            snprintf(f->purpose, sizeof f->purpose, "batch");
        } else if (str_eq_c(fields[i].name, "file")) {
            has_file = fits(f->filename, sizeof f->filename, fields[i].filename);
            *content = fields[i].content;
        } else if (str_eq_c(fields[i].name, "expires_after") ||
                   str_starts(fields[i].name, STR("expires_after["))) {
            return api_error_set(&c->error, 400, "expires_after",
                                 "expires_after is not supported by this server: files stay until "
                                 "you delete them. Leave it out.");
        }
    }
    if (!f->purpose[0])
        return api_error_set(&c->error, 400, "purpose", "purpose must be \"batch\".");
    return has_file ||
           api_error_set(&c->error, 400, "file",
                         "The form has no file, or the name of its file is longer than %d bytes.",
                         STATE_NAME_BYTES - 1);
}

void file_call_upload(struct state_call *c)
{
    struct stored_file f = {.tenant = c->tenant, .created_s = c->now_s};
    struct str content = {0};
    struct error err = {0};
    if (!read_form(c, &f, &content))
        return;
    enum status s = state_add_file(c->all->store, &f, content, &err);
    c->again = s == STATUS_AGAIN;
    if (s == STATUS_OK)
        write_file(&c->answer, &f);
    else if (!c->again)
        state_call_fail(c, "File object", s, &err);
}

void file_call_get(struct state_call *c)
{
    struct stored_file f;
    struct error err = {0};
    enum status s = state_get_file(c->all->store, c->tenant, c->id, &f, NULL, &err);
    if (s == STATUS_OK)
        write_file(&c->answer, &f);
    else
        state_call_fail(c, "File object", s, &err);
}

void file_call_delete(struct state_call *c)
{
    struct error err = {0};
    enum status s = state_delete_file(c->all->store, c->tenant, c->id, &err);
    if (s != STATUS_OK) {
        state_call_fail(c, "File object", s, &err);
        return;
    }
    strbuf_append_c(&c->answer, "{\"id\":");
    strbuf_append_json(&c->answer, c->id);
    strbuf_append_c(&c->answer, ",\"object\":\"file\",\"deleted\":true}");
}

struct list {
    struct strbuf *out;
    char first[STATE_ID_BYTES], last[STATE_ID_BYTES];
};

static bool add_to_list(void *ctx, const struct stored_file *f)
{
    struct list *l = ctx;
    memcpy(l->last, f->id, sizeof l->last);
    if (l->first[0])
        strbuf_append_c(l->out, ",");
    else
        memcpy(l->first, f->id, sizeof l->first);
    write_file(l->out, f);
    return l->out->len < STATE_LIST_BYTES;
}

void file_call_list(struct state_call *c)
{
    struct list l = {.out = &c->answer};
    struct state_query q;
    struct error err = {0};
    bool more;
    if (!state_call_query(c, &q))
        return;
    strbuf_append_c(&c->answer, "{\"object\":\"list\",\"data\":[");
    enum status s = state_list_files(c->all->store, &q, add_to_list, &l, &more, &err);
    strbuf_append_c(&c->answer, "]");
    state_call_id(&c->answer, "first_id", l.first);
    state_call_id(&c->answer, "last_id", l.last);
    strbuf_printf(&c->answer, ",\"has_more\":%s}", more ? "true" : "false");
    if (s != STATUS_OK)
        state_call_fail(c, "File object", s, &err);
}
