#include "gateway/encode_pool.h"

#include <pthread.h>

#include "common/base/mem.h"

enum { MAX_THREADS = 64 };

struct job_list {
    struct encode_job *first, **last;
};

enum { SMALL, LARGE, N_SIZES };

struct encode_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct job_list waiting[N_SIZES];
    struct job_list done; /* not yet given back */
    uint64_t last_seq;
    uint32_t n_large;          /* running */
    uint32_t n_jobs, max_jobs; /* waiting or running */
    uint64_t n_bytes, max_bytes;
    bool stop;
    struct loop_wakeup *wakeup;
    uint32_t n_threads;
    pthread_t threads[MAX_THREADS];
};

static void list_init(struct job_list *l)
{
    *l = (struct job_list){.last = &l->first};
}

static void list_add(struct job_list *l, struct encode_job *j)
{
    j->next = NULL;
    *l->last = j;
    l->last = &j->next;
}

static int size_of(const struct encode_job *j)
{
    return j->bytes > ENCODE_LARGE_BYTES ? LARGE : SMALL;
}

/* The oldest job that may run now, or NULL. */
static struct encode_job *next_job(struct encode_pool *p)
{
    struct encode_job *small = p->waiting[SMALL].first, *large = p->waiting[LARGE].first;
    if (large && p->n_large > 0 && p->n_large + 1 >= p->n_threads)
        large = NULL; /* the last thread is for small ones */
    struct encode_job *j = !large || (small && small->seq < large->seq) ? small : large;
    if (j) {
        struct job_list *l = &p->waiting[size_of(j)];
        if (!(l->first = j->next))
            l->last = &l->first;
    }
    return j;
}

static void *thread_main(void *ctx)
{
    struct encode_pool *p = ctx;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct encode_job *j = NULL;
        while (!p->stop && !(j = next_job(p)))
            pthread_cond_wait(&p->work, &p->lock);
        if (p->stop)
            break;
        p->n_large += size_of(j) == LARGE;
        pthread_mutex_unlock(&p->lock);
        j->run(j);
        pthread_mutex_lock(&p->lock);
        p->n_large -= size_of(j) == LARGE; /* this thread looks next for one that waited for that */
        list_add(&p->done, j);
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
    struct encode_job *j = p->done.first;
    list_init(&p->done);
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
    for (int size = 0; size < N_SIZES; size++)
        list_init(&p->waiting[size]);
    list_init(&p->done);
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

/* With the lock held. */
static void add_job(struct encode_pool *p, struct encode_job *j)
{
    p->n_jobs++;
    p->n_bytes += j->bytes;
    j->seq = ++p->last_seq;
    list_add(&p->waiting[size_of(j)], j);
    pthread_cond_signal(&p->work);
}

enum status encode_pool_submit(struct encode_pool *p, struct encode_job *j)
{
    enum status s = STATUS_OK;
    pthread_mutex_lock(&p->lock);
    if (p->n_jobs >= p->max_jobs || p->n_bytes + j->bytes > p->max_bytes)
        s = STATUS_LIMIT;
    else
        add_job(p, j);
    pthread_mutex_unlock(&p->lock);
    return s;
}

void encode_pool_dispose(struct encode_pool *p, struct encode_job *j)
{
    pthread_mutex_lock(&p->lock);
    add_job(p, j);
    pthread_mutex_unlock(&p->lock);
}

void encode_pool_drop(struct encode_pool *p, struct encode_job *j)
{
    pthread_mutex_lock(&p->lock);
    struct job_list *l = &p->waiting[size_of(j)];
    struct encode_job **at = &l->first;
    while (*at && *at != j)
        at = &(*at)->next;
    if (*at) {
        if (!(*at = j->next))
            l->last = at;
        list_add(&p->done, j);
        p->n_jobs--;
        p->n_bytes -= j->bytes;
        loop_wake(p->wakeup);
    }
    pthread_mutex_unlock(&p->lock);
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
    for (int size = 0; size < N_SIZES;
         size++) { /* never run: their owners still have to drop them */
        if (!p->waiting[size].first)
            continue;
        *p->done.last = p->waiting[size].first;
        p->done.last = p->waiting[size].last;
    }
    give_back(p);
    loop_wakeup_free(p->wakeup);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}
