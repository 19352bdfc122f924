#include "gateway/ending.h"

#include <signal.h>

#include "common/base/log.h"

enum {
    LAST_WORDS_MS = 8000,  /* milliseconds for clients to read the error */
    HASTY_WORDS_MS = 1000, /* milliseconds for clients to read the error after a second signal */
};

static void stop_now(struct gateway *g)
{
    if (g->stopped)
        return;
    g->stopped = true;
    model_set_goodbye(&g->api.models);
    loop_stop(g->api.loop);
}

static bool has_work(const struct gateway *g)
{
    return model_set_n_requests(&g->api.models) > 0 || http_server_has_work(g->api.server);
}

static void on_last_words_timeout(void *ctx)
{
    stop_now(ctx);
}

/* Ends every open request with an error. The loop stops when the last client has read its error,
 * or after `ms` milliseconds. */
static void say_last_words(struct gateway *g, uint64_t ms)
{
    g->has_said_last_words = true;
    loop_timer_stop(g->shutdown_timer);
    model_set_end_all(&g->api.models);
    g->shutdown_timer = loop_timer_start(g->api.loop, ms, 0, on_last_words_timeout, g);
}

static void on_shutdown_timeout(void *ctx)
{
    struct gateway *g = ctx;
    const uint32_t n = model_set_n_requests(&g->api.models);
    log_event(n > 0 ? LOG_WARN : LOG_INFO, "shutdown_timeout", "open_requests=%u", n);
    say_last_words(g, LAST_WORDS_MS);
}

static void begin_ending(struct gateway *g)
{
    g->api.stopping = true;
    model_set_drain(&g->api.models);
}

/* Ends all requests at once. Open requests get their error first, because a cut connection looks
 * like a fault to a client. */
static void end_hastily(struct gateway *g)
{
    log_info("ends_at_once", "open_requests=%u", model_set_n_requests(&g->api.models));
    begin_ending(g);
    if (!g->closed)
        http_server_stop_accepting(g->api.server);
    g->closed = true;
    if (has_work(g))
        say_last_words(g, HASTY_WORDS_MS);
    else
        stop_now(g);
}

/* Refuses new connections. Requests that arrive on the existing connections are still answered. */
static void close_doors(void *ctx)
{
    struct gateway *g = ctx;
    loop_timer_stop(g->shutdown_timer);
    g->shutdown_timer = NULL;
    log_info("draining", "open_requests=%u", model_set_n_requests(&g->api.models));
    g->closed = true;
    /* the admin address still serves probes and /metrics */
    http_server_stop_accepting(g->api.server);
    if (!has_work(g))
        stop_now(g);
    else
        g->shutdown_timer =
            loop_timer_start(g->api.loop, (uint64_t)(g->api.config->shutdown_timeout_s * 1000), 0,
                             on_shutdown_timeout, g);
}

/* Handles SIGTERM and SIGINT. From the first signal on, the probes answer that the gateway is
 * stopping.
 * After SIGTERM with --shutdown-delay the gateway accepts connections for that time, until every
 * load balancer has removed it.
 * SIGINT, or a second signal, ends all open requests now with an error.
 * Any further signal stops the loop at once, and clients get no error. */
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
             model_set_n_requests(&g->api.models));
    g->shutdown_timer = loop_timer_start(g->api.loop, delay_ms, 0, close_doors, g);
}

void ending_on_turn_end(struct gateway *g)
{
    if (g->closed && !has_work(g))
        stop_now(g);
}
