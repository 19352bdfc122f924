#pragma once
/* Rows for the model's name and for the permission to fetch it, which several programs share. */
#include "common/config/config.h"

#define MODEL_HELP                                                                                 \
    "The model: a GGUF file, a folder, null, demo, or a name that `cox pull` takes (ORG/NAME). "   \
    "`cox` fetches what is missing."
#define ROW_OFFLINE(S, field)                                                                      \
    {                                                                                              \
        .name = "offline", .type = OPTION_BOOL, .offset = offsetof(struct S, field),               \
        .env = "HF_HUB_OFFLINE,TRANSFORMERS_OFFLINE",                                              \
        .help = "Fetch nothing: a model that is missing in the cache is an error. Without it, "    \
                "`cox` fetches the model as `cox pull` does (HF_HUB_OFFLINE, "                     \
                "TRANSFORMERS_OFFLINE; default: off)."                                             \
    }
