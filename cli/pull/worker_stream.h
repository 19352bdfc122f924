#pragma once
/* `cox worker --model s3://… --load-format stream`: the model is fetched into memory by this
 * process, which then becomes cox-worker and keeps the files open; so they end with it. */

/* *args: what cox-worker gets, argv itself when there is nothing to fetch; kept until the exec. An
 * exit code: EXIT_FINE to go on. */
int worker_stream(int argc, char **argv, char ***args);
