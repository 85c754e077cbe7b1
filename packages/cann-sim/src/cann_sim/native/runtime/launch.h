// The seam between the runtime and an operator library: an operator validates its arguments, makes a kernel of them and
// passes it here. The runtime knows nothing else of operators.
#pragma once

#include <acl/acl_base_rt.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "memory_access.h"

#define CANN_SIM_EXPORT __attribute__((visibility("default")))

namespace cann_sim {

// One launch. `run` owns whatever it needs for as long as a captured graph may replay it; it may be called any number of
// times, never by two threads at once, and reports a failure by throwing an exception, whose text becomes the error message.
struct Kernel {
  const char* name;  // the aclnn name, for instance "aclnnAdd", in static memory; task updates compare it
  std::function<void()> run;
  int64_t duration = 0;  // nanoseconds of virtual time, by KernelTime
  std::vector<MemoryAccess> accesses = {};  // where memory is checked; empty where nothing is known of them
};

// What a kernel does, for the virtual clock.
struct Work {
  double bytes = 0;              // of tensors that come from the level 2 cache where they fit
  double streamed_bytes = 0;     // of weights and caches, which never do: a model is larger
  double cube_operations = 0;    // of float16; others count as many as take the same time
  double vector_operations = 0;  // of float32
};

// Whether there is a virtual clock (CANN_SIM_CLOCK).
CANN_SIM_EXPORT bool KernelsAreTimed();
// How long a kernel of such work takes, in nanoseconds.
CANN_SIM_EXPORT int64_t KernelTime(const Work& work);

// Enqueues the kernel, records it into the capture, or takes it as part of a task update, as the stream's state demands.
// A null `stream` is the default stream of the calling thread's device.
CANN_SIM_EXPORT aclError LaunchKernel(aclrtStream stream, Kernel kernel);

// Sets what aclGetRecentErrMsg returns next on this thread.
CANN_SIM_EXPORT void SetErrorMessage(std::string message);

// Whether launches are to say what they touch (CANN_SIM_MEMORY_CHECK).
CANN_SIM_EXPORT bool MemoryIsChecked();
// Memory that was written and that no launch said anything of.
CANN_SIM_EXPORT void NoteWrittenMemory(const void* address, size_t bytes);
// What this stream did comes before what a stream does that meets other processes after it, as far as is known here.
CANN_SIM_EXPORT void MeetOtherProcesses();

// Whether kernels are to do nothing (CANN_SIM_KERNELS=null), so that only host cost is measured.
CANN_SIM_EXPORT bool KernelsAreNull();

}  // namespace cann_sim
