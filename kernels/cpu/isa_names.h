#pragma once
/* The names of functions that are compiled once for each level. An ISA file (cpu/row/avx2.c and its
 * like) defines ISA as its suffix, includes its vec/ISA.h and then the *_impl.h, whose functions it
 * so compiles: ISA_FN(row_norm) is row_norm_avx2. */
#define ISA_JOIN2(name, isa) name##_##isa
#define ISA_JOIN(name, isa)  ISA_JOIN2(name, isa)
#define ISA_FN(name)         ISA_JOIN(name, ISA)
