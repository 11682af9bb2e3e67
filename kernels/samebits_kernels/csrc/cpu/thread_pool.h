// Threads over independent tasks. Which thread computes a task, and when, is free: no result depends on it.
//
// Made for processes that fork: threads start at the first parallel call, and a forked child begins with
// none.
#pragma once
#include <cstdint>

namespace samebits {

// Calls task(context, i, thread) for every i in [0, tasks), on up to `threads` threads, this one included.
// `thread` is below `threads`. Runs everything here when the pool is busy with another caller.
void parallel_for(int64_t tasks, int threads, void (*task)(void*, int64_t, int), void* context);

template <class F>
void parallel(int64_t tasks, int threads, F&& f) {
  parallel_for(
      tasks, threads, [](void* context, int64_t i, int thread) { (*static_cast<F*>(context))(i, thread); },
      &f);
}

// Threads started in this process so far.
int pool_size();

}  // namespace samebits
