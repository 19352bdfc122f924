#pragma once
/* The mode of cox-worker that is `cox plan`. */

/* Returns the exit code: 0 = it fits, 1 = it does not, 2 = usage or configuration. */
int plan_main(int argc, char **argv);
