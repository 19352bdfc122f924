#pragma once
/* Parses command lines for the tests of `cox up`: real flags, parsed with the real table. */
#include "cli/up/plan/options.h"
#include "cli/up/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct parsed {
    struct up_options o;
    struct config_result res;
    struct arena arena;
    struct up_plan plan;
};

/* Describes the machine that the plan is made for. */
struct machine {
    const char *own_name; /* name of the folder of throw-away keys */
    uint32_t n_cores;
    const struct numa *nodes; /* NUMA nodes of the machine; NULL = unknown */
    cpu_set_t allowed;
};

static inline enum status plan_on(const struct machine *m, struct parsed *p, const char *model,
                                  const char *const *args, struct error *err)
{
    char *no_env[] = {NULL};
    char *argv[300] = {(char[]){"up"}};
    int argc = 1;
    for (; args && args[argc - 1]; argc++)
        argv[argc] = (char *)args[argc - 1];
    *p = (struct parsed){0};
    arena_init(&p->arena, 0);
    TRY(config_parse(up_specs, up_n_specs, argc, argv, no_env, &p->o, &p->res, err));
    const struct up_place place = {.bin_dir = "/bin-dir",
                                   .keys_dir = "/keys",
                                   .own_name = m->own_name,
                                   .n_cores = m->n_cores,
                                   .numa = m->nodes,
                                   .allowed = m->allowed};
    return up_plan_build(&p->o, model, &place, &p->arena, &p->plan, err);
}

static inline void fini(struct parsed *p)
{
    arena_fini(&p->arena);
    config_fini(&p->res);
}

/* Returns the value after a flag, "" for a flag without a value, or NULL when the flag is
 * absent. */
static inline const char *value(const struct up_child *c, const char *flag)
{
    for (uint32_t i = 1; i < c->n_args; i++)
        if (strcmp(c->argv[i], flag) == 0)
            return i + 1 < c->n_args && strncmp(c->argv[i + 1], "--", 2) != 0 ? c->argv[i + 1] : "";
    return NULL;
}
