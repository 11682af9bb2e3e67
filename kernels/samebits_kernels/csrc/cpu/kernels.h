// The functions that each instruction set provides, and their arguments.
#pragma once
#include <cstdint>

namespace samebits {

constexpr int64_t kPackedBlock = 160;   // bytes: 16 columns x 16 codes, then 16 scales as bf16
constexpr int64_t kDecodedBlock = 320;  // bytes: the codes as biased uint8, then the scales as fp32
constexpr int64_t kPanel = 16;          // columns of a panel
constexpr int64_t kChunk = 256;  // K-blocks decoded at once: 2 panels stay in L2; never changes the order
constexpr int64_t kRowBlock =
    24;  // bytes of a prepared activation block: 16 int8, scale / 4, bias correction

// A rectangle of the output along a stretch of K.
struct MmTask {
  const uint8_t* rows;  // prepared activations, all M rows
  int64_t row_begin, row_end, blocks;
  int64_t block_begin, block_end;
  const uint8_t* packed;  // prepared weights of this task's columns, or null
  const uint8_t* b;       // public weights of this task's first column
  int64_t b_stride;
  const uint8_t* b_scale;   // whole swizzled buffer
  int64_t column, columns;  // first column within the scale buffer, number of columns (at most kTileN)
  void* out;                // element (0, first column); rows of out_stride elements
  int64_t out_stride;
  int out_dtype;  // kFp32: the sum itself, without alpha
  float alpha;
  uint8_t* scratch;  // kMmScratch bytes of this thread
};
constexpr int64_t kMmScratch = kChunk * (kPackedBlock + kDecodedBlock) * 2 + 128 * 32 * 4 + 256;

struct Kernels {
  const char* name;
  int64_t tile_rows;  // rows of a prepared activation tile
  // Rows [begin, end), K-blocks [block_begin, block_end) of uint8 [M, K/2] with swizzled scales -> prepared;
  // the rows' scales start at row scale_first.
  void (*prepare_rows)(const uint8_t* a, int64_t a_stride, const uint8_t* a_scale, int64_t scale_first,
                       int64_t m, int64_t blocks, int64_t begin, int64_t end, int64_t block_begin,
                       int64_t block_end, uint8_t* rows);
  // Columns [column, column + columns) -> panels of K-blocks [begin, end), kPackedBlock bytes each.
  void (*pack_panel)(const uint8_t* b, int64_t b_stride, const uint8_t* b_scale, int64_t column,
                     int64_t columns, int64_t blocks, int64_t begin, int64_t end, uint8_t* packed);
  void (*multiply)(const MmTask& task);
  // One row: x (dtype) times weight if not 1 -> codes and scales at `scales` (the row's base in the swizzle).
  void (*quantise_row)(const void* x, int dtype, int64_t k, float global_scale, const float* weight,
                       uint8_t* q, uint8_t* scales, float* scratch);
  void (*activation_row)(const void* x, int dtype, int64_t width, int kind, void* y);
  void (*combine_row)(const uint16_t* y, int64_t y_stride, int dtype, const float* weights,
                      const int32_t* slots, int64_t k, int64_t width, uint16_t* out);
  void (*finish_row)(const float* sums, int64_t split_stride, int64_t splits, int64_t n, float alpha,
                     int dtype, void* out);
  void (*exp_row)(const float* x, int64_t n, float subtract, float* y);
};

// Null where the machine or the compiler cannot.
const Kernels* kernels_avx512();
const Kernels* kernels_avx2();
const Kernels* kernels_generic();

}  // namespace samebits
