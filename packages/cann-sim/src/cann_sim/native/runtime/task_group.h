// Task groups: the kernels of a captured graph that a task update may replace.
#pragma once

#include <acl/acl_base_rt.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "launch.h"
#include "order.h"
#include "stream.h"

namespace cann_sim {

// One kernel of a task group.
class GroupTask {
 public:
  explicit GroupTask(Kernel kernel);

  const char* const name;

  // The replay takes the kernel that is current, with the place of its arguments. Where order is checked it throws unless the
  // last update comes before it.
  void Fetch();
  // Runs the kernel that was fetched. Throws where an update replaced it meanwhile: the device frees the arguments.
  void Run();
  // From now on, replays that fetch it take this kernel. Where order is checked it throws unless all that fetched it so far
  // come before the update.
  void Replace(std::function<void()> run);

 private:
  // What is wrong with an update now; empty where it is in order.
  std::string FindMistake() const;

  std::mutex mutex_;
  std::shared_ptr<const std::function<void()>> run_;
  std::shared_ptr<const std::function<void()>> fetched_;  // null where no replay is between Fetch and the end of Run
  std::string replaced_by_;                               // the stream of an update between them
  std::vector<Moment> runs_;                              // the last of each lane
  Moment update_;
  std::string mistake_;  // of an update, which the next replay fails with too
};

struct TaskGroup {
  // The device fetches tasks ahead of the one that it runs. Empty tasks before a group keep the group's kernels from being
  // fetched before the task before the group has ended; then all of them may be.
  void Fetch();

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
