// The seam between the runtime and an operator library: an operator validates its arguments, makes a kernel of them and
// hands it over here. The runtime knows nothing else of operators.
#pragma once

#include <acl/acl_base_rt.h>

#include <functional>
#include <string>

#define CANN_SIM_EXPORT __attribute__((visibility("default")))

namespace cann_sim {

// One launch. `run` owns whatever it needs for as long as a captured graph may replay it; it may be called any number of
// times, never by two threads at once, and reports a failure by throwing an exception, whose text becomes the error message.
struct Kernel {
  const char* name;  // the aclnn name, for instance "aclnnAdd", in static memory; task updates compare it
  std::function<void()> run;
};

// Enqueues the kernel, records it into the capture, or takes it as part of a task update, as the stream's state demands.
// A null `stream` is the default stream of the calling thread's device.
CANN_SIM_EXPORT aclError LaunchKernel(aclrtStream stream, Kernel kernel);

// Sets what aclGetRecentErrMsg returns next on this thread.
CANN_SIM_EXPORT void SetErrorMessage(std::string message);

// Whether kernels are to do nothing (CANN_SIM_KERNELS=null), so that only host cost is measured.
CANN_SIM_EXPORT bool KernelsAreNull();

}  // namespace cann_sim
