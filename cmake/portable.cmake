# Builds programs that run on any Linux with glibc 2.28 or later. packaging/programs uses this file: it sets COX_PORTABLE_PREFIX (libraries of
# packaging/deps), COX_PORTABLE_TOOLS (the folder of cox-cc and cox-c++) and COX_PORTABLE_ARCH. The libraries are static; only glibc is not.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${COX_PORTABLE_ARCH})
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES COX_PORTABLE_ARCH COX_PORTABLE_PREFIX COX_PORTABLE_TOOLS)
set(CMAKE_C_COMPILER ${COX_PORTABLE_TOOLS}/cox-cc)
set(CMAKE_CXX_COMPILER ${COX_PORTABLE_TOOLS}/cox-c++)
set(CMAKE_AR ${COX_PORTABLE_TOOLS}/cox-ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${COX_PORTABLE_TOOLS}/cox-ranlib CACHE FILEPATH "")
set(CMAKE_FIND_ROOT_PATH ${COX_PORTABLE_PREFIX})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${COX_PORTABLE_PREFIX}/lib/pkgconfig)
set(PKG_CONFIG_ARGN --static) # the libraries of static libraries must be linked too
# packaging/stage sets the build id. Rust's code unwinds panics with libunwind, which zig links statically. Everything is position-independent, as Debian's gcc builds by default.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-pie -lunwind -Wl,--build-id=0x0000000000000000000000000000000000000000 -Wl,-z,relro -Wl,-z,now")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
