# Sets the flags for all C code of the repository. assert stays on in every build type, because it finds Coxswain's own bugs.
add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
                    -Wdouble-promotion -Wno-unused-parameter -UNDEBUG -fno-omit-frame-pointer)
# Someone who builds only the programs may have a newer compiler with new warnings. These must not end the build.
if(COX_WERROR AND COX_TESTS)
  add_compile_options(-Werror)
endif()
# -g1 keeps functions and lines, which backtraces and perf show, and costs a seventh less of the compiler's time than -g (docs/develop/build.md).
if(NOT COX_TESTS)
  string(REGEX REPLACE "(^| )-g( |$)" "\\1-g1\\2" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")
endif()
if(COX_SANITIZE)
  add_compile_options(-fsanitize=${COX_SANITIZE} -fno-sanitize-recover=all)
  # -O1 halves the run time of -O0 and builds as fast, and reports keep every frame of the stack. Warnings that need flow analysis are left to the
  # release build, since instrumented code gives false warnings. None of this was measured for clang (the fuzzers).
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-O1 -fno-optimize-sibling-calls -Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${COX_SANITIZE})
  add_compile_definitions(COX_SANITIZED=1) # a process that ends takes longer, for its leak check
  string(REPLACE "," ";" COX_SANITIZE_LIST "${COX_SANITIZE}")
endif()
if(COX_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options(-D_FORTIFY_SOURCE=2 -fstack-protector-strong)
endif()
add_compile_definitions(_GNU_SOURCE COX_VERSION="${PROJECT_VERSION}")
include_directories(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
