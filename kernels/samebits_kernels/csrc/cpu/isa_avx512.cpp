// AVX-512 with VNNI: 16 columns a register, vpdpbusd for four products of each.
#include "kernels.h"
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,prefer-vector-width=512")
#endif
#include "body.h"

namespace samebits {
namespace {

struct Avx512 {
  static constexpr const char* kName = "avx512";
  static constexpr int kRows = 8, kWidth = 2;
  static constexpr bool kPacks = true;
  using Floats = __m512;
  struct Codes {
    __m512i group[4];
  };
  struct Row {
    __m512i group[4];
  };

  static int32_t decode_row(const uint8_t* bytes, int8_t* out) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwice));
    const __m128i raw = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i low = _mm_and_si128(raw, mask), high = _mm_and_si128(_mm_srli_epi16(raw, 4), mask);
    const __m128i value = _mm_shuffle_epi8(table, _mm_unpacklo_epi32(low, high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), value);
    const __m128i biased = _mm_add_epi8(value, _mm_set1_epi8(kBias));  // unsigned, so that psadbw sums it
    const __m128i sums = _mm_sad_epu8(biased, _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - kBias * kBlock;
  }
  // 8 K-blocks of 16 rows: a 16 x 16 transposition of 4-byte words. `scales` is the first row's first scale,
  // at a multiple of 4 columns; 16 rows sit 16 bytes apart there (the 128x4 swizzle).
  static void pack(const uint8_t* b, int64_t stride, const uint8_t* scales, uint8_t* packed) {
    __m512i r[16], t[16];
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(b + i * stride);
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int j = 0; j < 4; ++j) {
      // r[4g + j] holds words j, 4 + j, 8 + j, 12 + j of rows 4g .. 4g + 3, one word a 128-bit lane.
      const __m512i low01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
      const __m512i high01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xDD);
      const __m512i low23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
      const __m512i high23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xDD);
      store_word(packed, j, _mm512_shuffle_i32x4(low01, low23, 0x88));
      store_word(packed, 4 + j, _mm512_shuffle_i32x4(high01, high23, 0x88));
      store_word(packed, 8 + j, _mm512_shuffle_i32x4(low01, low23, 0xDD));
      store_word(packed, 12 + j, _mm512_shuffle_i32x4(high01, high23, 0xDD));
    }
    const __m512i rows = _mm512_mullo_epi32(
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi32(16));
    for (int quad = 0; quad < 2; ++quad) {
      const __m512i four = _mm512_i32gather_epi32(rows, scales + quad * 512, 1);
      for (int c = 0; c < 4; ++c) {
        const __m512i byte =
            _mm512_and_si512(_mm512_srl_epi32(four, _mm_cvtsi32_si128(8 * c)), _mm512_set1_epi32(255));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed + (quad * 4 + c) * kPackedBlock + 128),
                            to_bf16(byte));
      }
    }
  }
  // Word w of a row: half w % 2 of K-block w / 2.
  static void store_word(uint8_t* packed, int w, __m512i words) {
    _mm512_storeu_si512(packed + w / 2 * kPackedBlock + w % 2 * 64, words);
  }
  // e4m3 in the low byte of each lane -> bf16, as kScales.
  static __m256i to_bf16(__m512i byte) {
    const __m512i magnitude = _mm512_and_si512(byte, _mm512_set1_epi32(0x7F));
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(byte, _mm512_set1_epi32(0x80)), 8);
    const __m512i normal = _mm512_add_epi32(_mm512_slli_epi32(magnitude, 4), _mm512_set1_epi32(120 << 7));
    const __m512 small = _mm512_mul_ps(_mm512_cvtepi32_ps(magnitude), _mm512_set1_ps(0x1p-9f));
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(8));
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(kE4m3Nan));
    __m512i bits = _mm512_mask_srli_epi32(normal, is_small, _mm512_castps_si512(small), 16);
    bits = _mm512_mask_mov_epi32(_mm512_or_si512(bits, sign), is_nan, _mm512_set1_epi32(0x7FC0));
    return _mm512_cvtepi32_epi16(bits);
  }
  static Codes decode(const uint8_t* packed) {
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceBiased)));
    const __m512i mask = _mm512_set1_epi8(15);
    const __m512i first = _mm512_loadu_si512(packed), second = _mm512_loadu_si512(packed + 64);
    Codes codes;
    codes.group[0] = _mm512_shuffle_epi8(table, _mm512_and_si512(first, mask));
    codes.group[1] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(first, 4), mask));
    codes.group[2] = _mm512_shuffle_epi8(table, _mm512_and_si512(second, mask));
    codes.group[3] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(second, 4), mask));
    return codes;
  }
  static Codes load_codes(const uint8_t* p) {
    Codes codes;
    for (int g = 0; g < 4; ++g) codes.group[g] = _mm512_loadu_si512(p + 64 * g);
    return codes;
  }
  static void store_codes(uint8_t* p, const Codes& codes) {
    for (int g = 0; g < 4; ++g) _mm512_storeu_si512(p + 64 * g, codes.group[g]);
  }
  static Floats load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Floats f) { _mm512_storeu_ps(p, f); }
  static Floats load_bf16(const uint8_t* p) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
  static Row load_row(const uint8_t* p) {
    Row row;
    for (int g = 0; g < 4; ++g) {
      int32_t four;
      std::memcpy(&four, p + 4 * g, 4);
      row.group[g] = _mm512_set1_epi32(four);
    }
    return row;
  }
  static Floats dot(const Codes& codes, const Row& row, int32_t correction) {
    __m512i sum = _mm512_set1_epi32(correction);
    for (int g = 0; g < 4; ++g) sum = _mm512_dpbusd_epi32(sum, codes.group[g], row.group[g]);
    return _mm512_cvtepi32_ps(sum);
  }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats mul_add(Floats a, float b, Floats c) { return _mm512_fmadd_ps(a, _mm512_set1_ps(b), c); }
};

constexpr Kernels kTable = table<Avx512>();

}  // namespace

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const Kernels* kernels_avx512() {
  __builtin_cpu_init();
  const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
  return can ? &kTable : nullptr;
}

}  // namespace samebits
#else
namespace samebits {
const Kernels* kernels_avx512() {
  return nullptr;
}
}  // namespace samebits
#endif
