/* Compiles grammars on a thread of its own. The head's orders (grammar_orders.c) and the compute
 * thread (grammars.c) look up a grammar by its source in one table. The thread takes the oldest
 * queued entry, urgent ones first. It compiles the entry without the lock and stores the result.
 * Invariants: `mutex` guards the table and is held only for a look-up or while a matcher is
 * made. An entry that is being compiled is never freed. An entry stays while it has an id (the
 * head needs it) or the compute thread waits for it. The KEPT other entries that were used last
 * stay too, as far as their part of the memory allows. */
#include "worker/grammar/compiler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/host/thread.h"
#include "proto/limits.h"

#define SLOW_NS (100 * NS_PER_MS) /* compilations that take longer are logged */

enum {
    KEPT = 32,
    /* 1/SPARE_PART of the memory is for grammars that neither head nor step needs */
    SPARE_PART = 8,
    /* MAX_WANTED is twice the most grammars that a head needs, because grammars that it released
     * in a lost session count until the epoch ends. */
    MAX_WANTED = 2 * PROTO_MAX_GRAMMARS,
    NAP_NS = 2000000,
    NICENESS = 4, /* priority below that of steps; the thread still runs on a loaded machine */
};

_Static_assert((int)TEXT_GRAMMAR_JSON_SCHEMA == (int)GRAMMAR_JSON_SCHEMA &&
                   (int)TEXT_GRAMMAR_REGEX == (int)GRAMMAR_REGEX &&
                   (int)TEXT_GRAMMAR_LARK == (int)GRAMMAR_LARK &&
                   (int)TEXT_GRAMMAR_STRUCTURAL_TAG == (int)GRAMMAR_STRUCTURAL_TAG &&
                   (int)TEXT_GRAMMAR_AFTER_REASONING == (int)GRAMMAR_AFTER_REASONING,
               "kinds go to text/ as they are");

enum entry_state { ENTRY_QUEUED, ENTRY_COMPILING, ENTRY_READY, ENTRY_FAILED };

struct entry {
    struct entry *next; /* next entry in the table, or in a list to be freed */
    enum grammar_kind kind;
    struct str source; /* text of the grammar; owned */
    uint64_t hash;     /* hash of `source` */
    uint64_t id;       /* id from the head; 0 = the head does not need the grammar */
    bool untold;       /* the result has not been reported to the head yet */
    bool is_urgent;    /* the compute thread waits for this entry */
    enum entry_state state;
    enum status status; /* `status` and `why` are set with ENTRY_FAILED */
    char why[TEXT_ERR_MAX];
    struct text_grammar *grammar; /* `grammar` and the sizes are set with ENTRY_READY */
    uint64_t n_bytes, matcher_bytes;
    uint64_t used;
};

struct grammar_compiler {
    const char *tokenizer_path, *cache_dir;
    pthread_mutex_t mutex; /* guards all fields below, except `vocabulary` and `why` */
    pthread_cond_t wake, done;
    pthread_t thread;
    bool started, has_thread, stop;
    void (*watch)(void *ctx);
    void *watch_ctx;
    struct entry *first; /* the table, in order of arrival */
    uint32_t n, n_wanted;
    uint64_t n_used, room_bytes;
    /* used by the thread; NULL = the tokenizer could not be opened, see `why` */
    struct text_vocabulary *vocabulary;
    char why[TEXT_ERR_MAX];
};

uint64_t grammar_compiler_room(uint64_t spare_bytes)
{
    uint64_t room = spare_bytes / 4;
    return room < GRAMMAR_ROOM_LEAST  ? GRAMMAR_ROOM_LEAST
           : room > GRAMMAR_ROOM_MOST ? GRAMMAR_ROOM_MOST
                                      : room;
}

struct grammar_compiler *grammar_compiler_new(const char *tokenizer_path, const char *cache_dir,
                                              uint64_t room_bytes)
{
    struct grammar_compiler *c = mem_zalloc(sizeof *c);
    pthread_condattr_t attr;
    c->tokenizer_path = tokenizer_path;
    c->cache_dir = cache_dir;
    c->room_bytes = room_bytes;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &attr);
    pthread_cond_init(&c->done, &attr);
    pthread_condattr_destroy(&attr);
    return c;
}

static void free_entries(struct entry *first)
{
    for (struct entry *x = first, *next; x; x = next) {
        next = x->next;
        text_grammar_free(x->grammar);
        mem_free((void *)x->source.ptr);
        mem_free(x);
    }
}

void grammar_compiler_free(struct grammar_compiler *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    free_entries(c->first);
    text_vocabulary_free(c->vocabulary);
    pthread_cond_destroy(&c->wake);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->mutex);
    mem_free(c);
}

/* ---- the table; the caller holds the mutex ---- */

static struct entry *find(const struct grammar_compiler *c, enum grammar_kind kind,
                          struct str source, uint64_t hash)
{
    struct entry *x = c->first;
    while (x && (x->hash != hash || x->kind != kind || x->source.len != source.len ||
                 memcmp(x->source.ptr, source.ptr, source.len) != 0))
        x = x->next;
    return x;
}

static struct entry *add(struct grammar_compiler *c, enum grammar_kind kind, struct str source,
                         uint64_t hash)
{
    struct entry *x = mem_zalloc(sizeof *x), **at = &c->first;
    *x = (struct entry){
        .kind = kind, .source = {mem_strndup(source.ptr, source.len), source.len}, .hash = hash};
    while (*at)
        at = &(*at)->next;
    *at = x;
    c->n++;
    return x;
}

static void set_id(struct grammar_compiler *c, struct entry *x, uint64_t id)
{
    c->n_wanted += (id != 0) - (x->id != 0);
    x->id = id;
    x->untold = false;
}

static bool is_idle(const struct entry *x)
{
    return x->id == 0 && !x->is_urgent && x->state != ENTRY_COMPILING;
}

static struct entry *take_out(struct grammar_compiler *c, struct entry **at, struct entry *rest)
{
    struct entry *x = *at;
    *at = x->next;
    x->next = rest;
    c->n--;
    return x;
}

static struct entry **oldest_idle(struct grammar_compiler *c)
{
    struct entry **oldest = NULL;
    for (struct entry **at = &c->first; *at; at = &(*at)->next)
        if (is_idle(*at) && (!oldest || (*at)->used < (*oldest)->used))
            oldest = at;
    return oldest;
}

/* Removes entries that neither the head nor a step waits for: queued entries, and compiled ones
 * beyond KEPT or their part of the memory. The caller frees the entries after it has released
 * the mutex. */
static struct entry *trim(struct grammar_compiler *c)
{
    struct entry *out = NULL;
    uint32_t n = 0;
    uint64_t n_bytes = 0;
    for (struct entry **at = &c->first; *at;) {
        bool idle = is_idle(*at);
        if (idle && (*at)->state == ENTRY_QUEUED) {
            out = take_out(c, at, out);
            continue;
        }
        n += idle;
        n_bytes += idle ? (*at)->n_bytes : 0;
        at = &(*at)->next;
    }
    for (; n > KEPT || n_bytes > c->room_bytes / SPARE_PART; n--) {
        struct entry **oldest = oldest_idle(c);
        n_bytes -= (*oldest)->n_bytes;
        out = take_out(c, oldest, out);
    }
    return out;
}

static struct entry *next_queued(const struct grammar_compiler *c)
{
    struct entry *found = NULL;
    for (struct entry *x = c->first; x; x = x->next)
        if (x->state == ENTRY_QUEUED && (!found || (x->is_urgent && !found->is_urgent)))
            found = x;
    return found;
}

/* ---- the thread ---- */

static void make_vocabulary(struct grammar_compiler *c)
{
    struct text_tokenizer *t = NULL;
    uint64_t begin_ns = clock_mono_ns();
    int s = text_tokenizer_open(c->tokenizer_path, c->cache_dir, &t, c->why);
    if (s == TEXT_OK)
        s = text_vocabulary_new(t, &c->vocabulary, c->why);
    if (s == TEXT_OK)
        log_info("grammar_vocabulary", "path=%s seconds=%.2f", log_quote(c->tokenizer_path),
                 (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S);
    else
        log_error("grammar_tokenizer", "path=%s reason=%s", log_quote(c->tokenizer_path),
                  log_quote(c->why));
    if (t)
        text_tokenizer_free(t);
}

static void measure(struct entry *x)
{
    struct text_compile_cost cost;
    text_grammar_cost(x->grammar, &cost);
    x->n_bytes = cost.kept_bytes + x->source.len;
    x->matcher_bytes = cost.matcher_bytes;
}

/* Compiles `x` without the mutex: no other thread uses an entry in ENTRY_COMPILING. */
static enum status compile(const struct grammar_compiler *c, struct entry *x)
{
    if (!c->vocabulary) {
        snprintf(x->why, sizeof x->why, "the model's tokenizer cannot be used: %.400s", c->why);
        return STATUS_INTERNAL;
    }
    uint64_t begin_ns = clock_mono_ns();
    int s = text_grammar_compile(c->vocabulary, (enum text_grammar_kind)x->kind, x->source.ptr,
                                 x->source.len, &x->grammar, x->why);
    uint64_t took_ns = clock_mono_ns() - begin_ns;
    if (s == TEXT_OK && took_ns >= SLOW_NS)
        log_info("grammar_compiled", "kind=%d bytes=%zu seconds=%.2f", x->kind, x->source.len,
                 (double)took_ns / (double)NS_PER_S);
    if (s == TEXT_OK) {
        measure(x);
        return STATUS_OK;
    }
    log_error("grammar_not_compiled", "kind=%d bytes=%zu reason=%s", x->kind, x->source.len,
              log_quote(x->why));
    return s == TEXT_INTERNAL ? STATUS_INTERNAL : STATUS_INVALID;
}

static void *run(void *arg)
{
    struct grammar_compiler *c = arg;
    thread_begin("grammars", NICENESS);
    make_vocabulary(c);
    pthread_mutex_lock(&c->mutex);
    while (!c->stop) {
        struct entry *x = next_queued(c);
        if (!x) {
            pthread_cond_wait(&c->wake, &c->mutex);
            continue;
        }
        x->state = ENTRY_COMPILING;
        pthread_mutex_unlock(&c->mutex);
        enum status s = compile(c, x);
        pthread_mutex_lock(&c->mutex);
        x->state = s == STATUS_OK ? ENTRY_READY : ENTRY_FAILED;
        x->status = s;
        x->used = ++c->n_used;
        x->untold = x->id != 0;
        if (x->untold && c->watch)
            c->watch(c->watch_ctx);
        pthread_cond_broadcast(&c->done);
        struct entry *spare = trim(c);
        pthread_mutex_unlock(&c->mutex);
        free_entries(spare);
        pthread_mutex_lock(&c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* Starts the thread once. The caller holds the mutex. */
static void start(struct grammar_compiler *c)
{
    if (c->started)
        return;
    c->started = true;
    int rc = pthread_create(&c->thread, NULL, run, c);
    c->has_thread = rc == 0;
    if (rc != 0)
        log_error("grammar_thread", "reason=%s", log_quote(strerror(rc)));
}

void grammar_compiler_start(struct grammar_compiler *c)
{
    pthread_mutex_lock(&c->mutex);
    start(c);
    pthread_mutex_unlock(&c->mutex);
}

/* Queues `x` and wakes the thread. Without a thread `x` fails at once. The caller holds the
 * mutex. */
static void enqueue(struct grammar_compiler *c, struct entry *x)
{
    start(c);
    if (c->has_thread) {
        pthread_cond_signal(&c->wake);
        return;
    }
    x->state = ENTRY_FAILED;
    x->status = STATUS_INTERNAL;
    snprintf(x->why, sizeof x->why, "the worker could not start the thread that compiles grammars");
}

/* ---- calls for the head ---- */

void grammar_compiler_watch(struct grammar_compiler *c, void (*fn)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&c->mutex);
    c->watch = fn;
    c->watch_ctx = ctx;
    pthread_mutex_unlock(&c->mutex);
}

enum status grammar_compiler_want(struct grammar_compiler *c, const struct msg_grammar *m)
{
    uint64_t hash = XXH3_64bits(m->source.ptr, m->source.len);
    pthread_mutex_lock(&c->mutex);
    struct entry *x = find(c, m->kind, m->source, hash);
    if ((!x || x->id == 0) && c->n_wanted >= MAX_WANTED) {
        pthread_mutex_unlock(&c->mutex);
        return STATUS_LIMIT;
    }
    if (!x) {
        x = add(c, m->kind, m->source, hash);
        enqueue(c, x);
    }
    set_id(c, x, m->id);
    x->used = ++c->n_used;
    x->untold = x->state == ENTRY_READY || x->state == ENTRY_FAILED;
    if (x->untold && c->watch)
        c->watch(c->watch_ctx);
    pthread_mutex_unlock(&c->mutex);
    return STATUS_OK;
}

/* Releases the grammar with that id, or all grammars when the id is 0. */
static void let_go(struct grammar_compiler *c, uint64_t id)
{
    pthread_mutex_lock(&c->mutex);
    for (struct entry *x = c->first; x; x = x->next)
        if (id == 0 || x->id == id)
            set_id(c, x, 0);
    struct entry *spare = trim(c);
    pthread_mutex_unlock(&c->mutex);
    free_entries(spare);
}

void grammar_compiler_let_go(struct grammar_compiler *c, uint64_t id)
{
    if (id != 0)
        let_go(c, id);
}

void grammar_compiler_let_go_all(struct grammar_compiler *c)
{
    let_go(c, 0);
}

bool grammar_compiler_next_done(struct grammar_compiler *c, struct grammar_compiler_done *out)
{
    struct entry *spare = NULL;
    pthread_mutex_lock(&c->mutex);
    struct entry *x = c->first;
    while (x && !x->untold)
        x = x->next;
    if (x) {
        *out = (struct grammar_compiler_done){
            .id = x->id,
            .status = x->state == ENTRY_READY ? STATUS_OK : x->status,
            .bytes = x->n_bytes,
            .matcher_bytes = x->matcher_bytes,
            .room_bytes = c->room_bytes - c->room_bytes / SPARE_PART};
        memcpy(out->why, x->why, sizeof out->why);
        x->untold = false;
        /* the head forgets a failed grammar too, so the entry no longer needs its id */
        if (x->state == ENTRY_FAILED) {
            set_id(c, x, 0);
            spare = trim(c);
        }
    }
    pthread_mutex_unlock(&c->mutex);
    free_entries(spare);
    return x != NULL;
}

/* ---- calls of the compute thread ---- */

static void await(struct grammar_compiler *c, const struct entry *x, _Atomic uint64_t *progress)
{
    while (x->state == ENTRY_QUEUED || x->state == ENTRY_COMPILING) {
        uint64_t until = clock_mono_ns() + NAP_NS;
        const struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
        (void)pthread_cond_timedwait(&c->done, &c->mutex, &t);
        atomic_fetch_add(progress, 1);
    }
}

struct text_matcher *grammar_compiler_matcher(struct grammar_compiler *c,
                                              const struct sampling_params *p,
                                              _Atomic uint64_t *progress)
{
    char why[TEXT_ERR_MAX] = "";
    struct text_matcher *m = NULL;
    uint64_t hash = XXH3_64bits(p->grammar.ptr, p->grammar.len);
    pthread_mutex_lock(&c->mutex);
    struct entry *x = find(c, p->grammar_kind, p->grammar, hash);
    if (!x) {
        x = add(c, p->grammar_kind, p->grammar, hash);
        enqueue(c, x);
    }
    x->is_urgent = true;
    await(c, x, progress);
    x->is_urgent = false;
    x->used = ++c->n_used;
    if (x->state == ENTRY_READY &&
        text_matcher_new(x->grammar, p->eos_ids.ptr, p->eos_ids.n, &m, why) != TEXT_OK)
        log_error("grammar_matcher", "reason=%s", log_quote(why));
    struct entry *spare = trim(c);
    pthread_mutex_unlock(&c->mutex);
    free_entries(spare);
    return m;
}
