// NVFP4 on the host: e2m1 codes two a byte (even index in the low nibble), one e4m3 scale for 16 elements,
// scales in the 128x4 swizzle. Everything has internal linkage: each instruction set compiles its own copy.
#pragma once
#include <cstdint>
#include <cstring>

namespace samebits {
namespace {

constexpr int kBlock = 16;
constexpr float kE2m1Max = 6.0f;
constexpr float kE4m3Max = 448.0f;
constexpr uint8_t kE4m3Nan = 0x7F;
constexpr uint8_t kNanCode = 0x7;

// Twice the e2m1 value, so that products are integers; and the same plus 12, so that it is unsigned.
constexpr int kBias = 12;
constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr uint8_t kTwiceBiased[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// Why the accumulation tree has K/16 leaves and fused multiply-add cannot show: 16 products of at most 144
// stay below 2^12, two e4m3 scales have 4 significant bits each, and 12 + 4 + 4 bits fit fp32's 24. So every
// leaf is exact, and only the additions of the chain round.
static_assert(kBlock * 12 * 12 < (1 << 12),
              "a block sum needs at most 12 bits to stay exact with its scales");

inline uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}

inline float float_of(uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

// e4m3 byte -> fp32, exact.
inline float e4m3_to_float(uint8_t byte) {
  const uint32_t sign = uint32_t(byte & 0x80) << 24, exponent = (byte >> 3) & 15, mantissa = byte & 7;
  if ((byte & 0x7F) == kE4m3Nan) return float_of(0x7FC00000);
  const float magnitude =
      exponent == 0 ? float(mantissa) * 0x1p-9f : float_of(((exponent + 120) << 23) | (mantissa << 20));
  return float_of(bits_of(magnitude) | sign);
}

// fp32 in [0, 448] -> e4m3, to nearest even.
inline uint8_t float_to_e4m3(float x) {
  if (x < 0x1p-6f) {
    // Adding 2^14 leaves a grid of 2^-9, the subnormal step, and rounds to nearest even on the way.
    return uint8_t(bits_of(x + 0x1p14f) - bits_of(0x1p14f));
  }
  const uint32_t u = bits_of(x);
  return uint8_t(((u + 0x7FFFF + ((u >> 20) & 1)) >> 20) - (120 << 3));
}

// Offset of the scale of (row, column) = scale_row(row, quads) + scale_column(column); quads =
// ceil(columns/4).
inline int64_t scale_row(int64_t row, int64_t quads) {
  return (row / 128) * quads * 512 + (row % 32) * 16 + ((row % 128) / 32) * 4;
}
inline int64_t scale_column(int64_t column) {
  return (column / 4) * 512 + column % 4;
}

}  // namespace
}  // namespace samebits
