#pragma once
/* Defines the software's version, which CMake takes from project(). People read the version in
 * Hello, --version and /version. */
#ifndef COX_VERSION
#define COX_VERSION "0.0.0-unbuilt"
#endif
