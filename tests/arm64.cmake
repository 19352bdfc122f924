# Defines the tests that `scripts/test --preset arm64` runs under QEMU, with the label arm64.
# The kernel tests and some models run on the best CPU that QEMU emulates (`max`).
# Tests of dot products also run on a CPU without dot product instructions (Cortex-A53) and on a CPU with signed ones only (Cortex-A76).
file(GLOB_RECURSE kernel_tests ${CMAKE_CURRENT_SOURCE_DIR}/unit/kernels/*_test.c)
list(FILTER kernel_tests EXCLUDE REGEX "_avx(2|512)_test\\.c$")
list(TRANSFORM kernel_tests REPLACE ".*/([a-z0-9_]+)\\.c$" "kernels_\\1")
add_custom_target(arm64_tests DEPENDS ${kernel_tests} model_golden)
function(cox_arm64_as cpu name program)
  add_test(NAME ${name} COMMAND ${program} ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS arm64 ENVIRONMENT QEMU_CPU=${cpu} TIMEOUT 900 SKIP_RETURN_CODE 77)
endfunction()
foreach(t ${kernel_tests})
  cox_arm64_as(max arm64_${t} ${t})
endforeach()
foreach(cpu cortex-a53 cortex-a76)
  cox_arm64_as(${cpu} arm64_kernels_dot_test_${cpu} kernels_dot_test)
  cox_arm64_as(${cpu} arm64_kernels_digest_test_${cpu} kernels_digest_test)
  cox_arm64_as(${cpu} arm64_model_codes_${cpu} model_golden --activations narrow ${own_goldens}/llama_tiny_gguf_q8_0
               ${own_goldens}/llama_tiny_gguf_q4_k ${own_goldens}/gemma3_tiny_gguf_q6_k)
endforeach()
cox_arm64_as(max arm64_model_codes model_golden --activations narrow ${own_goldens}/llama_tiny_gguf_q8_0
             ${own_goldens}/llama_tiny_gguf_q4_k ${own_goldens}/gemma3_tiny_gguf_q6_k)
set(models llama_bias llama_tiny_gguf_iq4_nl gemma3_caps phi3_tiny mixtral_5experts deepseek_v3 gpt_oss_bf16
    llama_tiny_gptq3 llama_tiny_gguf_mxfp4)
list(TRANSFORM models PREPEND ${own_goldens}/)
cox_arm64_as(max arm64_models model_golden ${models})
cox_arm64_as(max arm64_model_levels model_golden --isa all ${own_goldens}/llama_tiny)
cox_arm64_as(max arm64_model_tp2_pp2 model_golden --tp 2 --pp 2 ${own_goldens}/llama_tiny)
