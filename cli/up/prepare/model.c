#include "cli/up/prepare/model.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/pull/options.h"
#include "cli/pull/stop.h"
#include "cli/up/prepare/model_fetch.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/config/config.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"

enum { PATH_BYTES = 4096 };

/* Checks once, before any process starts, that the model exists and is supported. Without this
 * check, every worker would report the error. The workers check the tensors. */
static enum status check_model(const struct up_options *o, const char *model, const char **family,
                               struct error *err)
{
    char cache_dir[PATH_BYTES];
    struct model_info info;
    if (o->cache_dir)
        snprintf(cache_dir, sizeof cache_dir, "%s", o->cache_dir);
    else
        model_cache_dir(NULL, getenv("HOME"), cache_dir, sizeof cache_dir);
    if (model_info_open(model, cache_dir, &info, err) != STATUS_OK)
        return err->status == STATUS_IO ? (err->status = STATUS_INVALID) : err->status;
    enum status s = STATUS_OK;
    /* the struct has tens of KiB, so it is on the heap */
    struct model_config *config = mem_alloc(sizeof *config);
    if (info.format != MODEL_NULL && o->device != UP_DEVICE_NULL)
        s = model_config_read(&info, config, err);
    *family = s == STATUS_OK && info.format != MODEL_NULL && o->device != UP_DEVICE_NULL
                  ? config->family
                  : NULL;
    mem_free(config);
    model_info_fini(&info);
    return s;
}

/* ---- a model that is not in the cache ---- */

/* Fetches the model into the cache, where the children open it. */
static enum status fetch_model(struct up_model *m, const struct up_options *o, const char *command,
                               struct error *err)
{
    const struct pull_ensure e = {.command = command,
                                  .cache_dir = o->cache_dir,
                                  .offline = o->offline || m->has_loop,
                                  .has_loop = m->has_loop};
    bool was_fetched;
    enum status s = model_fetch(&e, m->name, &o->speculation, &was_fetched, err);
    m->has_not_come = s != STATUS_OK;
    m->fetched_ns = was_fetched ? clock_mono_ns() : 0;
    return s;
}

/* ---- a model that is fetched straight into memory ---- */

static void say_of_stream(const char *text)
{
    log_info("model_stream", "text=%s", log_quote(text));
}

/* Fetches the model into memory; m->name becomes its folder. The event loop does not exist yet,
 * so the fetch itself checks for signals. A running cluster fetches nothing. */
static enum status stream_model(struct up_model *m, struct up_options *up, const char *tmp_dir,
                                struct error *err)
{
    struct pull_options o = {0};
    struct config_result res = {0};
    enum status s = pull_options_read(&o, &res, err);
    o.cache_dir = up->cache_dir ? up->cache_dir : o.cache_dir;
    o.offline = up->offline || m->has_loop;
    o.is_stopped = pull_is_stopped;
    o.say = say_of_stream;
    if (s == STATUS_OK && pull_stream_wanted(&o, m->name)) {
        if (!o.offline)
            pull_stop_on_signals();
        s = pull_stream_open(&o, m->name, tmp_dir, &m->stream, err);
        m->has_not_come = s != STATUS_OK;
        if (s == STATUS_OK)
            log_info("model_in_memory", "bytes=%llu seconds=%.2f parallel=%lld",
                     (unsigned long long)m->stream.n_bytes, m->stream.seconds,
                     (long long)o.parallel);
        m->name = m->stream.folder.path;
        m->stream_name = m->stream.name;
        if (up->served_model_names.n_items == 0)
            up->served_model_names = (struct option_list){&m->stream_name, 1};
    }
    config_fini(&res);
    return s;
}

enum status up_model_open(struct up_model *m, struct up_options *o, const char *command,
                          const char *tmp_dir, struct arena *arena, struct error *err)
{
    TRY(model_with_revision(m->name, o->revision, arena, &m->name, err));
    if (o->load_format >= UP_LOAD_STREAM)
        TRY(stream_model(m, o, tmp_dir, err));
    else
        TRY(fetch_model(m, o, command, err));
    return check_model(o, m->name, &m->family, err);
}

void up_model_stop(void)
{
    pull_stop();
}

void up_model_close(struct up_model *m)
{
    pull_stream_close(&m->stream);
}
