// What becomes of a task that is given to a stream: run, recorded into a capture, or refused inside a task update.
#pragma once

#include <acl/acl_base_rt.h>

#include "stream.h"
#include "task.h"

namespace cann_sim {

// Gives a task other than a kernel to the stream; `function` is the function of the C interface, for messages.
aclError Submit(const char* function, Stream& stream, Task task);

// Refuses with 107027 what a capturing stream may not do; success where the stream is not capturing.
aclError RefuseWhileCapturing(const char* function, const Stream& stream, const char* what);

}  // namespace cann_sim
