#include "thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace samebits {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kSpins = 4000;  // about 20 us: longer than the gap between two kernels of a layer

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Pool {
  std::mutex busy;   // held by the caller whose work is running
  std::mutex sleep;  // guards `generation` for sleepers
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};
  std::atomic<int> size{0}, wanted{0}, inside{0};
  std::atomic<int64_t> next{0};
  int64_t tasks = 0;
  void (*task)(void*, int64_t, int) = nullptr;
  void* context = nullptr;

  void work(int thread) {
    for (int64_t i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) task(context, i, thread);
  }

  void loop(int thread, uint64_t seen) {
    for (;;) {
      int spins = 0;
      while (generation.load(std::memory_order_acquire) == seen) {
        if (++spins < kSpins) {
          pause();
          continue;
        }
        std::unique_lock<std::mutex> lock(sleep);
        wake.wait(lock, [&] { return generation.load() != seen; });
      }
      seen = generation.load(std::memory_order_acquire);
      if (thread < wanted.load()) work(thread);
      inside.fetch_sub(1, std::memory_order_release);
    }
  }

  void grow(int threads) {
    while (size.load() + 1 < threads) {
      const int thread = size.load() + 1;
      const uint64_t seen = generation.load();
      try {
        std::thread([this, thread, seen] { loop(thread, seen); }).detach();
      } catch (...) {
        return;  // no more threads to be had: fewer do the work
      }
      size.fetch_add(1);
    }
  }
};

std::atomic<Pool*> pool{nullptr};

// A forked child has none of the parent's threads, and its locks may be held for ever: start afresh. The old
// pool is leaked on purpose, as is the pool at exit: its threads may still be looking at it.
void forget_pool() {
  pool.store(nullptr);
}

Pool* get_pool() {
  Pool* p = pool.load();
  if (p != nullptr) return p;
  static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
  (void)registered;
  Pool* fresh = new Pool;
  return pool.compare_exchange_strong(p, fresh) ? fresh : (delete fresh, p);
}

}  // namespace

void parallel_for(int64_t tasks, int threads, void (*task)(void*, int64_t, int), void* context) {
  if (threads > kMaxThreads) threads = kMaxThreads;
  if (threads > tasks) threads = int(tasks);
  Pool* p = threads > 1 ? get_pool() : nullptr;
  std::unique_lock<std::mutex> lock;
  if (p != nullptr) lock = std::unique_lock<std::mutex>(p->busy, std::try_to_lock);
  if (!lock.owns_lock()) {
    for (int64_t i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  p->grow(threads);
  p->tasks = tasks;
  p->task = task;
  p->context = context;
  p->next.store(0);
  p->wanted.store(threads);
  p->inside.store(p->size.load());
  {
    std::lock_guard<std::mutex> guard(p->sleep);
    p->generation.fetch_add(1, std::memory_order_release);
  }
  p->wake.notify_all();
  p->work(0);
  // Every thread leaves before the next call may change the work.
  for (int spins = 0; p->inside.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

int pool_size() {
  Pool* p = pool.load();
  return p == nullptr ? 0 : p->size.load();
}

}  // namespace samebits
