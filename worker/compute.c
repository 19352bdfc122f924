/* Runs the compute thread and its queues. The loop thread pushes jobs to `queue`. The compute
 * thread takes them in order, runs them on the executor and pushes them to `done`. Then on_wake
 * calls on_done on the loop thread and recycles the job. With an executor that has `begin` and
 * `finish`, plans that have begun wait in `in_flight` (at most EXECUTOR_MAX_IN_FLIGHT). An abort
 * may run while plans are in flight. Every other job waits for them. Invariants: a job is in
 * exactly one list. `mutex` guards `queue`, `done`, `stop` and `ended`. Only the compute thread
 * runs jobs on the executor. Results are returned in the order in which the jobs were pushed. */
#include "worker/compute.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/thread.h"
#include "proto/codec/codec.h"

enum { JOB_FREE_MAX = 8, JOB_ARENA_LIMIT = 256 << 20, TIMER_SLACK_NS = 1000 };
/* POLL_NS is the interval at which a busy device is polled, when nothing else wakes the thread. */
enum { POLL_NS = 20000 };

struct job {
    struct job *next;
    enum job_kind kind;
    bool dropped;
    uint64_t term_epoch, step, session;
    struct strbuf frame; /* JOB_PLAN: the encoded plan */
    struct arena arena;  /* holds the decoded plan, later also the result */
    struct msg msg; /* JOB_PLAN: the decoded plan; JOB_JOIN: the Form, with the Join's id in `id` */
    struct bytes id;
    enum status status;
    struct error error;
    struct msg_result result;
    struct job_loss *losses; /* JOB_JOIN: the adapters that were not loaded again; on `arena` */
};

struct job_list {
    struct job *first, *last;
    uint32_t n;
};

struct compute {
    struct compute_options o;
    struct loop_wakeup *wakeup;
    pthread_t thread;
    bool started;
    _Atomic bool busy;
    struct job_list free_jobs; /* jobs that can be used again; loop thread only */
    pthread_mutex_t mutex;     /* guards the fields below, except in_flight and idle_since_ns */
    pthread_cond_t wake;
    struct job_list queue, done;
    bool stop, ended;
    /* compute thread only; begun plans, and refused plans that were queued after a begun plan */
    struct job_list in_flight;
    uint64_t idle_since_ns;
};

static void list_push(struct job_list *l, struct job *j)
{
    j->next = NULL;
    if (l->last)
        l->last->next = j;
    else
        l->first = j;
    l->last = j;
    l->n++;
}

static struct job *list_pop(struct job_list *l)
{
    struct job *j = l->first;
    if (!j)
        return NULL;
    l->first = j->next;
    if (!l->first)
        l->last = NULL;
    l->n--;
    return j;
}

static void job_free(struct job *j)
{
    arena_fini(&j->arena);
    strbuf_fini(&j->frame);
    mem_free(j);
}

static void list_free(struct job_list *l)
{
    for (struct job *j; (j = list_pop(l));)
        job_free(j);
}

/* ---- compute thread ---- */

static void push_done(struct compute *c, struct job *j)
{
    pthread_mutex_lock(&c->mutex);
    list_push(&c->done, j);
    pthread_mutex_unlock(&c->mutex);
    loop_wake(c->wakeup);
}

static void run_join(struct executor *e, struct job *j)
{
    const struct executor_comm comm = executor_comm_of(&j->msg.form, j->id);
    struct job_loss loss;
    j->status = e->ops->join_comm(e, &comm, &j->error);
    while (e->ops->lost_adapter && e->ops->lost_adapter(e, &loss.id, &loss.why)) {
        struct job_loss *kept = arena_try_alloc(&j->arena, sizeof *kept);
        if (!kept) /* the arena is full: plans report the other lost adapters */
            return;
        loss.next = j->losses;
        *kept = loss;
        j->losses = kept;
    }
}

/* Decodes the plan and executes it, or begins it on an executor with `begin` and `finish`. */
static void run_plan(struct compute *c, struct job *j)
{
    struct executor *e = c->o.executor;
    struct frame_header h;
    struct str frame = strbuf_str(&j->frame);
    uint64_t wait_ns = c->in_flight.n > 0 ? 0 : clock_mono_ns() - c->idle_since_ns;
    j->status = frame_parse_header(frame, &h, &j->error);
    if (j->status == STATUS_OK)
        j->status = codec_decode(frame, &h, &j->arena, &j->msg, &j->error);
    if (j->status == STATUS_OK && e->in_halves)
        j->status = e->ops->begin(e, &j->msg.plan, &j->arena, &j->error);
    else if (j->status == STATUS_OK)
        j->status = e->ops->step(e, &j->msg.plan, &j->arena, &j->result, &j->error);
    j->result.wait_ns = wait_ns;
}

/* Fails the plans in flight with STATUS_CLOSED. The executor drops them in abort_comm. */
static void end_in_flight(struct compute *c)
{
    for (struct job *j; (j = list_pop(&c->in_flight));) {
        j->status = error_set(&j->error, STATUS_CLOSED, "interrupted");
        push_done(c, j);
    }
}

static void run_job(struct compute *c, struct job *j)
{
    struct executor *e = c->o.executor;
    if (j->kind == JOB_PLAN)
        atomic_store(&c->busy, true);
    if (c->o.await && (j->kind == JOB_JOIN || j->kind == JOB_RESET || j->kind == JOB_ABORT ||
                       j->kind == JOB_SLEEP))
        c->o.await(c->o.ctx);
    switch (j->kind) {
    case JOB_PLAN:
        run_plan(c, j);
        break;
    case JOB_JOIN:
        run_join(e, j);
        break;
    case JOB_RESET:
        j->status = e->ops->reset(e, &j->error);
        break;
    case JOB_CHECK:
        j->status = e->ops->check(e, &j->error);
        break;
    case JOB_ADAPTER:
        j->status =
            e->ops->adapter
                ? e->ops->adapter(e, &j->msg.adapter, &j->error)
                : error_set(&j->error, STATUS_UNSUPPORTED,
                            "cannot load the adapter: this device does not support adapters");
        break;
    case JOB_SLEEP:
        j->status = e->ops->sleep
                        ? e->ops->sleep(e, j->msg.sleep.level, &j->error)
                        : error_set(&j->error, STATUS_UNSUPPORTED,
                                    "this device has no memory to give back while it sleeps");
        break;
    case JOB_ABORT:
        end_in_flight(c);
        e->ops->abort_comm(e);
        j->status = STATUS_OK;
        break;
    default:
        assert(false);
    }
}

static void resolve(struct compute *c, struct job *j)
{
    if (c->in_flight.n == 0)
        atomic_store(&c->busy, false);
    c->idle_since_ns = clock_mono_ns();
    push_done(c, j);
}

/* Returns the job to the loop thread, or queues it after the plans in flight, because results
 * are returned in the order of the plans. */
static void end_job(struct compute *c, struct job *j)
{
    if (j->kind == JOB_PLAN && c->o.executor->in_halves &&
        (j->status == STATUS_OK || c->in_flight.n > 0)) {
        list_push(&c->in_flight, j);
        return;
    }
    resolve(c, j);
}

/* Finishes the oldest plan in flight. Returns false when it is not done yet. */
static bool finish_oldest(struct compute *c)
{
    struct executor *e = c->o.executor;
    struct job *j = c->in_flight.first;
    uint64_t wait_ns = j->result.wait_ns;
    if (j->status == STATUS_OK && !e->ops->is_due(e))
        return false;
    if (j->status == STATUS_OK)
        j->status = e->ops->finish(e, &j->result, &j->error);
    j->result.wait_ns = wait_ns;
    resolve(c, list_pop(&c->in_flight));
    return true;
}

/* Returns true when the first queued job can start now. The caller holds the mutex. */
static bool may_run(const struct compute *c)
{
    const struct job *j = c->queue.first;
    if (!j || c->in_flight.n == 0 || j->kind == JOB_ABORT)
        return j;
    return j->kind == JOB_PLAN && c->in_flight.n < EXECUTOR_MAX_IN_FLIGHT;
}

/* Waits for POLL_NS, or less when a job can start. The caller holds the mutex. */
static void poll_pause(struct compute *c)
{
    uint64_t until = clock_mono_ns() + POLL_NS;
    const struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    if (!c->stop && !may_run(c))
        pthread_cond_timedwait(&c->wake, &c->mutex, &t);
}

/* Runs one queued job, finishes the oldest plan in flight, or waits. The caller holds the mutex,
 * which is released in between. */
static void turn(struct compute *c)
{
    bool runs = may_run(c);
    if (!runs && c->in_flight.n == 0) {
        pthread_cond_wait(&c->wake, &c->mutex);
        return;
    }
    struct job *j = runs ? list_pop(&c->queue) : NULL;
    pthread_mutex_unlock(&c->mutex);
    if (j) {
        run_job(c, j);
        end_job(c, j);
    } else {
        runs = finish_oldest(c);
    }
    pthread_mutex_lock(&c->mutex);
    if (!runs)
        poll_pause(c);
}

static void *compute_main(void *arg)
{
    struct compute *c = arg;
    /* A step may be shorter than the kernel's default timer slack of 50 us. */
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    thread_begin("compute", 0);
    pthread_mutex_lock(&c->mutex);
    c->idle_since_ns = clock_mono_ns();
    while (!c->stop)
        turn(c);
    c->ended = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ---- loop thread ---- */

static struct job *job_take(struct compute *c, enum job_kind kind)
{
    struct job *j = list_pop(&c->free_jobs);
    if (!j) {
        j = mem_zalloc(sizeof *j);
        arena_init(&j->arena, JOB_ARENA_LIMIT);
        strbuf_init(&j->frame, FRAME_MAX_BYTES);
    }
    j->kind = kind;
    j->dropped = false;
    j->term_epoch = j->step = j->session = 0;
    j->status = STATUS_OK;
    j->error.text[0] = '\0';
    j->losses = NULL;
    return j;
}

static void job_give_back(struct compute *c, struct job *j)
{
    if (c->free_jobs.n >= JOB_FREE_MAX) {
        job_free(j);
        return;
    }
    arena_reset(&j->arena);
    strbuf_reset(&j->frame);
    list_push(&c->free_jobs, j);
}

static void push(struct compute *c, struct job *j)
{
    pthread_mutex_lock(&c->mutex);
    list_push(&c->queue, j);
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
}

static void on_wake(void *ctx)
{
    struct compute *c = ctx;
    for (;;) {
        pthread_mutex_lock(&c->mutex);
        struct job *j = list_pop(&c->done);
        pthread_mutex_unlock(&c->mutex);
        if (!j)
            return;
        c->o.on_done(c->o.ctx,
                     &(struct job_done){.kind = j->kind,
                                        .dropped = j->dropped,
                                        .term_epoch = j->term_epoch,
                                        .step = j->step,
                                        .session = j->session,
                                        .frame_bytes = j->frame.len,
                                        .status = j->status,
                                        .error = &j->error,
                                        .result = j->kind == JOB_PLAN && !j->dropped &&
                                                          j->status == STATUS_OK
                                                      ? &j->result
                                                      : NULL,
                                        .adapter = j->kind == JOB_ADAPTER ? &j->msg.adapter : NULL,
                                        .losses = j->losses});
        job_give_back(c, j);
    }
}

enum status compute_start(struct loop *l, const struct compute_options *o, struct compute **out,
                          struct error *err)
{
    struct compute *c = mem_zalloc(sizeof *c);
    c->o = *o;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &attr);
    pthread_condattr_destroy(&attr);
    c->wakeup = loop_wakeup_new(l, on_wake, c);
    int rc = pthread_create(&c->thread, NULL, compute_main, c);
    if (rc != 0) {
        compute_stop(c);
        return error_set(err, STATUS_LIMIT, "cannot start the compute thread: %s", strerror(rc));
    }
    c->started = true;
    *out = c;
    return STATUS_OK;
}

enum status compute_push_plan(struct compute *c, const struct msg_plan *m, uint64_t session,
                              struct str frame, struct error *err)
{
    pthread_mutex_lock(&c->mutex);
    uint32_t n = c->queue.n + c->done.n;
    pthread_mutex_unlock(&c->mutex);
    if (n >= COMPUTE_QUEUE_MAX)
        return error_set(
            err, STATUS_LIMIT,
            "cannot take another plan: %u plans already wait to be executed, the maximum", n);
    struct job *j = job_take(c, JOB_PLAN);
    if (!strbuf_append_str(&j->frame, frame)) {
        job_give_back(c, j);
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for a plan of %zu bytes. Free memory on this machine",
                         frame.len);
    }
    j->term_epoch = m->term_epoch;
    j->step = m->step;
    j->session = session;
    push(c, j);
    return STATUS_OK;
}

enum status compute_push_join(struct compute *c, const struct executor_comm *comm,
                              struct error *err)
{
    struct job *j = job_take(c, JOB_JOIN);
    struct msg form = {.type = MSG_FORM,
                       .form = {.term_epoch = comm->term_epoch,
                                .tp = comm->tp,
                                .pp = comm->pp,
                                .rank = comm->rank,
                                .stage = comm->stage,
                                .isa_level = comm->isa_level,
                                .comm_addresses = comm->addresses,
                                .n_comm_addresses = comm->n_addresses,
                                .n_blocks = comm->n_blocks}};
    enum status s = msg_copy(&form, &j->arena, &j->msg);
    uint8_t *id = arena_try_alloc(&j->arena, comm->id.n ? comm->id.n : 1);
    if (s != STATUS_OK || !id) {
        job_give_back(c, j);
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory to join a replica. Free memory on this machine");
    }
    if (comm->id.n > 0)
        memcpy(id, comm->id.ptr, comm->id.n);
    j->id = (struct bytes){id, comm->id.n};
    j->term_epoch = comm->term_epoch;
    push(c, j);
    return STATUS_OK;
}

enum status compute_push_adapter(struct compute *c, const struct msg *m)
{
    struct job *j = job_take(c, JOB_ADAPTER);
    enum status s = msg_copy(m, &j->arena, &j->msg);
    if (s != STATUS_OK)
        job_give_back(c, j);
    else
        push(c, j);
    return s;
}

void compute_push_reset(struct compute *c, uint64_t term_epoch)
{
    struct job *j = job_take(c, JOB_RESET);
    j->term_epoch = term_epoch;
    push(c, j);
}

void compute_push_sleep(struct compute *c, enum sleep_level level)
{
    struct job *j = job_take(c, JOB_SLEEP);
    j->msg = (struct msg){.type = MSG_SLEEP, .sleep = {level}};
    push(c, j);
}

void compute_push_check(struct compute *c, uint64_t term_epoch)
{
    struct job *j = job_take(c, JOB_CHECK);
    j->term_epoch = term_epoch;
    push(c, j);
}

void compute_push_abort(struct compute *c)
{
    struct job_list kept = {0};
    pthread_mutex_lock(&c->mutex);
    for (struct job *j; (j = list_pop(&c->queue));) {
        j->dropped = j->kind != JOB_ADAPTER && j->kind != JOB_SLEEP;
        list_push(j->dropped ? &c->done : &kept, j);
    }
    c->queue = kept;
    pthread_mutex_unlock(&c->mutex);
    /* The interrupt is set before the job is queued. abort_comm clears it, so a later interrupt
     * would stay set. */
    c->o.executor->ops->interrupt(c->o.executor);
    push(c, job_take(c, JOB_ABORT));
    loop_wake(c->wakeup);
}

bool compute_busy(const struct compute *c)
{
    return atomic_load(&c->busy);
}

bool compute_end(struct compute *c, uint32_t timeout_ms)
{
    uint64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    const struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    if (!c->started)
        return true;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    c->o.executor->ops->interrupt(c->o.executor);
    pthread_mutex_lock(&c->mutex);
    while (!c->ended && clock_mono_ns() < until)
        pthread_cond_timedwait(&c->wake, &c->mutex, &t);
    bool ended = c->ended;
    pthread_mutex_unlock(&c->mutex);
    return ended;
}

void compute_stop(struct compute *c)
{
    if (!c)
        return;
    (void)compute_end(c, 0);
    if (c->started)
        pthread_join(c->thread, NULL);
    list_free(&c->queue);
    list_free(&c->in_flight);
    list_free(&c->done);
    list_free(&c->free_jobs);
    loop_wakeup_free(c->wakeup);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->mutex);
    mem_free(c);
}
