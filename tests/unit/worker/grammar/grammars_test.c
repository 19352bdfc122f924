/* Tests the costs of a sequence's masks: each position has its own cost, and a position without
 * a mask has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "worker/grammar/compiler.h"
#include "worker/grammar/grammars.h"

enum { EOS = 256, VOCAB = 257, WORDS = (VOCAB + 31) / 32, PLACES = 3 };

struct masks {
    uint32_t words[PLACES][WORDS], units[PLACES], kib[PLACES];
    bool has[PLACES];
    enum grammar_end ends[PLACES];
};

static bool allows(const struct masks *m, uint32_t place, uint32_t id)
{
    return m->words[place][id / 32] >> (id % 32) & 1;
}

static struct masks masks_of(const char *pattern, const char *drafts)
{
    static const uint32_t eos[] = {EOS};
    _Atomic uint64_t progress = 0;
    uint32_t ids[PLACES] = {0}, n = (uint32_t)strlen(drafts);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (uint8_t)drafts[i];
    struct sequence q = {.ids = ids, .serial = 1};
    q.sampling = (struct sampling_params){
        .grammar_kind = GRAMMAR_REGEX, .grammar = str_from(pattern), .eos_ids = {eos, 1}};
    struct grammar_compiler *c = grammar_compiler_new("builtin:bytes", NULL, GRAMMAR_ROOM_MOST);
    struct grammars *g = grammars_new(c, VOCAB, &progress);
    struct masks m;
    memset(&m, 0xff, sizeof m);
    grammars_enter(g, &q);
    grammars_mask(g, &q,
                  (struct grammar_places){.n = n + 1,
                                          .words = m.words[0],
                                          .has = m.has,
                                          .ends = m.ends,
                                          .units = m.units,
                                          .kib = m.kib});
    grammars_free(g);
    grammar_compiler_free(c);
    return m;
}

static void each_place_says_what_its_mask_costs(void **state)
{
    struct masks m = masks_of("[a-z]+b", "a");
    assert_true(m.has[0] && m.has[1]);
    assert_true(allows(&m, 0, 'a') && !allows(&m, 0, 'A') && allows(&m, 1, 'b'));
    assert_in_range(m.units[0], 1, 100000);
    assert_in_range(m.units[1], 1, 100000);
    assert_in_range(m.kib[0], 1, 1000);
    assert_int_equal(m.kib[0], m.kib[1]);
}

static void behind_a_refused_draft_there_is_no_mask_to_pay(void **state)
{
    struct masks m = masks_of("[a-z]+b", "A");
    assert_true(m.has[0] && !m.has[1]);
    assert_in_range(m.units[0], 1, 100000);
    assert_int_equal(m.units[1], 0);
}

static void a_grammar_that_is_none_costs_nothing(void **state)
{
    struct masks m = masks_of("(a", "");
    assert_true(m.has[0] && m.ends[0] == GRAMMAR_DEAD_END && allows(&m, 0, EOS));
    assert_int_equal(m.units[0], 0);
    assert_int_equal(m.kib[0], 0);
}

/* The head drops a rank that shows no progress for ten seconds, so each id of a replay must
 * count as progress. */
static void each_id_of_a_replay_is_progress(void **state)
{
    enum { N = 1000 };
    uint32_t ids[N], words[WORDS], units;
    bool has;
    enum grammar_end end;
    _Atomic uint64_t progress = 0;
    for (uint32_t i = 0; i < N; i++)
        ids[i] = 'a';
    struct sequence q = {.ids = ids, .n_ids = N, .n_prompt = 1, .serial = 1};
    q.sampling = (struct sampling_params){.grammar_kind = GRAMMAR_REGEX, .grammar = STR("[a-z]+b")};
    struct grammar_compiler *c = grammar_compiler_new("builtin:bytes", NULL, GRAMMAR_ROOM_MOST);
    struct grammars *g = grammars_new(c, VOCAB, &progress);
    grammars_enter(g, &q);
    for (uint32_t turn = 0; turn < 2; turn++) { /* in the second turn the ids have been taken */
        uint64_t before = atomic_load(&progress);
        grammars_mask(g, &q,
                      (struct grammar_places){
                          .n = 1, .words = words, .has = &has, .ends = &end, .units = &units});
        assert_int_equal(atomic_load(&progress) - before, turn == 0 ? N - 1 : 0);
        assert_true(has && end == GRAMMAR_GOES_ON);
        assert_in_range(units, turn == 0 ? N : 1, turn == 0 ? 100 * N : N - 1);
    }
    grammars_free(g);
    grammar_compiler_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_place_says_what_its_mask_costs),
        cmocka_unit_test(behind_a_refused_draft_there_is_no_mask_to_pay),
        cmocka_unit_test(a_grammar_that_is_none_costs_nothing),
        cmocka_unit_test(each_id_of_a_replay_is_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
