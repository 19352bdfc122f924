# Minimum versions are those the code was written and tested against; older ones are refused here,
# with the package to install, and not by a compile error later.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
function(cox_require name module debian)
  pkg_check_modules(${name} IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${module} not found. Run scripts/setup, or install the package ${debian}.")
  endif()
endfunction()
cox_require(ZMQ "libzmq>=4.3.4" libzmq3-dev)
# libzmq.pc names folders of headers that zmq.h does not include, one as "-isystem FOLDER", which
# pkg_check_modules reads in another way the second time: a second configure compiled everything again.
set_target_properties(PkgConfig::ZMQ PROPERTIES
  INTERFACE_COMPILE_OPTIONS "" INTERFACE_INCLUDE_DIRECTORIES "${ZMQ_INCLUDEDIR}")
cox_require(UV "libuv>=1.44" libuv1-dev)
cox_require(PROTOBUFC "libprotobuf-c>=1.4" libprotobuf-c-dev)
cox_require(HIREDIS "hiredis>=0.14" libhiredis-dev)
cox_require(JANSSON "jansson>=2.13" libjansson-dev)
cox_require(YAML "yaml-0.1>=0.2.5" libyaml-dev)
cox_require(XXHASH "libxxhash>=0.8" libxxhash-dev)
cox_require(SODIUM "libsodium>=1.0.18" libsodium-dev)
cox_require(CURL "libcurl>=7.88" libcurl4-openssl-dev)
find_program(PROTOC_C NAMES protoc-c protoc REQUIRED)
# llhttp: a package on Debian 13; elsewhere Debian and Ubuntu ship its generated C inside node-llhttp,
# which scripts/setup unpacks under .deps.
set(LLHTTP_DIR ${CMAKE_SOURCE_DIR}/.deps/llhttp CACHE PATH "folder with llhttp.h and llhttp's C")
if(EXISTS ${LLHTTP_DIR}/llhttp.h)
  add_library(llhttp STATIC ${LLHTTP_DIR}/llhttp.c ${LLHTTP_DIR}/api.c ${LLHTTP_DIR}/http.c)
  target_include_directories(llhttp SYSTEM PUBLIC ${LLHTTP_DIR})
  target_compile_options(llhttp PRIVATE -w)
else()
  pkg_check_modules(LLHTTP IMPORTED_TARGET GLOBAL "libllhttp>=8.1")
  if(NOT LLHTTP_FOUND)
    message(FATAL_ERROR "llhttp is neither at ${LLHTTP_DIR} nor a package here. Run scripts/setup.")
  endif()
  add_library(llhttp INTERFACE)
  target_link_libraries(llhttp INTERFACE PkgConfig::LLHTTP)
endif()
