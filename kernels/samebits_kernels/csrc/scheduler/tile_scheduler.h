// Which part of the output a task computes, and along which stretch of K. Apart from the kernel body on
// purpose: this file decides whether a row's bits depend on its batch.
//
// Tiles of M and N may change with anything: they say who computes an element, never how. The accumulation
// tree of an element is set by `splits` and `split_begin` alone.
#pragma once
#include <cstdint>
#include <initializer_list>

namespace samebits {

constexpr int64_t kTileN = 32;   // columns of a task
constexpr int64_t kTileM = 128;  // most rows of a task

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// VLLM_BATCH_INVARIANT=1: one chain over all of K, whatever M is.
struct InvariantSchedule {
  static constexpr const char* kName = "invariant";
  static constexpr int64_t splits(int64_t /*m*/, int64_t /*n*/, int64_t /*blocks*/) { return 1; }
};

// Flag 0 or unset: when the output has few tiles, split K so that more threads have work. Faster at small M
// and small N, and a row's bits change with M: the control that must fail.
struct FreeSchedule {
  static constexpr const char* kName = "free";
  static constexpr int64_t kWantedTasks = 64, kMaxSplits = 8, kMinBlocks = 4;
  static constexpr int64_t splits(int64_t m, int64_t n, int64_t blocks) {
    const int64_t tiles = ceil_div(m, 8) * ceil_div(n, kTileN);
    if (tiles == 0 || tiles >= kWantedTasks) return 1;
    int64_t s = kWantedTasks / tiles;
    s = s < kMaxSplits ? s : kMaxSplits;
    s = s < blocks / kMinBlocks ? s : blocks / kMinBlocks;
    return s > 1 ? s : 1;
  }
};

// First K-block of split `s`.
constexpr int64_t split_begin(int64_t s, int64_t splits, int64_t blocks) {
  return blocks * s / splits;
}

template <class Schedule>
constexpr bool splits_ignore_batch() {
  for (int64_t m : {1, 2, 7, 8, 9, 31, 64, 127, 128, 129, 1024, 4096}) {
    for (int64_t n : {16, 96, 352, 4096, 14336}) {
      for (int64_t blocks : {1, 3, 64, 512, 896}) {
        if (Schedule::splits(m, n, blocks) != Schedule::splits(1, n, blocks)) return false;
      }
    }
  }
  return true;
}

static_assert(
    splits_ignore_batch<InvariantSchedule>(),
    "in batch-invariant mode K may not be split by M: a row alone and the same row in a batch would "
    "add its products in different orders");
static_assert(InvariantSchedule::splits(1, 16, 4096) == 1,
              "the declared tree is one chain over K/16 block sums; change contract() with it");
static_assert(!splits_ignore_batch<FreeSchedule>(),
              "the free mode is the control: if its splits ignore M, no check can prove that it sees them");

}  // namespace samebits
