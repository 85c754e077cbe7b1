#include "capture.h"

#include <algorithm>
#include <map>

#include "condition.h"
#include "counters.h"
#include "device.h"
#include "error_message.h"
#include "faults.h"
#include "memory.h"
#include "soc.h"
#include "submission.h"
#include "task_group.h"

namespace {

using cann_sim::Capture;
using cann_sim::Fail;
using cann_sim::Stream;
using cann_sim::StreamState;

// Captures under way by mode, over all threads and by thread. Guarded by CaptureMutex().
struct CaptureModes {
  int all[3] = {};
  std::map<std::thread::id, int[3]> by_thread;
};

CaptureModes& TheCaptureModes() {
  static auto* modes = new CaptureModes;
  return *modes;
}

// Of the queue of a stream on the device, and those of them that a capture leaves free.
constexpr size_t kQueueDepth = 2048;
constexpr size_t kReservedEntries = 32;
// What the device keeps of the arguments of one captured kernel.
constexpr size_t kArgumentBytes = 6208;

thread_local aclmdlRICaptureMode exchanged_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

void CountMode(const Capture& capture, int change) {
  CaptureModes& modes = TheCaptureModes();
  modes.all[capture.mode] += change;
  modes.by_thread[capture.thread][capture.mode] += change;
}

// The streams run tasks again, whatever became of the capture.
void Leave(Capture& capture) {
  for (Stream* stream : capture.streams) {
    stream->capture.reset();
    stream->state.store(StreamState::kRunning);
  }
  CountMode(capture, -1);
}

// What was captured of a child graph goes with its parent.
void DiscardGraph(const Capture& capture) {
  if (!capture.graph->is_child) {
    cann_sim::ForgetGraph(capture.graph.get());
  }
}

aclError HoldStream(const char* function, cann_sim::Graph& graph) {
  if (!graph.device.HoldGraphStream()) {
    return Fail(ACL_ERROR_RT_NO_STREAM_RESOURCE,
                std::string(function) + ": no stream is left for the captured graph; destroy graphs or streams "
                                        "(CANN_SIM_STREAMS sets the limit)");
  }
  ++graph.held_streams;
  return ACL_SUCCESS;
}

aclError TakeArguments(const char* function, cann_sim::Graph& graph) {
  if (!cann_sim::TakeMemory(graph.device, kArgumentBytes)) {
    return cann_sim::OutOfMemory(function, graph.device, kArgumentBytes);
  }
  graph.argument_bytes += kArgumentBytes;
  return ACL_SUCCESS;
}

std::string NameOfBranch(const Capture& capture, size_t branch) {
  return "stream " + std::to_string(capture.graph->branches[branch].stream_id);
}

// Every side stream must end in an event record that another captured stream waits for, and one must lead back to the
// stream that the capture began on.
aclError CheckJoined(const Capture& capture) {
  bool origin_waits = false;
  for (size_t branch = 1; branch < capture.graph->branches.size(); ++branch) {
    const auto& point = capture.graph->branches[branch].last_point;
    if (point == nullptr) {
      return Fail(ACL_ERROR_RT_STREAM_UNJOINED, "end of capture: the last task of " + NameOfBranch(capture, branch) +
                                                    " is not an event record, so it is not joined to the capture's " +
                                                    NameOfBranch(capture, 0));
    }
    if (!point->waited) {
      return Fail(ACL_ERROR_RT_STREAM_UNJOINED, "end of capture: no captured stream waits for the last event record of " +
                                                    NameOfBranch(capture, branch));
    }
    origin_waits = origin_waits || point->waited_by_origin;
  }
  if (capture.graph->branches.size() > 1 && !origin_waits) {
    return Fail(ACL_ERROR_RT_STREAM_UNJOINED,
                "end of capture: " + NameOfBranch(capture, 0) + ", on which the capture began, waits for no side stream");
  }
  return ACL_SUCCESS;
}

aclError CheckComplete(const Capture& capture) {
  if (!capture.invalid.empty()) {
    return Fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "end of capture: the capture became invalid: " + capture.invalid);
  }
  for (size_t branch = 0; branch < capture.open_groups.size(); ++branch) {
    if (capture.open_groups[branch] != nullptr) {
      return Fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                  "end of capture: a task group is still open on " + NameOfBranch(capture, branch));
    }
  }
  for (const auto& condition : capture.graph->conditions) {
    if (!condition->IsComplete()) {
      return Fail(ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING,
                  "end of capture: a child graph of a conditional task is not captured to its end");
    }
  }
  return CheckJoined(capture);
}

// Begins a capture into a new graph, or into `child`.
aclError Begin(const char* function, aclrtStream handle, aclmdlRICaptureMode mode, std::shared_ptr<cann_sim::Graph> child) {
  CANN_SIM_FIND_STREAM(stream, function, handle);
  if (cann_sim::TheSoc().is_inference_product) {
    return Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, std::string(function) + ": the simulated " + cann_sim::TheSoc().name +
                                                      " captures nothing; CANN documents graph capture for other products");
  }
  if (handle == nullptr || stream == &stream->device.DefaultStream()) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": the default stream cannot be captured");
  }
  if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                std::string(function) + ": expected a mode of 0, 1 or 2, found " + std::to_string(mode));
  }
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  if (stream->state.load() == StreamState::kCapturing) {
    return Fail(ACL_ERROR_RT_STREAM_CAPTURED,
                std::string(function) + ": stream " + std::to_string(stream->id) + " is already being captured");
  }
  if (stream->state.load() == StreamState::kUpdating) {
    return Fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                std::string(function) + ": stream " + std::to_string(stream->id) + " is in a task update");
  }
  if (child != nullptr && !child->branches.empty()) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": the child graph has been captured already");
  }
  auto capture = std::make_shared<Capture>();
  capture->graph = child == nullptr ? cann_sim::CreateGraph(stream->device) : child;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  const aclError error = cann_sim::Join(function, capture, *stream);
  if (error != ACL_SUCCESS) {
    DiscardGraph(*capture);
    return error;
  }
  CountMode(*capture, 1);
  return ACL_SUCCESS;
}

}  // namespace

namespace cann_sim {

std::mutex& CaptureMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

aclError RecordTask(const char* function, Stream& stream, Task task, std::shared_ptr<GraphPoint> point) {
  Capture& capture = *stream.capture;
  if (!capture.invalid.empty()) {
    return Fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
                std::string(function) + ": the capture became invalid: " + capture.invalid);
  }
  const auto& group = capture.open_groups[stream.branch];
  if (group == nullptr && std::any_of(capture.open_groups.begin(), capture.open_groups.end(),
                                      [](const auto& other) { return other != nullptr; })) {
    capture.task_group_error = ACL_ERROR_STREAM_TASK_GROUP_INTR;
    Invalidate(capture, "a task on stream " + std::to_string(stream.id) + " interrupted the task group of another stream");
    return Fail(ACL_ERROR_STREAM_TASK_GROUP_INTR, std::string(function) + ": " + capture.invalid);
  }
  if (group != nullptr && task.kind != TaskKind::kKernel) {
    return Fail(ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT,
                std::string(function) + ": only kernels may be part of a task group, found " + task.name +
                    " on stream " + std::to_string(stream.id));
  }
  aclError error = TakeQueueEntries(function, stream, task.queue_entries);
  if (error == ACL_SUCCESS && task.kind == TaskKind::kKernel) {
    error = TakeArguments(function, *capture.graph);
  }
  if (error != ACL_SUCCESS) {
    return error;
  }
  Branch& branch = capture.graph->branches[stream.branch];
  branch.tasks.push_back(std::move(task));
  branch.last_point = std::move(point);
  return ACL_SUCCESS;
}

aclError TakeQueueEntries(const char* function, Stream& stream, size_t entries) {
  Capture& capture = *stream.capture;
  Branch& branch = capture.graph->branches[stream.branch];
  if (branch.queue_entries + kReservedEntries >= kQueueDepth) {
    if (const aclError error = HoldStream(function, *capture.graph); error != ACL_SUCCESS) {
      Invalidate(capture, "no stream was left to go on with stream " + std::to_string(stream.id));
      return error;
    }
    branch.queue_entries = 0;
  }
  branch.queue_entries += entries;
  return ACL_SUCCESS;
}

aclError Join(const char* function, const std::shared_ptr<Capture>& capture, Stream& stream) {
  Graph& graph = *capture->graph;
  if (const aclError error = HoldStream(function, graph); error != ACL_SUCCESS) {
    return error;
  }
  graph.branches.push_back({stream.id, {}, nullptr});
  if (graph.branches.size() > 1) {
    graph.branches.back().ordered = std::make_unique<OrderedLane>("the branch of graph " + std::to_string(graph.id) +
                                                                  " from stream " + std::to_string(stream.id));
  }
  capture->streams.push_back(&stream);
  capture->open_groups.push_back(nullptr);
  stream.capture = capture;
  stream.branch = graph.branches.size() - 1;
  stream.state.store(StreamState::kCapturing);
  return ACL_SUCCESS;
}

void Invalidate(Capture& capture, const std::string& reason) {
  if (capture.invalid.empty()) {
    capture.invalid = reason;
  }
}

aclError RefuseBlockingCall(const char* function) {
  if (exchanged_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
    return ACL_SUCCESS;
  }
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  const CaptureModes& modes = TheCaptureModes();
  const auto own = modes.by_thread.find(std::this_thread::get_id());
  const auto has = [&](aclmdlRICaptureMode mode) { return own != modes.by_thread.end() && own->second[mode] > 0; };
  const bool refused =
      exchanged_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL
          ? modes.all[ACL_MODEL_RI_CAPTURE_MODE_GLOBAL] > 0 || has(ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL)
          : has(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL) || has(ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL);
  if (!refused) {
    return ACL_SUCCESS;
  }
  return Fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
              std::string(function) + ": a blocking call is not allowed while a stream is being captured and the capture "
                                      "mode of the thread is not relaxed");
}

}  // namespace cann_sim

extern "C" {

aclError aclmdlRICaptureBegin(aclrtStream handle, aclmdlRICaptureMode mode) {
  return Begin("aclmdlRICaptureBegin", handle, mode, nullptr);
}

// Begins the capture of a child graph of a conditional task.
aclError aclmdlRICaptureToModelRIBegin(aclrtStream handle, aclmdlRI graph, aclmdlRICaptureMode mode) {
  const std::shared_ptr<cann_sim::Graph> child = cann_sim::FindGraph(graph);
  if (child == nullptr || !child->is_child) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclmdlRICaptureToModelRIBegin: expected a child graph that aclmdlRIAddCondTask made");
  }
  return Begin("aclmdlRICaptureToModelRIBegin", handle, mode, child);
}

aclError aclmdlRICaptureGetInfo(aclrtStream handle, aclmdlRICaptureStatus* status, aclmdlRI* graph) {
  CANN_SIM_FIND_STREAM(stream, "aclmdlRICaptureGetInfo", handle);
  if (status == nullptr && graph == nullptr) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICaptureGetInfo: status and modelRI are both null pointers");
  }
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  const Capture* capture = stream->capture.get();
  if (status != nullptr) {
    *status = capture == nullptr           ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
              : capture->invalid.empty() ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
                                           : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
  }
  if (graph != nullptr) {
    *graph = capture == nullptr ? nullptr : capture->graph.get();
  }
  return ACL_SUCCESS;
}

// The capture is over when this returns, also where it returns an error, unless the stream is not the one it began on.
aclError aclmdlRICaptureEnd(aclrtStream handle, aclmdlRI* graph) {
  CANN_SIM_FIND_STREAM(stream, "aclmdlRICaptureEnd", handle);
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || !capture->graph->is_child) {
    CANN_SIM_REQUIRE_POINTER("aclmdlRICaptureEnd", graph);
  }
  aclmdlRI ignored = nullptr;
  graph = graph == nullptr ? &ignored : graph;
  *graph = nullptr;
  if (capture == nullptr) {
    return Fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED,
                "aclmdlRICaptureEnd: stream " + std::to_string(stream->id) + " is not being captured");
  }
  if (stream->branch != 0) {
    return Fail(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, "aclmdlRICaptureEnd: the capture began on stream " +
                                                           std::to_string(capture->streams[0]->id) + ", not on stream " +
                                                           std::to_string(stream->id));
  }
  aclError error = ACL_SUCCESS;
  if (capture->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id()) {
    error = Fail(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
                 "aclmdlRICaptureEnd: the capture of stream " + std::to_string(stream->id) + " began on another thread");
  } else {
    error = CheckComplete(*capture);
  }
  if (error == ACL_SUCCESS) {
    error = cann_sim::InjectFault(cann_sim::Fault::kCaptureEnd, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "aclmdlRICaptureEnd");
  }
  Leave(*capture);
  if (error != ACL_SUCCESS) {
    DiscardGraph(*capture);
    return error;
  }
  capture->graph->ready.store(true);
  ++cann_sim::TheCounters().captures;
  *graph = capture->graph.get();
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  CANN_SIM_REQUIRE_POINTER("aclmdlRICaptureThreadExchangeMode", mode);
  std::swap(exchanged_mode, *mode);
  return ACL_SUCCESS;
}

}  // extern "C"
