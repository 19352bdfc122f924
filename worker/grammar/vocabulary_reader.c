/* Reads a tokenizer on a detached thread. The process can therefore end while the tokenizer is
 * being compiled, which takes seconds without a cache. The state has two owners, the starter and
 * the thread. The last owner to release it frees it. `done` is written once, after the sketch. */
#include "worker/grammar/vocabulary_reader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/host/thread.h"
#include "text/vocabulary.h"

enum {
    NICENESS = 10, /* priority below that of loading and steps */
    PERIOD = 8,    /* one in PERIOD heartbeats contains the sketch */
};

struct vocabulary_reader {
    char *tokenizer_path, *cache_dir; /* cache_dir may be NULL */
    struct vocabulary vocabulary;
    atomic_bool done;
    atomic_int owners;
    uint32_t n_to_pass; /* heartbeats until the next sketch; loop thread */
};

static void let_go(struct vocabulary_reader *r)
{
    if (atomic_fetch_sub(&r->owners, 1) > 1)
        return;
    mem_free(r->tokenizer_path);
    mem_free(r->cache_dir);
    mem_free(r);
}

static void *run(void *arg)
{
    struct vocabulary_reader *r = arg;
    struct text_tokenizer *t = NULL;
    char why[TEXT_ERR_MAX] = "";
    uint64_t begin_ns = clock_mono_ns();
    thread_begin("vocabulary", NICENESS);
    if (text_tokenizer_open(r->tokenizer_path, r->cache_dir, &t, why) == TEXT_OK) {
        text_vocabulary(t, &r->vocabulary);
        text_tokenizer_free(t);
        atomic_store_explicit(&r->done, true, memory_order_release);
        log_info("vocabulary_read", "path=%s tokens=%u seconds=%.3f", log_quote(r->tokenizer_path),
                 r->vocabulary.n_tokens, (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S);
    } else {
        log_warn("vocabulary_not_read",
                 "path=%s reason=%s text=\"the head cannot refuse gateways that were started with "
                 "another model\"",
                 log_quote(r->tokenizer_path), log_quote(why));
    }
    let_go(r);
    return NULL;
}

struct vocabulary_reader *vocabulary_reader_start(const char *tokenizer_path, const char *cache_dir)
{
    pthread_attr_t attr;
    pthread_t thread;
    if (!tokenizer_path)
        return NULL;
    struct vocabulary_reader *r = mem_zalloc(sizeof *r);
    r->tokenizer_path = mem_strdup(tokenizer_path);
    r->cache_dir = cache_dir ? mem_strdup(cache_dir) : NULL;
    atomic_store(&r->owners, 2);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &attr, run, r);
    pthread_attr_destroy(&attr);
    if (rc != 0) {
        log_warn("vocabulary_thread", "reason=%s", log_quote(strerror(rc)));
        let_go(r);
    }
    return r;
}

void vocabulary_reader_say(struct vocabulary_reader *r, struct msg_heartbeat *h)
{
    if (!r)
        return;
    if (r->n_to_pass > 0) {
        r->n_to_pass--;
        return;
    }
    if (!atomic_load_explicit(&r->done, memory_order_acquire))
        return;
    h->has_vocabulary = true;
    h->vocabulary = r->vocabulary;
    r->n_to_pass = PERIOD - 1;
}

void vocabulary_reader_on_open(struct vocabulary_reader *r)
{
    if (r)
        r->n_to_pass = 0;
}

void vocabulary_reader_stop(struct vocabulary_reader *r)
{
    if (r)
        let_go(r);
}
