#pragma once
/* Defines sixteen floats as one value, so that each kernel is written once and compiled for each
 * ISA. A file that includes a *_impl.h includes scalar.h, avx2.h, avx512.h or neon.h first.
 * Every operation works lane by lane and is correctly rounded. The levels differ only in vf_fma,
 * which scalar.h computes as a product and a sum (with VEC_SCALAR_FMA: as fmaf, which tests use
 * to compare bits). The compiler must not contract or reassociate anything here: the flags are
 * in kernels/CMakeLists.txt.
 *
 *   vf  16 floats      vb  16 bytes (GCC vector: & | >> + - work as they do)
 *
 *   vf_zero() vf_set1(float) vf_load(const float *) vf_store(float *, vf)      unaligned
 *   vf_load_n(const float *, n) vf_store_n(float *, vf, n)                     n < 16; rest 0
 *   vf_add vf_sub vf_mul vf_div vf_min vf_max (a, b)     vf_fma(a, b, c) = a * b + c
 *   vf_sqrt(a)  vf_round(a): to nearest even integer    vf_pow2(a): 2^a of an integer in -126..127
 *   vf_load_f16(const uint16_t *) vf_load_bf16(const uint16_t *) vf_store_f16(uint16_t *, vf)
 *   vb_load(const uint8_t *)  vf_from_u8(vb)  vf_from_i8(vb)
 *   vb_lookup(table, i): byte i[l] of the table in lane l, i < 16
 *   vf_from_e4m3(vb): OCP FP8, its NaN as 480      vf_from_e8m0(vb): 2^(i - 127)
 *   vf_sum(a): the fixed tree ((0+8)+(4+12)) + ((2+10)+(6+14)) and so on: halves are added first
 *   vf_sum16(const vf v[16]): lane i is vf_sum(v[i])
 *   vf_hmax(a): the largest lane; vf_max and vf_hmax treat NaN as maxps; callers pass none */
