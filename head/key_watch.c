#include "head/key_watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/api_keys.h"

enum { LOOK_MS = 500 };

struct key_watch {
    struct loop_timer *timer;
    struct key_file_watch file;
    key_watch_fn *fn;
    void *ctx;
    char path[4096];
};

static void on_look(void *ctx)
{
    struct key_watch *w = ctx;
    struct authorized next;
    struct error err = {0};
    if (!key_file_is_news(&w->file, w->path))
        return;
    if (authorized_load(w->path, &next, &err) != STATUS_OK) {
        log_error("authorized_not_read", "error=%s now=%s", log_quote(err.text),
                  log_quote("the keys that it read before stay in force; mend the file"));
        return;
    }
    log_info("authorized_read", "path=%s n_keys=%u", log_quote(w->path), next.n_entries);
    w->fn(w->ctx, &next);
    authorized_fini(&next);
}

enum status key_watch_start(struct loop *l, const char *dir, struct authorized *first,
                            key_watch_fn *fn, void *ctx, struct key_watch **out, struct error *err)
{
    struct key_watch *w = mem_zalloc(sizeof *w);
    w->fn = fn;
    w->ctx = ctx;
    snprintf(w->path, sizeof w->path, "%s/authorized", dir);
    int fd = open(w->path,
                  O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* what is wrong with it says the next one */
    if (fd >= 0) {
        key_file_opened(&w->file, fd);
        close(fd);
    }
    enum status s = authorized_load(w->path, first, err);
    if (s != STATUS_OK) {
        key_watch_free(w);
        return s;
    }
    w->timer = loop_timer_start(l, LOOK_MS, LOOK_MS, on_look, w);
    *out = w;
    return STATUS_OK;
}

void key_watch_free(struct key_watch *w)
{
    if (!w)
        return;
    loop_timer_stop(w->timer);
    mem_free(w);
}
