/* Runs long jobs on a pool of threads: parsing, templates, tokenizing, compiling.
 * The loop's thread adds a job with `encode_pool_submit`. A pool thread calls `run`. The job is
 * then put on the list `done`, and the loop's thread calls the function `done` of the job.
 * `lock` guards all of `struct encode_pool`. The caller keeps ownership of its jobs, but the
 * pool uses their link fields until `done` is called. `done` is called exactly once for each
 * accepted job. Jobs and bytes are bounded for the pool and for each tenant. */
#include "gateway/base/encode_pool.h"

#include <pthread.h>

#include "common/base/mem.h"
#include "common/host/thread.h"

enum { MAX_THREADS = 64 };

struct job_list {
    struct encode_job *first, **last;
};

enum { SMALL, LARGE, N_SIZES };

struct encode_tenant { /* a tenant with jobs in this pool */
    uint64_t id;
    struct job_list waiting[N_SIZES];
    uint32_t n_jobs, n_running; /* `n_jobs` counts the tenant's waiting and running jobs */
    uint64_t n_bytes;
    struct encode_tenant *next;
};

struct encode_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct encode_tenant *tenants; /* tenants with jobs, in the order of their turns */
    struct encode_share share;
    struct job_list done; /* finished jobs whose `done` was not called yet */
    uint64_t last_seq;
    uint32_t n_running, n_large; /* `n_large` counts the large jobs among `n_running` */
    uint32_t n_jobs, max_jobs;   /* waiting and running jobs, and their limit */
    uint64_t n_bytes, max_bytes;
    bool stop;
    struct loop_wakeup *wakeup;
    struct encode_threads about;
    uint32_t n_threads; /* threads that were started */
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

/* Returns the link of the list that points to the tenant, or the end of the list. */
static struct encode_tenant **place_of(struct encode_pool *p, uint64_t id)
{
    struct encode_tenant **at = &p->tenants;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void move_to_end(struct encode_pool *p, struct encode_tenant *t)
{
    *place_of(p, t->id) = t->next;
    t->next = NULL;
    struct encode_tenant **end = &p->tenants;
    while (*end)
        end = &(*end)->next;
    *end = t;
}

/* Returns the tenant's oldest job that may run now, or NULL. */
static struct encode_job *next_of(const struct encode_pool *p, struct encode_tenant *t)
{
    struct encode_job *small = t->waiting[SMALL].first, *large = t->waiting[LARGE].first;
    if (t->n_running >= p->share.max_running)
        return NULL;
    if (large && p->n_large > 0 && p->n_large + 1 >= p->n_threads)
        large = NULL; /* the last free thread is kept for small jobs */
    return !large || (small && small->seq < large->seq) ? small : large;
}

/* Removes the next job that may run now from its queue and returns it; NULL = none. The job's
 * tenant moves to the end of the turns. */
static struct encode_job *next_job(struct encode_pool *p)
{
    struct encode_tenant *t = p->tenants;
    struct encode_job *j = NULL;
    for (; t && !(j = next_of(p, t)); t = t->next) {
    }
    if (!j)
        return NULL;
    struct job_list *l = &t->waiting[size_of(j)];
    if (!(l->first = j->next))
        l->last = &l->first;
    t->n_running++;
    move_to_end(p, t);
    return j;
}

/* Moves the job to the finished ones. The caller holds the lock. */
static void finish_job(struct encode_pool *p, struct encode_job *j)
{
    struct encode_tenant *t = j->owner;
    j->owner = NULL;
    list_add(&p->done, j);
    p->n_jobs--;
    p->n_bytes -= j->bytes;
    t->n_bytes -= j->bytes;
    if (--t->n_jobs == 0) {
        *place_of(p, t->id) = t->next;
        mem_free(t);
    }
    loop_wake(p->wakeup);
}

static void *thread_main(void *ctx)
{
    struct encode_pool *p = ctx;
    thread_begin(p->about.name, p->about.niceness);
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct encode_job *j = NULL;
        while (!p->stop && !(j = next_job(p)))
            pthread_cond_wait(&p->work, &p->lock);
        if (p->stop)
            break;
        p->n_large += size_of(j) == LARGE;
        p->n_running++;
        /* the limits that allowed this job may allow another job too */
        if (p->n_jobs > p->n_running)
            pthread_cond_signal(&p->work);
        pthread_mutex_unlock(&p->lock);
        j->run(j);
        pthread_mutex_lock(&p->lock);
        /* another large job may run now; this thread looks for it next */
        p->n_large -= size_of(j) == LARGE;
        p->n_running--;
        j->owner->n_running--;
        finish_job(p, j);
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
        j->done(j); /* `done` may free the job */
    }
}

enum status encode_pool_new(struct loop *l, const struct encode_threads *threads, uint32_t max_jobs,
                            uint64_t max_bytes, struct encode_pool **out, struct error *err)
{
    struct encode_pool *p = mem_zalloc(sizeof *p);
    p->about = *threads;
    list_init(&p->done);
    p->max_jobs = max_jobs;
    p->max_bytes = max_bytes;
    p->share = (struct encode_share){max_jobs, max_bytes, MAX_THREADS};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    p->wakeup = loop_wakeup_new(l, give_back, p);
    for (; p->n_threads < threads->n && p->n_threads < MAX_THREADS; p->n_threads++)
        if (pthread_create(&p->threads[p->n_threads], NULL, thread_main, p) != 0) {
            encode_pool_free(p);
            return error_set(
                err, STATUS_LIMIT,
                "cannot start a tokenizer thread: raise the process limit (ulimit -u)");
        }
    *out = p;
    return STATUS_OK;
}

void encode_pool_set_share(struct encode_pool *p, const struct encode_share *share)
{
    pthread_mutex_lock(&p->lock);
    p->share = *share;
    pthread_mutex_unlock(&p->lock);
}

uint32_t encode_pool_n_jobs(struct encode_pool *p)
{
    pthread_mutex_lock(&p->lock);
    const uint32_t n = p->n_jobs;
    pthread_mutex_unlock(&p->lock);
    return n;
}

uint32_t encode_pool_n_jobs_of(struct encode_pool *p, uint64_t tenant)
{
    pthread_mutex_lock(&p->lock);
    const struct encode_tenant *t = *place_of(p, tenant);
    const uint32_t n = t ? t->n_jobs : 0;
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* Adds a job to its tenant's queue. The caller holds the lock. */
static void add_job(struct encode_pool *p, struct encode_job *j)
{
    struct encode_tenant **at = place_of(p, j->tenant), *t = *at;
    if (!t) {
        *at = t = mem_zalloc(sizeof *t);
        t->id = j->tenant;
        for (int size = 0; size < N_SIZES; size++)
            list_init(&t->waiting[size]);
    }
    p->n_jobs++;
    p->n_bytes += j->bytes;
    t->n_jobs++;
    t->n_bytes += j->bytes;
    j->seq = ++p->last_seq;
    j->owner = t;
    list_add(&t->waiting[size_of(j)], j);
    pthread_cond_signal(&p->work);
}

/* Returns true when the job fits the limits of the pool and of its tenant. The caller holds the
 * lock. */
static bool has_room(struct encode_pool *p, const struct encode_job *j)
{
    const struct encode_tenant *t = *place_of(p, j->tenant);
    const uint64_t n_jobs = t ? t->n_jobs : 0, n_bytes = t ? t->n_bytes : 0;
    return p->n_jobs < p->max_jobs && p->n_bytes + j->bytes <= p->max_bytes &&
           n_jobs < p->share.max_jobs && n_bytes + j->bytes <= p->share.max_bytes;
}

enum status encode_pool_submit(struct encode_pool *p, struct encode_job *j)
{
    pthread_mutex_lock(&p->lock);
    const bool taken = has_room(p, j);
    if (taken)
        add_job(p, j);
    pthread_mutex_unlock(&p->lock);
    return taken ? STATUS_OK : STATUS_LIMIT;
}

void encode_pool_dispose(struct encode_pool *p, struct encode_job *j)
{
    pthread_mutex_lock(&p->lock);
    add_job(p, j);
    pthread_mutex_unlock(&p->lock);
}

static bool take_out(struct job_list *l, struct encode_job *j)
{
    struct encode_job **at = &l->first;
    while (*at && *at != j)
        at = &(*at)->next;
    if (!*at)
        return false;
    if (!(*at = j->next))
        l->last = at;
    return true;
}

void encode_pool_drop(struct encode_pool *p, struct encode_job *j)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&j->dropped, true);
    if (j->owner && take_out(&j->owner->waiting[size_of(j)], j))
        finish_job(p, j);
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
    /* the jobs left here never ran, and their owners still have to free them */
    while (p->tenants) {
        struct encode_tenant *t = p->tenants;
        struct encode_job *j = t->waiting[t->waiting[SMALL].first ? SMALL : LARGE].first;
        (void)take_out(&t->waiting[size_of(j)], j);
        finish_job(p, j);
    }
    give_back(p);
    loop_wakeup_free(p->wakeup);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}
