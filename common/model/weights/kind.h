#pragma once

/* Of which kind the files of a folder must be; a GGUF is one by itself. */
enum weights_kind { WEIGHTS_ANY, WEIGHTS_SAFETENSORS, WEIGHTS_TORCH };
