#pragma once
/* A run file as Kubernetes objects: a Deployment for a model, a Job for commands; a Service for its
 * ports, a ConfigMap with options and script, a Secret for what is secret by its name, a claim for
 * each volume with a size. Pods are as Pod Security's "restricted" wants them. Pure. */
#include <jansson.h>

#include "cli/run/file/file.h"

struct run_render {
    const struct run_file *file;
    const char *namespace_; /* NULL: none is named */
    const char *git_image;  /* NULL: the run's image */
    const json_t *taken;    /* name → value, of the starter's environment */
    struct arena *arena;
};

/* *owned_objects is an array. What no pod can have is in *p, by its line. */
void run_render(const struct run_render *r, json_t **owned_objects, struct run_problems *p);
