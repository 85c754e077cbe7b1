#include "submission.h"

#include <memory>

#include "capture.h"
#include "clock/virtual_time.h"
#include "configuration.h"
#include "counters.h"
#include "device.h"
#include "error_message.h"
#include "faults.h"
#include "memory_check.h"
#include "schedule.h"
#include "task_group.h"

namespace {

using cann_sim::Fail;
using cann_sim::Stream;
using cann_sim::StreamState;
using cann_sim::Task;
using cann_sim::TaskKind;

aclError LaunchWhileCapturing(Stream& stream, cann_sim::Kernel kernel) {
  std::shared_ptr<cann_sim::TaskGroup> group = cann_sim::OpenTaskGroup(stream);
  Task task{TaskKind::kKernel, kernel.name, nullptr};
  std::shared_ptr<cann_sim::GroupTask> group_task;
  if (group != nullptr) {
    group_task = std::make_shared<cann_sim::GroupTask>(std::move(kernel));
    if (group->tasks.empty()) {
      task.run = [group, group_task] {
        group->Fetch();
        cann_sim::TheSchedule().Step();
        group_task->Run();
      };
    } else {
      task.run = [group_task] { group_task->Run(); };
    }
  } else {
    task.run = std::move(kernel.run);
  }
  const aclError error = cann_sim::RecordTask("launch of a kernel", stream, std::move(task));
  if (error == ACL_SUCCESS && group != nullptr) {
    group->tasks.push_back(std::move(group_task));
  }
  return error;
}

// Gives the kernel to its stream: to run, to capture, or to update a task group.
aclError GiveKernel(Stream& stream, cann_sim::Kernel kernel) {
  if (stream.state.load(std::memory_order_acquire) != StreamState::kRunning) {
    const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
    const StreamState state = stream.state.load();
    if (state == StreamState::kCapturing) {
      ++cann_sim::TheCounters().captured_launches;
      return LaunchWhileCapturing(stream, std::move(kernel));
    }
    if (state == StreamState::kUpdating) {
      return cann_sim::UpdateTask(stream, std::move(kernel));
    }
  }
  ++cann_sim::TheCounters().launches;
  stream.Enqueue({TaskKind::kKernel, kernel.name, std::move(kernel.run)});
  return ACL_SUCCESS;
}

}  // namespace

namespace cann_sim {

bool KernelsAreNull() { return configuration::KernelsAreNull(); }

aclError LaunchKernel(aclrtStream handle, Kernel kernel) {
  CANN_SIM_FIND_STREAM(stream, kernel.name, handle);
  if (const aclError error = InjectFault(Fault::kLaunch, ACL_ERROR_RT_DRV_INTERNAL_ERROR, "launch", kernel.name);
      error != ACL_SUCCESS) {
    return error;
  }
  CountLaunch(kernel.name);
  if (configuration::KernelsAreNull()) {
    kernel.run = [] {};
  }
  if (clock::kIsOn) {
    kernel.run = [run = std::move(kernel.run), duration = kernel.duration == 0 ? KernelTime({}) : kernel.duration] {
      run();
      clock::Spend(duration);
    };
  }
  kernel.run = Checked(kernel.name, std::move(kernel.accesses), stream->state.load() != StreamState::kRunning,
                       std::move(kernel.run));
  if (FaultIsDue(Fault::kTwoKernels, kernel.name)) {
    if (const aclError error = GiveKernel(*stream, {kernel.name, [] {}}); error != ACL_SUCCESS) {
      return error;
    }
  }
  return GiveKernel(*stream, std::move(kernel));
}

aclError Submit(const char* function, Stream& stream, Task task) {
  if (stream.state.load(std::memory_order_acquire) != StreamState::kRunning) {
    const std::lock_guard<std::mutex> lock(CaptureMutex());
    const StreamState state = stream.state.load();
    if (state == StreamState::kCapturing) {
      return RecordTask(function, stream, std::move(task));
    }
    if (state == StreamState::kUpdating && task.kind != TaskKind::kEventRecord) {
      return Fail(ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT,
                  std::string(function) + ": stream " + std::to_string(stream.id) +
                      " is between task update begin and end, where only kernels of the task group may be launched");
    }
  }
  stream.Enqueue(std::move(task));
  return ACL_SUCCESS;
}

aclError RefuseWhileCapturing(const char* function, const Stream& stream, const char* what) {
  if (stream.state.load() != StreamState::kCapturing) {
    return ACL_SUCCESS;
  }
  return Fail(ACL_ERROR_RT_STREAM_CAPTURED, std::string(function) + ": " + what + " is not allowed while stream " +
                                                std::to_string(stream.id) + " is being captured");
}

}  // namespace cann_sim
