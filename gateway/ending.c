#include "gateway/ending.h"

#include <signal.h>

#include "common/base/log.h"

enum {
    LAST_WORDS_MS = 8000,  /* until clients have read that their requests were ended, */
    HASTY_WORDS_MS = 1000, /* and when a second signal says to hurry */
};

static void stop_now(struct gateway *g)
{
    if (g->stopped)
        return;
    g->stopped = true;
    gateway_link_goodbye(&g->link);
    loop_stop(g->api.loop);
}

static bool has_work(const struct gateway *g)
{
    return g->api.serving.n_requests > 0 || http_server_has_work(g->api.server);
}

static void on_last_words_timeout(void *ctx)
{
    stop_now(ctx);
}

/* Each open request is told that it is over; on_turn_end stops when the last of them has read it.
 */
static void say_last_words(struct gateway *g, uint64_t ms)
{
    g->has_said_last_words = true;
    loop_timer_stop(g->shutdown_timer);
    serving_end_all(&g->api.serving);
    g->shutdown_timer = loop_timer_start(g->api.loop, ms, 0, on_last_words_timeout, g);
}

static void on_shutdown_timeout(void *ctx)
{
    struct gateway *g = ctx;
    log_event(g->api.serving.n_requests > 0 ? LOG_WARN : LOG_INFO, "shutdown_timeout",
              "open_requests=%u", g->api.serving.n_requests);
    say_last_words(g, LAST_WORDS_MS);
}

static void begin_ending(struct gateway *g)
{
    g->api.stopping = g->api.serving.draining = g->link.engine.ends = true;
}

/* Open requests get their error first, because a cut connection looks like a fault to a client. */
static void end_hastily(struct gateway *g)
{
    log_info("ends_at_once", "open_requests=%u", g->api.serving.n_requests);
    begin_ending(g);
    if (!g->closed)
        http_server_stop_accepting(g->api.server);
    g->closed = true;
    if (has_work(g))
        say_last_words(g, HASTY_WORDS_MS);
    else
        stop_now(g);
}

/* No new connections; what those that there are have asked, or are about to ask, is answered. */
static void close_doors(void *ctx)
{
    struct gateway *g = ctx;
    loop_timer_stop(g->shutdown_timer);
    g->shutdown_timer = NULL;
    log_info("draining", "open_requests=%u", g->api.serving.n_requests);
    g->closed = true;
    http_server_stop_accepting(g->api.server); /* probes and /metrics go on at the admin address */
    if (!has_work(g))
        stop_now(g);
    else
        g->shutdown_timer =
            loop_timer_start(g->api.loop, (uint64_t)(g->api.config->shutdown_timeout_s * 1000), 0,
                             on_shutdown_timeout, g);
}

/* SIGTERM: probes say no at once; with a delay, whoever has not heard of it yet is served for so
 * long. SIGINT, or a second signal: open requests are ended now. A further one: nobody is told. */
void ending_on_signal(void *ctx, int signum)
{
    struct gateway *g = ctx;
    uint64_t delay_ms = (uint64_t)(g->api.config->shutdown_delay_s * 1000);
    if (g->has_said_last_words) {
        stop_now(g);
        return;
    }
    if (signum == SIGINT || g->api.stopping) {
        end_hastily(g);
        return;
    }
    begin_ending(g);
    if (delay_ms == 0) {
        close_doors(g);
        return;
    }
    log_info("shutdown_delay", "seconds=%g open_requests=%u", g->api.config->shutdown_delay_s,
             g->api.serving.n_requests);
    g->shutdown_timer = loop_timer_start(g->api.loop, delay_ms, 0, close_doors, g);
}

void ending_on_turn_end(struct gateway *g)
{
    if (g->closed && !has_work(g))
        stop_now(g);
}
