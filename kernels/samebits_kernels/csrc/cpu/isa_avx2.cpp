// AVX2 with FMA: two registers of 8 columns; vpmaddubsw sums pairs in int16 (at most 2304, no saturation).
#include "kernels.h"
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#include "body.h"

namespace samebits {
namespace {

static_assert(8 * 24 * 12 <= 32767, "eight products of a biased and a signed code must fit int16");

struct Avx2 {
  static constexpr const char* kName = "avx2";
  static constexpr int kRows = 4, kWidth = 1;
  static constexpr bool kPacks = false;
  struct Floats {
    __m256 half[2];
  };
  struct Codes {
    __m256i group[4][2];
  };
  using Row = const uint8_t*;

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
  static Codes decode(const uint8_t* packed) {
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceBiased)));
    const __m256i mask = _mm256_set1_epi8(15);
    Codes codes;
    for (int half = 0; half < 2; ++half) {
      for (int side = 0; side < 2; ++side) {
        const __m256i raw =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packed + half * 64 + side * 32));
        codes.group[2 * half][side] = _mm256_shuffle_epi8(table, _mm256_and_si256(raw, mask));
        codes.group[2 * half + 1][side] =
            _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(raw, 4), mask));
      }
    }
    return codes;
  }
  static Codes load_codes(const uint8_t* p) {
    Codes codes;
    for (int g = 0; g < 4; ++g) {
      for (int side = 0; side < 2; ++side) {
        codes.group[g][side] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + g * 64 + side * 32));
      }
    }
    return codes;
  }
  static void store_codes(uint8_t* p, const Codes& codes) {
    for (int g = 0; g < 4; ++g) {
      for (int side = 0; side < 2; ++side) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + g * 64 + side * 32), codes.group[g][side]);
      }
    }
  }
  static Floats load(const float* p) { return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }
  static void store(float* p, const Floats& f) {
    _mm256_storeu_ps(p, f.half[0]);
    _mm256_storeu_ps(p + 8, f.half[1]);
  }
  static Floats load_bf16(const uint8_t* p) {
    Floats f;
    for (int side = 0; side < 2; ++side) {
      const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * side));
      f.half[side] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
    }
    return f;
  }
  static Row load_row(const uint8_t* p) { return p; }
  static Floats dot(const Codes& codes, Row row, int32_t correction) {
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int g = 0; g < 4; ++g) {
      int32_t four;
      std::memcpy(&four, row + 4 * g, 4);
      const __m256i values = _mm256_set1_epi32(four);
      for (int side = 0; side < 2; ++side) {
        sums[side] = _mm256_add_epi16(sums[side], _mm256_maddubs_epi16(codes.group[g][side], values));
      }
    }
    Floats f;
    for (int side = 0; side < 2; ++side) {
      const __m256i whole = _mm256_madd_epi16(sums[side], _mm256_set1_epi16(1));
      f.half[side] = _mm256_cvtepi32_ps(_mm256_add_epi32(whole, _mm256_set1_epi32(correction)));
    }
    return f;
  }
  static Floats mul(const Floats& a, const Floats& b) {
    return {{_mm256_mul_ps(a.half[0], b.half[0]), _mm256_mul_ps(a.half[1], b.half[1])}};
  }
  static Floats mul_add(const Floats& a, float b, const Floats& c) {
    const __m256 factor = _mm256_set1_ps(b);
    return {{_mm256_fmadd_ps(a.half[0], factor, c.half[0]), _mm256_fmadd_ps(a.half[1], factor, c.half[1])}};
  }
};

constexpr Kernels kTable = table<Avx2>();

}  // namespace

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const Kernels* kernels_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kTable : nullptr;
}

}  // namespace samebits
#else
namespace samebits {
const Kernels* kernels_avx2() {
  return nullptr;
}
}  // namespace samebits
#endif
