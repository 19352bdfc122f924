/* Makes the prompts of a benchmark from random text or from a file (ShareGPT, a poem, JSON
 * lines). `bench_dataset_load` reads the whole file, detects the file's kind, and adds prompts
 * until there are n_prompts. `struct bench_tokens` counts the tokens. `bench_dataset_check`
 * checks the file before a server is started.
 * Invariants: the seed alone determines every random choice. A file may contain any bytes: its
 * size is bounded, and an error names the line or entry. The caller owns the prompts. Only one
 * thread calls these functions. */
#include "cli/bench/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench/progress.h"
#include "common/base/mem.h"

enum { /* vLLM's limits for ShareGPT: shorter and longer conversations are skipped */
       SHAREGPT_MIN_TOKENS = 4,
       SHAREGPT_MAX_PROMPT = 1024,
       SHAREGPT_MAX_TOTAL = 2048,
       CUSTOM_OUTPUT_TOKENS = 256,
       N_POEM_TRIES = 1000
};

/* limit of 4 GiB; ShareGPT's file has 0.7 GB */
static const size_t MAX_FILE_BYTES = (size_t)1 << 32;

static const char poem_task[] = "Pick as many lines as you can from these poem lines:\n";

/* ---- shared by all kinds ---- */

struct load {
    const struct bench_dataset_options *o;
    const struct bench_tokens *tokens;
    struct bench_prompts *out;
    struct rng rng;
    struct str text; /* content of the file */
    struct bench_progress progress;
};

static void add(struct load *l, char *owned_text, uint32_t n_prompt, int64_t n_output)
{
    l->out->items[l->out->n++] = (struct bench_prompt){.owned_text = owned_text,
                                                       .n_prompt_tokens = n_prompt,
                                                       .n_output_tokens = (uint32_t)n_output};
    bench_progress_add(&l->progress, false);
    bench_progress_tick(&l->progress);
}

static bool is_full(const struct load *l)
{
    return l->out->n >= (uint32_t)l->o->n_prompts;
}

static int64_t either(int64_t general, int64_t own)
{
    return general >= 0 ? general : own;
}

struct piece {
    struct str text;
    uint32_t number; /* number, from 1, of the line in the file or of the entry in the JSON array */
};

struct pieces {
    struct piece *items;
    size_t n, cap;
};

static void pieces_add(struct pieces *p, struct str text, uint32_t number)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 256;
        p->items = mem_realloc(p->items, p->cap * sizeof *p->items);
    }
    p->items[p->n++] = (struct piece){text, number};
}

static void shuffle(struct load *l, struct pieces *p)
{
    for (size_t i = p->n; !l->o->disable_shuffle && i > 1; i--) {
        size_t k = rng_below(&l->rng, i);
        struct piece swap = p->items[i - 1];
        p->items[i - 1] = p->items[k];
        p->items[k] = swap;
    }
}

/* Splits the text into lines. Blank lines are left out. */
static struct pieces split_lines(struct str text)
{
    struct pieces p = {0};
    uint32_t number = 1;
    for (size_t at = 0; at < text.len; number++) {
        const char *end = memchr(text.ptr + at, '\n', text.len - at);
        size_t n = end ? (size_t)(end - text.ptr) - at : text.len - at;
        struct str line = {text.ptr + at, n};
        for (size_t i = 0; i < n; i++)
            if (!strchr(" \t\r", line.ptr[i])) {
                pieces_add(&p, line, number);
                break;
            }
        at += n + 1;
    }
    return p;
}

/* ---- random ---- */

static int64_t draw_length(struct load *l, int64_t mean)
{
    double ratio = l->o->random_range_ratio;
    int64_t low = (int64_t)floor((double)mean * (1 - ratio));
    int64_t high = (int64_t)ceil((double)mean * (1 + ratio));
    low = low < 1 ? 1 : low;
    return low + (int64_t)rng_below(&l->rng, (uint64_t)(high - low) + 1);
}

static enum status load_random(struct load *l, struct error *err)
{
    const struct bench_dataset_options *o = l->o;
    struct bench_ids prefix = {0};
    char *text = NULL;
    uint32_t n = 0;
    if (o->random_prefix_len > 0) {
        TRY(bench_tokens_draw(l->tokens, &l->rng, NULL, (uint32_t)o->random_prefix_len, &text, &n,
                              err));
        enum status s = bench_tokens_encode(l->tokens, str_from(text), &prefix, err);
        mem_free(text);
        TRY(s);
    }
    enum status s = STATUS_OK;
    while (s == STATUS_OK && !is_full(l)) {
        int64_t in = draw_length(l, either(o->input_len, o->random_input_len));
        int64_t out = draw_length(l, either(o->output_len, o->random_output_len));
        s = bench_tokens_draw(l->tokens, &l->rng, &prefix, (uint32_t)in + (uint32_t)prefix.n, &text,
                              &n, err);
        if (s == STATUS_OK)
            add(l, text, n, out);
    }
    mem_free(prefix.ids);
    return s;
}

/* ---- ShareGPT ---- */

static size_t skip_blanks(struct str s, size_t at)
{
    while (at < s.len && strchr(" \t\r\n,", s.ptr[at]))
        at++;
    return at;
}

/* Returns the end of the JSON object that begins at `at`; 0 = the object has no end. */
static size_t object_end(struct str s, size_t at)
{
    bool in_text = false;
    for (int depth = 0; at < s.len; at++) {
        char c = s.ptr[at];
        if (in_text) {
            at += c == '\\';
            in_text = c != '"';
            continue;
        }
        in_text = c == '"';
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth == 0)
            return at + 1;
    }
    return 0;
}

bool bench_json_next(struct str text, size_t *at, struct str *object, bool *wrong)
{
    *wrong = false;
    if (*at == 0) {
        *at = skip_blanks(text, 0);
        *wrong = *at >= text.len || text.ptr[*at] != '[';
        if (*wrong)
            return false;
        (*at)++;
    }
    *at = skip_blanks(text, *at);
    if (*at < text.len && text.ptr[*at] == ']')
        return false;
    size_t end = *at < text.len && text.ptr[*at] == '{' ? object_end(text, *at) : 0;
    *wrong = end == 0;
    if (*wrong)
        return false;
    *object = (struct str){text.ptr + *at, end - *at};
    *at = end;
    return true;
}

/* Adds one conversation. Its first text is the prompt. The length of its second text is the
 * output length. *taken is set when the conversation's size is within the limits. */
static enum status add_conversation(struct load *l, const struct piece *p, bool *taken,
                                    struct error *err)
{
    /* json_loadb returns NULL for a text with \u0000, and such a text is skipped */
    json_t *j = json_loadb(p->text.ptr, p->text.len, 0, NULL);
    const json_t *list = json_object_get(j, "conversations");
    const json_t *ask = json_object_get(json_array_get(list, 0), "value");
    const json_t *answer = json_object_get(json_array_get(list, 1), "value");
    int64_t fixed = either(l->o->output_len, l->o->sharegpt_output_len);
    uint32_t n_in = 0, n_out = 0;
    enum status s = STATUS_OK;
    *taken = false;
    if (json_is_string(ask) && json_is_string(answer)) {
        struct str in = {json_string_value(ask), json_string_length(ask)};
        struct str out = {json_string_value(answer), json_string_length(answer)};
        s = bench_tokens_count(l->tokens, in, &n_in, err);
        if (s == STATUS_OK && fixed < 0)
            s = bench_tokens_count(l->tokens, out, &n_out, err);
        n_out = fixed < 0 ? n_out : (uint32_t)fixed;
        *taken = s == STATUS_OK && n_in >= SHAREGPT_MIN_TOKENS &&
                 (fixed >= 0 || n_out >= SHAREGPT_MIN_TOKENS) && n_in <= SHAREGPT_MAX_PROMPT &&
                 n_in + n_out <= SHAREGPT_MAX_TOTAL;
        if (*taken)
            add(l, mem_strndup(in.ptr, in.len), n_in, n_out);
    }
    json_decref(j);
    return s;
}

static enum status load_sharegpt(struct load *l, struct error *err)
{
    struct pieces p = {0};
    struct str object;
    size_t at = 0;
    bool wrong, taken;
    while (bench_json_next(l->text, &at, &object, &wrong))
        pieces_add(&p, object, (uint32_t)p.n + 1);
    enum status s = wrong ? error_set(err, STATUS_INVALID,
                                      "%s is not a JSON array of conversations: the JSON ends or "
                                      "is invalid after entry %zu",
                                      l->o->path, p.n)
                          : STATUS_OK;
    shuffle(l, &p);
    for (size_t i = 0; s == STATUS_OK && i < p.n && !is_full(l); i++)
        s = add_conversation(l, &p.items[i], &taken, err);
    mem_free(p.items);
    if (s == STATUS_OK && l->out->n == 0)
        s = error_set(err, STATUS_INVALID,
                      "%s: none of its %zu entries can be used. An entry needs two texts: the "
                      "first with 4 to 1024 tokens, both together with at most 2048",
                      l->o->path, p.n);
    return s;
}

/* ---- sonnet ---- */

struct poem {
    struct pieces lines;
    /* n_lines: lines of one prompt; n_prefix: lines of the shared prefix */
    size_t n_lines, n_prefix;
};

static void write_poem(struct load *l, const struct poem *p, struct strbuf *b)
{
    strbuf_reset(b);
    strbuf_append_c(b, poem_task);
    for (size_t i = 0; i < p->n_lines; i++) {
        size_t k = i < p->n_prefix ? i % p->lines.n : rng_below(&l->rng, p->lines.n);
        strbuf_append_str(b, p->lines.items[k].text);
        strbuf_append_c(b, "\n");
    }
}

/* Computes how many lines make n_in tokens, from the mean length of a line. */
static enum status plan_poem(struct load *l, struct poem *p, int64_t n_in, struct error *err)
{
    uint32_t n_task = 0, n_poem = 0;
    TRY(bench_tokens_count(l->tokens, STR(poem_task), &n_task, err));
    TRY(bench_tokens_count(l->tokens, l->text, &n_poem, err));
    double mean = (double)n_poem / (double)p->lines.n;
    if (n_in <= n_task || mean <= 0)
        return error_set(err, STATUS_INVALID,
                         "--sonnet-input-len %lld is too low: the instruction before the poem's "
                         "lines already has %u tokens. Use a higher value",
                         (long long)n_in, n_task);
    double n_lines = round(((double)n_in - n_task) / mean);
    double n_prefix = round(((double)l->o->sonnet_prefix_len - n_task) / mean);
    p->n_lines = n_lines < 1 ? 1 : (size_t)n_lines;
    p->n_prefix = n_prefix < 0 ? 0 : (size_t)n_prefix;
    p->n_prefix = p->n_prefix < p->n_lines ? p->n_prefix : p->n_lines;
    return STATUS_OK;
}

static enum status load_sonnet(struct load *l, struct error *err)
{
    int64_t n_in = either(l->o->input_len, l->o->sonnet_input_len);
    struct poem p = {.lines = split_lines(l->text)};
    struct strbuf b;
    uint32_t n = 0;
    strbuf_init(&b, 0);
    enum status s =
        p.lines.n > 0
            ? plan_poem(l, &p, n_in, err)
            : error_set(err, STATUS_INVALID,
                        "%s contains no lines. Give a file with at least one line", l->o->path);
    for (int i_try = 0; s == STATUS_OK && !is_full(l); i_try++) {
        write_poem(l, &p, &b);
        s = bench_tokens_count(l->tokens, strbuf_str(&b), &n, err);
        /* the next attempt uses one line less */
        if (s == STATUS_OK && n > n_in && i_try >= N_POEM_TRIES) {
            if (p.n_lines == 1)
                s = error_set(err, STATUS_INVALID,
                              "%s: a line has more than the %lld tokens that are left for it. Use "
                              "a higher --sonnet-input-len or shorter lines",
                              l->o->path, (long long)n_in);
            p.n_lines -= p.n_lines > 1;
            p.n_prefix = p.n_prefix < p.n_lines ? p.n_prefix : p.n_lines;
            i_try = 0;
        } else if (s == STATUS_OK && n <= n_in) {
            add(l, mem_strndup(b.ptr, b.len), n, either(l->o->output_len, l->o->sonnet_output_len));
            i_try = 0;
        }
    }
    strbuf_fini(&b);
    mem_free(p.lines.items);
    return s;
}

/* ---- JSON lines (custom) ---- */

static enum status add_line(struct load *l, const struct piece *p, struct error *err)
{
    json_error_t why;
    json_t *j = json_loadb(p->text.ptr, p->text.len, 0, &why);
    const json_t *prompt = json_object_get(j, "prompt");
    const json_t *own = json_object_get(j, "output_tokens");
    int64_t n_out = either(l->o->output_len, l->o->custom_output_len);
    uint32_t n_in = 0;
    enum status s = STATUS_OK;
    if (n_out < 0)
        n_out = json_is_integer(own) ? json_integer_value(own) : CUSTOM_OUTPUT_TOKENS;
    if (!j)
        s = error_set(err, STATUS_INVALID, "%s:%u: the line is not valid JSON: %s", l->o->path,
                      p->number, why.text);
    else if (!json_is_string(prompt))
        s = error_set(err, STATUS_INVALID, "%s:%u: the line has no \"prompt\" with a string",
                      l->o->path, p->number);
    else if (n_out < 1 || n_out > 1 << 24)
        s = error_set(err, STATUS_INVALID,
                      "%s:%u: the length of the answer (\"output_tokens\" or --custom-output-len) "
                      "must be from 1 to 16777216 tokens",
                      l->o->path, p->number);
    struct str text = {json_string_value(prompt), json_string_length(prompt)};
    if (s == STATUS_OK)
        s = bench_tokens_count(l->tokens, text, &n_in, err);
    if (s == STATUS_OK)
        add(l, mem_strndup(text.ptr, text.len), n_in, n_out);
    json_decref(j);
    return s;
}

static enum status load_custom(struct load *l, struct error *err)
{
    struct pieces p = split_lines(l->text);
    enum status s =
        p.n > 0 ? STATUS_OK
                : error_set(err, STATUS_INVALID,
                            "%s contains no lines. Give a file with at least one line", l->o->path);
    shuffle(l, &p);
    for (size_t i = 0; s == STATUS_OK && i < p.n && !is_full(l); i++)
        s = add_line(l, &p.items[i], err);
    mem_free(p.items);
    return s;
}

/* ---- the file ---- */

enum status bench_dataset_find_kind(const char *path, struct str text, int *kind, struct error *err)
{
    size_t n = strlen(path), at = skip_blanks(text, 0);
    if (at >= text.len)
        return error_set(err, STATUS_INVALID, "the dataset file %s is empty. Give another file",
                         path);
    if ((n > 6 && strcmp(path + n - 6, ".jsonl") == 0) || text.ptr[at] == '{')
        *kind = BENCH_DATASET_CUSTOM;
    else if (text.ptr[at] == '[')
        *kind = BENCH_DATASET_SHAREGPT;
    else
        *kind = BENCH_DATASET_SONNET;
    if (*kind == BENCH_DATASET_SONNET && str_utf8_valid(text) != text.len)
        return error_set(
            err, STATUS_INVALID,
            "%s has an unknown format: it must be JSON (ShareGPT), JSON lines or UTF-8 text", path);
    return STATUS_OK;
}

/* Reads from fd until `size` bytes are read or the file ends. Returns the number of bytes read,
 * or -1 with errno. */
static ssize_t read_all(int fd, char *to, size_t size)
{
    size_t n = 0;
    while (n < size) {
        ssize_t got = read(fd, to + n, size - n);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -1;
        n += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)n;
}

/* Reads the file instead of mapping it: a mapped file that is cut short meanwhile would end the
 * process with SIGBUS. */
static enum status read_file(const char *path, struct str *owned, struct error *err)
{
    struct stat st;
    /* O_NONBLOCK is set, because otherwise a FIFO, which cannot be a dataset, would block the
     * open */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return error_set(err, STATUS_INVALID, "cannot open --dataset-path %s: %s", path,
                         strerror(why));
    }
    size_t size = S_ISREG(st.st_mode) && st.st_size > 0 ? (size_t)st.st_size : 0;
    if (size > MAX_FILE_BYTES) {
        close(fd);
        return error_set(
            err, STATUS_INVALID,
            "--dataset-path %s has %zu bytes, more than the limit of %zu. Use a part of the file",
            path, size, MAX_FILE_BYTES);
    }
    char *text = mem_alloc(size + 1);
    ssize_t n = read_all(fd, text, size);
    int why = errno;
    close(fd);
    if (n > 0) {
        *owned = (struct str){text, (size_t)n};
        return STATUS_OK;
    }
    mem_free(text);
    return error_set(err, STATUS_INVALID, "cannot read --dataset-path %s: %s", path,
                     n < 0 ? strerror(why) : "it is empty or not a regular file");
}

/* Repeats the prompts of a short file from the first one on, until `l` has n_prompts. */
static void oversample(struct load *l)
{
    for (uint32_t n = l->out->n, i = 0; n > 0 && !l->o->no_oversample && !is_full(l); i++) {
        const struct bench_prompt *p = &l->out->items[i % n];
        add(l, mem_strdup(p->owned_text), p->n_prompt_tokens, p->n_output_tokens);
    }
}

/* Reads the file and finds its kind. The caller frees *text with `mem_free`. The text is empty
 * for random prompts. */
static enum status open_dataset(const struct bench_dataset_options *o, struct str *text, int *kind,
                                struct error *err)
{
    *text = (struct str){0};
    *kind = o->kind == BENCH_DATASET_AUTO && !o->path ? BENCH_DATASET_RANDOM : o->kind;
    if (*kind == BENCH_DATASET_RANDOM)
        return STATUS_OK;
    if (!o->path)
        return error_set(err, STATUS_INVALID, "--dataset-path FILE is required for this dataset");
    TRY(read_file(o->path, text, err));
    enum status s = STATUS_OK;
    if (*kind == BENCH_DATASET_AUTO)
        s = bench_dataset_find_kind(o->path, *text, kind, err);
    if (s == STATUS_OK)
        return STATUS_OK;
    mem_free((char *)(uintptr_t)text->ptr);
    *text = (struct str){0};
    return s;
}

enum status bench_dataset_check(const struct bench_dataset_options *o, struct error *err)
{
    struct str text;
    int kind;
    TRY(open_dataset(o, &text, &kind, err));
    mem_free((char *)(uintptr_t)text.ptr);
    return STATUS_OK;
}

enum status bench_dataset_load(const struct bench_dataset_options *o, const struct bench_tokens *t,
                               struct bench_prompts *out, struct error *err)
{
    struct load l = {.o = o, .tokens = t, .out = out, .rng = {(uint64_t)o->seed}};
    int kind;
    *out = (struct bench_prompts){0};
    TRY(open_dataset(o, &l.text, &kind, err));
    out->items = mem_array((size_t)o->n_prompts, sizeof *out->items);
    bench_progress_start(&l.progress, o->quiet, "prompts made", (uint32_t)o->n_prompts);
    enum status s;
    switch (kind) {
    case BENCH_DATASET_SHAREGPT:
        s = load_sharegpt(&l, err);
        break;
    case BENCH_DATASET_SONNET:
        s = load_sonnet(&l, err);
        break;
    case BENCH_DATASET_CUSTOM:
        s = load_custom(&l, err);
        break;
    default:
        s = load_random(&l, err);
    }
    if (s == STATUS_OK)
        oversample(&l);
    bench_progress_end(&l.progress);
    mem_free((char *)(uintptr_t)l.text.ptr);
    if (s != STATUS_OK)
        bench_prompts_fini(out);
    return s;
}

void bench_prompts_fini(struct bench_prompts *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        mem_free(p->items[i].owned_text);
    mem_free(p->items);
    *p = (struct bench_prompts){0};
}
