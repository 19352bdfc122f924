#pragma once
/* Makes the names of functions that are compiled once for each level. An ISA file such as
 * cpu/row/avx2.c defines ISA as its suffix, then includes its vec/ISA.h and an *_impl.h.
 * ISA_FN(row_norm) in that header then is row_norm_avx2. */
#define ISA_JOIN2(name, isa) name##_##isa
#define ISA_JOIN(name, isa)  ISA_JOIN2(name, isa)
#define ISA_FN(name)         ISA_JOIN(name, ISA)
