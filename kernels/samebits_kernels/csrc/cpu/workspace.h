// Memory that a thread keeps between calls. Never trusted to hold anything: under `set_poison` it is
// overwritten before each use.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace samebits {

class Workspace {
 public:
  ~Workspace() { std::free(memory_); }
  uint8_t* get(int64_t bytes, int poison) {
    if (bytes > size_) {
      std::free(memory_);
      size_ = 0;
      const size_t rounded = (size_t(bytes) + 4095) & ~size_t(4095);
      memory_ = static_cast<uint8_t*>(std::aligned_alloc(4096, rounded));
      if (memory_ == nullptr) throw std::bad_alloc();
      size_ = int64_t(rounded);
    }
    if (poison >= 0) std::memset(memory_, poison, size_t(size_));
    return memory_;
  }

 private:
  uint8_t* memory_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace samebits
