// Functions that torch_npu links to and that are not simulated: they fail with their name.
#pragma once

#include <acl/acl_base_rt.h>

#include <string>

#include "error_message.h"

#define CANN_SIM_UNSIMULATED(function)                                                              \
  extern "C" CANN_SIM_EXPORT aclError function() {                                                  \
    return ::cann_sim::Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, #function " is not simulated");       \
  }                                                                                                 \
  static_assert(true, "a semicolon follows")
