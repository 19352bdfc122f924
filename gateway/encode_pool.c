#include "gateway/encode_pool.h"

#include <pthread.h>

#include "common/base/mem.h"

enum { MAX_THREADS = 64 };

struct encode_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct encode_job *first, **last;           /* waiting */
    struct encode_job *done_first, **done_last; /* finished, not yet given back */
    uint32_t n_jobs, max_jobs;                  /* waiting or running */
    uint64_t n_bytes, max_bytes;
    bool stop;
    struct loop_wakeup *wakeup;
    uint32_t n_threads;
    pthread_t threads[MAX_THREADS];
};

static void *thread_main(void *ctx)
{
    struct encode_pool *p = ctx;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->first && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->stop)
            break;
        struct encode_job *j = p->first;
        if (!(p->first = j->next))
            p->last = &p->first;
        pthread_mutex_unlock(&p->lock);
        j->run(j);
        pthread_mutex_lock(&p->lock);
        j->next = NULL;
        *p->done_last = j;
        p->done_last = &j->next;
        p->n_jobs--;
        p->n_bytes -= j->bytes;
        loop_wake(p->wakeup);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void give_back(void *ctx)
{
    struct encode_pool *p = ctx;
    pthread_mutex_lock(&p->lock);
    struct encode_job *j = p->done_first;
    p->done_first = NULL;
    p->done_last = &p->done_first;
    pthread_mutex_unlock(&p->lock);
    for (struct encode_job *next; j; j = next) {
        next = j->next;
        j->done(j); /* may free the job */
    }
}

enum status encode_pool_new(struct loop *l, uint32_t n_threads, uint32_t max_jobs,
                            uint64_t max_bytes, struct encode_pool **out, struct error *err)
{
    struct encode_pool *p = mem_zalloc(sizeof *p);
    p->last = &p->first;
    p->done_last = &p->done_first;
    p->max_jobs = max_jobs;
    p->max_bytes = max_bytes;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    p->wakeup = loop_wakeup_new(l, give_back, p);
    for (; p->n_threads < n_threads && p->n_threads < MAX_THREADS; p->n_threads++)
        if (pthread_create(&p->threads[p->n_threads], NULL, thread_main, p) != 0) {
            encode_pool_free(p);
            return error_set(
                err, STATUS_LIMIT,
                "cannot start a tokenizer thread: raise the process limit (ulimit -u)");
        }
    *out = p;
    return STATUS_OK;
}

enum status encode_pool_submit(struct encode_pool *p, struct encode_job *j)
{
    enum status s = STATUS_OK;
    pthread_mutex_lock(&p->lock);
    if (p->n_jobs >= p->max_jobs || p->n_bytes + j->bytes > p->max_bytes) {
        s = STATUS_LIMIT;
    } else {
        p->n_jobs++;
        p->n_bytes += j->bytes;
        j->next = NULL;
        *p->last = j;
        p->last = &j->next;
        pthread_cond_signal(&p->work);
    }
    pthread_mutex_unlock(&p->lock);
    return s;
}

void encode_pool_free(struct encode_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    *p->done_last = p->first; /* never run: their owners still have to drop them */
    give_back(p);
    loop_wakeup_free(p->wakeup);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}
