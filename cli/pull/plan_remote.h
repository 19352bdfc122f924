#pragma once
/* `cox plan hf:ORG/NAME` of a model that is not in the cache: config.json, or what a GGUF begins
 * with, is fetched into memory and planned from; no weights. cox-worker counts, as a child, so that
 * this process has the files while it does. */

/* Returns the exit code of the plan, or of a fetch that failed; -1: nothing is to be fetched, and
 * cox-worker is to be become with argv as it is. */
int plan_remote(int argc, char **argv, int (*become)(int argc, char **argv));
