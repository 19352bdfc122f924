#pragma once
/* Defines rows for the model's name and for the permission to fetch the model, which several
 * programs share. */
#include "common/config/config.h"

#define MODEL_HELP                                                                                 \
    "Model: a GGUF file, a folder, null, demo, or a name that `cox pull` takes (ORG/NAME). `cox` " \
    "downloads it if it is missing."
#define ROW_OFFLINE(S, field)                                                                      \
    {                                                                                              \
        .name = "offline", .type = OPTION_BOOL, .offset = offsetof(struct S, field),               \
        .env = "HF_HUB_OFFLINE,TRANSFORMERS_OFFLINE",                                              \
        .help = "Download nothing: a model that is missing in the cache is an error. Default: "    \
                "`cox` downloads a missing model as `cox pull` does."                              \
    }
