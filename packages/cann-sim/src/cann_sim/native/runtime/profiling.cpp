// Profiling marks: accepted, and of no effect on what is computed. The functions that would start a profile are absent, so
// that torch_npu reports that it cannot find them.

#include <acl/acl_base_rt.h>

#include <chrono>

#include "launch.h"

extern "C" {

CANN_SIM_EXPORT int32_t MsprofRegisterCallback(uint32_t /*module*/, void* /*handle*/) { return 0; }

CANN_SIM_EXPORT int32_t MsprofReportApi(uint32_t /*non_persistent*/, const void* /*api*/) { return 0; }

CANN_SIM_EXPORT int32_t MsprofReportCompactInfo(uint32_t /*non_persistent*/, const void* /*data*/, uint32_t /*length*/) {
  return 0;
}

CANN_SIM_EXPORT int32_t MsprofReportAdditionalInfo(uint32_t /*non_persistent*/, const void* /*data*/,
                                                   uint32_t /*length*/) {
  return 0;
}

// FNV-1a, 64 bits.
CANN_SIM_EXPORT uint64_t MsprofGetHashId(const char* text, size_t length) {
  uint64_t hash = 14695981039346656037ULL;
  for (size_t index = 0; index < length; ++index) {
    hash = (hash ^ static_cast<unsigned char>(text[index])) * 1099511628211ULL;
  }
  return hash;
}

CANN_SIM_EXPORT uint64_t MsprofSysCycleTime() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // extern "C"
