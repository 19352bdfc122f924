#pragma once
/* `cox-head replay FILE [OPTION...]`: the process's exit code. */
int replay_main(int argc, char **argv);
