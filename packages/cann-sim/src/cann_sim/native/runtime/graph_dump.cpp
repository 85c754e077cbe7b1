// What a captured graph is made of, as JSON in the trace format of Chrome, which torch_npu aligns for reading.

#include <acl/acl_rt.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "error_message.h"
#include "graph.h"

namespace {

using cann_sim::Branch;
using cann_sim::Fail;
using cann_sim::Graph;
using cann_sim::Task;
using cann_sim::TaskKind;

constexpr uint32_t kVerbose = 1;

// Times are not known: a task of each sort has a width of its own, so that the picture can be read.
uint32_t WidthOf(TaskKind kind) {
  switch (kind) {
    case TaskKind::kEventRecord:
    case TaskKind::kValueWrite: return 5;
    case TaskKind::kEventWait:
    case TaskKind::kValueWait: return 15;
    default: return 10;
  }
}

std::string TypeOf(const Task& task) { return task.kind == TaskKind::kKernel ? "KERNEL_AICORE" : NameOf(task.kind); }

std::string DescribeTask(const Graph& graph, const Branch& branch, size_t index, uint32_t start) {
  const Task& task = branch.tasks[index];
  const std::string stream = std::to_string(branch.stream_id);
  const std::string name = task.name + (task.handle == 0 ? "" : "_" + std::to_string(task.handle));
  return R"({"name":")" + name + R"(","pid":")" + std::to_string(getpid()) + R"( aclGraph","tid":"stream)" + stream +
         R"(","ts":)" + std::to_string(start) + R"(,"dur":)" + std::to_string(WidthOf(task.kind) - 1) +
         R"(,"ph":"X","args":{"Model Id":)" + std::to_string(graph.id) + R"(,"Stream Id":)" + stream +
         R"(,"Task Id":)" + std::to_string(index) + R"(,"Task Type":")" + TypeOf(task) + "\"}}";
}

std::string DescribeGraph(const Graph& graph) {
  std::string text = "[";
  const char* separator = "\n";
  for (const Branch& branch : graph.branches) {
    uint32_t start = 0;
    for (size_t index = 0; index < branch.tasks.size(); ++index) {
      text += separator + DescribeTask(graph, branch, index, start);
      separator = ",\n";
      start += WidthOf(branch.tasks[index].kind);
    }
  }
  return text + "\n]";
}

}  // namespace

extern "C" {

// The arguments of kernels, which flag 1 requests, are not known to the runtime; the other members are the same.
aclError aclmdlRIDebugJsonPrint(aclmdlRI handle, const char* path, uint32_t flags) {
  CANN_SIM_REQUIRE_POINTER("aclmdlRIDebugJsonPrint", path);
  const std::shared_ptr<Graph> graph = cann_sim::FindReplayableGraph("aclmdlRIDebugJsonPrint", handle);
  if (graph == nullptr) {
    return cann_sim::LastError();
  }
  if (flags > kVerbose) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclmdlRIDebugJsonPrint: expected flags of 0 or 1, found " + std::to_string(flags));
  }
  std::ofstream file(path);
  file << DescribeGraph(*graph);
  file.close();
  return file ? ACL_SUCCESS
              : Fail(ACL_ERROR_RT_PARAM_INVALID, std::string("aclmdlRIDebugJsonPrint: cannot write to ") + path);
}

// Writes to the log of the device, of which a simulated device has none.
aclError aclmdlRIDebugPrint(aclmdlRI handle) {
  return cann_sim::FindReplayableGraph("aclmdlRIDebugPrint", handle) == nullptr ? cann_sim::LastError() : ACL_SUCCESS;
}

}  // extern "C"
