#include "head/links/key_watch.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/keys/authorized.h"

enum { LOOK_MS = 500 };

struct key_watch {
    struct loop_timer *timer;
    struct {
        struct key_file_watch watch;
        char path[4096];
    } files[AUTHORIZED_FILES_MAX]; /* files[0] is the file `authorized` */
    uint32_t n_files;
    key_watch_fn *fn;
    void *ctx;
    char dir[4000];
};

/* Makes the files' states at the last read the states to compare with from now on, valid or not.
 * A file that could not be opened keeps its last state, so that the missing file is logged once. */
static void watch_files(struct key_watch *w, const struct authorized *a)
{
    w->n_files = a->n_files;
    for (uint32_t i = 0; i < a->n_files; i++) {
        char path[sizeof w->files[i].path];
        const struct key_file_stamp read = a->files[i].stamp;
        snprintf(path, sizeof path, "%s/%s", w->dir, i ? a->files[i].name : "authorized");
        if (read.mtime_ns == KEY_FILE_GONE.mtime_ns && strcmp(path, w->files[i].path) == 0)
            continue;
        memcpy(w->files[i].path, path, sizeof path);
        w->files[i].watch = (struct key_file_watch){.read = read, .seen = read};
    }
}

static void on_look(void *ctx)
{
    struct key_watch *w = ctx;
    struct authorized next;
    struct error err = {0};
    bool is_news = false;
    for (uint32_t i = 0; i < w->n_files; i++)
        is_news |= key_file_is_news(&w->files[i].watch, w->files[i].path);
    if (!is_news)
        return;
    enum status s = authorized_load(w->files[0].path, &next, &err);
    watch_files(w, &next);
    if (s != STATUS_OK) {
        log_error("authorized_not_read", "error=%s now=%s", log_quote(err.text),
                  log_quote("the keys that the head read before stay valid; correct the file"));
        return;
    }
    log_info("authorized_read", "path=%s n_keys=%u", log_quote(w->files[0].path), next.n_entries);
    w->fn(w->ctx, &next);
    authorized_fini(&next);
}

enum status key_watch_start(struct loop *l, const char *dir, struct authorized *first,
                            key_watch_fn *fn, void *ctx, struct key_watch **out, struct error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/authorized", dir);
    TRY(authorized_load(path, first, err));
    struct key_watch *w = mem_zalloc(sizeof *w);
    w->fn = fn;
    w->ctx = ctx;
    snprintf(w->dir, sizeof w->dir, "%s", dir);
    watch_files(w, first);
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
