// Captures under way: which streams they hold and what is recorded.
#pragma once

#include <acl/acl_rt.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "graph.h"
#include "stream.h"

namespace cann_sim {

// Guards the captures, and the capture and update members of all streams.
std::mutex& CaptureMutex();

class Capture {
 public:
  std::shared_ptr<Graph> graph;
  aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  std::vector<Stream*> streams;                         // by branch
  std::vector<std::shared_ptr<TaskGroup>> open_groups;  // by branch; null where none is open
  aclError task_group_error = ACL_SUCCESS;
  std::string invalid;  // why the capture can no longer end well; empty while it can
};

// The following are called with CaptureMutex() held.

// Adds a task to the stream's branch, or says why not.
aclError RecordTask(const char* function, Stream& stream, Task task, std::shared_ptr<GraphPoint> point = nullptr);
// Takes entries in the queue of the stream's branch, which goes over to a further stream of the device near its end.
aclError TakeQueueEntries(const char* function, Stream& stream, size_t entries);
// Makes the stream part of the capture.
aclError Join(const char* function, const std::shared_ptr<Capture>& capture, Stream& stream);
void Invalidate(Capture& capture, const std::string& reason);

// Whether this thread may call functions that block on the device (copies, sets of memory) in view of the captures
// under way; the refusal has code 107030.
aclError RefuseBlockingCall(const char* function);

}  // namespace cann_sim
