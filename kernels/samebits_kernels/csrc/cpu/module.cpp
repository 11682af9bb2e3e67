// What Python calls, through apache-tvm-ffi: addresses and sizes as integers. The operators have checked
// them.
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include "../common/dtype.h"
#include "../common/flag.h"
#include "../scheduler/tile_scheduler.h"
#include "driver.h"
#include "elementwise.h"
#include "thread_pool.h"

namespace samebits {
namespace {

template <class T>
T* at(int64_t address) {
  return reinterpret_cast<T*>(address);
}

Groups groups(int64_t experts, int64_t offsets, int64_t scale_offsets) {
  return {experts, at<const int32_t>(offsets), at<const int32_t>(scale_offsets)};
}

void quantise_(int64_t q, int64_t q_scale, int64_t scale_bytes, int64_t x, int64_t x_stride, int64_t dtype,
               int64_t rows, int64_t k, int64_t global_scale, int64_t experts, int64_t offsets,
               int64_t scale_offsets, int64_t a_map, int64_t row_weight, int64_t activation,
               int64_t threads) {
  quantise({at<uint8_t>(q), at<uint8_t>(q_scale), scale_bytes, at<const void>(x), x_stride, int(dtype), rows,
            k, at<const float>(global_scale), groups(experts, offsets, scale_offsets),
            at<const int32_t>(a_map), at<const float>(row_weight), int(activation)},
           int(threads));
}

void activation_(int64_t y, int64_t x, int64_t x_stride, int64_t dtype, int64_t rows, int64_t width,
                 int64_t kind, int64_t threads) {
  activation(at<void>(y), at<const void>(x), x_stride, int(dtype), rows, width, int(kind), int(threads));
}

void scaled_mm_(int64_t d, int64_t d_stride, int64_t dtype, int64_t a, int64_t a_stride, int64_t a_scale,
                int64_t b, int64_t packed, int64_t b_stride, int64_t b_scale, int64_t m, int64_t n, int64_t k,
                int64_t alpha, int64_t experts, int64_t offsets, int64_t scale_offsets, int64_t threads) {
  scaled_mm({at<void>(d), d_stride, int(dtype), at<const uint8_t>(a), a_stride, at<const uint8_t>(a_scale),
             at<const uint8_t>(b), at<const uint8_t>(packed), b_stride, at<const uint8_t>(b_scale), m, n, k,
             at<const float>(alpha), groups(experts, offsets, scale_offsets)},
            int(threads));
}

void prepare_(int64_t packed, int64_t b, int64_t b_stride, int64_t b_scale, int64_t n, int64_t k,
              int64_t threads) {
  prepare(at<uint8_t>(packed), at<const uint8_t>(b), b_stride, at<const uint8_t>(b_scale), n, k,
          int(threads));
}

void route_(int64_t weights, int64_t ids, int64_t logits, int64_t stride, int64_t dtype, int64_t m,
            int64_t experts, int64_t k, bool renormalize, int64_t threads) {
  route(at<float>(weights), at<int32_t>(ids), at<const void>(logits), stride, int(dtype), m, experts, k,
        renormalize, int(threads));
}

void permute_(int64_t a_map, int64_t c_map, int64_t offsets, int64_t scale_offsets, int64_t ids, int64_t m,
              int64_t k, int64_t experts) {
  permute(at<int32_t>(a_map), at<int32_t>(c_map), at<int32_t>(offsets), at<int32_t>(scale_offsets),
          at<const int32_t>(ids), m, k, experts);
}

void combine_(int64_t out, int64_t out_stride, int64_t y, int64_t y_stride, int64_t dtype, int64_t weights,
              int64_t c_map, int64_t m, int64_t k, int64_t width, int64_t threads) {
  combine(at<void>(out), out_stride, at<const void>(y), y_stride, int(dtype), at<const float>(weights),
          at<const int32_t>(c_map), m, k, width, int(threads));
}

void exp_(int64_t x, int64_t n, int64_t y) {
  kernels()->exp_row(at<const float>(x), n, 0.0f, at<float>(y));
}

int64_t flag_() {
  return batch_invariant_flag();
}
int64_t pool_size_() {
  return pool_size();
}
tvm::ffi::String isa_() {
  return kernels()->name;
}
bool force_isa_(tvm::ffi::String name) {
  return force_isa(name.c_str());
}
bool has_isa_(tvm::ffi::String name) {
  return has_isa(name.c_str());
}
bool force_schedule_(tvm::ffi::String name) {
  return force_schedule(name.c_str());
}
void set_poison_(int64_t byte) {
  set_poison(int(byte));
}
tvm::ffi::String schedule_() {
  return invariant_schedule() ? InvariantSchedule::kName : FreeSchedule::kName;
}
int64_t splits_(int64_t m, int64_t n, int64_t k) {
  return invariant_schedule() ? InvariantSchedule::splits(m, n, k / kBlock)
                              : FreeSchedule::splits(m, n, k / kBlock);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(quantise, quantise_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(activation, activation_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(scaled_mm, scaled_mm_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(prepare, prepare_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(prepared_bytes, prepared_bytes);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(route, route_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(permute, permute_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(combine, combine_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(exp, exp_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(flag, flag_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pool_size, pool_size_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(isa, isa_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(force_isa, force_isa_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(has_isa, has_isa_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(force_schedule, force_schedule_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(set_poison, set_poison_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(schedule, schedule_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(splits, splits_);

}  // namespace
}  // namespace samebits
