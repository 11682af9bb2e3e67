// The steps of the layer over whole tensors: what Python calls, without the binding. Pointers and sizes are
// already checked by the operators; strides are in elements of the array they belong to.
#pragma once
#include <cstdint>

#include "kernels.h"

namespace samebits {

// The kernels in use: the best this machine has, or what `force_isa` chose ("" gives the choice back).
const Kernels* kernels();
bool force_isa(const char* name);
bool has_isa(const char* name);
// Whether `scaled_mm` uses the invariant schedule: the flag, unless `force_schedule` said otherwise.
bool invariant_schedule();
bool force_schedule(const char* name);  // "invariant", "free", "" for the flag
// Fill workspaces with this byte before use; -1: leave them as they are.
void set_poison(int byte);

struct Groups {  // rows sorted by expert; one expert and null offsets for a plain matrix
  int64_t experts;
  const int32_t* offsets;
  const int32_t* scale_offsets;
};

struct QuantiseArguments {
  uint8_t* q;        // [rows, k/2]
  uint8_t* q_scale;  // swizzled, scale_bytes long
  int64_t scale_bytes;
  const void* x;
  int64_t x_stride;
  int dtype;
  int64_t rows, k;
  const float* global_scale;  // one an expert
  Groups groups;
  const int32_t* a_map;     // null: row r
  const float* row_weight;  // null: no multiplication
  int activation;           // kNone, or x is [rows, 2*k]
};
void quantise(const QuantiseArguments& a, int threads);

void activation(void* y, const void* x, int64_t x_stride, int dtype, int64_t rows, int64_t width, int kind,
                int threads);

struct MmArguments {
  void* d;
  int64_t d_stride;
  int dtype;
  const uint8_t* a;
  int64_t a_stride;
  const uint8_t* a_scale;
  const uint8_t* b;       // [experts, n, k/2]; null: packed
  const uint8_t* packed;  // one expert
  int64_t b_stride;
  const uint8_t* b_scale;
  int64_t m, n, k;
  const float* alpha;  // one an expert
  Groups groups;
};
void scaled_mm(const MmArguments& a, int threads);

int64_t prepared_bytes(int64_t n, int64_t k);
void prepare(uint8_t* packed, const uint8_t* b, int64_t b_stride, const uint8_t* b_scale, int64_t n,
             int64_t k, int threads);

void route(float* weights, int32_t* ids, const void* logits, int64_t stride, int dtype, int64_t m,
           int64_t experts, int64_t k, bool renormalize, int threads);
void permute(int32_t* a_map, int32_t* c_map, int32_t* offsets, int32_t* scale_offsets, const int32_t* ids,
             int64_t m, int64_t k, int64_t experts);
void combine(void* out, int64_t out_stride, const void* y, int64_t y_stride, int dtype, const float* weights,
             const int32_t* c_map, int64_t m, int64_t k, int64_t width, int threads);

}  // namespace samebits
