// A captured graph: the tasks of each captured stream in order, and the events between them.
#pragma once

#include <acl/acl_base_rt.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "order.h"
#include "task.h"

namespace cann_sim {

class Condition;
struct Device;
class Stream;
struct TaskGroup;

// An event record inside a graph. Every replay begins with all of them undone.
struct GraphPoint {
  bool done = false;  // guarded by the monitor, as is what had happened before it
  Known known;
  bool waited = false;
  bool waited_by_origin = false;
  size_t branch = 0;
  uint32_t number = 0;  // among the records of the graph, from 1
};

struct Branch {
  int32_t stream_id;
  std::vector<Task> tasks;
  // The point that the last task records, or null where the last task is something else.
  std::shared_ptr<GraphPoint> last_point;
  // Taken in the queue of the last of its streams on the device.
  size_t queue_entries = 0;
  // Of a side branch; the first runs in the lane that replays the graph.
  std::unique_ptr<OrderedLane> ordered = nullptr;
};

class Graph {
 public:
  Graph(Device& device, uint32_t id) : device(device), id(id) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Device& device;
  const uint32_t id;

  // Branch 0 is the stream that the capture began on. Complete once `ready`.
  std::vector<Branch> branches;
  std::vector<std::shared_ptr<GraphPoint>> points;
  std::vector<std::shared_ptr<TaskGroup>> task_groups;
  std::vector<std::shared_ptr<Condition>> conditions;
  size_t held_streams = 0;    // of the device: one a branch, and more where a branch is long
  size_t argument_bytes = 0;  // memory of the device that holds the arguments of kernels
  bool is_child = false;  // of a conditional task, in whose place it runs
  std::atomic<bool> ready{false};

  // Runs the graph to its end. Two replays of one graph run one after the other. Throws what the first task that failed
  // threw.
  void Replay();
  // The same for a child graph, within the replay of its parent.
  void RunTasks();
  void ResetConditions();

 private:
  // Replays take turns, in the order in which their streams came to them.
  class Turn;
  std::atomic<uint64_t> next_turn_{0};
  uint64_t turn_ = 0;  // guarded by the monitor, as is what had happened at the end of the last
  Known known_;
};

// Handles of graphs, so that a destroyed one is refused and a running one lives until its replay ends.
std::shared_ptr<Graph> FindGraph(void* handle);
std::vector<std::shared_ptr<Graph>> LivingGraphs();
std::shared_ptr<Graph> CreateGraph(Device& device);
// The graph where it may be replayed on its own; null with an error set where it may not.
std::shared_ptr<Graph> FindReplayableGraph(const char* function, void* handle);
// The graph, whose handle and those of its task groups are unknown from now on; null where it is unknown. With CaptureMutex()
// held.
std::shared_ptr<Graph> ForgetGraph(void* handle);

}  // namespace cann_sim
