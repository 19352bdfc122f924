# Finds the CUDA toolchain, without CMake's CUDA language. The compiler check of that language links a program, and NVIDIA's PyPI packages
# (scripts/setup --cuda) have neither lib64 nor an unversioned libcudart.so to link. nvcc compiles, and the C compiler links against the static
# runtime, so programs need only the driver.
# The versions below are those that the code was built with. Older versions are refused here instead of failing later.
set(COX_CUDA_WANTED 13.0)
set(COX_CUBLAS_WANTED 13.0)
set(COX_NCCL_WANTED 2.28)
get_filename_component(COX_CUDA_SOURCE ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE) # root of the repository
set(cuda_hint "run scripts/setup --cuda, or name a toolkit with -DCOX_CUDA_ROOT=DIR (DIR/bin/nvcc)")

set(COX_CUDA_ROOT ${COX_CUDA_SOURCE}/.deps/cuda CACHE PATH "CUDA toolkit; else the one in PATH, else /usr/local/cuda")
find_program(COX_NVCC nvcc HINTS ${COX_CUDA_ROOT}/bin PATHS /usr/local/cuda/bin)
find_program(COX_NVCC_CXX NAMES g++ c++ DOC "nvcc's host compiler") # GNU's compiler is nvcc's host compiler, as in scripts/setup
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
set(cuda_machine targets/${CMAKE_SYSTEM_PROCESSOR}-linux)
set(cuda_libs HINTS ${cuda_root} PATH_SUFFIXES lib lib64 ${cuda_machine}/lib NO_CMAKE_FIND_ROOT_PATH) # not below the prefix of cmake/portable.cmake
find_library(COX_CUDART libcudart_static.a ${cuda_libs})
# cuBLAS and NCCL are next to the toolkit, in .deps, on the system, or among Python's packages.
find_program(COX_CUDA_PYTHON NAMES python3)
set(cuda_packages)
if(COX_CUDA_PYTHON)
  execute_process(COMMAND ${COX_CUDA_PYTHON} -c "import sysconfig; print(sysconfig.get_path('purelib'), end='')"
                  OUTPUT_VARIABLE cuda_packages ERROR_QUIET)
endif()
set(cuda_nccl_dirs ${COX_CUDA_SOURCE}/.deps/nccl ${cuda_root} ${cuda_packages}/nvidia/nccl)
set(cuda_cublas_dirs ${cuda_root} ${cuda_packages}/nvidia/cu13)
find_library(COX_CUBLAS NAMES libcublasLt.so.13 cublasLt HINTS ${cuda_cublas_dirs} PATH_SUFFIXES lib lib64 ${cuda_machine}/lib NO_CMAKE_FIND_ROOT_PATH)
find_library(COX_NCCL NAMES libnccl.so.2 nccl HINTS ${cuda_nccl_dirs} PATH_SUFFIXES lib lib64 NO_CMAKE_FIND_ROOT_PATH)
find_path(COX_CUBLAS_INCLUDE cublasLt.h HINTS ${cuda_cublas_dirs} PATH_SUFFIXES include ${cuda_machine}/include NO_CMAKE_FIND_ROOT_PATH)
find_path(COX_NCCL_INCLUDE nccl.h HINTS ${cuda_nccl_dirs} PATH_SUFFIXES include NO_CMAKE_FIND_ROOT_PATH)
if(NOT COX_CUDART)
  message(FATAL_ERROR "libcudart_static.a not found below ${cuda_root}: ${cuda_hint}")
endif()

# cox_cuda_header_version(OUT FILE PREFIX): sets OUT to PREFIX_MAJOR.PREFIX_MINOR as FILE defines them, or to 0 without FILE.
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
if(NOT COX_CUBLAS OR COX_CUBLAS_VERSION VERSION_LESS COX_CUBLAS_WANTED)
  message(FATAL_ERROR "cuBLAS \"${COX_CUBLAS_VERSION}\" (${COX_CUBLAS}), at least ${COX_CUBLAS_WANTED} is wanted: ${cuda_hint}")
endif()
if(NOT COX_NCCL OR COX_NCCL_VERSION VERSION_LESS COX_NCCL_WANTED)
  message(FATAL_ERROR "NCCL \"${COX_NCCL_VERSION}\" (${COX_NCCL}), at least ${COX_NCCL_WANTED} is wanted: ${cuda_hint}")
endif()
# cuBLAS and NCCL are not linked. They are loaded (dlopen) at their first use, so a worker starts on a machine without them. Programs of a build
# tree find the libraries found here (RUNPATH); installed programs use the places of kernels/cuda/device/find_library.h. packaging/stage takes the
# programs of a build tree, so those of packages have no RUNPATH either.
get_filename_component(cuda_cublas_dir ${COX_CUBLAS} DIRECTORY)
get_filename_component(cuda_nccl_dir ${COX_NCCL} DIRECTORY)
if(NOT COX_PORTABLE_ARCH)
  list(APPEND CMAKE_BUILD_RPATH ${cuda_cublas_dir} ${cuda_nccl_dir})
endif()
set(COX_CUDA_INCLUDES ${COX_CUBLAS_INCLUDE} ${COX_NCCL_INCLUDE} ${cuda_root}/include ${cuda_root}/${cuda_machine}/include)
list(REMOVE_DUPLICATES COX_CUDA_INCLUDES)
set(cuda_isystem ${COX_CUDA_INCLUDES}) # headers of cuBLAS, NCCL and the CUDA toolkit, for nvcc
list(TRANSFORM cuda_isystem PREPEND -isystem=)

# COX_CUDA_ARCHS names the devices: sm_80 runs on 8.0 and 8.6, sm_89 on 8.9, sm_90a only on 9.0, sm_100 on 10.x. The driver compiles the PTX of the
# last architecture, once, for later devices (11.x, 12.x). For a single architecture: -DCOX_CUDA_ARCHS=90a -DCOX_CUDA_PTX=.
set(COX_CUDA_ARCHS 80 89 90a 100 CACHE STRING "compute capabilities to compile for")
set(COX_CUDA_PTX 100 CACHE STRING "the one whose PTX goes along; empty: none")
set(COX_NVCC_THREADS 2 CACHE STRING "architectures of one file compiled at once")
# Contraction is off, so that the kernels compute exactly as written (kernels/cuda/rows/norm.cu).
set(COX_NVCC_FLAGS -std=c++17 -O3 -fmad=false --threads ${COX_NVCC_THREADS}
    -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fPIE)
foreach(arch ${COX_CUDA_ARCHS})
  if(NOT arch MATCHES "^[0-9]+[af]?$")
    message(FATAL_ERROR "COX_CUDA_ARCHS has \"${arch}\": wanted are numbers as 80, 90a, separated by semicolons")
  endif()
  list(APPEND COX_NVCC_FLAGS -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
if(COX_CUDA_PTX)
  list(APPEND COX_NVCC_FLAGS -gencode arch=compute_${COX_CUDA_PTX},code=compute_${COX_CUDA_PTX})
endif()
list(LENGTH COX_CUDA_ARCHS n)
if(n GREATER 1) # compression gives a seventh of the size, for 10 % more time
  list(APPEND COX_NVCC_FLAGS --compress-mode size)
endif()
list(JOIN COX_CUDA_ARCHS " " cuda_archs)
message(STATUS "CUDA ${COX_CUDA_VERSION}: ${COX_NVCC}, for ${cuda_archs}; cuBLAS ${COX_CUBLAS_VERSION}, NCCL ${COX_NCCL_VERSION}")
# Packages (cmake/portable.cmake) must have the same bytes from every folder, so their kernels have no source lines, and their objects name neither
# the folders nor nvcc's process. The remaining folder, from which nvcc makes the names of symbols, is a flag of each file below.
if(COX_PORTABLE_ARCH)
  list(APPEND COX_NVCC_FLAGS --objdir-as-tempdir -Xcompiler -ffile-prefix-map=${COX_CUDA_SOURCE}=/coxswain)
else()
  list(APPEND COX_NVCC_FLAGS -lineinfo)
endif()
if(COX_WERROR) # the options have "=", because ccache takes a separate -Werror for an option of its own, and then caches nothing
  list(APPEND COX_NVCC_FLAGS -Werror=all-warnings -Xcompiler=-Werror)
endif()

# cox_cuda_library(NAME FILE.cu... OBJECT...): makes a static library with its runtime, linked by the C compiler.
set(COX_CUDA_OBJECTS "" CACHE PATH "folder with the .cu files' objects of another build; empty: they are compiled")
function(cox_cuda_library name)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(stem ${source} ABSOLUTE)
    cmake_path(RELATIVE_PATH stem BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}) # the stem is a path such as cuda/linear/u4.cu
    string(REGEX REPLACE "[.]cu$" "" stem "${stem}")
    string(REPLACE "/" "_" stem "${stem}")
    if(NOT source MATCHES "\\.cu$")
      list(APPEND objects ${source})
    elseif(COX_CUDA_OBJECTS)
      list(APPEND objects ${COX_CUDA_OBJECTS}/${name}_${stem}.o)
    else()
      get_filename_component(source ${source} ABSOLUTE)
      file(RELATIVE_PATH shown ${COX_CUDA_SOURCE} ${source})
      set(named)
      if(COX_PORTABLE_ARCH) # both the C++ and the device front end accept the path a second time, and the second one counts
        set(named -Xcudafe --orig_src_path_name=/coxswain/${shown})
      endif()
      set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}_${stem}.o)
      string(REPLACE " " "\\ " target ${object}) # a depfile spells a blank as "\ "
      add_custom_command(OUTPUT ${object} VERBATIM
        COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${COX_NVCC} -ccbin ${COX_NVCC_CXX} ${COX_NVCC_FLAGS} ${named} -I${COX_CUDA_SOURCE} ${cuda_isystem}
                -MD -MF ${object}.d -MT ${target} -c ${source} -o ${object}
        DEPENDS ${source} ${COX_NVCC} DEPFILE ${object}.d COMMENT "nvcc ${shown} (${cuda_archs})")
      list(APPEND objects ${object})
    endif()
  endforeach()
  add_library(${name} STATIC ${objects})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C)
  target_link_libraries(${name} PUBLIC ${COX_CUDART} pthread rt dl)
endfunction()
