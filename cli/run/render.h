#pragma once
/* Turns a run file into Kubernetes objects: a Deployment for a model, or a Job for commands. It
 * also makes a Service for the ports, and a ConfigMap with options and script. Values with a
 * secret name get a Secret, and each volume with a size gets a claim. Pods fit Pod Security's
 * "restricted". The functions are pure and may run on any thread. */
#include <jansson.h>

#include "cli/run/file/file.h"

struct run_render {
    const struct run_file *file;
    const char *namespace_; /* namespace of the objects; NULL = the objects name no namespace */
    const char *git_image;  /* image that runs git; NULL = the run's image */
    /* values from the environment of the command that starts the run, by name */
    const json_t *taken;
    struct arena *arena;
};

/* Renders the run. *owned_objects is an array. Parts that a pod cannot have are problems in *p,
 * with their lines. */
void run_render(const struct run_render *r, json_t **owned_objects, struct run_problems *p);
