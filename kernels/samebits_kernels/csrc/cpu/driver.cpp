#include "driver.h"

#include <cstring>
#include <initializer_list>

#include "../common/dtype.h"
#include "elementwise.h"
#include "thread_pool.h"
#include "workspace.h"

namespace samebits {
namespace {

const Kernels* best() {
  if (const Kernels* k = kernels_avx512()) return k;
  if (const Kernels* k = kernels_avx2()) return k;
  return kernels_generic();
}

const Kernels* find(const char* name) {
  for (const Kernels* k : {kernels_avx512(), kernels_avx2(), kernels_generic()}) {
    if (k != nullptr && std::strcmp(k->name, name) == 0) return k;
  }
  return nullptr;
}

const Kernels* chosen = nullptr;
int poison_byte = -1;

// Rows of a task: enough work to be worth a hand-over.
int64_t rows_per_task(int64_t work_per_row) {
  const int64_t rows = (1 << 14) / (work_per_row + 1);
  return rows < 1 ? 1 : rows;
}

template <class F>
void for_rows(int64_t rows, int64_t work_per_row, int threads, F&& f) {
  const int64_t step = rows_per_task(work_per_row), tasks = (rows + step - 1) / step;
  parallel(tasks, threads, [&](int64_t task, int) {
    for (int64_t i = task * step; i < rows && i < (task + 1) * step; ++i) f(i);
  });
}

}  // namespace

const Kernels* kernels() {
  if (chosen == nullptr) chosen = best();
  return chosen;
}

bool has_isa(const char* name) {
  return find(name) != nullptr;
}

bool force_isa(const char* name) {
  const Kernels* k = *name == 0 ? best() : find(name);
  if (k == nullptr) return false;
  chosen = k;
  return true;
}

void set_poison(int byte) {
  poison_byte = byte;
}

int workspace_poison() {
  return poison_byte;
}

void quantise(const QuantiseArguments& a, int threads) {
  const Kernels* const isa = kernels();
  const int64_t quads = (a.k / kBlock + 3) / 4;
  const int64_t element = 2, width = a.activation == kNone ? a.k : 2 * a.k;
  std::memset(a.q_scale, 0, size_t(a.scale_bytes));  // padding reads as zero
  const auto row = [&](int64_t r, int64_t expert, int64_t scale_first, float* scratch) {
    const int64_t source = a.a_map == nullptr ? r : a.a_map[r];
    const uint8_t* x = static_cast<const uint8_t*>(a.x) + source * a.x_stride * element;
    const float* weight = a.row_weight == nullptr ? nullptr : a.row_weight + source;
    if (a.activation != kNone) {
      uint16_t* y = reinterpret_cast<uint16_t*>(scratch + a.k);
      isa->activation_row(x, a.dtype, a.k, a.activation, y);
      x = reinterpret_cast<const uint8_t*>(y);
    }
    isa->quantise_row(x, a.dtype, a.k, a.global_scale[expert], weight, a.q + r * (a.k / 2),
                      a.q_scale + scale_row(scale_first, quads), scratch);
  };
  const int64_t step = rows_per_task(4 * width), tasks = (a.rows + step - 1) / step;
  parallel(tasks, threads, [&](int64_t task, int) {
    thread_local Workspace workspace;
    float* scratch = reinterpret_cast<float*>(workspace.get(a.k * 6, poison_byte));
    int64_t expert = 0;
    for (int64_t r = task * step; r < a.rows && r < (task + 1) * step; ++r) {
      if (a.groups.offsets == nullptr) {
        row(r, 0, r, scratch);
        continue;
      }
      while (r >= a.groups.offsets[expert + 1]) ++expert;
      row(r, expert, a.groups.scale_offsets[expert] + (r - a.groups.offsets[expert]), scratch);
    }
  });
}

void activation(void* y, const void* x, int64_t x_stride, int dtype, int64_t rows, int64_t width, int kind,
                int threads) {
  const Kernels* const isa = kernels();
  for_rows(rows, 8 * width, threads, [&](int64_t i) {
    isa->activation_row(static_cast<const uint16_t*>(x) + i * x_stride, dtype, width, kind,
                        static_cast<uint16_t*>(y) + i * width);
  });
}

void route(float* weights, int32_t* ids, const void* logits, int64_t stride, int dtype, int64_t m,
           int64_t experts, int64_t k, bool renormalize, int threads) {
  const Kernels* const isa = kernels();
  const int64_t element = dtype == kFp32 ? 4 : 2;
  for_rows(m, experts * (k + 8), threads, [&](int64_t i) {
    thread_local Workspace workspace;
    float* x = reinterpret_cast<float*>(workspace.get(experts * 8, poison_byte));
    float* e = x + experts;
    rows_to_float(static_cast<const uint8_t*>(logits) + i * stride * element, dtype, experts, x);
    float most = x[0];
    for (int64_t n = 1; n < experts; ++n) most = x[n] > most || x[n] != x[n] ? x[n] : most;
    isa->exp_row(x, experts, most, e);
    float total = e[0];
    for (int64_t n = 1; n < experts; ++n) total = total + e[n];
    for (int64_t n = 0; n < experts; ++n) e[n] = e[n] / total;
    float* w = weights + i * k;
    int32_t* id = ids + i * k;
    for (int64_t j = 0; j < k; ++j) {
      // The largest not yet taken; on equal weights (and among NaN) the lower expert.
      int64_t pick = -1;
      for (int64_t n = 0; n < experts; ++n) {
        bool taken = false;
        for (int64_t before = 0; before < j; ++before) taken = taken || id[before] == n;
        if (!taken && (pick < 0 || e[n] > e[pick])) pick = n;
      }
      id[j] = int32_t(pick);
      w[j] = e[pick];
    }
    if (renormalize) {
      float sum = w[0];
      for (int64_t j = 1; j < k; ++j) sum = sum + w[j];
      for (int64_t j = 0; j < k; ++j) w[j] = w[j] / sum;
    }
    for (int64_t j = 0; j < k; ++j) w[j] = w[j] == w[j] ? w[j] : float_of(0x7FC00000);
  });
}

void permute(int32_t* a_map, int32_t* c_map, int32_t* offsets, int32_t* scale_offsets, const int32_t* ids,
             int64_t m, int64_t k, int64_t experts) {
  static thread_local Workspace workspace;
  int32_t* next = reinterpret_cast<int32_t*>(workspace.get(experts * 4, poison_byte));
  std::memset(next, 0, size_t(experts) * 4);
  for (int64_t i = 0; i < m * k; ++i) ++next[ids[i]];
  offsets[0] = scale_offsets[0] = 0;
  for (int64_t e = 0; e < experts; ++e) {
    offsets[e + 1] = offsets[e] + next[e];
    scale_offsets[e + 1] = scale_offsets[e] + (next[e] + 127) / 128 * 128;
    next[e] = offsets[e];
  }
  for (int64_t i = 0; i < m * k; ++i) {  // ascending, so stable in token order
    const int32_t slot = next[ids[i]]++;
    a_map[slot] = int32_t(i / k);
    c_map[i] = slot;
  }
}

void combine(void* out, int64_t out_stride, const void* y, int64_t y_stride, int dtype, const float* weights,
             const int32_t* c_map, int64_t m, int64_t k, int64_t width, int threads) {
  const Kernels* const isa = kernels();
  for_rows(m, width * k, threads, [&](int64_t i) {
    isa->combine_row(static_cast<const uint16_t*>(y), y_stride, dtype,
                     weights == nullptr ? nullptr : weights + i * k, c_map + i * k, k, width,
                     static_cast<uint16_t*>(out) + i * out_stride);
  });
}

}  // namespace samebits
