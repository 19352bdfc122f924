#pragma once
/* Defines the software's version, which CMake takes from project(). Hello, --version and
 * /version show it. */
#ifndef COX_VERSION
#define COX_VERSION "0.0.0-unbuilt"
#endif
