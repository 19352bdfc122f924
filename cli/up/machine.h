#pragma once
/* This machine as `cox up` uses it: where the programs and the cluster's keys are, its NUMA nodes,
 * whether its ports are free. */
#include "cli/base/throw_away.h"
#include "cli/up/plan/options.h"
#include "cli/up/plan/types.h"

enum { UP_PATH_BYTES = 4096 };

struct up_machine {
    struct up_place place; /* points into this struct: it is not to be moved */
    struct numa numa;
    char bin_dir[UP_PATH_BYTES], keys_dir[UP_PATH_BYTES];
    struct throw_away throw_away; /* of the control socket, and keys_dir when none was given */
};

/* Finds the folder of the programs, which lie next to this one. */
MUST_USE enum status up_machine_find_programs(struct up_machine *m, struct error *err);
/* Makes the keys, and fills m->place. A command's warnings go to stderr. Behind it throw_away is to
 * be removed. */
MUST_USE enum status up_machine_prepare(struct up_machine *m, const struct up_options *o,
                                        const char *command, const char *tmp_dir,
                                        struct error *err);
/* Warns of limits of this machine that are too low for the plan; an error where a port is in use.
 */
MUST_USE enum status up_machine_check(const struct up_options *o, const struct up_plan *plan,
                                      const char *command, struct error *err);
/* Whether the ports that the child will listen on are free. */
MUST_USE enum status up_machine_check_ports(const struct up_child *c, struct error *err);
/* `ps` shows a child's command line to everyone on the machine, its environment only to us. */
MUST_USE enum status up_machine_export_secrets(const struct up_options *o, struct error *err);
