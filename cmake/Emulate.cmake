# Compiles kernels/cuda as C++ with tests/cuda/emulate, without a CUDA toolchain or device. There is a command per source instead of CMake's CXX
# language. That language would ask for a C++ compiler of the C compiler's family (clang's, in two presets) and give it the C flags of this project.
# GNU's compiler is used everywhere. A misaligned access of 4 to 16 bytes traps, as on a device. AddressSanitizer checks the kernels' loads and
# stores, but not their stacks, which belong to fibers.
find_program(COX_EMULATE_CXX NAMES g++ c++ REQUIRED)
set(emulate_flags -std=c++17 -O2 -g1 -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fno-threadsafe-statics
    -fno-strict-aliasing -ftls-model=local-exec -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas)
set(COX_EMULATE_KERNEL_FLAGS -fsanitize=alignment -fsanitize-undefined-trap-on-error CACHE INTERNAL "") # extra flags for .cu files
if(COX_WERROR)
  list(APPEND emulate_flags -Werror)
endif()
if(COX_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL GNU)
  list(APPEND emulate_flags -fsanitize=address --param asan-stack=0)
endif()
set(COX_EMULATE_FLAGS ${emulate_flags} CACHE INTERNAL "") # other folders use these flags too

# cox_emulated_objects(OUT SOURCE...): compiles the sources and sets OUT to the objects. A program links them with the libraries of
# kernels_cuda_emulated.
function(cox_emulated_objects out)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
    string(REPLACE "/" "_" name ${name}) # a name such as kernels_cuda_linear_u4.cu, since several folders have files of one name
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
