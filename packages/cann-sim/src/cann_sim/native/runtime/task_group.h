// Task groups: the kernels of a captured graph that a task update may replace.
#pragma once

#include <acl/acl_base_rt.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "launch.h"
#include "stream.h"

namespace cann_sim {

// One kernel of a task group.
class GroupTask {
 public:
  explicit GroupTask(Kernel kernel);

  const char* const name;

  // Runs the kernel that is current when the replay comes to it.
  void Run();
  // From now on, replays that come to it run this kernel.
  void Replace(std::function<void()> run);

 private:
  std::mutex mutex_;
  std::shared_ptr<const std::function<void()>> run_;
};

struct TaskGroup {
  std::vector<std::shared_ptr<GroupTask>> tasks;
  bool closed = false;    // guarded by CaptureMutex()
  bool updating = false;  // guarded by CaptureMutex()
};

// The following are called with CaptureMutex() held.

// The task group that is open on the capturing stream, or null.
std::shared_ptr<TaskGroup> OpenTaskGroup(const Stream& stream);
// A kernel launched between task update begin and end: replaces the next task of the group, in the order of the stream.
aclError UpdateTask(Stream& stream, Kernel kernel);
// Makes the handles of the groups unknown, because their graph is gone.
void ForgetTaskGroups(const std::vector<std::shared_ptr<TaskGroup>>& groups);

}  // namespace cann_sim
