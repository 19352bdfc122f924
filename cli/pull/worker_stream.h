#pragma once
/* Implements `cox worker --model s3://… --load-format stream`. This process fetches the model
 * into memory, then executes cox-worker with the files still open. The memory is freed when the
 * process ends. */

/* Fetches the model if the options ask for it. *args is the argv for cox-worker, or argv itself
 * when nothing is fetched; it stays valid until the exec. Returns an exit code; EXIT_FINE = the
 * caller continues. */
int worker_stream(int argc, char **argv, char ***args);
