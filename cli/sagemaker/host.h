#pragma once
/* The machine as settings.h wants to know it: its GPUs, and the settings beside a model. */
#include "cli/sagemaker/settings.h"

enum { SAGEMAKER_PROPERTIES_MAX = 64 << 10 };

/* GPUs that this process may use: those that the machine has, or that CUDA_VISIBLE_DEVICES names.
 */
uint32_t sagemaker_gpus(char *const *environ_);
/* The name of the i-th of them, as CUDA_VISIBLE_DEVICES is to have it. */
void sagemaker_gpu_name(char *const *environ_, uint32_t i, struct strbuf *out);
/* serving.properties of a model's folder; one that cannot be read is none. */
struct str sagemaker_properties(const char *folder, char out[SAGEMAKER_PROPERTIES_MAX]);
bool sagemaker_has_weights(const char *folder);
/* Bytes of the files in a folder that hold weights. */
uint64_t sagemaker_weight_bytes(const char *folder);
