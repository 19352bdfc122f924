#include "gateway/models/engine.h"

/* ---- messages from the head ---- */

static void on_link(void *ctx, bool up)
{
    struct served_model *m = ctx;
    if (!up)
        gateway_adapters_on_link_lost(&m->adapters);
    serving_on_link(&m->serving, up);
}

static void on_refused(void *ctx, enum status status)
{
    serving_on_refused(&((struct served_model *)ctx)->serving, status);
}

static void on_tokens(void *ctx, const struct msg_tokens *m)
{
    serving_on_tokens(&((struct served_model *)ctx)->serving, m);
}

static void on_cluster(void *ctx, const struct msg_cluster *m)
{
    struct served_model *to = ctx;
    const bool had_one = to->serving.cluster.one_class;
    serving_on_cluster(&to->serving, m);
    if (!had_one && to->serving.cluster.one_class && to->world->on_one_class)
        to->world->on_one_class(to->world->ctx);
}

static void on_writable(void *ctx)
{
    serving_pump(&((struct served_model *)ctx)->serving);
}

static void on_adapters(void *ctx, const struct msg_adapters *m)
{
    gateway_adapters_on_names(&((struct served_model *)ctx)->adapters, m);
}

static void on_adapter_answer(void *ctx, const struct msg_adapter_answer *m)
{
    gateway_adapters_on_answer(&((struct served_model *)ctx)->adapters, m);
}

struct engine_events gateway_engine_events(struct served_model *m)
{
    return (struct engine_events){.ctx = m,
                                  .on_link = on_link,
                                  .on_refused = on_refused,
                                  .on_tokens = on_tokens,
                                  .on_cluster = on_cluster,
                                  .on_writable = on_writable,
                                  .on_adapters = on_adapters,
                                  .on_adapter_answer = on_adapter_answer};
}

/* ---- messages to the head ---- */

enum status gateway_engine_order(void *ctx, const struct msg_adapter_order *m)
{
    struct msg msg = {.type = MSG_ADAPTER_ORDER, .adapter_order = *m};
    return engine_client_send(ctx, &msg);
}

static enum status engine_submit(void *ctx, const struct msg_submit *m)
{
    struct msg msg = {.type = MSG_SUBMIT, .submit = *m};
    return engine_client_send(ctx, &msg);
}

static bool engine_keeps_grammar(void *ctx)
{
    return ((const struct engine_client *)ctx)->keeps_grammar;
}

static enum status engine_cancel(void *ctx, const struct msg_cancel *m)
{
    struct msg msg = {.type = MSG_CANCEL, .cancel = *m};
    return engine_client_send(ctx, &msg);
}

static enum status engine_finish(void *ctx, const struct msg_finish *m)
{
    struct msg msg = {.type = MSG_FINISH, .finish = *m};
    return engine_client_send(ctx, &msg);
}

struct engine_ops gateway_engine_ops(struct engine_client *c)
{
    return (struct engine_ops){.ctx = c,
                               .submit = engine_submit,
                               .cancel = engine_cancel,
                               .finish = engine_finish,
                               .keeps_grammar = engine_keeps_grammar};
}
