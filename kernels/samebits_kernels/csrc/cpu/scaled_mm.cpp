// Scaled MM and grouped MM: prepare the activations, hand out tiles, add splits where the schedule has any.
#include <cstring>
#include <vector>

#include "../common/dtype.h"
#include "../common/flag.h"
#include "../scheduler/tile_scheduler.h"
#include "driver.h"
#include "thread_pool.h"
#include "workspace.h"

namespace samebits {

int workspace_poison();

namespace {

struct Tile {
  int64_t expert, row_begin, row_end;  // rows counted within the expert
  int64_t column, split;               // of a preparation: `column` is its first K-block
};

template <class Schedule>
void run(const MmArguments& a, int threads) {
  const Kernels* const isa = kernels();
  const int64_t blocks = a.k / kBlock, quads = (blocks + 3) / 4;
  const int64_t scale_bytes = (a.n + 127) / 128 * 128 * quads * 4;  // of one expert's weights
  const bool small = a.m * a.n * a.k < (1 << 19);
  if (small) threads = 1;

  // One schedule an expert; a plain matrix is one expert.
  std::vector<Tile> tiles;
  std::vector<int64_t> splits(size_t(a.groups.experts), 1);
  int64_t most_splits = 1;
  const auto first_row = [&](int64_t e) {
    return a.groups.offsets == nullptr ? 0 : int64_t(a.groups.offsets[e]);
  };
  const auto count = [&](int64_t e) {
    return a.groups.offsets == nullptr ? a.m : int64_t(a.groups.offsets[e + 1] - a.groups.offsets[e]);
  };
  // Shorter tiles when there are few: they only change who computes a row.
  int64_t tile_rows = kTileM;
  const int64_t columns = ceil_div(a.n, kTileN) * a.groups.experts;
  while (tile_rows > 16 && columns * ceil_div(a.m, tile_rows) < 2 * threads) tile_rows /= 2;
  for (int64_t e = 0; e < a.groups.experts; ++e) {
    const int64_t m = count(e);
    splits[size_t(e)] = Schedule::splits(m, a.n, blocks);
    if (splits[size_t(e)] > most_splits) most_splits = splits[size_t(e)];
    for (int64_t column = 0; column < a.n; column += kTileN) {
      for (int64_t row = 0; row < m; row += tile_rows) {
        for (int64_t s = 0; s < splits[size_t(e)]; ++s) {
          tiles.push_back({e, row, row + tile_rows < m ? row + tile_rows : m, column, s});
        }
      }
    }
  }
  if (tiles.empty()) return;

  static thread_local Workspace prepared_rows, partial_sums;
  uint8_t* rows = prepared_rows.get(a.m * blocks * kRowBlock, workspace_poison());
  float* partial = nullptr;
  if (most_splits > 1) {
    partial = reinterpret_cast<float*>(partial_sums.get(most_splits * a.m * a.n * 4, workspace_poison()));
  }

  // Whole tiles of rows, which are laid out as a unit, by stretches of K.
  const int64_t group = 2 * isa->tile_rows, stretch = 1024;
  std::vector<Tile> groups;
  for (int64_t e = 0; e < a.groups.experts; ++e) {
    const int64_t m = count(e);
    for (int64_t row = 0; row < m; row += group) {
      for (int64_t block = 0; block < blocks; block += stretch) {
        groups.push_back({e, row, row + group < m ? row + group : m, block, 0});
      }
    }
  }
  parallel(int64_t(groups.size()), a.m * blocks < 4096 ? 1 : threads, [&](int64_t i, int) {
    const Tile& t = groups[size_t(i)];
    const int64_t first = first_row(t.expert);
    const int64_t scale_first = a.groups.scale_offsets == nullptr ? 0 : a.groups.scale_offsets[t.expert];
    isa->prepare_rows(a.a + first * a.a_stride, a.a_stride, a.a_scale, scale_first, count(t.expert), blocks,
                      t.row_begin, t.row_end, t.column,
                      t.column + stretch < blocks ? t.column + stretch : blocks,
                      rows + first * blocks * kRowBlock);
  });

  parallel(int64_t(tiles.size()), threads, [&](int64_t i, int) {
    static thread_local Workspace scratch;
    const Tile& t = tiles[size_t(i)];
    const int64_t first = first_row(t.expert), s = splits[size_t(t.expert)];
    MmTask task;
    task.rows = rows + first * blocks * kRowBlock;
    task.row_begin = t.row_begin;
    task.row_end = t.row_end;
    task.blocks = blocks;
    task.block_begin = split_begin(t.split, s, blocks);
    task.block_end = split_begin(t.split + 1, s, blocks);
    task.packed = a.packed == nullptr ? nullptr : a.packed + t.column * blocks * (kPackedBlock / kPanel);
    task.b = a.packed != nullptr ? nullptr : a.b + (t.expert * a.n + t.column) * a.b_stride;
    task.b_stride = a.b_stride;
    task.b_scale = a.b_scale + t.expert * scale_bytes;
    task.column = t.column;
    task.columns = a.n - t.column < kTileN ? a.n - t.column : kTileN;
    if (s == 1) {
      task.out = static_cast<uint16_t*>(a.d) + first * a.d_stride + t.column;
      task.out_stride = a.d_stride;
      task.out_dtype = a.dtype;
    } else {
      task.out = partial + (t.split * a.m + first) * a.n + t.column;
      task.out_stride = a.n;
      task.out_dtype = kFp32;
    }
    task.alpha = a.alpha[t.expert];
    task.scratch = scratch.get(kMmScratch, workspace_poison());
    isa->multiply(task);
  });

  if (most_splits == 1) return;
  for (int64_t e = 0; e < a.groups.experts; ++e) {
    if (splits[size_t(e)] == 1) continue;
    parallel((count(e) + 15) / 16, count(e) * a.n < 8192 ? 1 : threads, [&](int64_t chunk, int) {
      for (int64_t r = first_row(e) + chunk * 16;
           r < first_row(e) + count(e) && r < first_row(e) + chunk * 16 + 16; ++r) {
        isa->finish_row(partial + r * a.n, a.m * a.n, splits[size_t(e)], a.n, a.alpha[e], a.dtype,
                        static_cast<uint16_t*>(a.d) + r * a.d_stride);
      }
    });
  }
}

}  // namespace

static int forced = -1;

bool invariant_schedule() {
  return forced >= 0 ? forced == 1 : batch_invariant_flag() == 1;
}

bool force_schedule(const char* name) {
  if (std::strcmp(name, InvariantSchedule::kName) == 0) {
    forced = 1;
  } else if (std::strcmp(name, FreeSchedule::kName) == 0) {
    forced = 0;
  } else {
    forced = -1;
    return *name == 0;
  }
  return true;
}

void scaled_mm(const MmArguments& a, int threads) {
  if (invariant_schedule()) {
    run<InvariantSchedule>(a, threads);
  } else {
    run<FreeSchedule>(a, threads);
  }
}

int64_t prepared_bytes(int64_t n, int64_t k) {
  return (n + kPanel - 1) / kPanel * (k / kBlock) * kPackedBlock;
}

void prepare(uint8_t* packed, const uint8_t* b, int64_t b_stride, const uint8_t* b_scale, int64_t n,
             int64_t k, int threads) {
  const Kernels* const isa = kernels();
  const int64_t blocks = k / kBlock;
  parallel((n + kPanel - 1) / kPanel, threads, [&](int64_t p, int) {
    const int64_t column = p * kPanel, columns = n - column < kPanel ? n - column : kPanel;
    isa->pack_panel(b + column * b_stride, b_stride, b_scale, column, columns, blocks, 0, blocks,
                    packed + p * blocks * kPackedBlock);
  });
}

}  // namespace samebits
