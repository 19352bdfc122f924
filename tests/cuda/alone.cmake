# Defines the libraries of tests/cuda when it is built alone: base and the kernels of both backends. If jansson, libsodium and libxxhash are
# installed, the sources that read and run models are built too. ZeroMQ, libuv and the other libraries are not searched: a source whose headers are
# missing is left out, and a program that needs it would not link. On a host without those three libraries, they are read from a folder that
# tests/cuda/pack made elsewhere.
set(COX_PACK ${root}/build/gpu-host CACHE PATH "what tests/cuda/pack brought along")
set(COX_CUDA ON)
find_package(Threads REQUIRED)
include(Folders)
set(alone_includes)
set(alone_missing)
set(alone_libs)
foreach(name jansson sodium xxhash)
  find_path(${name}_include ${name}.h HINTS ${COX_PACK}/include)
  find_library(${name}_lib NAMES lib${name}.a ${name} HINTS ${COX_PACK}/lib)
  if(${name}_include AND ${name}_lib)
    list(APPEND alone_includes ${${name}_include})
    list(APPEND alone_libs ${${name}_lib})
  else()
    string(APPEND alone_missing " ${name}")
  endif()
endforeach()

include(${root}/tests/cuda/alone_library.cmake)
alone_library(base common/base common/collections common/config common/host)
target_link_libraries(base PUBLIC ${alone_libs} Threads::Threads m)
add_subdirectory(${root}/kernels ${CMAKE_BINARY_DIR}/kernels)
if(alone_missing)
  message(STATUS "left out: all that reads a model, for there is no${alone_missing} (tests/cuda/pack, COX_PACK)")
else()
  alone_library(model common/model)
  target_link_libraries(model PUBLIC base)
  alone_library(worker worker)
  # the other sources of these folders need more libraries
  target_sources(worker PRIVATE ${root}/common/options/speculation.c ${root}/proto/null_tokens.c
                                ${root}/tests/cuda/no_text.c)
  target_link_libraries(worker PUBLIC kernels model base)
  set(COX_HAVE_RUNNER TRUE)
endif()
