// What the functions of HCCL's C interface have in common: their declarations, visibility, and how they refuse.
#pragma once

#include <third_party/hccl/inc/hccl/hccl.h>

#include <string>

#define HCCL_EXPORT extern "C" __attribute__((visibility("default")))

namespace cann_sim::collectives {

// Makes the message the one that torch_npu shows with the code, and returns the code.
HcclResult Refuse(HcclResult code, const std::string& message);

}  // namespace cann_sim::collectives

#define HCCL_REQUIRE_POINTER(function, pointer)                                                          \
  do {                                                                                                   \
    if ((pointer) == nullptr) {                                                                          \
      return ::cann_sim::collectives::Refuse(HCCL_E_PTR, std::string(function) + ": expected " #pointer  \
                                                             ", found a null pointer");                  \
    }                                                                                                    \
  } while (false)

#define HCCL_RETURN_IF_REFUSED(call)                               \
  do {                                                             \
    if (const HcclResult result = (call); result != HCCL_SUCCESS) { \
      return result;                                               \
    }                                                              \
  } while (false)
