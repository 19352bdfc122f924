#include "cli/pull/ensure.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/pull/files/progress.h"
#include "cli/pull/options.h"
#include "cli/pull/pull.h"
#include "cli/pull/stop.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/model/info/pulled.h"

/* name of this process's command, for messages; a process fetches for one command */
static const char *command = "pull";

/* Prints a line. If a progress bar is shown, the line replaces it. */
static void say(const char *text)
{
    if (log_is_json())
        log_info("model_fetch", "text=%s", log_quote(text));
    else
        fprintf(stderr, "%scox %s: %s\n", isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", command,
                text);
}

/* Returns true when `model` is a reference whose files are not in the cache, or have changed
 * since they were pulled. */
static bool is_missing(const char *model, const struct model_ref *r, const char *cache_dir)
{
    struct model_info info;
    struct pulled there;
    struct error err = {0};
    enum status s = STATUS_OK;
    if (r->kind == MODEL_REF_DEMO) {
        s = model_info_open(model, cache_dir, &info, &err);
        model_info_fini(&info);
        return s == STATUS_NOT_FOUND;
    }
    if (!model_ref_is_remote(r) || (r->is_plain && access(model, F_OK) == 0))
        return false;
    s = pulled_open(r, cache_dir, &there, &err);
    if (s == STATUS_OK)
        pulled_fini(&there);
    return s == STATUS_NOT_FOUND || s == STATUS_INVALID;
}

static void say_done(const struct pull_result *done, double seconds)
{
    char text[4400], size[24];
    if (done->fetched_bytes > 0)
        snprintf(text, sizeof text, "fetched %s in %.1f s: %s",
                 pull_bytes_text(size, sizeof size, done->fetched_bytes), seconds, done->path);
    else
        snprintf(text, sizeof text, "the model is in the cache: %s", done->path);
    say(text);
}

static enum status fetch(const struct pull_options *o, bool has_loop, const char *model,
                         const char *name, struct error *err)
{
    char text[2200];
    struct pull_result done;
    uint64_t begin_ns = clock_mono_ns();
    if (!o->offline) {
        snprintf(text, sizeof text, "model %s is not in the cache: fetching it", name);
        say(text);
    }
    if (!has_loop)
        pull_stop_on_signals();
    enum status s = pull_model(o, model, &done, err);
    if (!has_loop)
        pull_stop_end();
    if (s != STATUS_OK && pull_is_stopped())
        s = error_set(err, STATUS_CLOSED,
                      "stopped while model %s was downloaded. The downloaded part is kept; the "
                      "next start or `cox pull` continues it",
                      name);
    else if (s == STATUS_OK && pull_is_stopped())
        s = error_set(err, STATUS_CLOSED, "stopped after the download; model %s is in the cache",
                      name);
    else if (s == STATUS_OK)
        say_done(&done, (double)(clock_mono_ns() - begin_ns) / 1e9);
    mem_free(done.path);
    return s;
}

/* Reads the options that only a fetch needs, and fetches the model. */
static enum status fetch_missing(const struct pull_ensure *e, const char *cache_dir,
                                 const char *model, const char *name, struct error *err)
{
    struct pull_options o = {0};
    struct config_result res = {0};
    enum status s = pull_options_read(&o, &res, err);
    command = e->command;
    o.cache_dir = cache_dir;
    o.offline = e->offline;
    o.command = e->command;
    o.is_stopped = pull_is_stopped;
    o.say = say;
    if (s == STATUS_OK)
        s = fetch(&o, e->has_loop, model, name, err);
    config_fini(&res);
    return s;
}

enum status pull_ensure(const struct pull_ensure *e, const char *model, bool *was_fetched,
                        struct error *err)
{
    struct model_ref r;
    struct error unread;
    char cache_dir[4096];
    enum status s = STATUS_OK;
    *was_fetched = false;
    if (model_ref_parse(model, &r, &unread) != STATUS_OK)
        return STATUS_OK;
    model_cache_dir(e->cache_dir, getenv("HOME"), cache_dir, sizeof cache_dir);
    if (!cache_dir[0]) {
        s = error_set(err, STATUS_INVALID,
                      "the path of the cache folder is too long. Set COX_CACHE to a shorter path");
    } else if (is_missing(model, &r, cache_dir)) {
        s = fetch_missing(e, cache_dir, model, r.text, err);
        *was_fetched = s == STATUS_OK;
    }
    model_ref_fini(&r);
    return s;
}
