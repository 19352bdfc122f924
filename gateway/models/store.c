/* Keeps the set of models in Redis.
 * `models_store_look` asks for the text if its SHA-1 differs from the last one (`read_script`).
 * An edit reads the text, changes it (edit.h), and writes it back if nobody else did meanwhile
 * (`write_script`); otherwise it begins again. So a change is never lost, and a call that Redis
 * executes late changes nothing that is newer.
 * The gateway follows a text of any writer: `redis-cli -x SET cox:models < models.yaml` works too.
 * A key that is missing, or a Redis that is away, never empties the set. */
#include "gateway/models/store.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/redis/redis.h"
#include "gateway/models/edit.h"
#include "gateway/models/file.h"

enum { SHA_BYTES = 40, EDITS_MAX = 16, EDIT_TRIES = 8, KEY_MAX = 255, REPLY_MAX = 3 << 20 };

/* KEYS: the set. ARGV: SHA-1 of the known text, most bytes. Returns the SHA-1 and the size of the
 * text, and the text if it is another one. The size alone means that it is missing or too large. */
static const char read_script[] = "local n = redis.call('STRLEN', KEYS[1])\n"
                                  "if n == 0 or n > tonumber(ARGV[2]) then return {'', n} end\n"
                                  "local text = redis.call('GET', KEYS[1])\n"
                                  "local sha = redis.sha1hex(text)\n"
                                  "if sha == ARGV[1] then return {sha, n} end\n"
                                  "return {sha, n, text}\n";

/* KEYS: the set. ARGV: SHA-1 of the text that was changed ('' = none), new text. Returns the SHA-1
 * of the new text, or '' if the stored text is another one. */
static const char write_script[] = "local text = redis.call('GET', KEYS[1])\n"
                                   "local sha = ''\n"
                                   "if text and #text > 0 then sha = redis.sha1hex(text) end\n"
                                   "if sha ~= ARGV[1] then return '' end\n"
                                   "redis.call('SET', KEYS[1], ARGV[2])\n"
                                   "return redis.sha1hex(ARGV[2])\n";

struct open_edit {
    struct models_edit e;
    struct models_store *s;
    uint32_t n_tries;
    struct strbuf text; /* the new text, while it is written */
    struct open_edit *next;
};

struct models_store {
    struct models_store_options o;
    struct redis *redis;
    char key[KEY_MAX + 1], label[KEY_MAX + 16];
    char sha[SHA_BYTES + 1]; /* SHA-1 of the last text; "" = none yet */
    char fault[512];         /* last fault that was logged; "" = none */
    bool asks;               /* an answer about the text is due */
    struct open_edit *edits;
    uint32_t n_edits;
};

bool models_store_is_url(const char *models)
{
    const struct str s = str_from(models ? models : "");
    return str_starts(s, STR("redis://")) || str_starts(s, STR("rediss://")) ||
           str_starts(s, STR("unix://"));
}

const char *models_store_label(const struct models_store *s)
{
    return s->label;
}

/* Logs a fault, once until another one comes or the text can be read. */
static void complain(struct models_store *s, const char *why)
{
    if (strcmp(s->fault, why) != 0)
        log_error("models_store_unread", "key=%s why=%s", log_quote(s->key), log_quote(why));
    snprintf(s->fault, sizeof s->fault, "%s", why);
}

/* ---- answers ---- */

/* `stored` is the answer of `read_script`. */
struct stored {
    struct str sha, text; /* text: empty if it has not changed */
};

/* Reads the answer. Returns STATUS_NOT_FOUND when there is no text. */
static enum status read_answer(const struct models_store *s, const struct redis_reply *r,
                               struct stored *out, struct error *err)
{
    *out = (struct stored){0};
    if (!r)
        return error_set(err, STATUS_AGAIN, "Redis did not answer. Try again later");
    if (r->kind == REDIS_ERROR)
        return error_set(err, STATUS_IO, "Redis cannot read %s: %.200s", s->label, r->text.ptr);
    const bool is_list = r->kind == REDIS_LIST && (r->n_items == 2 || r->n_items == 3) &&
                         r->items[0]->kind == REDIS_TEXT && r->items[1]->kind == REDIS_INTEGER &&
                         (r->n_items == 2 || r->items[2]->kind == REDIS_TEXT);
    const int64_t size = is_list ? r->items[1]->integer : -1;
    if (size == 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "%s does not exist. Write the set of models there%s", s->label,
                         s->sha[0] ? "" : ", or put a model with the admin API");
    if (size > MODELS_FILE_MAX)
        return error_set(err, STATUS_LIMIT, "%s is larger than the limit of %d bytes", s->label,
                         MODELS_FILE_MAX);
    if (!is_list || r->items[0]->text.len != SHA_BYTES)
        return error_set(err, STATUS_PROTOCOL,
                         "Redis sent an answer that the gateway does not understand");
    out->sha = r->items[0]->text;
    if (r->n_items == 3)
        out->text = r->items[2]->text;
    return STATUS_OK;
}

static enum status ask(struct models_store *s, const char *known, redis_fn *fn, void *ctx)
{
    char most[16];
    snprintf(most, sizeof most, "%d", MODELS_FILE_MAX);
    const struct str words[] = {STR("EVAL"),      STR(read_script), STR("1"),
                                str_from(s->key), str_from(known),  str_from(most)};
    return redis_call(s->redis, words, sizeof words / sizeof *words, fn, ctx);
}

/* Passes on a text that is not the last one. */
static void take(struct models_store *s, struct str sha, struct str text)
{
    if (str_eq_c(sha, s->sha))
        return;
    str_copy(s->sha, sizeof s->sha, sha);
    s->o.on_text(s->o.ctx, text);
}

static void on_asked(void *ctx, const struct redis_reply *reply)
{
    struct models_store *s = ctx;
    struct stored got;
    struct error err = {0};
    s->asks = false;
    if (!reply)
        return; /* the loss of the link has been logged */
    if (read_answer(s, reply, &got, &err) != STATUS_OK) {
        complain(s, err.text);
        return;
    }
    s->fault[0] = '\0';
    if (got.text.len > 0)
        take(s, got.sha, got.text);
}

void models_store_look(struct models_store *s)
{
    if (!s->asks)
        s->asks = ask(s, s->sha, on_asked, s) == STATUS_OK;
}

/* ---- edits ---- */

static void end_edit(struct open_edit *edit, enum status st, const struct error *err)
{
    struct open_edit **at = &edit->s->edits;
    while (*at != edit)
        at = &(*at)->next;
    *at = edit->next;
    edit->s->n_edits--;
    edit->e.done(edit->e.ctx, &edit->e, st, err);
    strbuf_fini(&edit->text);
    json_decref(edit->e.item);
    mem_free(edit->e.name);
    mem_free(edit->e.by);
    mem_free(edit);
}

static void on_read(void *ctx, const struct redis_reply *reply);

static enum status not_sent(struct error *err)
{
    return error_set(err, STATUS_AGAIN,
                     "Redis cannot be reached, or too many changes wait for it, so the set of "
                     "models cannot be changed. Try again later");
}

static void on_written(void *ctx, const struct redis_reply *reply)
{
    struct open_edit *edit = ctx;
    struct models_store *s = edit->s;
    struct error err = {0};
    enum status st = STATUS_OK;
    if (!reply)
        st = error_set(&err, STATUS_AGAIN,
                       "Redis did not answer, so it is not known whether the set of models was "
                       "changed. Look at it, or try again later");
    else if (reply->kind == REDIS_ERROR)
        st = error_set(&err, STATUS_IO, "Redis cannot write %s: %.200s", s->label, reply->text.ptr);
    else if (reply->kind != REDIS_TEXT || (reply->text.len && reply->text.len != SHA_BYTES))
        st = error_set(&err, STATUS_PROTOCOL,
                       "Redis sent an answer that the gateway does not understand");
    else if (reply->text.len > 0)
        take(s, reply->text, strbuf_str(&edit->text));
    else if (++edit->n_tries == EDIT_TRIES)
        st = error_set(&err, STATUS_AGAIN,
                       "the set of models was changed by others at the same time. Try again");
    else if ((st = ask(s, "", on_read, edit)) == STATUS_OK)
        return;
    else
        st = not_sent(&err);
    end_edit(edit, st, &err);
}

/* Writes the changed text, if the stored one is still that of `sha`. */
static enum status write_text(struct open_edit *edit, struct str sha, struct error *err)
{
    struct models_store *s = edit->s;
    const struct str words[] = {STR("EVAL"),      STR(write_script),       STR("1"),
                                str_from(s->key), sha.len ? sha : STR(""), strbuf_str(&edit->text)};
    if (redis_call(s->redis, words, sizeof words / sizeof *words, on_written, edit) != STATUS_OK)
        return not_sent(err);
    return STATUS_OK;
}

static void on_read(void *ctx, const struct redis_reply *reply)
{
    struct open_edit *edit = ctx;
    struct stored got;
    struct error err = {0};
    enum status st = read_answer(edit->s, reply, &got, &err);
    if (st == STATUS_NOT_FOUND && !edit->s->sha[0]) /* the first model of a new set */
        st = STATUS_OK;
    else if (st == STATUS_NOT_FOUND) /* a change of nothing would remove every other model */
        st = error_set(&err, STATUS_EXISTS,
                       "%s is gone, but this gateway still serves the set that was there. Write "
                       "the whole set there again",
                       edit->s->label);
    strbuf_reset(&edit->text);
    if (st == STATUS_OK)
        st = models_text_edit(got.text, &edit->e, &edit->text, &err);
    if (st == STATUS_OK)
        st = write_text(edit, got.sha, &err);
    if (st != STATUS_OK)
        end_edit(edit, st, &err);
}

enum status models_store_edit(struct models_store *s, const struct models_edit *e,
                              struct error *err)
{
    if (s->n_edits == EDITS_MAX)
        return error_set(err, STATUS_AGAIN,
                         "too many changes of the set of models are open. Try again later");
    struct open_edit *edit = mem_zalloc(sizeof *edit);
    if (ask(s, "", on_read, edit) != STATUS_OK) {
        mem_free(edit);
        return not_sent(err);
    }
    edit->e = *e;
    edit->e.name = mem_strdup(e->name);
    edit->e.by = mem_strdup(e->by);
    edit->e.item = json_incref(e->item);
    edit->s = s;
    strbuf_init(&edit->text, MODELS_FILE_MAX);
    edit->next = s->edits;
    s->edits = edit;
    s->n_edits++;
    return STATUS_OK;
}

bool models_store_on_abort(struct models_store *s, const void *reply)
{
    for (struct open_edit *edit = s->edits; edit; edit = edit->next)
        if (edit->e.reply == reply) {
            edit->e.reply = NULL;
            return true;
        }
    return false;
}

/* ---- start and stop ---- */

static void on_link(void *ctx, bool up, const char *why)
{
    struct models_store *s = ctx;
    if (up) {
        log_info("models_store_up", "key=%s", log_quote(s->key));
        models_store_look(s);
    } else {
        log_warn("models_store_lost", "key=%s why=%s", log_quote(s->key), log_quote(why));
    }
}

/* Splits the key from the URL. Returns false when the key is too long or has a control
 * character. */
static bool split_key(struct models_store *s, char *url)
{
    char *hash = strrchr(url, '#');
    const char *key = hash ? hash + 1 : "cox:models";
    bool ok = *key && strlen(key) <= KEY_MAX;
    for (const char *c = key; *c; c++)
        ok = ok && (unsigned char)*c > ' ' && *c != 0x7f;
    if (ok)
        snprintf(s->key, sizeof s->key, "%s", key);
    if (hash)
        *hash = '\0';
    snprintf(s->label, sizeof s->label, "the key %s", s->key);
    return ok;
}

enum status models_store_open(const struct models_store_options *o, struct models_store **out,
                              struct error *err)
{
    struct models_store *s = mem_zalloc(sizeof *s);
    char *url = mem_strdup(o->url);
    const struct redis_options ro = {
        .url = url, .reply_max = REPLY_MAX, .on_link = on_link, .ctx = s};
    s->o = *o;
    s->o.url = NULL;
    enum status st = STATUS_OK;
    if (!split_key(s, url))
        st = error_set(err, STATUS_INVALID,
                       "--models: the name of the key after # must have 1 to %d characters and no "
                       "spaces",
                       KEY_MAX);
    if (st == STATUS_OK) {
        st = redis_open(o->loop, &ro, &s->redis, err);
        st = st == STATUS_OK ? st : error_prefix(err, st, "--models");
    }
    mem_free(url);
    if (st == STATUS_OK)
        *out = s;
    else
        mem_free(s);
    return st;
}

void models_store_close(struct models_store *s)
{
    if (!s)
        return;
    redis_close(s->redis); /* ends the open edits, because each waits for an answer */
    mem_free(s);
}
