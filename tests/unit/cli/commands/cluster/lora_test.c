/* Tests the states of an adapter's load or unload, read from the head's list of adapters. While
 * one version replaces another, the name is in the list twice, in either order. */
#include "cli/commands/cluster/lora.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_look(void **state)
{
    static const struct {
        /* states of the entries with the adapter's name; NULL = no further entry */
        const char *states[3];
        enum progress on, off;
    } cases[] = {
        {{0}, PROGRESS_GONE, PROGRESS_GONE},
        {{"loading"}, PROGRESS_WAITS, PROGRESS_WAITS},
        {{"ready"}, PROGRESS_READY, PROGRESS_READY},
        {{"leaving"}, PROGRESS_GONE, PROGRESS_WAITS},
        {{"unloading"}, PROGRESS_GONE, PROGRESS_WAITS},
        {{"failed"}, PROGRESS_FAILED, PROGRESS_FAILED},
        /* While the adapter is replaced, the old version serves, then leaves, and then is
         * removed from the list. */
        {{"ready", "loading"}, PROGRESS_WAITS, PROGRESS_WAITS},
        {{"loading", "ready"}, PROGRESS_WAITS, PROGRESS_WAITS},
        {{"ready", "failed"}, PROGRESS_FAILED, PROGRESS_FAILED},
        {{"leaving", "ready"}, PROGRESS_READY, PROGRESS_WAITS},
        {{"ready", "leaving"}, PROGRESS_READY, PROGRESS_WAITS},
        {{"unloading", "ready", "leaving"}, PROGRESS_READY, PROGRESS_WAITS},
        {{"leaving", "loading"}, PROGRESS_WAITS, PROGRESS_WAITS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        /* the list also has an entry with another name */
        json_t *all = json_pack("[{s:s,s:s}]", "name", "y", "state", "loading");
        for (size_t k = 0; k < 3 && cases[i].states[k]; k++)
            json_array_append_new(all, json_pack("{s:s,s:s,s:s}", "name", "x", "state",
                                                 cases[i].states[k], "text", "why"));
        json_t *answer = json_pack("{s:o}", "adapters", all);
        for (int on = 0; on < 2; on++) {
            enum progress want = on ? cases[i].on : cases[i].off;
            enum progress got = look(answer, "x", on, text, sizeof text);
            if (got != want || (got == PROGRESS_FAILED && strcmp(text, "why") != 0))
                fail_msg("case %zu, on %d: %d, want %d", i, on, got, want);
        }
        json_decref(answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_look)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
