#include "worker/worker.h"

#include "common/base/mem.h"
#include "common/base/random.h"
#include "worker/hello.h"
#include "worker/messages.h"
#include "worker/reports.h"
#include "worker/state.h"

/* CHECK_MS is the interval of the checks. A replica without steps checks that its ranks still
 * reach each other. */
enum { CHECK_MS = 1000 };
enum { END_MS = 2000, FORM_ARENA_LIMIT = 4 << 20 };

static void make_metrics(struct worker_process *w)
{
    static const double bounds[] = {.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5};
    const uint32_t n = sizeof bounds / sizeof bounds[0];
    struct metrics *r = w->s.metrics;
    w->m = (struct worker_metrics){
        .steps = metrics_counter(r, "coxswain_worker_steps_total", "", "steps executed"),
        .tokens_run = metrics_counter(r, "coxswain_worker_tokens_run_total", "",
                                      "tokens computed on this rank, of prompts and answers"),
        .tokens_sampled = metrics_counter(r, "coxswain_worker_tokens_drawn_total", "",
                                          "tokens returned to the head"),
        .drafted =
            metrics_counter(r, "coxswain_worker_draft_tokens_total", "", "draft tokens computed"),
        .accepted = metrics_counter(r, "coxswain_worker_draft_tokens_accepted_total", "",
                                    "draft tokens accepted"),
        .step_seconds = metrics_histogram(r, "coxswain_worker_step_seconds", "",
                                          "device time of a step", bounds, n),
        .wait_seconds = metrics_histogram(r, "coxswain_worker_wait_seconds", "",
                                          "time the device waited for a plan", bounds, n),
        .gaps = metrics_counter(r, "coxswain_worker_gaps_total", "", "plans refused"),
        .stale = metrics_counter(r, "coxswain_worker_stale_messages_total", "",
                                 "messages of an old epoch, which were ignored"),
        .busy = metrics_gauge(r, "coxswain_worker_busy", "", "1 while a step executes"),
        .queue =
            metrics_gauge(r, "coxswain_worker_steps_queued", "", "steps received, not executed"),
        .reconnects =
            metrics_gauge(r, "coxswain_worker_head_reconnects", "", "reconnections to the head"),
        .epochs = metrics_counter(r, "coxswain_worker_formations_total", "", "Forms accepted"),
        .aborts_kept = metrics_counter(r, "coxswain_worker_group_aborts_total",
                                       "outcome=\"weights_kept\"", "ends of a replica, by outcome"),
        .aborts_lost = metrics_counter(r, "coxswain_worker_group_aborts_total",
                                       "outcome=\"process_ends\"", "ends of a replica, by outcome"),
    };
}

static void send_to_head(void *ctx, const struct msg *m)
{
    struct worker_process *w = ctx;
    head_link_send(w->link, m);
}

static void await_kv(void *ctx)
{
    struct worker_process *w = ctx;
    kv_orders_await(w->kv);
}

static enum status start_threads(struct worker_process *w, struct error *err)
{
    const struct worker_setup *s = &w->s;
    const struct compute_options co = {
        .executor = s->executor, .on_done = worker_on_done, .await = await_kv, .ctx = w};
    w->kv_setup = (struct kv_orders_setup){.loop = s->loop,
                                           .options = s->options,
                                           .executor = s->executor,
                                           .metrics = s->metrics,
                                           .send = send_to_head,
                                           .ctx = w};
    w->grammars = grammar_orders_start(&(struct grammar_orders_setup){
        .loop = s->loop, .executor = s->executor, .send = send_to_head, .ctx = w});
    TRY(kv_orders_start(&w->kv_setup, &w->kv, err));
    return compute_start(s->loop, &co, &w->compute, err);
}

enum status worker_start(const struct worker_setup *s, struct worker_process **out,
                         struct error *err)
{
    struct worker_process *w = mem_zalloc(sizeof *w);
    w->s = *s;
    w->instance = random_secure_u64();
    rank_state_init(&w->rank);
    arena_init(&w->form_arena, FORM_ARENA_LIMIT);
    make_metrics(w);
    host_meter_init(&w->host, (uint32_t)s->options->threads);
    gpu_metrics_start(&w->gpu, s->executor->ops->info(s->executor)->pci, s->metrics);
    const struct head_link_handlers lh = {.ctx = w,
                                          .fill_hello = worker_fill_hello,
                                          .fill_heartbeat = worker_fill_heartbeat,
                                          .on_heartbeat = worker_on_heartbeat,
                                          .on_open = worker_on_open,
                                          .on_lost = worker_on_lost,
                                          .on_refused = worker_on_refused,
                                          .on_message = worker_on_message};
    enum status st = start_threads(w, err);
    if (st == STATUS_OK)
        w->vocabulary = vocabulary_reader_start(s->executor->ops->info(s->executor)->tokenizer_path,
                                                s->options->cache_dir);
    if (st == STATUS_OK)
        st = head_link_open(s->loop, &s->link, &lh, &w->link, err);
    if (st != STATUS_OK) {
        worker_free(w);
        return st;
    }
    if (s->executor->ops->check || s->executor->ops->lost || w->kv)
        w->check_timer = loop_timer_start(s->loop, CHECK_MS, CHECK_MS, worker_check_peers, w);
    *out = w;
    return STATUS_OK;
}

bool worker_is_ready(const struct worker_process *w)
{
    return w->had_place && !w->draining && !w->drained_by_head;
}

const char *worker_why_not_ready(const struct worker_process *w)
{
    return w->draining || w->drained_by_head ? "draining"
           : !head_link_is_open(w->link)     ? "no connection to the head"
           : w->rank.phase == RANK_IDLE      ? "the worker is in no replica yet"
                                             : "the worker's replica does not serve yet";
}

const char *worker_refusal(const struct worker_process *w)
{
    return w->refusal;
}

bool worker_failed_for_good(const struct worker_process *w)
{
    return w->failed_for_good;
}

const char *worker_failure(const struct worker_process *w)
{
    return w->failure;
}

bool worker_end(struct worker_process *w)
{
    /* KV transfers end first, since the compute thread may wait for one */
    kv_orders_end_epoch(w->kv);
    bool ended = compute_end(w->compute, END_MS);
    return kv_orders_end(w->kv, END_MS) && ended;
}

void worker_free(struct worker_process *w)
{
    if (!w)
        return;
    loop_timer_stop(w->drain_timer);
    loop_timer_stop(w->check_timer);
    kv_orders_end_epoch(w->kv);
    compute_stop(w->compute);
    kv_orders_stop(w->kv);
    grammar_orders_stop(w->grammars);
    vocabulary_reader_stop(w->vocabulary);
    gpu_metrics_stop(&w->gpu);
    head_link_close(w->link);
    held_adapters_fini(&w->held);
    arena_fini(&w->form_arena);
    mem_free(w);
}
