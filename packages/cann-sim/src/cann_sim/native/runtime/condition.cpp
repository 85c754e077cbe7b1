#include "condition.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "capture.h"
#include "configuration.h"
#include "device.h"
#include "error_message.h"
#include "graph.h"
#include "monitor.h"
#include "submission.h"

namespace {

using cann_sim::Condition;
using cann_sim::Fail;
using cann_sim::Graph;
using cann_sim::Stream;
using cann_sim::StreamState;

// The condition of a handle, which is its address; null where no living graph owns it.
std::shared_ptr<Condition> FindCondition(aclmdlRICondHandle handle) {
  for (const std::shared_ptr<Graph>& graph : cann_sim::LivingGraphs()) {
    for (const std::shared_ptr<Condition>& condition : graph->conditions) {
      if (condition.get() == handle) {
        return condition;
      }
    }
  }
  return nullptr;
}

bool FitsType(const aclmdlRICondTaskParams& parameters) {
  switch (parameters.type) {
    case ACL_MODEL_RI_COND_TYPE_IF: return parameters.size == 1 || parameters.size == 2;
    case ACL_MODEL_RI_COND_TYPE_WHILE: return parameters.size == 1;
    case ACL_MODEL_RI_COND_TYPE_SWITCH: return parameters.size > 0;
  }
  return false;
}

uint64_t Load(const uint64_t* value) { return __atomic_load_n(value, __ATOMIC_SEQ_CST); }

// Whether the graph is under capture on some stream. With CaptureMutex() held.
bool IsCaptured(const Graph& graph) {
  const std::vector<Stream*> streams = graph.device.Streams();
  return std::any_of(streams.begin(), streams.end(), [&](const Stream* stream) {
    return stream->capture != nullptr && stream->capture->graph.get() == &graph;
  });
}

}  // namespace

namespace cann_sim {

Condition::~Condition() { aclrtFree(value); }

void Condition::Reset() {
  if (assigns_default_) {
    TheMonitor().Update([this] { __atomic_store_n(value, default_value_, __ATOMIC_SEQ_CST); });
  }
  for (const std::shared_ptr<Graph>& child : children) {
    child->ResetConditions();
  }
}

void Condition::Run() {
  const uint64_t chosen = Load(value);
  switch (type) {
    case ACL_MODEL_RI_COND_TYPE_IF:
      if (chosen != 0) {
        children[0]->RunTasks();
      } else if (children.size() > 1) {
        children[1]->RunTasks();
      }
      break;
    case ACL_MODEL_RI_COND_TYPE_WHILE:
      while (Load(value) != 0) {
        children[0]->RunTasks();
        if (TheMonitor().stopped()) {
          throw Stopped();
        }
        if (configuration::KernelsAreNull()) {
          break;  // no kernel will ever change the value
        }
      }
      break;
    case ACL_MODEL_RI_COND_TYPE_SWITCH:
      if (chosen < children.size()) {
        children[chosen]->RunTasks();
      }
      break;
  }
}

bool Condition::IsComplete() const {
  return std::all_of(children.begin(), children.end(),
                     [](const std::shared_ptr<Graph>& child) { return child->ready.load(); });
}

}  // namespace cann_sim

extern "C" {

aclError aclmdlRICondHandleCreate(aclmdlRI graph_handle, uint32_t default_value, aclmdlRICondHandleFlag flag,
                                  aclmdlRICondHandle* handle) {
  CANN_SIM_REQUIRE_USABLE("aclmdlRICondHandleCreate");
  CANN_SIM_REQUIRE_POINTER("aclmdlRICondHandleCreate", handle);
  if (flag != 0 && flag != ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclmdlRICondHandleCreate: expected a flag of 0 or 1, found " + std::to_string(flag));
  }
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  const std::shared_ptr<Graph> graph = cann_sim::FindGraph(graph_handle);
  if (graph == nullptr || !IsCaptured(*graph)) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICondHandleCreate: expected a graph that is being captured");
  }
  void* value = nullptr;
  if (const aclError error = aclrtMalloc(&value, sizeof(uint64_t), ACL_MEM_MALLOC_HUGE_FIRST); error != ACL_SUCCESS) {
    return error;
  }
  *static_cast<uint64_t*>(value) = 0;
  graph->conditions.push_back(std::make_shared<Condition>(
      *graph, default_value, flag == ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, static_cast<uint64_t*>(value)));
  *handle = graph->conditions.back().get();
  return ACL_SUCCESS;
}

aclError aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t** value) {
  CANN_SIM_REQUIRE_POINTER("aclmdlRICondHandleGetCondPtr", value);
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  const std::shared_ptr<Condition> condition = FindCondition(handle);
  if (condition == nullptr) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICondHandleGetCondPtr: the condition handle is unknown");
  }
  *value = condition->value;
  return ACL_SUCCESS;
}

// Makes the child graphs, whose handles are written to the array of the parameters; each is captured before the capture of
// the parent ends.
aclError aclmdlRIAddCondTask(aclmdlRICondTaskParams parameters, aclrtStream handle, uint32_t /*flags*/) {
  CANN_SIM_FIND_STREAM(stream, "aclmdlRIAddCondTask", handle);
  CANN_SIM_REQUIRE_POINTER("aclmdlRIAddCondTask", parameters.modelRIArray);
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  const std::shared_ptr<Condition> condition = FindCondition(parameters.handle);
  if (condition == nullptr || !condition->children.empty()) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string("aclmdlRIAddCondTask: the condition handle is ") +
                                                (condition == nullptr ? "unknown" : "used by a task already"));
  }
  if (stream->capture == nullptr) {
    return Fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED,
                "aclmdlRIAddCondTask: stream " + std::to_string(stream->id) + " is not being captured");
  }
  if (stream->capture->graph.get() != &condition->parent) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIAddCondTask: the condition belongs to another graph than the one that "
                                            "stream " + std::to_string(stream->id) + " captures");
  }
  if (!FitsType(parameters)) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclmdlRIAddCondTask: expected 1 or 2 graphs for if, 1 for while, 1 or more for switch, found type " +
                    std::to_string(parameters.type) + " with " + std::to_string(parameters.size));
  }
  const size_t entries =
      parameters.type == ACL_MODEL_RI_COND_TYPE_WHILE ? cann_sim::kEntriesOfWhile : cann_sim::kEntriesOfIf;
  const aclError error = cann_sim::RecordTask(
      "aclmdlRIAddCondTask", *stream,
      cann_sim::MakeTask(cann_sim::TaskKind::kCondition, [condition = condition.get()] { condition->Run(); }, 0, entries));
  if (error != ACL_SUCCESS) {
    return error;
  }
  condition->type = parameters.type;
  for (uint32_t index = 0; index < parameters.size; ++index) {
    condition->children.push_back(cann_sim::CreateGraph(stream->device));
    condition->children.back()->is_child = true;
    parameters.modelRIArray[index] = condition->children.back().get();
  }
  return ACL_SUCCESS;
}

}  // extern "C"
