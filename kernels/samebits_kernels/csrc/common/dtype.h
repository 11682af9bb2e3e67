// bf16 and fp16 as bits. To fp32 exactly; from fp32 to nearest even, overflow to Inf, one NaN.
#pragma once
#include "nvfp4.h"

namespace samebits {
namespace {

enum DType : int { kBf16 = 0, kFp16 = 1, kFp32 = 2 };

inline float bf16_to_float(uint16_t h) {
  return float_of(uint32_t(h) << 16);
}

inline uint16_t float_to_bf16(float x) {
  const uint32_t u = bits_of(x);
  const uint32_t rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16;
  return (u & 0x7FFFFFFF) > 0x7F800000 ? uint16_t(0x7FC0) : uint16_t(rounded);
}

inline float fp16_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, magnitude = h & 0x7FFF;
  const float normal = float_of((magnitude << 13) + (112u << 23));
  const float small = float(int32_t(magnitude)) * 0x1p-24f;
  const float large = float_of((magnitude << 13) + (224u << 23));  // Inf and NaN
  const float x = magnitude < 0x400 ? small : magnitude < 0x7C00 ? normal : large;
  return float_of(bits_of(x) | sign);
}

inline uint16_t float_to_fp16(float x) {
  const uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000, magnitude = u & 0x7FFFFFFF;
  // Below 2^-14: adding 0.5 leaves a grid of 2^-24 and rounds to nearest even.
  const uint32_t small = bits_of(float_of(magnitude < 0x38800000 ? magnitude : 0) + 0.5f) - bits_of(0.5f);
  const uint32_t normal = (magnitude + 0xFFF + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
  uint32_t h = magnitude < 0x38800000 ? small : normal;
  h = magnitude >= 0x477FF000 ? 0x7C00 : h;
  return magnitude > 0x7F800000 ? uint16_t(0x7E00) : uint16_t(h | sign);
}

inline void rows_to_float(const void* source, int dtype, int64_t n, float* out) {
  const uint16_t* h = static_cast<const uint16_t*>(source);
  if (dtype == kBf16) {
    for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(h[i]);
  } else if (dtype == kFp16) {
    for (int64_t i = 0; i < n; ++i) out[i] = fp16_to_float(h[i]);
  } else {
    std::memcpy(out, source, size_t(n) * 4);
  }
}

inline void float_to_rows(const float* x, int dtype, int64_t n, void* out) {
  uint16_t* h = static_cast<uint16_t*>(out);
  if (dtype == kBf16) {
    for (int64_t i = 0; i < n; ++i) h[i] = float_to_bf16(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) h[i] = float_to_fp16(x[i]);
  }
}

}  // namespace
}  // namespace samebits
