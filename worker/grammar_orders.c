#include "worker/grammar_orders.h"

#include "common/base/mem.h"
#include "common/loop/loop.h"
#include "worker/grammar/compiler.h"

struct grammar_orders {
    struct grammar_orders_setup s;
    /* borrowed from the executor; NULL = the executor has no grammars */
    struct grammar_compiler *compiler;
    struct loop_wakeup *wakeup;
    uint64_t term_epoch; /* epoch of the grammars that the head needs */
};

static void answer(const struct grammar_orders *o, struct msg_grammar_done m)
{
    m.term_epoch = o->term_epoch;
    o->s.send(o->s.ctx, &(struct msg){.type = MSG_GRAMMAR_DONE, .grammar_done = m});
}

static void on_done(void *ctx)
{
    struct grammar_orders *o = ctx;
    struct grammar_compiler_done done;
    while (grammar_compiler_next_done(o->compiler, &done))
        answer(o, (struct msg_grammar_done){.id = done.id,
                                            .status = done.status,
                                            .text = str_from(done.why),
                                            .bytes = done.bytes,
                                            .matcher_bytes = done.matcher_bytes,
                                            .room_bytes = done.room_bytes});
}

static void wake(void *ctx)
{
    const struct grammar_orders *o = ctx;
    loop_wake(o->wakeup);
}

struct grammar_orders *grammar_orders_start(const struct grammar_orders_setup *s)
{
    const struct executor_ops *ops = s->executor->ops;
    struct grammar_orders *o = mem_zalloc(sizeof *o);
    o->s = *s;
    o->compiler = ops->compiler ? ops->compiler(s->executor) : NULL;
    o->wakeup = loop_wakeup_new(s->loop, on_done, o);
    if (o->compiler)
        grammar_compiler_watch(o->compiler, wake, o);
    return o;
}

void grammar_orders_stop(struct grammar_orders *o)
{
    if (!o)
        return;
    if (o->compiler)
        grammar_compiler_watch(o->compiler, NULL, NULL);
    loop_wakeup_free(o->wakeup);
    mem_free(o);
}

void grammar_orders_take(struct grammar_orders *o, const struct msg_grammar *m,
                         const struct rank_state *r)
{
    if (r->phase != RANK_READY || m->term_epoch != r->term_epoch)
        return;
    o->term_epoch = m->term_epoch;
    if (!o->compiler) {
        if (m->on)
            answer(o, (struct msg_grammar_done){.id = m->id});
        return;
    }
    if (!m->on)
        grammar_compiler_let_go(o->compiler, m->id);
    else if (grammar_compiler_want(o->compiler, m) != STATUS_OK)
        answer(o, (struct msg_grammar_done){
                      .id = m->id,
                      .status = STATUS_LIMIT,
                      .text = STR("this worker has its maximum number of grammars")});
}

void grammar_orders_end_epoch(struct grammar_orders *o)
{
    if (o->compiler)
        grammar_compiler_let_go_all(o->compiler);
}
