/* Fetches the files of a model over several connections.
 * `pull_files_fetch` starts threads, each with its own connection and blocking calls. A thread
 * takes the next unit from the list: a complete small file (file.c), or one range of a large
 * file (ranges.c). The last thread that works on a large file checks and renames the file.
 * Invariants: `mutex` guards the list, the counts and `err`. No thread holds it while it
 * fetches. The first error stops all threads. Each file's `sha256` is written by one thread. */
#include "cli/pull/files/parallel.h"

#include <pthread.h>
#include <string.h>

#include "cli/pull/files/file.h"
#include "cli/pull/files/list.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/ranges.h"
#include "cli/pull/files/source.h"
#include "common/base/mem.h"

/* `large` holds the state of a large file whose fetch has begun. */
struct large {
    struct pull_ranges *ranges;
    uint32_t n_active; /* number of threads that fetch its ranges */
    bool has_ended;    /* no range is left to fetch, or the file is fetched in one stream */
};

struct work {
    const struct pull_source *source;
    const struct pull_file *files;
    uint32_t n_files;
    const char *folder;
    struct pull_progress *progress;
    char (*sha256)[65];
    struct large *large; /* [n_files] state of each large file */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t i_next; /* index of the next file to begin */
    uint32_t n_unfinished;
    atomic_bool cancelled;
    struct error err; /* first error of any thread; guarded by `mutex` */
};

struct unit {
    uint32_t i_file, i_range;
    /* large file that the unit is a range of; NULL = the unit is a whole file */
    struct large *large;
};

static void fail(struct work *w, const struct error *err)
{
    if (w->err.status == STATUS_OK)
        w->err = *err;
    atomic_store(&w->cancelled, true);
    (void)pthread_cond_broadcast(&w->changed);
}

/* Takes a range of a large file whose fetch has begun. */
static bool take_range(struct work *w, struct unit *u)
{
    for (uint32_t i = 0; i < w->i_next; i++) {
        struct large *l = &w->large[i];
        if (!l->ranges || l->has_ended || !pull_ranges_next(l->ranges, &u->i_range))
            continue;
        l->n_active++;
        u->i_file = i;
        u->large = l;
        return true;
    }
    return false;
}

static bool is_there(const struct work *w, uint32_t i)
{
    return pull_file_have(&w->files[i], w->folder) == w->files[i].n_bytes;
}

/* Begins the fetch of the next file. The caller then takes a range if the file is fetched in
 * ranges. */
static enum status begin_file(struct work *w, struct unit *u, bool *is_whole, struct error *err)
{
    uint32_t i = w->i_next++;
    *is_whole = !pull_ranges_wanted(&w->files[i]) || is_there(w, i);
    *u = (struct unit){.i_file = i};
    return *is_whole ? STATUS_OK
                     : pull_ranges_open(w->source, &w->files[i], w->folder, w->progress,
                                        &w->large[i].ranges, err);
}

/* Takes the next unit. It waits while other threads fetch the last ranges, since such a range
 * may have to be fetched again. Returns false when there is no more work. */
static bool take(struct work *w, struct unit *u)
{
    struct error err = {0};
    while (w->n_unfinished > 0 && !atomic_load(&w->cancelled)) {
        bool is_whole = false;
        if (take_range(w, u))
            return true;
        if (w->i_next == w->n_files) {
            (void)pthread_cond_wait(&w->changed, &w->mutex);
            continue;
        }
        if (begin_file(w, u, &is_whole, &err) != STATUS_OK)
            fail(w, &err);
        else if (is_whole)
            return true;
        else if (pull_ranges_next(w->large[u->i_file].ranges, &u->i_range)) {
            u->large = &w->large[u->i_file];
            u->large->n_active++;
            return true;
        } else { /* all ranges were fetched earlier, so only the rename is left */
            u->large = &w->large[u->i_file];
            u->large->n_active++;
            u->i_range = UINT32_MAX;
            return true;
        }
    }
    return false;
}

/* ---- without the mutex ---- */

static enum status do_file(struct work *w, const struct pull_source *source, uint32_t i,
                           struct error *err)
{
    return pull_file_fetch(source, &w->files[i], w->folder, w->progress, w->sha256[i], err);
}

/* Completes a large file, in the last thread that works on it. *is_done: the file has its final
 * name. */
static enum status end_large(struct work *w, const struct pull_source *source, uint32_t i,
                             bool one_stream, bool *is_done, struct error *err)
{
    struct pull_ranges *r = w->large[i].ranges;
    *is_done = true;
    if (one_stream) {
        TRY(pull_ranges_drop(r, err));
        return do_file(w, source, i, err);
    }
    enum status s = pull_ranges_finish(r, source, w->sha256[i], err);
    *is_done = s != STATUS_AGAIN;
    return s == STATUS_AGAIN ? STATUS_OK : s;
}

static enum status do_range(struct work *w, const struct pull_source *source, const struct unit *u,
                            struct error *err)
{
    struct large *l = u->large;
    pull_progress_name(w->progress, w->files[u->i_file].name);
    enum status s = u->i_range == UINT32_MAX
                        ? STATUS_OK
                        : pull_ranges_fetch(l->ranges, source, u->i_range, err);
    bool one_stream = s == STATUS_UNSUPPORTED, is_last, is_done = false;
    if (s != STATUS_OK && !one_stream)
        return s;
    (void)pthread_mutex_lock(&w->mutex);
    is_last = --l->n_active == 0 && !l->has_ended && pull_ranges_is_taken(l->ranges);
    l->has_ended = is_last;
    (void)pthread_mutex_unlock(&w->mutex);
    if (!is_last)
        return STATUS_OK;
    TRY(end_large(w, source, u->i_file, pull_ranges_is_one_stream(l->ranges), &is_done, err));
    (void)pthread_mutex_lock(&w->mutex);
    l->has_ended = is_done;
    w->n_unfinished -= is_done;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->mutex);
    return STATUS_OK;
}

static enum status do_whole(struct work *w, const struct pull_source *source, uint32_t i,
                            struct error *err)
{
    TRY(do_file(w, source, i, err));
    (void)pthread_mutex_lock(&w->mutex);
    w->n_unfinished--;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->mutex);
    return STATUS_OK;
}

static void *run(void *ctx)
{
    struct work *w = ctx;
    struct pull_source source = *w->source;
    struct fetch_net net = *source.net;
    struct error err = {0};
    struct unit u;
    net.cancelled = &w->cancelled;
    source.net = &net;
    source.session = fetch_session_new();
    enum status s =
        source.session
            ? STATUS_OK
            : error_set(
                  &err, STATUS_INTERNAL,
                  "cannot start downloads: libcurl cannot be initialised. Check its installation");
    for (;;) {
        (void)pthread_mutex_lock(&w->mutex);
        if (s != STATUS_OK)
            fail(w, &err);
        bool more = take(w, &u);
        (void)pthread_mutex_unlock(&w->mutex);
        if (!more)
            break;
        s = u.large ? do_range(w, &source, &u, &err) : do_whole(w, &source, u.i_file, &err);
    }
    fetch_session_free(source.session);
    return NULL;
}

/* ---- all files ---- */

/* Returns the number of threads, at most the number of units. */
static uint32_t threads_for(const struct work *w)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < w->n_files; i++)
        units += pull_ranges_wanted(&w->files[i]) ? w->files[i].n_bytes / PULL_RANGE_BYTES + 1 : 1;
    uint32_t most = w->source->n_parallel ? w->source->n_parallel : 1;
    return units < most ? (uint32_t)units : most;
}

enum status pull_files_fetch(const struct pull_source *source, const struct pull_file *files,
                             uint32_t n_files, const char *folder, struct pull_progress *progress,
                             char (*sha256)[65], struct error *err)
{
    struct work w = {.source = source,
                     .files = files,
                     .n_files = n_files,
                     .folder = folder,
                     .progress = progress,
                     .sha256 = sha256,
                     .n_unfinished = n_files};
    if (n_files == 0)
        return STATUS_OK;
    uint32_t n = threads_for(&w), n_started = 0;
    pthread_t *threads = mem_array(n, sizeof *threads);
    w.large = mem_array(n_files, sizeof *w.large);
    (void)pthread_mutex_init(&w.mutex, NULL);
    (void)pthread_cond_init(&w.changed, NULL);
    while (n_started + 1 < n && pthread_create(&threads[n_started], NULL, run, &w) == 0)
        n_started++;
    (void)run(&w); /* the calling thread works too, even when no other thread could be started */
    for (uint32_t i = 0; i < n_started; i++)
        (void)pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < n_files; i++)
        pull_ranges_close(w.large[i].ranges);
    (void)pthread_cond_destroy(&w.changed);
    (void)pthread_mutex_destroy(&w.mutex);
    mem_free(w.large);
    mem_free(threads);
    *err = w.err;
    return w.err.status;
}
