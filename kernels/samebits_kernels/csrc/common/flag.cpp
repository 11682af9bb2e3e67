#include "flag.h"

#include <cstdlib>
#include <cstring>

namespace samebits {

static int read_flag() {
  const char* value = std::getenv("VLLM_BATCH_INVARIANT");
  if (value == nullptr || std::strcmp(value, "0") == 0) return 0;
  return std::strcmp(value, "1") == 0 ? 1 : -1;
}

int batch_invariant_flag() {
  static const int flag = read_flag();
  return flag;
}

}  // namespace samebits
