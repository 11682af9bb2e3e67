// The one place where native code reads VLLM_BATCH_INVARIANT: once, at the first use, by the same rule as
// flag.py.
#pragma once

namespace samebits {

// 1 or 0; -1 if the variable holds anything but "0" or "1".
int batch_invariant_flag();

}  // namespace samebits
