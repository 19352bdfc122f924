/* Implements `cox up MODEL` and `cox serve MODEL`, which start a whole cluster on this machine
 * (cli/up/). */
#include <stdio.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/base/program_name.h"
#include "cli/commands/command.h"
#include "cli/commands/vllm.h"
#include "cli/multi_model/serve.h"
#include "cli/sagemaker/log.h"
#include "cli/sagemaker/settings.h"
#include "cli/up/cluster.h"
#include "cli/up/plan/options.h"
#include "cli/up/sagemaker.h"
#include "cli/up/set/read.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/options/groups.h"

int cmd_up(int argc, char **argv)
{
    struct up_options *o = mem_zalloc(sizeof *o);
    struct config_result res;
    int code;
    const bool one_model = program_is_vllm(); /* `vllm serve` takes one */
    const struct command_line line = {.usage = one_model ? "cox up MODEL [OPTION...]"
                                                         : "cox up MODEL... [OPTION...]",
                                      .specs = vllm_up_specs(up_specs, up_n_specs),
                                      .n_specs = up_n_specs,
                                      .max_positional = one_model ? 1 : UP_SET_MAX,
                                      .groups = option_groups,
                                      .log_format = &o->log_format};
    struct up_start start = {.command = argv[0], .options = o, .begin_ns = clock_mono_ns()};
    bool by_sagemaker = up_sagemaker_is_wanted(&line, argc, argv);
    char **own_argv = NULL;
    struct arena texts;
    arena_init(&texts, 0);
    res = (struct config_result){0};
    if (by_sagemaker &&
        up_sagemaker_argv(&argc, argv, &texts, &own_argv, &start.sagemaker_settings, &code))
        argv = own_argv;
    if ((!by_sagemaker || own_argv) && command_parse(&line, argc, argv, o, &res, &code)) {
        bool is_set = !one_model && up_set_is_wanted(o, &res.positional);
        if (res.positional.n_items == 0 && !o->models_file) {
            char usage[COMMAND_USAGE_BYTES];
            fprintf(stderr,
                    "cox %s: the model is missing; usage: %s; MODEL is null, demo, a GGUF file, a "
                    "model folder, or a name that `cox pull` accepts (ORG/NAME, s3://…)\n",
                    argv[0], command_usage(argv[0], line.usage, usage));
            code = EXIT_USAGE;
        } else {
            const struct set_input models = {.argc = argc,
                                             .argv = argv,
                                             .environ_ = environ,
                                             .specs = line.specs,
                                             .n_specs = line.n_specs,
                                             .options = o,
                                             .models = &res.positional};
            start.model = is_set ? NULL : res.positional.items[0];
            start.models = is_set ? &models : NULL;
            log_init("cox", (enum log_level)o->log_level, (enum log_format)o->log_format);
            code = up_cluster_run(&start);
        }
    }
    config_fini(&res);
    mem_free(own_argv);
    arena_fini(&texts);
    mem_free(o);
    return code;
}

int cmd_serve(int argc, char **argv)
{
    bool names_none = argc < 2 || argv[1][0] == '-';
    return names_none && sagemaker_is_multi_model(environ) ? models_serve(argc, argv)
                                                           : cmd_up(argc, argv);
}
