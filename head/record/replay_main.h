#pragma once
/* Runs `cox-head replay FILE [OPTION...]`. Returns the exit code of the process. */
int replay_main(int argc, char **argv);
