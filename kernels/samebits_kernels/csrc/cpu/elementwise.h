// fp32 functions whose bits depend on nothing but the element: reference/elementwise.py in C++, operation by
// operation. Never fused (-ffp-contract=off), so vector width and tails cannot show.
#pragma once
#include "../common/nvfp4.h"

namespace samebits {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2High = 0.693359375f;  // 9 bits, so n * kLn2High is exact
constexpr float kLn2Low = -2.1219444005469058e-4f;

// e^x within 2 ulp; NaN stays NaN, overflow is Inf, underflow is gradual.
inline float exp_fixed(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float scaled = x * kLog2E;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, to nearest even
  const float n = (scaled + magic) - magic;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float q = float(1.0 / 5040);
  q = q * r + float(1.0 / 720);
  q = q * r + float(1.0 / 120);
  q = q * r + float(1.0 / 24);
  q = q * r + float(1.0 / 6);
  q = q * r + 0.5f;
  const float p = (q * (r * r) + r) + 1.0f;
  const int32_t whole = n == n ? int32_t(n == n ? n : 0.0f) : 0;
  const int32_t half = whole >> 1;
  return p * float_of(uint32_t(half + 127) << 23) * float_of(uint32_t(whole - half + 127) << 23);
}

inline float silu_fixed(float x) {
  return x / (exp_fixed(-x) + 1.0f);
}

enum Activation : int { kNone = -1, kSilu = 0, kSwigluStep = 1 };

inline float gated(float gate, float up, int kind) {
  float s = silu_fixed(gate);
  if (kind == kSwigluStep) {
    s = s > 7.0f ? 7.0f : s;  // no lower clamp on the gate
    up = up < -7.0f ? -7.0f : up;
    up = up > 7.0f ? 7.0f : up;
  }
  return s * up;
}

}  // namespace
}  // namespace samebits
