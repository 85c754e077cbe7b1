// Errors of the C interface: a code that the caller gets and a message that says what was wrong.
#pragma once

#include <acl/acl_base_rt.h>
#include <acl/error_codes/rt_error_codes.h>

#include <string>

#include "launch.h"
#include "trace.h"

namespace cann_sim {

// Stores the message for aclGetRecentErrMsg and the code for aclrtGetLastError, both of this thread; returns the code.
CANN_SIM_EXPORT aclError Fail(aclError code, std::string message);

// The code of the latest failure on this thread.
aclError LastError();

// Why this process may not use the device any more, or empty. A child of fork has no worker threads.
const char* UnusableReason();
// Makes UnusableReason answer in every later child of fork. Called when the first worker thread starts.
void ForbidUseAfterFork();

}  // namespace cann_sim

// At the beginning of a function of the C interface: leaves it where the device cannot be used in this process, and makes
// the call visible in a trace.
#define CANN_SIM_REQUIRE_USABLE(function)                                                        \
  const ::cann_sim::Span call_of_the_host(function);                                             \
  do {                                                                                           \
    if (const char* reason = ::cann_sim::UnusableReason(); reason != nullptr) {                  \
      return ::cann_sim::Fail(ACL_ERROR_RT_CONTEXT_NULL, std::string(function) + ": " + reason); \
    }                                                                                            \
  } while (false)

#define CANN_SIM_REQUIRE_POINTER(function, pointer)                                                        \
  do {                                                                                                     \
    if ((pointer) == nullptr) {                                                                            \
      return ::cann_sim::Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": expected " #pointer   \
                                                              ", found a null pointer");                   \
    }                                                                                                      \
  } while (false)
