# kernels/cuda as C++ over tests/cuda/emulate: no toolchain, no device. Commands for each source, and not
# CMake's CXX language: that would ask for a C++ compiler of the C compiler's family (clang's, in two presets)
# and give it the flags of our C. GNU's compiles everywhere; a misaligned access of 4 to 16 bytes traps, as on a
# device. AddressSanitizer sees the kernels' loads and stores; their stacks are fibers'.
find_program(COX_EMULATE_CXX NAMES g++ c++ REQUIRED)
set(emulate_flags -std=c++17 -O2 -g1 -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fno-threadsafe-statics
    -fno-strict-aliasing -ftls-model=local-exec -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas)
set(COX_EMULATE_KERNEL_FLAGS -fsanitize=alignment -fsanitize-undefined-trap-on-error CACHE INTERNAL "") # of .cu files
if(COX_WERROR)
  list(APPEND emulate_flags -Werror)
endif()
if(COX_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL GNU)
  list(APPEND emulate_flags -fsanitize=address --param asan-stack=0)
endif()
set(COX_EMULATE_FLAGS ${emulate_flags} CACHE INTERNAL "") # for callers in other folders

# cox_emulated_objects(OUT SOURCE...): the object files; a program links them with kernels_cuda_emulated's libraries.
function(cox_emulated_objects out)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
    string(REPLACE "/" "_" name ${name}) # kernels_cuda_linear_u4.cu: folders have files of one name
    set(object ${CMAKE_CURRENT_BINARY_DIR}/emulated_${name}.o)
    set(flags ${COX_EMULATE_FLAGS})
    if(name MATCHES "\\.cu$")
      list(APPEND flags ${COX_EMULATE_KERNEL_FLAGS})
    endif()
    add_custom_command(OUTPUT ${object} VERBATIM
      COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${COX_EMULATE_CXX} ${flags} -I${CMAKE_SOURCE_DIR}/tests/cuda/emulate
              -I${CMAKE_SOURCE_DIR} -MD -MF ${object}.d -MT ${object} -x c++ -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "emulated ${name}")
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
