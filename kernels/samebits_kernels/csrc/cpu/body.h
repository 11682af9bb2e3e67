// The kernels, once, over an instruction set `Isa` that offers 16 fp32 lanes and exact 16-element dot
// products. Included by isa_*.cpp, one translation unit each; everything has internal linkage.
//
// Order of a scaled MM: element (m, n) is one fp32 chain, acc = acc + dot(block) * sb * sa over ascending
// K-blocks, starting at +0. The lanes are 16 columns, so no sum ever crosses lanes and every instruction set
// gives the same bits. Tiles of rows, chunks of K and decoded scratch only decide where the chain pauses.
#pragma once
#include "../common/dtype.h"
#include "elementwise.h"
#include "kernels.h"

namespace samebits {
namespace {

// ---- weights: public layout -> panels of 16 columns
// -------------------------------------------------------------

struct ScaleTable {
  uint16_t bf16[256];
};

// e4m3 byte -> bf16 bits, exact.
constexpr ScaleTable make_scale_table() {
  ScaleTable t{};
  for (int byte = 0; byte < 256; ++byte) {
    const int sign = (byte & 0x80) << 8, exponent = (byte >> 3) & 15, mantissa = byte & 7;
    int bits = 0;
    if ((byte & 0x7F) == kE4m3Nan) {
      bits = 0x7FC0;
    } else if (exponent != 0) {
      bits = sign | (exponent + 120) << 7 | mantissa << 4;
    } else if (mantissa != 0) {  // subnormal: mantissa * 2^-9
      const int high = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
      bits = sign | (118 + high) << 7 | ((mantissa << (7 - high)) & 0x7F);
    } else {
      bits = sign;
    }
    t.bf16[byte] = uint16_t(bits);
  }
  return t;
}
constexpr ScaleTable kScales = make_scale_table();

template <class Isa>
void pack_panel(const uint8_t* b, int64_t b_stride, const uint8_t* b_scale, int64_t column, int64_t columns,
                int64_t blocks, int64_t begin, int64_t end, uint8_t* packed) {
  constexpr int64_t kGroup = 8;  // K-blocks at once: one cache line of every row
  const int64_t quads = (blocks + 3) / 4;
  if (columns < kPanel) std::memset(packed, 0, size_t((end - begin) * kPackedBlock));
  for (int64_t first = begin; first < end; first += kGroup) {
    const int64_t last = first + kGroup < end ? first + kGroup : end;
    if constexpr (Isa::kPacks) {
      if (columns == kPanel && last - first == kGroup && first % 4 == 0) {
        Isa::pack(b + first * 8, b_stride, b_scale + scale_row(column, quads) + scale_column(first),
                  packed + (first - begin) * kPackedBlock);
        continue;
      }
    }
    for (int64_t n = 0; n < columns; ++n) {
      const uint8_t* row = b + n * b_stride + first * 8;
      const uint8_t* scales = b_scale + scale_row(column + n, quads);
      uint8_t* out = packed + (first - begin) * kPackedBlock + n * 4;
      for (int64_t k = first; k < last; ++k, row += 8, out += kPackedBlock) {
        std::memcpy(out, row, 4);
        std::memcpy(out + 64, row + 4, 4);
        std::memcpy(out + 128 - n * 2, &kScales.bf16[scales[scale_column(k)]], 2);
      }
    }
  }
}

// ---- activations: codes -> signed bytes in the order of the panels
// ----------------------------------------------

template <class Isa>
void prepare_rows(const uint8_t* a, int64_t a_stride, const uint8_t* a_scale, int64_t scale_first, int64_t m,
                  int64_t blocks, int64_t begin, int64_t end, int64_t block_begin, int64_t block_end,
                  uint8_t* rows) {
  const int64_t quads = (blocks + 3) / 4;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i / Isa::kRows * Isa::kRows;
    const int64_t height = m - first < Isa::kRows ? m - first : Isa::kRows;
    uint8_t* tile = rows + (first * blocks + block_begin * height) * kRowBlock;
    const uint8_t* row = a + i * a_stride + block_begin * 8;
    const uint8_t* scales = a_scale + scale_row(scale_first + i, quads);
    for (int64_t k = block_begin; k < block_end; ++k, tile += height * kRowBlock, row += 8) {
      const int32_t sum = Isa::decode_row(row, reinterpret_cast<int8_t*>(tile + (i - first) * 16));
      const float scale = e4m3_to_float(scales[scale_column(k)]) * 0.25f;  // both operands are doubled
      const int32_t correction = -kBias * sum;
      std::memcpy(tile + height * 16 + (i - first) * 4, &scale, 4);
      std::memcpy(tile + height * 20 + (i - first) * 4, &correction, 4);
    }
  }
}

// ---- the product
// -------------------------------------------------------------------------------------------------

template <class Isa, int kHeight, int kWidth, bool kPacked>
inline void multiply_tile(const uint8_t* rows, const uint8_t* panels, int64_t panel_bytes, int64_t blocks,
                          float* acc) {
  constexpr int64_t kStep = kPacked ? kPackedBlock : kDecodedBlock;
  typename Isa::Floats sum[kHeight][kWidth];
  for (int r = 0; r < kHeight; ++r) {
    for (int p = 0; p < kWidth; ++p) sum[r][p] = Isa::load(acc + r * 32 + p * 16);
  }
  for (int64_t k = 0; k < blocks; ++k, rows += kHeight * kRowBlock, panels += kStep) {
    typename Isa::Codes codes[kWidth];
    typename Isa::Floats scale[kWidth];
    for (int p = 0; p < kWidth; ++p) {
      const uint8_t* panel = panels + p * panel_bytes;
      codes[p] = kPacked ? Isa::decode(panel) : Isa::load_codes(panel);
      scale[p] =
          kPacked ? Isa::load_bf16(panel + 128) : Isa::load(reinterpret_cast<const float*>(panel + 256));
    }
    const float* row_scale = reinterpret_cast<const float*>(rows + kHeight * 16);
    const int32_t* correction = reinterpret_cast<const int32_t*>(rows + kHeight * 20);
    for (int r = 0; r < kHeight; ++r) {
      const typename Isa::Row row = Isa::load_row(rows + r * 16);
      for (int p = 0; p < kWidth; ++p) {
        const typename Isa::Floats leaf = Isa::mul(Isa::dot(codes[p], row, correction[r]), scale[p]);
        sum[r][p] = Isa::mul_add(leaf, row_scale[r], sum[r][p]);
      }
    }
  }
  for (int r = 0; r < kHeight; ++r) {
    for (int p = 0; p < kWidth; ++p) Isa::store(acc + r * 32 + p * 16, sum[r][p]);
  }
}

template <class Isa, int kHeight, bool kPacked>
inline void multiply_height(const uint8_t* rows, int64_t height, const uint8_t* panels, int64_t panel_bytes,
                            int64_t width, int64_t blocks, float* acc) {
  if constexpr (kHeight > 1) {
    if (height < kHeight) {
      multiply_height<Isa, kHeight - 1, kPacked>(rows, height, panels, panel_bytes, width, blocks, acc);
      return;
    }
  }
  if (width == 2 && Isa::kWidth == 2) {
    multiply_tile<Isa, kHeight, Isa::kWidth, kPacked>(rows, panels, panel_bytes, blocks, acc);
    return;
  }
  for (int64_t p = 0; p < width; ++p) {
    multiply_tile<Isa, kHeight, 1, kPacked>(rows, panels + p * panel_bytes, panel_bytes, blocks,
                                            acc + p * 16);
  }
}

inline uint8_t* aligned(uint8_t* p) {
  return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(p) + 63) & ~uintptr_t(63));
}

template <class Isa>
void multiply(const MmTask& t) {
  uint8_t* packed_scratch = aligned(t.scratch);
  uint8_t* decoded_scratch = packed_scratch + kChunk * kPackedBlock * 2;
  float* acc = reinterpret_cast<float*>(decoded_scratch + kChunk * kDecodedBlock * 2);
  const int64_t panels = (t.columns + kPanel - 1) / kPanel, height = t.row_end - t.row_begin;
  const bool reuse = height > Isa::kRows;  // decoding pays off when more than one tile of rows reads it
  std::memset(acc, 0, size_t(height) * 32 * 4);

  for (int64_t begin = t.block_begin; begin < t.block_end; begin += kChunk) {
    const int64_t end = begin + kChunk < t.block_end ? begin + kChunk : t.block_end, blocks = end - begin;
    const uint8_t* source;
    int64_t source_bytes;
    if (t.packed != nullptr) {
      source = t.packed + begin * kPackedBlock;
      source_bytes = t.blocks * kPackedBlock;
    } else {
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t left = t.columns - p * kPanel;
        pack_panel<Isa>(t.b + p * kPanel * t.b_stride, t.b_stride, t.b_scale, t.column + p * kPanel,
                        left < kPanel ? left : kPanel, t.blocks, begin, end,
                        packed_scratch + p * kChunk * kPackedBlock);
      }
      source = packed_scratch;
      source_bytes = kChunk * kPackedBlock;
    }
    if (reuse) {
      for (int64_t p = 0; p < panels; ++p) {
        uint8_t* out = decoded_scratch + p * kChunk * kDecodedBlock;
        const uint8_t* in = source + p * source_bytes;
        for (int64_t k = 0; k < blocks; ++k, in += kPackedBlock, out += kDecodedBlock) {
          Isa::store_codes(out, Isa::decode(in));
          Isa::store(reinterpret_cast<float*>(out + 256), Isa::load_bf16(in + 128));
        }
      }
    }
    for (int64_t i = t.row_begin; i < t.row_end; i += Isa::kRows) {
      const int64_t rows = t.row_end - i < Isa::kRows ? t.row_end - i : Isa::kRows;
      const uint8_t* prepared = t.rows + (i * t.blocks + begin * rows) * kRowBlock;
      float* at = acc + (i - t.row_begin) * 32;
      if (reuse) {
        multiply_height<Isa, Isa::kRows, false>(prepared, rows, decoded_scratch, kChunk * kDecodedBlock,
                                                panels, blocks, at);
      } else {
        multiply_height<Isa, Isa::kRows, true>(prepared, rows, source, source_bytes, panels, blocks, at);
      }
    }
  }

  for (int64_t i = 0; i < height; ++i) {
    float* sum = acc + i * 32;
    if (t.out_dtype == kFp32) {
      std::memcpy(static_cast<float*>(t.out) + (t.row_begin + i) * t.out_stride, sum, size_t(t.columns) * 4);
      continue;
    }
    for (int64_t n = 0; n < t.columns; ++n) sum[n] = sum[n] * t.alpha;
    float_to_rows(sum, t.out_dtype, t.columns,
                  static_cast<uint16_t*>(t.out) + (t.row_begin + i) * t.out_stride);
  }
}

// Adds the splits of one row in ascending order, then as the end of `multiply`.
inline void finish_row(const float* sums, int64_t split_stride, int64_t splits, int64_t n, float alpha,
                       int dtype, void* out) {
  for (int64_t i = 0; i < n; ++i) {
    float sum = sums[i];
    for (int64_t s = 1; s < splits; ++s) sum = sum + sums[s * split_stride + i];
    sum = sum * alpha;
    static_cast<uint16_t*>(out)[i] = dtype == kBf16 ? float_to_bf16(sum) : float_to_fp16(sum);
  }
}

// ---- row kernels
// -------------------------------------------------------------------------------------------------

inline void quantise_block(const float* x, float global_scale, uint8_t* q, uint8_t* scale) {
  uint32_t most = 0;
  for (int i = 0; i < kBlock; ++i) {
    const uint32_t magnitude = bits_of(x[i]) & 0x7FFFFFFF;
    most = magnitude > most ? magnitude : most;
  }
  if (most > 0x7F800000) {  // a NaN is larger than Inf as an integer
    *scale = kE4m3Nan;
    std::memset(q, kNanCode | kNanCode << 4, kBlock / 2);
    return;
  }
  const float wanted = global_scale * (float_of(most) / kE2m1Max);
  *scale = float_to_e4m3(wanted < kE4m3Max ? wanted : kE4m3Max);
  const float s = e4m3_to_float(*scale);
  const float r = s == 0.0f ? 0.0f : global_scale / s;
  uint8_t code[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const float y = x[i] * r;
    const float a = float_of(bits_of(y) & 0x7FFFFFFF);
    // Ties go to the even code: each boundary is open or closed accordingly.
    const int c =
        (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    code[i] = uint8_t(a != a ? kNanCode : c | int(bits_of(y) >> 31) << 3);
  }
  for (int i = 0; i < kBlock / 2; ++i) q[i] = uint8_t(code[2 * i] | code[2 * i + 1] << 4);
}

inline void quantise_row(const void* x, int dtype, int64_t k, float global_scale, const float* weight,
                         uint8_t* q, uint8_t* scales, float* scratch) {
  rows_to_float(x, dtype, k, scratch);
  if (weight != nullptr) {  // one rounding to the activation dtype, as if the caller had multiplied
    for (int64_t i = 0; i < k; ++i) {
      const float y = scratch[i] * *weight;
      scratch[i] = dtype == kBf16 ? bf16_to_float(float_to_bf16(y)) : fp16_to_float(float_to_fp16(y));
    }
  }
  for (int64_t c = 0; c < k / kBlock; ++c) {
    quantise_block(scratch + c * kBlock, global_scale, q + c * kBlock / 2, scales + scale_column(c));
  }
}

inline void activation_row(const void* x, int dtype, int64_t width, int kind, void* y) {
  const uint16_t* in = static_cast<const uint16_t*>(x);
  uint16_t* out = static_cast<uint16_t*>(y);
  if (dtype == kBf16) {
    for (int64_t i = 0; i < width; ++i) {
      out[i] = float_to_bf16(gated(bf16_to_float(in[i]), bf16_to_float(in[width + i]), kind));
    }
  } else {
    for (int64_t i = 0; i < width; ++i) {
      out[i] = float_to_fp16(gated(fp16_to_float(in[i]), fp16_to_float(in[width + i]), kind));
    }
  }
}

// out = sum over j ascending of weights[j] * y[slots[j]]; the first product starts it; nothing is fused.
inline void combine_row(const uint16_t* y, int64_t y_stride, int dtype, const float* weights,
                        const int32_t* slots, int64_t k, int64_t width, uint16_t* out) {
  for (int64_t i = 0; i < width; ++i) {
    float sum = 0.0f;
    for (int64_t j = 0; j < k; ++j) {
      const uint16_t h = y[int64_t(slots[j]) * y_stride + i];
      const float value = dtype == kBf16 ? bf16_to_float(h) : fp16_to_float(h);
      const float term = weights == nullptr ? value : weights[j] * value;
      sum = j == 0 ? term : sum + term;
    }
    out[i] = dtype == kBf16 ? float_to_bf16(sum) : float_to_fp16(sum);
  }
}

inline void exp_row(const float* x, int64_t n, float subtract, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = exp_fixed(x[i] - subtract);
}

template <class Isa>
constexpr Kernels table() {
  return {Isa::kName,   Isa::kRows,     prepare_rows<Isa>, pack_panel<Isa>, multiply<Isa>,
          quantise_row, activation_row, combine_row,       finish_row,      exp_row};
}

}  // namespace
}  // namespace samebits
