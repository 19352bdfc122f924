/* vLLM's commands accept engine options beside their own. In Coxswain, `cox up` is the engine.
 * This file moves the engine options behind `--`, and the command passes all options behind `--`
 * to `cox up`. */
#include "cli/batch/engine_words.h"

#include <string.h>

#include "cli/up/plan/options.h"
#include "common/base/mem.h"
#include "common/config/argv.h"

char **engine_words_move(const struct option_spec *specs, size_t n_specs, int argc, char **argv,
                         int *out_argc)
{
    static char end_of_options[] = "--";
    char **out = mem_array((size_t)argc + 2, sizeof *out);
    char **up = mem_array((size_t)argc + 1, sizeof *up);
    int n = 0, n_up = 0, i = 1;
    out[n++] = argv[0];
    while (i < argc && strcmp(argv[i], "--") != 0) {
        size_t own = config_count_words(specs, n_specs, argc, argv, i);
        size_t up_words = own > 0 ? 0 : config_count_words(up_specs, up_n_specs, argc, argv, i);
        for (size_t k = 0; k < up_words; k++)
            up[n_up++] = argv[i++];
        for (size_t k = up_words > 0 ? 1 : 0; k < (own > 0 ? own : 1); k++)
            out[n++] = argv[i++];
    }
    for (i++; i < argc; i++)
        up[n_up++] = argv[i];
    if (n_up > 0)
        out[n++] = end_of_options;
    memcpy(out + n, up, (size_t)n_up * sizeof *up);
    mem_free(up);
    *out_argc = n + n_up;
    out[*out_argc] = NULL;
    return out;
}
