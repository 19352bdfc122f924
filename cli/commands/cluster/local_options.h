#pragma once
/* Defines the options of the commands for a cluster that `cox up` runs on this machine. */
#include <stdbool.h>
#include <stdint.h>

struct local_options {
    const char *address;
    int64_t lines;
    double timeout_s;
    bool follow, json, all;
};
