// Which torch operator led to an aclnn call.
#pragma once

#include <string>

namespace cann_sim::operators {

// Name of the torch operator ("aten::add.Tensor", "npu::npu_rms_norm") whose kernel is running in this thread, found by
// walking the stack; empty where there is none (a task queue thread). Slow: for error messages only.
std::string AskingOperator();

}  // namespace cann_sim::operators
