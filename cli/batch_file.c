#include "cli/batch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"

enum { FIRST_LINES = 1024 };

static enum status map(struct batch_file *f, const char *path, struct error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (is_file && st.st_size > 0) {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        f->mapped = at == MAP_FAILED ? NULL : at;
        f->len = f->mapped ? (size_t)st.st_size : 0;
    }
    (void)close(fd);
    if (!is_file)
        return error_set(err, STATUS_INVALID, "%s is not a file", path);
    if (!f->mapped)
        return error_set(err, STATUS_INVALID, "%s is empty", path);
    return STATUS_OK;
}

static bool known_url(const char *url)
{
    static const char *const urls[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        if (strcmp(url, urls[i]) == 0)
            return true;
    return false;
}

static enum status add(struct batch_file *f, struct str text, uint32_t number, const char *path,
                       struct error *err)
{
    char why[200];
    struct batch_input_line l;
    if (!batch_input_read(text, "", &l, why))
        return error_set(err, STATUS_INVALID, "%s:%u: %s", path, number, why);
    if (!known_url(l.owned_url)) {
        (void)error_set(err, STATUS_INVALID,
                        "%s:%u: url \"%.100s\": /v1/chat/completions, /v1/completions and "
                        "/v1/embeddings are run",
                        path, number, l.owned_url);
        batch_input_line_fini(&l);
        return STATUS_INVALID;
    }
    if ((f->n_lines & (f->n_lines - 1)) == 0 && (f->n_lines == 0 || f->n_lines >= FIRST_LINES))
        f->owned_lines =
            mem_realloc(f->owned_lines, sizeof *f->owned_lines *
                                            (f->n_lines ? 2 * (size_t)f->n_lines : FIRST_LINES));
    f->owned_lines[f->n_lines++] =
        (struct batch_file_line){.text = text, .number = number, .owned_id = l.owned_custom_id};
    l.owned_custom_id = NULL;
    batch_input_line_fini(&l);
    return STATUS_OK;
}

static int by_id(const void *a, const void *b, void *lines)
{
    const struct batch_file_line *l = lines;
    return strcmp(l[*(const uint32_t *)a].owned_id, l[*(const uint32_t *)b].owned_id);
}

/* Answers are told apart by custom_id alone. */
static enum status sort(struct batch_file *f, const char *path, struct error *err)
{
    f->owned_by_id = mem_array(f->n_lines, sizeof *f->owned_by_id);
    for (uint32_t i = 0; i < f->n_lines; i++)
        f->owned_by_id[i] = i;
    qsort_r(f->owned_by_id, f->n_lines, sizeof *f->owned_by_id, by_id, f->owned_lines);
    for (uint32_t i = 1; i < f->n_lines; i++) {
        const struct batch_file_line *a = &f->owned_lines[f->owned_by_id[i - 1]],
                                     *b = &f->owned_lines[f->owned_by_id[i]];
        if (strcmp(a->owned_id, b->owned_id) == 0)
            return error_set(err, STATUS_INVALID,
                             "%s: lines %u and %u have one custom_id, \"%.100s\"", path, a->number,
                             b->number, a->owned_id);
    }
    return STATUS_OK;
}

enum status batch_file_open(struct batch_file *f, const char *path, struct error *err)
{
    *f = (struct batch_file){0};
    enum status s = map(f, path, err);
    struct str rest = {f->mapped, f->len}, text;
    uint32_t number = 0;
    while (s == STATUS_OK && batch_input_next(&rest, &text, &number))
        s = add(f, text, number, path, err);
    if (s == STATUS_OK && f->n_lines == 0)
        s = error_set(err, STATUS_INVALID, "%s has no line", path);
    return s == STATUS_OK ? sort(f, path, err) : s;
}

void batch_file_close(struct batch_file *f)
{
    for (uint32_t i = 0; i < f->n_lines; i++)
        mem_free(f->owned_lines[i].owned_id);
    mem_free(f->owned_lines);
    mem_free(f->owned_by_id);
    if (f->mapped)
        (void)munmap((void *)f->mapped, f->len);
    *f = (struct batch_file){0};
}

static struct batch_file_line *find(const struct batch_file *f, const char *id)
{
    uint32_t lo = 0, hi = f->n_lines;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        struct batch_file_line *l = &f->owned_lines[f->owned_by_id[mid]];
        int order = strcmp(id, l->owned_id);
        if (order == 0)
            return l;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

enum status batch_file_resume(struct batch_file *f, struct str answers, const char *path,
                              struct error *err)
{
    struct str line;
    uint32_t number = 0;
    while (batch_input_next(&answers, &line, &number)) {
        json_t *o = json_loadb(line.ptr, line.len, JSON_ALLOW_NUL, NULL);
        const char *id = json_string_value(json_object_get(o, "custom_id"));
        struct batch_file_line *l = id ? find(f, id) : NULL;
        json_decref(o);
        if (!l)
            return error_set(err, STATUS_INVALID,
                             "%s:%u answers no line of the input: is it another run's output?",
                             path, number);
        f->n_answered += l->text.len > 0;
        l->text = (struct str){0};
    }
    return STATUS_OK;
}
