#include "task_group.h"

#include <acl/acl_rt.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "capture.h"
#include "clock/virtual_time.h"
#include "configuration.h"
#include "counters.h"
#include "error_message.h"
#include "faults.h"

namespace {

using cann_sim::Fail;
using cann_sim::Stream;
using cann_sim::StreamState;
using cann_sim::TaskGroup;

// Empty tasks that the device inserts before a task group.
constexpr size_t kPrefetchedTasks = 8;

// Those of living graphs, by their handles. Guarded by CaptureMutex().
std::unordered_map<void*, std::shared_ptr<TaskGroup>>& TheTaskGroups() {
  static auto* groups = new std::unordered_map<void*, std::shared_ptr<TaskGroup>>;
  return *groups;
}

std::shared_ptr<TaskGroup> FindTaskGroup(void* handle) {
  const auto found = TheTaskGroups().find(handle);
  return found == TheTaskGroups().end() ? nullptr : found->second;
}

std::string OnStream(const Stream& stream) { return " on stream " + std::to_string(stream.id); }

void EndUpdate(Stream& stream) {
  stream.updating->updating = false;
  stream.updating.reset();
  stream.updated_tasks = 0;
  stream.state.store(StreamState::kRunning, std::memory_order_release);
}

}  // namespace

namespace cann_sim {

GroupTask::GroupTask(Kernel kernel)
    : name(kernel.name), run_(std::make_shared<const std::function<void()>>(std::move(kernel.run))) {}

void GroupTask::Fetch() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (configuration::ChecksUpdates()) {
    if (!mistake_.empty()) {
      throw std::runtime_error(std::exchange(mistake_, ""));
    }
    if (!HappenedBefore(update_)) {
      throw std::runtime_error(std::string(name) + ": nothing orders this replay behind the task update on " + update_.where +
                               ", so it may take the arguments before or behind it. Capture a wait for an external event in "
                               "front of the task group, and record that event behind the update");
    }
    const Moment now = Moment::Now();
    const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Moment& moment) { return moment.lane == now.lane; });
    (run == runs_.end() ? runs_.emplace_back() : *run) = now;
  }
  fetched_ = run_;
  replaced_by_.clear();
}

void GroupTask::Run() {
  std::shared_ptr<const std::function<void()>> run;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    run = fetched_;
  }
  (*run)();
  const std::lock_guard<std::mutex> lock(mutex_);
  fetched_.reset();
  if (!replaced_by_.empty()) {
    throw std::runtime_error(std::string(name) + ": the task update on " + replaced_by_ +
                             " came while this replay was at the kernel, whose arguments it freed. Let the stream of the "
                             "updates wait for an event that is recorded behind the replay");
  }
}

std::string GroupTask::FindMistake() const {
  const std::string update = std::string(name) + ": nothing orders the task update on " + OrderedLane::Here() + " behind ";
  for (const Moment& moment : runs_) {
    if (!HappenedBefore(moment)) {
      return update + "the replay on " + moment.where +
             ", which may still need the arguments that it frees. Let the stream of the updates wait for an event that is "
             "recorded behind that replay";
    }
  }
  return HappenedBefore(update_) ? "" : update + "the one on " + update_.where + ", so either may be the last";
}

void GroupTask::Replace(std::function<void()> run) {
  auto replacement = std::make_shared<const std::function<void()>>(std::move(run));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (configuration::ChecksUpdates()) {
    if (std::string mistake = FindMistake(); !mistake.empty()) {
      mistake_ = mistake;
      throw std::runtime_error(mistake);
    }
    runs_.clear();
    update_ = Moment::Now();
  }
  if (fetched_ != nullptr) {
    replaced_by_ = OrderedLane::Here();
  }
  run_.swap(replacement);
}

void TaskGroup::Fetch() {
  clock::SpendOnEmptyTasks(kPrefetchedTasks);
  for (const auto& task : tasks) {
    task->Fetch();
  }
}

std::shared_ptr<TaskGroup> OpenTaskGroup(const Stream& stream) { return stream.capture->open_groups[stream.branch]; }

aclError UpdateTask(Stream& stream, Kernel kernel) {
  if (const aclError error = InjectFault(Fault::kTaskUpdate, ACL_ERROR_RT_INTERNAL_ERROR, "task update", kernel.name);
      error != ACL_SUCCESS) {
    return error;
  }
  const TaskGroup& group = *stream.updating;
  if (stream.updated_tasks >= group.tasks.size()) {
    return Fail(ACL_ERROR_RT_INTERNAL_ERROR, "task update" + OnStream(stream) + ": the task group has " +
                                                 std::to_string(group.tasks.size()) + " kernels, " + kernel.name +
                                                 " is one more");
  }
  const std::shared_ptr<GroupTask>& task = group.tasks[stream.updated_tasks];
  if (task->name != kernel.name && std::strcmp(task->name, kernel.name) != 0) {
    return Fail(ACL_ERROR_RT_INTERNAL_ERROR, "task update" + OnStream(stream) + ": expected the kernel " + task->name +
                                                 ", which was captured, found " + kernel.name);
  }
  ++stream.updated_tasks;
  ++TheCounters().updated_launches;
  // One null kernel is like another; without memory of its own such an update costs the host what a launch costs it.
  stream.Enqueue(configuration::KernelsAreNull() && !clock::kIsOn
                     ? MakeTask(TaskKind::kTaskUpdate, [] {})
                     : MakeTask(TaskKind::kTaskUpdate,
                                [task, run = std::move(kernel.run)]() mutable { task->Replace(std::move(run)); }));
  return ACL_SUCCESS;
}

void ForgetTaskGroups(const std::vector<std::shared_ptr<TaskGroup>>& groups) {
  for (const auto& group : groups) {
    TheTaskGroups().erase(group.get());
  }
}

}  // namespace cann_sim

extern "C" {

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclmdlRICaptureTaskGrpBegin", handle);
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  if (stream->state.load() == StreamState::kUpdating || (stream->capture && cann_sim::OpenTaskGroup(*stream))) {
    return Fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "aclmdlRICaptureTaskGrpBegin: a task group or a task update is already open" + OnStream(*stream));
  }
  if (stream->capture == nullptr) {
    return Fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED,
                "aclmdlRICaptureTaskGrpBegin: expected a stream that is being captured; nothing is captured" +
                    OnStream(*stream));
  }
  // In front of the kernels, so that none of them is fetched before it is updated.
  for (size_t task = 0; task < kPrefetchedTasks; ++task) {
    if (const aclError error = cann_sim::TakeQueueEntries("aclmdlRICaptureTaskGrpBegin", *stream, 1); error != ACL_SUCCESS) {
      return error;
    }
  }
  stream->capture->open_groups[stream->branch] = std::make_shared<TaskGroup>();
  return ACL_SUCCESS;
}

// The handle is valid until the graph is destroyed.
aclError aclmdlRICaptureTaskGrpEnd(aclrtStream handle, aclrtTaskGrp* group_handle) {
  CANN_SIM_FIND_STREAM(stream, "aclmdlRICaptureTaskGrpEnd", handle);
  CANN_SIM_REQUIRE_POINTER("aclmdlRICaptureTaskGrpEnd", group_handle);
  *group_handle = nullptr;
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  if (stream->capture == nullptr || cann_sim::OpenTaskGroup(*stream) == nullptr) {
    return Fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "aclmdlRICaptureTaskGrpEnd: no task group was begun" + OnStream(*stream));
  }
  cann_sim::Capture& capture = *stream->capture;
  std::shared_ptr<TaskGroup> group;
  group.swap(capture.open_groups[stream->branch]);
  if (!capture.invalid.empty()) {
    return Fail(capture.task_group_error != ACL_SUCCESS ? capture.task_group_error : ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
                "aclmdlRICaptureTaskGrpEnd: the capture became invalid: " + capture.invalid);
  }
  group->closed = true;
  capture.graph->task_groups.push_back(group);
  *group_handle = group.get();
  TheTaskGroups()[group.get()] = group;
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream handle, aclrtTaskGrp group_handle) {
  CANN_SIM_FIND_STREAM(stream, "aclmdlRICaptureTaskUpdateBegin", handle);
  CANN_SIM_REQUIRE_POINTER("aclmdlRICaptureTaskUpdateBegin", group_handle);
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  if (stream->state.load() == StreamState::kCapturing) {
    return Fail(ACL_ERROR_RT_STREAM_CAPTURED,
                "aclmdlRICaptureTaskUpdateBegin: a capture is under way" + OnStream(*stream) +
                    "; a task update needs a stream that is not captured");
  }
  if (stream->state.load() == StreamState::kUpdating) {
    return Fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "aclmdlRICaptureTaskUpdateBegin: a task update is already open" + OnStream(*stream));
  }
  std::shared_ptr<TaskGroup> group = FindTaskGroup(group_handle);
  if (group == nullptr) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclmdlRICaptureTaskUpdateBegin: the task group handle is unknown; was its graph destroyed?");
  }
  if (group->updating) {
    return Fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "aclmdlRICaptureTaskUpdateBegin: the task group is being updated on another stream");
  }
  group->updating = true;
  stream->updating = std::move(group);
  stream->updated_tasks = 0;
  stream->state.store(StreamState::kUpdating, std::memory_order_release);
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclmdlRICaptureTaskUpdateEnd", handle);
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  if (stream->state.load() == StreamState::kCapturing) {
    return Fail(ACL_ERROR_RT_STREAM_CAPTURED,
                "aclmdlRICaptureTaskUpdateEnd: a capture is under way" + OnStream(*stream));
  }
  if (stream->state.load() != StreamState::kUpdating) {
    return Fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "aclmdlRICaptureTaskUpdateEnd: no task update was begun" + OnStream(*stream));
  }
  const size_t expected = stream->updating->tasks.size();
  const size_t found = stream->updated_tasks;
  EndUpdate(*stream);
  if (found != expected) {
    return Fail(ACL_ERROR_RT_INTERNAL_ERROR, "aclmdlRICaptureTaskUpdateEnd: the task group has " +
                                                 std::to_string(expected) + " kernels, " + std::to_string(found) +
                                                 " were launched in the update" + OnStream(*stream));
  }
  ++cann_sim::TheCounters().task_updates;
  return ACL_SUCCESS;
}

}  // extern "C"
