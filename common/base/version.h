#pragma once
/* The software's version, from CMake's project(). People read it in Hello, --version and
 * /version. */
#ifndef COX_VERSION
#define COX_VERSION "0.0.0-unbuilt"
#endif
