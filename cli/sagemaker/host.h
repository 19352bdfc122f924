#pragma once
/* Reads the inputs of settings.h from this machine: its GPUs, and the settings file in a model's
 * folder. */
#include "cli/sagemaker/settings.h"

enum { SAGEMAKER_PROPERTIES_MAX = 64 << 10 };

/* Returns the number of GPUs that this process may use: all GPUs of the machine, or those in
 * CUDA_VISIBLE_DEVICES. */
uint32_t sagemaker_gpus(char *const *environ_);
/* Appends the name of the i-th GPU, as CUDA_VISIBLE_DEVICES names it. */
void sagemaker_gpu_name(char *const *environ_, uint32_t i, struct strbuf *out);
/* Reads serving.properties in a model's folder. A file that cannot be read counts as missing. */
struct str sagemaker_properties(const char *folder, char out[SAGEMAKER_PROPERTIES_MAX]);
bool sagemaker_has_weights(const char *folder);
/* Returns the total size in bytes of the weight files in a folder. */
uint64_t sagemaker_weight_bytes(const char *folder);
