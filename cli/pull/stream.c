/* A model in memory uses a memfd and no file in /dev/shm. /dev/shm has 64 MiB in most
 * containers, and files of a killed process would not be removed. */
#include "cli/pull/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/pull/files/list.h"
#include "cli/pull/files/part.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/options.h"
#include "cli/pull/pull.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/host.h"
#include "common/model/info/pulled.h"

enum { ROOM_LEFT = 256 << 20 }; /* bytes of memory to leave free for the serving processes */

bool pull_stream_wanted(const struct pull_options *o, const char *model)
{
    struct model_ref r;
    struct pulled there;
    struct error err;
    if (model_ref_parse(model, &r, &err) != STATUS_OK)
        return false;
    bool is_remote = model_ref_is_remote(&r) && !(r.is_plain && access(model, F_OK) == 0);
    bool is_there = is_remote && pulled_open(&r, o->cache_dir, &there, &err) == STATUS_OK;
    if (is_there)
        pulled_fini(&there);
    model_ref_fini(&r);
    return is_remote && !is_there;
}

static enum status check_room(uint64_t n_bytes, struct error *err)
{
    char wanted[24], is_free[24];
    uint64_t free_bytes = host_available_bytes();
    if (free_bytes >= n_bytes + ROOM_LEFT)
        return STATUS_OK;
    pull_bytes_text(wanted, sizeof wanted, n_bytes + ROOM_LEFT);
    pull_bytes_text(is_free, sizeof is_free, free_bytes);
    return error_set(
        err, STATUS_LIMIT,
        "--load-format stream needs %s of memory for the files alone, but only %s are available "
        "(on this machine or in this cgroup). Use `cox pull` to store the model on a disk",
        wanted, is_free);
}

static enum status add_file(struct pull_stream *s, const struct pull_file *f, struct error *err)
{
    char path[PATH_MAX], to[64];
    TRY(pull_part_path(s->folder.path, f->name, ".part", path, err));
    TRY(pull_part_parents(s->folder.path, path, err));
    int fd = memfd_create(f->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_set(err, STATUS_IO, "cannot create a file in memory for %s: %s", f->name,
                         strerror(errno));
    s->fds[s->n_fds++] = fd;
    snprintf(to, sizeof to, "/proc/%d/fd/%d", (int)getpid(), fd);
    return symlink(to, path) == 0
               ? STATUS_OK
               : error_set(err, STATUS_IO, "cannot create the link %s: %s", path, strerror(errno));
}

static enum status prepare(void *ctx, const struct pull_list *l, struct error *err)
{
    struct pull_stream *s = ctx;
    s->n_bytes = pull_list_bytes(l);
    if (!s->only_heads)
        TRY(check_room(s->n_bytes, err));
    s->fds = mem_array(l->n_files, sizeof *s->fds);
    for (uint32_t i = 0; i < l->n_files; i++)
        TRY(add_file(s, &l->files[i], err));
    return STATUS_OK;
}

/* Seals the files, so that no process can change them. */
static enum status seal(const struct pull_stream *s, struct error *err)
{
    for (uint32_t i = 0; i < s->n_fds; i++)
        if (fcntl(s->fds[i], F_ADD_SEALS,
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
            return error_set(err, STATUS_IO, "cannot seal a file in memory: %s", strerror(errno));
    return STATUS_OK;
}

static enum status open_stream(const struct pull_options *o, const char *model, const char *tmp_dir,
                               bool only_heads, struct pull_stream *out, struct error *err)
{
    struct model_ref r;
    uint64_t begin_ns = clock_mono_ns();
    *out = (struct pull_stream){.folder = {.dir_fd = -1, .lock_fd = -1}, .only_heads = only_heads};
    TRY(model_ref_parse(model, &r, err));
    enum status s = o->offline
                        ? error_set(err, STATUS_NOT_FOUND,
                                    "model %s is not in the cache (%s) and cannot be downloaded "
                                    "offline: " PULL_ONLINE,
                                    r.text, o->cache_dir, r.text)
                        : throw_away_make(&out->folder, tmp_dir, "stream", err);
    const struct pull_sink sink = {out->folder.path, prepare, out, only_heads};
    if (s == STATUS_OK)
        s = pull_into(o, &r, &sink, err);
    if (s == STATUS_OK)
        s = seal(out, err);
    out->name = mem_strdup(r.name);
    out->seconds = (double)(clock_mono_ns() - begin_ns) / 1e9;
    model_ref_fini(&r);
    return s;
}

enum status pull_stream_open(const struct pull_options *o, const char *model, const char *tmp_dir,
                             struct pull_stream *out, struct error *err)
{
    return open_stream(o, model, tmp_dir, false, out, err);
}

enum status pull_stream_open_heads(const struct pull_options *o, const char *model,
                                   const char *tmp_dir, struct pull_stream *out, struct error *err)
{
    return open_stream(o, model, tmp_dir, true, out, err);
}

enum status pull_stream_keep(const struct pull_stream *s, struct error *err)
{
    bool ok = fcntl(s->folder.lock_fd, F_SETFD, 0) == 0;
    for (uint32_t i = 0; ok && i < s->n_fds; i++)
        ok = fcntl(s->fds[i], F_SETFD, 0) == 0;
    return ok ? STATUS_OK
              : error_set(err, STATUS_IO, "cannot keep a file in memory open: %s", strerror(errno));
}

void pull_stream_close(struct pull_stream *s)
{
    throw_away_remove(&s->folder);
    for (uint32_t i = 0; i < s->n_fds; i++)
        (void)close(s->fds[i]);
    mem_free(s->fds);
    mem_free(s->name);
    *s = (struct pull_stream){.folder = {.dir_fd = -1, .lock_fd = -1}};
}
