#pragma once
/* Prepares this machine for `cox up`: the folder of the programs, the cluster's keys, the NUMA
 * nodes, and a check that ports are free. */
#include "cli/base/throw_away.h"
#include "cli/up/plan/options.h"
#include "cli/up/plan/types.h"

enum { UP_PATH_BYTES = 4096 };

struct up_machine {
    /* folders and machine of the plan; `place` points into this struct, so the struct must not be
     * moved */
    struct up_place place;
    struct numa numa;
    char bin_dir[UP_PATH_BYTES], keys_dir[UP_PATH_BYTES];
    /* folder for the control socket, and for the keys without --keys-dir */
    struct throw_away throw_away;
};

/* Finds the folder of the programs: the folder that contains this executable. */
MUST_USE enum status up_machine_find_programs(struct up_machine *m, struct error *err);
/* Makes the keys and fills m->place. Warnings go to stderr with the command's name. The caller
 * removes `throw_away` later. */
MUST_USE enum status up_machine_prepare(struct up_machine *m, const struct up_options *o,
                                        const char *command, const char *tmp_dir,
                                        struct error *err);
/* Warns about limits of this machine that are too low for the plan. A port that is in use is an
 * error. */
MUST_USE enum status up_machine_check(const struct up_options *o, const struct up_plan *plan,
                                      const char *command, struct error *err);
/* Checks that the ports of the child are free. */
MUST_USE enum status up_machine_check_ports(const struct up_child *c, struct error *err);
/* Puts secrets into the environment of the children. Every user can read a command line with
 * `ps`, but only the owner can read a process's environment. */
MUST_USE enum status up_machine_export_secrets(const struct up_options *o, struct error *err);
