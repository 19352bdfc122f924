#include "cli/batch/file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
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
        return error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (is_file && st.st_size > 0) {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        f->mapped = at == MAP_FAILED ? NULL : at;
        f->len = f->mapped ? (size_t)st.st_size : 0;
    }
    (void)close(fd);
    if (!is_file)
        return error_set(err, STATUS_INVALID,
                         "%s is not a regular file. Copy it to a regular file first", path);
    if (!f->mapped && st.st_size > 0)
        return error_set(err, STATUS_IO, "cannot map %s into memory: %s", path, strerror(errno));
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

/* Returns true for the URL of a call that vLLM's run-batch accepts and Coxswain does not:
 * scoring, reranking or audio. */
static bool is_of_vllm(const char *url)
{
    return strstr(url, "score") || strstr(url, "rerank") || strstr(url, "/audio/");
}

/* Returns true when the line can be sent. Otherwise, `why` contains the reason. */
static bool read_line(struct str text, struct batch_input_line *l, char why[300])
{
    char wrong[200];
    if (!batch_input_read(text, "", l, wrong)) {
        snprintf(why, 300, "This line is not a batch request: %s", wrong);
        l->owned_custom_id = batch_input_id(text);
        return false;
    }
    if (known_url(l->owned_url))
        return true;
    snprintf(why, 300,
             "The url \"%.100s\" is not supported%s. Use /v1/chat/completions, /v1/completions or "
             "/v1/embeddings.",
             l->owned_url,
             is_of_vllm(l->owned_url) ? ": scores, reranking and audio are not available" : "");
    return false;
}

static void add(struct batch_file *f, struct str text, uint32_t number)
{
    char why[300];
    struct batch_input_line l;
    bool can_be_sent = read_line(text, &l, why);
    if ((f->n_lines & (f->n_lines - 1)) == 0 && (f->n_lines == 0 || f->n_lines >= FIRST_LINES))
        f->owned_lines =
            mem_realloc(f->owned_lines, sizeof *f->owned_lines *
                                            (f->n_lines ? 2 * (size_t)f->n_lines : FIRST_LINES));
    f->owned_lines[f->n_lines++] =
        (struct batch_file_line){.text = text,
                                 .number = number,
                                 .owned_id = l.owned_custom_id,
                                 .owned_why = can_be_sent ? NULL : mem_strdup(why)};
    f->n_refused += !can_be_sent;
    l.owned_custom_id = NULL;
    batch_input_line_fini(&l);
}

static int by_id(const void *a, const void *b, void *lines)
{
    const struct batch_file_line *l = lines;
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    int order = strcmp(l[i].owned_id, l[k].owned_id);
    return order != 0 ? order : i < k ? -1 : i > k;
}

static void sort(struct batch_file *f)
{
    f->owned_by_id = mem_array(f->n_lines + 1, sizeof *f->owned_by_id);
    for (uint32_t i = 0; i < f->n_lines; i++)
        if (f->owned_lines[i].owned_id)
            f->owned_by_id[f->n_ids++] = i;
    qsort_r(f->owned_by_id, f->n_ids, sizeof *f->owned_by_id, by_id, f->owned_lines);
    for (uint32_t i = 1; i < f->n_ids; i++)
        f->n_twice += strcmp(f->owned_lines[f->owned_by_id[i - 1]].owned_id,
                             f->owned_lines[f->owned_by_id[i]].owned_id) == 0;
}

enum status batch_file_open(struct batch_file *f, const char *path, struct error *err)
{
    *f = (struct batch_file){0};
    enum status s = map(f, path, err);
    struct str rest = {f->mapped, f->len}, text;
    uint32_t number = 0;
    while (s == STATUS_OK && batch_input_next(&rest, &text, &number))
        add(f, text, number);
    if (s == STATUS_OK)
        sort(f);
    return s;
}

void batch_file_close(struct batch_file *f)
{
    for (uint32_t i = 0; i < f->n_lines; i++) {
        mem_free(f->owned_lines[i].owned_id);
        mem_free(f->owned_lines[i].owned_why);
    }
    mem_free(f->owned_lines);
    mem_free(f->owned_by_id);
    if (f->mapped)
        (void)munmap((void *)f->mapped, f->len);
    *f = (struct batch_file){0};
}

/* Returns the first line with this custom_id that has no answer yet. When all lines with this
 * custom_id have an answer, it returns the last of them. */
static struct batch_file_line *find(const struct batch_file *f, const char *id)
{
    struct batch_file_line *found = NULL;
    uint32_t lo = 0, hi = f->n_ids;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (strcmp(id, f->owned_lines[f->owned_by_id[mid]].owned_id) > 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < f->n_ids && (!found || found->text.len == 0); lo++) {
        struct batch_file_line *l = &f->owned_lines[f->owned_by_id[lo]];
        if (strcmp(id, l->owned_id) != 0)
            break;
        found = l;
    }
    return found;
}

/* Returns the next line without a custom_id. Answers without a custom_id are matched by their
 * order alone. */
static struct batch_file_line *next_without_id(const struct batch_file *f, uint32_t *i)
{
    while (*i < f->n_lines && f->owned_lines[*i].owned_id)
        ++*i;
    return *i < f->n_lines ? &f->owned_lines[(*i)++] : NULL;
}

enum status batch_file_resume(struct batch_file *f, struct str answers, const char *path,
                              struct error *err)
{
    struct str line;
    uint32_t number = 0, i = 0;
    while (batch_input_next(&answers, &line, &number)) {
        json_t *o = json_loadb(line.ptr, line.len, JSON_ALLOW_NUL, NULL);
        const json_t *id = json_object_get(o, "custom_id");
        struct batch_file_line *l = json_is_string(id) ? find(f, json_string_value(id))
                                    : json_is_null(id) ? next_without_id(f, &i)
                                                       : NULL;
        json_decref(o);
        if (!l)
            return error_set(err, STATUS_INVALID,
                             "%s:%u: this answer belongs to no line of the input. Check that the "
                             "file is the output of the same input, or name another output file",
                             path, number);
        f->n_answered += l->text.len > 0;
        l->text = (struct str){0};
    }
    return STATUS_OK;
}
