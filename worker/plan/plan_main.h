#pragma once
/* Declares the entry point of `cox plan`, a mode of cox-worker. */

/* Returns the exit code: 0 = the model fits, 1 = it does not, 2 = usage or configuration. */
int plan_main(int argc, char **argv);
