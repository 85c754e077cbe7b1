// Failures on purpose: the third allocation, every run of one operator. CANN_SIM_FAULTS chooses them.
#pragma once

#include <acl/acl_base_rt.h>

#include <string>

namespace cann_sim {

enum class Fault { kAllocation, kStream, kLaunch, kRun, kCaptureEnd, kTaskUpdate, kTwoKernels };

// Replaces the faults and counts from 1 again. Returns what is wrong with the text, or an empty text:
//
//   faults = fault *("," fault)
//   fault  = kind ["(" operator ")"] ":" first ["-" last | "+"]
//   kind   = "allocation" | "stream" | "launch" | "run" | "capture_end" | "task_update" | "two_kernels"
//
// The occasions of each kind, or of each operator of `launch`, `run` and `two_kernels`, count from 1.
std::string SetFaults(const std::string& text);

// Counts an occasion. Whether it is to fail; `name` is that of the operator, for the kinds that have one.
bool FaultIsDue(Fault fault, const char* name = "");
// The same, and the refusal where it is.
aclError InjectFault(Fault fault, aclError code, const char* function, const char* name = "");
// What an injected failure says of itself.
std::string DescribeFault(Fault fault, const std::string& name);

}  // namespace cann_sim
