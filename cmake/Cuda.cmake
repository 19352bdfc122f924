# The CUDA toolchain, without CMake's CUDA language: its compiler check links a program, and NVIDIA's
# PyPI packages (scripts/setup --cuda) have neither lib64 nor an unversioned libcudart.so to link. nvcc
# compiles, the C compiler links, against the static runtime: programs need the driver alone.
# The versions are the ones this was built with; older ones are refused here and not by an error later.
set(COX_CUDA_WANTED 13.0)
set(COX_CUBLAS_WANTED 13.0)
set(COX_NCCL_WANTED 2.28)
get_filename_component(COX_CUDA_SOURCE ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE) # the repository
set(cuda_hint "run scripts/setup --cuda, or name a toolkit with -DCOX_CUDA_ROOT=DIR (DIR/bin/nvcc)")

set(COX_CUDA_ROOT ${COX_CUDA_SOURCE}/.deps/cuda CACHE PATH "CUDA toolkit; else the one in PATH, else /usr/local/cuda")
find_program(COX_NVCC nvcc HINTS ${COX_CUDA_ROOT}/bin PATHS /usr/local/cuda/bin)
find_program(COX_NVCC_CXX NAMES g++ c++ DOC "nvcc's host compiler") # GNU's, as in scripts/setup
if(NOT COX_NVCC OR NOT COX_NVCC_CXX)
  message(FATAL_ERROR "nvcc (${COX_NVCC}) or g++ (${COX_NVCC_CXX}) not found: ${cuda_hint}")
endif()
execute_process(COMMAND ${COX_NVCC} --version OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE rc)
string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" match "${out}")
set(COX_CUDA_VERSION "${CMAKE_MATCH_1}")
if(NOT rc EQUAL 0 OR NOT match OR COX_CUDA_VERSION VERSION_LESS COX_CUDA_WANTED)
  message(FATAL_ERROR "${COX_NVCC} is CUDA \"${COX_CUDA_VERSION}\", at least ${COX_CUDA_WANTED} is wanted: ${cuda_hint}\n${out}")
endif()

get_filename_component(cuda_bin ${COX_NVCC} REALPATH)
get_filename_component(cuda_bin ${cuda_bin} DIRECTORY)
get_filename_component(cuda_root ${cuda_bin} DIRECTORY)
set(cuda_libs HINTS ${cuda_root} PATH_SUFFIXES lib lib64 targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib)
find_library(COX_CUDART libcudart_static.a ${cuda_libs})
find_library(COX_CUBLAS NAMES libcublas.so.13 cublas ${cuda_libs})
find_library(COX_NCCL NAMES libnccl.so.2 nccl HINTS ${COX_CUDA_SOURCE}/.deps/nccl ${cuda_root}
             PATH_SUFFIXES lib lib64)
find_path(COX_CUBLAS_INCLUDE cublas_api.h HINTS ${cuda_root}/include)
find_path(COX_NCCL_INCLUDE nccl.h HINTS ${COX_CUDA_SOURCE}/.deps/nccl/include ${cuda_root}/include)
if(NOT COX_CUDART)
  message(FATAL_ERROR "libcudart_static.a not found below ${cuda_root}: ${cuda_hint}")
endif()
message(STATUS "CUDA ${COX_CUDA_VERSION}: ${COX_NVCC}")

# cox_cuda_header_version(OUT FILE PREFIX): PREFIX_MAJOR.PREFIX_MINOR as FILE defines them; 0 without it.
function(cox_cuda_header_version out file prefix)
  set(version 0)
  if(EXISTS ${file})
    file(STRINGS ${file} lines REGEX "#define +${prefix}_(MAJOR|MINOR) +[0-9]+")
    string(REGEX MATCH "MAJOR +([0-9]+)" major "${lines}")
    set(version "${CMAKE_MATCH_1}")
    string(REGEX MATCH "MINOR +([0-9]+)" minor "${lines}")
    string(APPEND version ".${CMAKE_MATCH_1}")
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()
cox_cuda_header_version(COX_CUBLAS_VERSION ${COX_CUBLAS_INCLUDE}/cublas_api.h CUBLAS_VER)
cox_cuda_header_version(COX_NCCL_VERSION ${COX_NCCL_INCLUDE}/nccl.h NCCL)
# cox_cuda_libraries(): cuda_cublas and cuda_nccl to link with, or an error that says what is missing.
function(cox_cuda_libraries)
  if(NOT COX_CUBLAS OR COX_CUBLAS_VERSION VERSION_LESS COX_CUBLAS_WANTED)
    message(FATAL_ERROR "cuBLAS \"${COX_CUBLAS_VERSION}\" (${COX_CUBLAS}), at least ${COX_CUBLAS_WANTED} is wanted: ${cuda_hint}")
  endif()
  if(NOT COX_NCCL OR COX_NCCL_VERSION VERSION_LESS COX_NCCL_WANTED)
    message(FATAL_ERROR "NCCL \"${COX_NCCL_VERSION}\" (${COX_NCCL}), at least ${COX_NCCL_WANTED} is wanted: ${cuda_hint}")
  endif()
  message(STATUS "cuBLAS ${COX_CUBLAS_VERSION}: ${COX_CUBLAS}")
  message(STATUS "NCCL ${COX_NCCL_VERSION}: ${COX_NCCL}")
  add_library(cuda_cublas INTERFACE)
  target_include_directories(cuda_cublas SYSTEM INTERFACE ${COX_CUBLAS_INCLUDE} ${cuda_root}/include)
  target_link_libraries(cuda_cublas INTERFACE ${COX_CUBLAS})
  add_library(cuda_nccl INTERFACE)
  target_include_directories(cuda_nccl SYSTEM INTERFACE ${COX_NCCL_INCLUDE} ${cuda_root}/include)
  target_link_libraries(cuda_nccl INTERFACE ${COX_NCCL})
endfunction()

# sm_80 runs on every 8.x device, sm_90 on 9.x, the PTX of 90 is compiled by the driver for later ones.
# Contraction is off, so that the kernels' arithmetic is as written (kernels/cuda/norm.cu).
set(COX_NVCC_FLAGS -std=c++17 -O3 -fmad=false -lineinfo
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
    -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fPIE
    CACHE STRING "of every .cu file")
set(cuda_werror)
if(COX_WERROR)
  set(cuda_werror -Werror all-warnings -Xcompiler -Werror)
endif()
# cox_cuda_library(NAME FILE.cu... OBJECT...): a static library with its runtime, linked by the C compiler.
function(cox_cuda_library name)
  set(sources ${ARGN})
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  set(objects ${ARGN})
  list(FILTER objects EXCLUDE REGEX "\\.cu$")
  foreach(source ${sources})
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(stem ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}_${stem}.o)
    add_custom_command(OUTPUT ${object} VERBATIM
      COMMAND ${COX_NVCC} -ccbin ${COX_NVCC_CXX} ${COX_NVCC_FLAGS} ${cuda_werror} -I${COX_CUDA_SOURCE}
              -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
      DEPENDS ${source} ${COX_NVCC} DEPFILE ${object}.d COMMENT "nvcc ${name}/${stem}.cu")
    list(APPEND objects ${object})
  endforeach()
  add_library(${name} STATIC ${objects})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C)
  target_link_libraries(${name} PUBLIC ${COX_CUDART} pthread rt dl)
endfunction()
