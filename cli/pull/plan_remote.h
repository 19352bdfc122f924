#pragma once
/* Implements `cox plan hf:ORG/NAME` for a model that is not in the cache. It fetches
 * config.json, or the first bytes of a GGUF, into memory, but no weights. cox-worker makes the
 * plan in a child process, while this process keeps the files in memory. */

/* Fetches the needed parts and makes the plan. Returns the exit code of the plan, or of a failed
 * fetch. Returns -1 when nothing has to be fetched. The caller then executes cox-worker with
 * argv unchanged. */
int plan_remote(int argc, char **argv, int (*become)(int argc, char **argv));
