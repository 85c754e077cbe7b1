#include "graph.h"

#include <acl/acl_rt.h>

#include <exception>
#include <map>

#include "branch_workers.h"
#include "capture.h"
#include "clock/virtual_time.h"
#include "condition.h"
#include "counters.h"
#include "device.h"
#include "error_message.h"
#include "memory.h"
#include "monitor.h"
#include "submission.h"
#include "task_group.h"
#include "trace.h"

namespace {

using cann_sim::Graph;

struct GraphHandles {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<Graph>> graphs;
  uint32_t next_id = 1;
};

GraphHandles& TheGraphHandles() {
  static auto* handles = new GraphHandles;
  return *handles;
}

// With the lock of the handles held.
void Forget(GraphHandles& handles, const std::shared_ptr<Graph>& graph) {
  handles.graphs.erase(graph.get());
  cann_sim::ForgetTaskGroups(graph->task_groups);
  for (const auto& condition : graph->conditions) {
    for (const auto& child : condition->children) {
      Forget(handles, child);
    }
  }
}

// Why the device of the calling worker has stopped, as what a task would have thrown; null where it works.
std::exception_ptr WhyThisDeviceStopped() {
  const std::shared_ptr<const cann_sim::StreamFailure> failure = cann_sim::StopOfThisDevice()->failure();
  return failure == nullptr ? nullptr
                            : std::make_exception_ptr(cann_sim::DeviceFailure(failure->code, failure->what));
}

// Runs the tasks in order; after a failure only those that others wait for. Returns the first failure.
std::exception_ptr RunBranch(std::vector<cann_sim::Task>& tasks) {
  std::exception_ptr failure;
  uint64_t kernels = 0;
  cann_sim::Progress::Branch progress(tasks);
  for (cann_sim::Task& task : tasks) {
    progress.Next();
    if (failure == nullptr) {
      failure = WhyThisDeviceStopped();
    }
    if (failure != nullptr && !cann_sim::Signals(task.kind)) {
      continue;
    }
    cann_sim::TheSchedule().Step();
    cann_sim::clock::BeginTask(task);
    const cann_sim::Span span(task);
    try {
      cann_sim::clock::BeforeRun(task);
      cann_sim::FailOnPurpose(task);
      task.run();
      cann_sim::clock::AfterRun(task);
      kernels += task.kind == cann_sim::TaskKind::kKernel;
    } catch (const cann_sim::Stopped&) {
      return std::current_exception();
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    cann_sim::TheMonitor().MemoryChanged();
  }
  cann_sim::TheCounters().replayed_kernels += kernels;
  return failure;
}

aclError UnknownGraph(const char* function) {
  return cann_sim::Fail(ACL_ERROR_RT_PARAM_INVALID,
                        std::string(function) + ": the graph handle is unknown; was the graph destroyed?");
}

aclError RefuseChild(const char* function) {
  return cann_sim::Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                        std::string(function) + ": the graph is the child of a conditional task");
}

}  // namespace

namespace cann_sim {

Graph::~Graph() {
  for (size_t stream = 0; stream < held_streams; ++stream) {
    device.ReleaseGraphStream();
  }
  GiveMemoryBack(device, argument_bytes);
}

// While it lives, no other replay of the graph runs.
class Graph::Turn {
 public:
  explicit Turn(Graph& graph) : graph_(graph) {
    const uint64_t mine = graph_.next_turn_++;
    TheMonitor().Wait([this] { return "another replay of graph " + std::to_string(graph_.id) + " to end"; },
                      [this, mine] { return graph_.turn_ == mine; });
    TakeKnown(TheMonitor().Look([this] { return graph_.known_; }));
  }
  ~Turn() {
    TheMonitor().Update([this] {
      graph_.known_ = TellKnown();
      ++graph_.turn_;
    });
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Graph& graph_;
};

void Graph::Replay() {
  const Turn turn(*this);
  ResetConditions();
  RunTasks();
}

void Graph::ResetConditions() {
  for (const auto& condition : conditions) {
    condition->Reset();
  }
}

// Branch 0 runs on the calling thread, the others concurrently.
void Graph::RunTasks() {
  TheMonitor().Update([this] {
    for (const auto& point : points) {
      point->done = false;
    }
  });
  size_t running = branches.size() - 1;
  std::vector<std::exception_ptr> failures(branches.size());
  const Known begun = TellKnown();
  std::vector<Known> ended(branches.size());
  for (size_t branch = 1; branch < branches.size(); ++branch) {
    RunBesides("the branch of graph " + std::to_string(id) + " from stream " + std::to_string(branches[branch].stream_id),
               [this, branch, &failures, &begun, &ended] {
                 const OnLane on(*branches[branch].ordered);
                 WorkForDevice(device.stop);
                 TakeKnown(begun);
                 TraceAsBranch(device.id, id, branch, branches[branch].stream_id);
                 const Span span("replay", [this] { return "graph " + std::to_string(id); });
                 failures[branch] = RunBranch(branches[branch].tasks);
                 ended[branch] = TellKnown();
               },
               [&running] { --running; });
  }
  {
    const Progress::Within within(", graph " + std::to_string(id));
    const Span span("replay", [this] { return "graph " + std::to_string(id); });
    failures[0] = RunBranch(branches[0].tasks);
  }
  TheMonitor().WaitForAll(running);
  for (const Known& known : ended) {
    TakeKnown(known);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr) {
      std::rethrow_exception(failure);
    }
  }
}

std::shared_ptr<Graph> CreateGraph(Device& device) {
  GraphHandles& handles = TheGraphHandles();
  const std::lock_guard<std::mutex> lock(handles.mutex);
  auto graph = std::make_shared<Graph>(device, handles.next_id++);
  handles.graphs[graph.get()] = graph;
  return graph;
}

std::shared_ptr<Graph> FindGraph(void* handle) {
  GraphHandles& handles = TheGraphHandles();
  const std::lock_guard<std::mutex> lock(handles.mutex);
  const auto found = handles.graphs.find(handle);
  return found == handles.graphs.end() ? nullptr : found->second;
}

std::shared_ptr<Graph> ForgetGraph(void* handle) {
  GraphHandles& handles = TheGraphHandles();
  const std::lock_guard<std::mutex> lock(handles.mutex);
  const auto found = handles.graphs.find(handle);
  if (found == handles.graphs.end()) {
    return nullptr;
  }
  std::shared_ptr<Graph> graph = found->second;
  Forget(handles, graph);
  return graph;
}

std::vector<std::shared_ptr<Graph>> LivingGraphs() {
  GraphHandles& handles = TheGraphHandles();
  const std::lock_guard<std::mutex> lock(handles.mutex);
  std::vector<std::shared_ptr<Graph>> graphs;
  for (const auto& [handle, graph] : handles.graphs) {
    graphs.push_back(graph);
  }
  return graphs;
}

std::shared_ptr<Graph> FindReplayableGraph(const char* function, void* handle) {
  std::shared_ptr<Graph> graph = FindGraph(handle);
  if (graph == nullptr) {
    UnknownGraph(function);
  } else if (graph->is_child) {
    RefuseChild(function);
    graph = nullptr;
  } else if (!graph->ready) {
    Fail(ACL_ERROR_RT_MODEL_CAPTURED,
         std::string(function) + ": graph " + std::to_string(graph->id) + " is still being captured");
    graph = nullptr;
  }
  return graph;
}

}  // namespace cann_sim

extern "C" {

aclError aclmdlRIExecuteAsync(aclmdlRI handle, aclrtStream stream_handle) {
  CANN_SIM_FIND_STREAM(stream, "aclmdlRIExecuteAsync", stream_handle);
  const std::shared_ptr<Graph> graph = cann_sim::FindReplayableGraph("aclmdlRIExecuteAsync", handle);
  if (graph == nullptr) {
    return cann_sim::LastError();
  }
  if (const aclError error = stream->device.stop.Refuse("aclmdlRIExecuteAsync"); error != ACL_SUCCESS) {
    return error;
  }
  if (stream->state.load() != cann_sim::StreamState::kRunning) {
    return cann_sim::Fail(ACL_ERROR_RT_STREAM_CAPTURED, "aclmdlRIExecuteAsync: stream " + std::to_string(stream->id) +
                                                            " is capturing or in a task update");
  }
  ++cann_sim::TheCounters().replays;
  stream->Enqueue(cann_sim::MakeTask(cann_sim::TaskKind::kReplay, [graph] { graph->Replay(); }));
  return ACL_SUCCESS;
}

aclError aclmdlRIExecute(aclmdlRI handle, int32_t timeout) {
  const aclError launched = aclmdlRIExecuteAsync(handle, nullptr);
  return launched != ACL_SUCCESS ? launched : aclrtSynchronizeStreamWithTimeout(nullptr, timeout);
}

// Safe while a replay runs: the graph lives until the replay has ended.
aclError aclmdlRIDestroy(aclmdlRI handle) {
  if (const std::shared_ptr<Graph> graph = cann_sim::FindGraph(handle); graph != nullptr && graph->is_child) {
    return RefuseChild("aclmdlRIDestroy");
  }
  std::shared_ptr<Graph> graph;  // destroyed after the lock is released
  {
    const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
    graph = cann_sim::ForgetGraph(handle);
  }
  return graph != nullptr ? ACL_SUCCESS : UnknownGraph("aclmdlRIDestroy");
}

aclError aclmdlRIGetId(aclmdlRI handle, uint32_t* id) {
  CANN_SIM_REQUIRE_POINTER("aclmdlRIGetId", id);
  const std::shared_ptr<Graph> graph = cann_sim::FindGraph(handle);
  if (graph == nullptr) {
    return UnknownGraph("aclmdlRIGetId");
  }
  *id = graph->id;
  return ACL_SUCCESS;
}

}  // extern "C"
