/* Tests prompts of streams that resume after a loss. They get most of a step whatever the target
 * is, and other requests get no part of their share. The time of a recovery grows only with the
 * slowness of the machine. */
#include "common/base/clock.h"
#include "head/budget/step_budget.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"

#define TARGET_NS (250 * NS_PER_MS)

/* Holds the costs of a pass and of each row, times the factor `slower`. */
struct device {
    double pass_ns, sampled_ns, token_ns, slower;
};
static const struct device device = {12e6, 3e6, 0.5e6, 1};

static uint64_t takes_ns(const struct device *d, struct step_load l)
{
    return (uint64_t)(d->slower *
                      (d->pass_ns + d->sampled_ns * l.n_sampled + d->token_ns * l.n_prompt));
}

/* Returns a budget that has learnt the device from three kinds of steps: `n_sampled` decodes
 * alone, decodes with a prompt, and a prompt alone. */
static struct step_budget learnt(const struct device *d, uint32_t n_sampled)
{
    struct step_budget b;
    step_budget_init(&b, TARGET_NS);
    for (uint32_t k = 0; k < 200; k++) {
        uint32_t n = k % 2 ? step_budget_prompt_tokens(&b, n_sampled) : 0;
        struct step_load l = {.n_sampled = k % 4 == 3 ? 0 : n_sampled, .n_prompt = n};
        if (l.n_sampled + l.n_prompt > 0)
            step_budget_on_result(&b, l, takes_ns(d, l));
    }
    return b;
}

/* Resumed prompts get at least as many tokens as new ones, and a bounded number, whatever costs
 * are estimated. */
static void they_have_a_bounded_part_of_a_step(void **state)
{
    uint32_t n_shares = 0;
    for (double slower = 1; slower <= 64; slower *= 2) {
        struct device d = device;
        d.slower = slower;
        for (uint32_t n_sampled = 1; n_sampled <= 64; n_sampled *= 2) {
            struct step_budget b = learnt(&d, n_sampled);
            uint32_t timely = step_budget_prompt_tokens(&b, n_sampled);
            uint32_t n = step_budget_resumed_tokens(&b, n_sampled);
            assert_true(n >= timely && n >= 128 && (n <= 512 || n == timely));
            /* no bound applies, so the prompts get four fifths of the step */
            if (n > timely && n > 128 && n < 512) {
                double theirs = slower * device.token_ns * n;
                double step =
                    (double)takes_ns(&d, (struct step_load){.n_sampled = n_sampled, .n_prompt = n});
                n_shares++;
                if (theirs < 0.75 * step || theirs > 0.85 * step)
                    fail_msg("%g times slower, %u decodes: %g of the step", slower, n_sampled,
                             theirs / step);
            }
        }
        struct step_budget b = learnt(&d, 8);
        assert_true(step_budget_resumed_tokens(&b, 0) >= 512);
    }
    assert_true(n_shares >= 14);
}

static void without_a_target_there_is_no_bound(void **state)
{
    struct step_budget b;
    step_budget_init(&b, 0);
    assert_int_equal(step_budget_resumed_tokens(&b, 3), UINT32_MAX);
}

/* Adds a request with `n_generated` tokens, as after the loss of its replica. */
static struct request *add_resumed(struct bed *b, uint32_t n_prompt, uint32_t n_generated)
{
    struct msg_submit m = submit(b, n_prompt, 900);
    m.ids.n = n_prompt + n_generated;
    struct request *r = make(b, &m);
    assert_true(r->resubmitted);
    assert_int_equal(scheduler_add(b->s, r), STATUS_OK);
    return r;
}

/* Returns the number of positions of the slot in the plan. */
static uint32_t planned(const struct msg_plan *p, uint32_t slot)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_runs; i++)
        n += p->runs[i].slot == slot ? p->runs[i].n_tokens : 0;
    return n;
}

static void give_slow(struct bed *b, const struct msg_plan *p, double slower)
{
    struct device d = device;
    struct step_load l = {0};
    struct answer a;
    d.slower = slower;
    for (uint32_t i = 0; i < p->n_runs; i++) {
        l.n_sampled += p->runs[i].sample;
        l.n_prompt += p->runs[i].n_tokens - p->runs[i].sample;
    }
    answer(p, OTHER_ID, &a);
    a.m.execute_ns = takes_ns(&d, l);
    give(b, &a);
}

/* Returns the time until each of four resumed streams has one more token, in units of the
 * device's time for one prompt token. */
static double recovery(double slower)
{
    struct bed b;
    struct scheduler_config c = config(256);
    c.max_num_batched_tokens = 2048;
    c.long_prefill_token_threshold = 256;
    c.step_target_ns = TARGET_NS;
    open_bed(&b, &c);
    struct request *all[4];
    for (uint32_t i = 0; i < 4; i++)
        all[i] = add_resumed(&b, 10, 300);
    double ns = 0;
    for (bool done = false; !done;) {
        const struct msg_plan *p = step(&b);
        struct step_load l = {0};
        for (uint32_t i = 0; i < p->n_runs; i++) {
            l.n_sampled += p->runs[i].sample;
            l.n_prompt += p->runs[i].n_tokens - p->runs[i].sample;
        }
        struct device d = device;
        d.slower = slower;
        ns += (double)takes_ns(&d, l);
        give_slow(&b, p, slower);
        done = true;
        for (uint32_t i = 0; i < 4; i++)
            done = done && all[i]->n_ids > 310;
    }
    close_bed(&b);
    return ns / slower / device.token_ns;
}

static void a_recovery_is_as_much_longer_as_the_machine_is_slower(void **state)
{
    double calm = recovery(1), least = 4 * 310;
    assert_true(calm >= least && calm < 1.5 * least);
    for (double slower = 2; slower <= 64; slower *= 2) {
        double busy = recovery(slower);
        if (busy > 1.3 * calm)
            fail_msg("%g times slower: %g in place of %g", slower, busy, calm);
    }
}

/* A new prompt gets no part of the share for resumed prompts. It stays within the rest that the
 * target leaves. */
static void new_prompts_have_nothing_of_it(void **state)
{
    struct bed b;
    struct scheduler_config c = config(256);
    c.max_num_batched_tokens = 2048;
    c.long_prefill_token_threshold = 256;
    c.step_target_ns = TARGET_NS;
    open_bed(&b, &c);
    add(&b, 4, 900);
    /* The device is 64 times slower, so one decode takes far more than the target. */
    for (uint32_t k = 0; k < 50; k++)
        give_slow(&b, step(&b), 64);
    struct request *fresh = add(&b, 400, 10), *back = add_resumed(&b, 10, 500);
    uint32_t n_fresh = 0, n_back = 0, n_steps = 0, slot_fresh = UINT32_MAX, slot_back = UINT32_MAX;
    while (back->n_ids == 510) {
        const struct msg_plan *p = step(&b);
        for (uint32_t i = 0; i < p->n_admits; i++)
            *(p->admits[i].ids.n == 510 ? &slot_back : &slot_fresh) = p->admits[i].slot;
        n_back += planned(p, slot_back);
        n_fresh += planned(p, slot_fresh);
        n_steps++;
        give_slow(&b, p, 64);
    }
    assert_true(n_back >= 510 && fresh->n_ids == 400);
    assert_true(n_steps <= 510 / 128 + 2);
    assert_true(n_fresh < n_back / 2);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_have_a_bounded_part_of_a_step),
        cmocka_unit_test(without_a_target_there_is_no_bound),
        cmocka_unit_test(a_recovery_is_as_much_longer_as_the_machine_is_slower),
        cmocka_unit_test(new_prompts_have_nothing_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
