# Builds NCCL's stand-in, and the test of kernels/cuda/comm/nccl*.c over it; included from tests/cuda.
set(fakenccl_folder ${CMAKE_CURRENT_LIST_DIR})

# cox_fakenccl(TARGET COMPILER FLAGS...): builds libTARGET.so beside the tests' programs.
function(cox_fakenccl target cxx)
  set(library ${CMAKE_BINARY_DIR}/tests/lib${target}.so)
  add_custom_command(OUTPUT ${library} VERBATIM
    COMMAND ${cxx} -std=c++17 -O2 -g1 -fPIC -shared -fno-exceptions -Wall -Wextra -Wno-unused-parameter
            -I${fakenccl_folder}/../.. -MD -MF ${library}.d -MT ${library} ${fakenccl_folder}/fakenccl.cpp -o ${library}
            ${ARGN} -pthread -lrt -ldl
    DEPENDS ${fakenccl_folder}/fakenccl.cpp DEPFILE ${library}.d COMMENT "${target}")
  add_custom_target(${target} DEPENDS ${library})
endfunction()

# Call this function after cuda_comm_emulated. The library uses the emulation's runtime of the program that loads it.
function(cox_fakenccl_emulated)
  cox_fakenccl(fakenccl_emulated ${COX_EMULATE_CXX} -I${fakenccl_folder}/../cuda/emulate)
  add_dependencies(cuda_comm_emulated fakenccl_emulated)
  target_link_libraries(cuda_comm_emulated PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(cuda_comm_emulated cuda_oneshot_bench_emulated PROPERTIES ENABLE_EXPORTS ON)
  if(COX_SANITIZE MATCHES thread) # the test does not run here, because its ranks are forked and have threads
    set_tests_properties(cuda_comm_emulated PROPERTIES DISABLED ON)
  endif()
endfunction()

# Call this function after cuda_comm_test. The library has a separate runtime, like NCCL.
function(cox_fakenccl_device)
  list(TRANSFORM COX_CUDA_INCLUDES PREPEND -isystem OUTPUT_VARIABLE includes)
  cox_fakenccl(fakenccl ${COX_NVCC_CXX} ${includes} ${COX_CUDART})
  add_dependencies(cuda_comm_test fakenccl)
endfunction()
