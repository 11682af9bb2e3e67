// Plain C++: any machine, and the yardstick for the other two.
#include "body.h"

namespace samebits {
namespace {

struct Generic {
  static constexpr const char* kName = "generic";
  static constexpr int kRows = 4, kWidth = 1;
  static constexpr bool kPacks = false;
  struct Floats {
    float lane[16];
  };
  struct Codes {
    uint8_t lane[256];  // [group of 4 elements][column][element]
  };
  using Row = const int8_t*;

  static int32_t decode_row(const uint8_t* bytes, int8_t* out) {
    int32_t sum = 0;
    for (int i = 0; i < 8; ++i) {
      const int at = i / 4 * 8 + i % 4;
      out[at] = kTwice[bytes[i] & 15];
      out[at + 4] = kTwice[bytes[i] >> 4];
      sum += out[at] + out[at + 4];
    }
    return sum;
  }
  static Codes decode(const uint8_t* packed) {
    Codes codes;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 64; ++i) {
        codes.lane[half * 128 + i] = kTwiceBiased[packed[half * 64 + i] & 15];
        codes.lane[half * 128 + 64 + i] = kTwiceBiased[packed[half * 64 + i] >> 4];
      }
    }
    return codes;
  }
  static Codes load_codes(const uint8_t* p) {
    Codes codes;
    std::memcpy(codes.lane, p, 256);
    return codes;
  }
  static void store_codes(uint8_t* p, const Codes& codes) { std::memcpy(p, codes.lane, 256); }
  static Floats load(const float* p) {
    Floats f;
    std::memcpy(f.lane, p, 64);
    return f;
  }
  static void store(float* p, const Floats& f) { std::memcpy(p, f.lane, 64); }
  static Floats load_bf16(const uint8_t* p) {
    Floats f;
    for (int i = 0; i < 16; ++i) {
      uint16_t h;
      std::memcpy(&h, p + 2 * i, 2);
      f.lane[i] = bf16_to_float(h);
    }
    return f;
  }
  static Row load_row(const uint8_t* p) { return reinterpret_cast<const int8_t*>(p); }
  static Floats dot(const Codes& codes, Row row, int32_t correction) {
    Floats f;
    for (int n = 0; n < 16; ++n) {
      int32_t sum = correction;
      for (int g = 0; g < 4; ++g) {
        for (int i = 0; i < 4; ++i) sum += int32_t(codes.lane[g * 64 + n * 4 + i]) * row[g * 4 + i];
      }
      f.lane[n] = float(sum);
    }
    return f;
  }
  static Floats mul(Floats a, const Floats& b) {
    for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
    return a;
  }
  static Floats mul_add(Floats a, float b, const Floats& c) {
    for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] * b + c.lane[i];  // the product is exact
    return a;
  }
};

constexpr Kernels kTable = table<Generic>();

}  // namespace

const Kernels* kernels_generic() {
  return &kTable;
}

}  // namespace samebits
