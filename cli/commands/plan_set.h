#pragma once
/* Implements `cox plan` with several models, which prints the memory that `cox up` would give each
 * of them. */

/* Returns the exit code: 0 = the models fit, 1 = they do not, 2 = wrong usage. Returns -1 when the
 * command line names one model, or none. */
int plan_set(int argc, char **argv);
