// Conditional tasks of captured graphs: a value in device memory decides which child graphs run in their place.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "conditional_tasks.h"

namespace cann_sim {

class Graph;

// One condition of a graph under capture. The graph owns it, and it owns the child graphs, so all die together.
class Condition {
 public:
  Condition(Graph& parent, uint32_t default_value, bool assigns_default, uint64_t* value)
      : parent(parent), value(value), default_value_(default_value), assigns_default_(assigns_default) {}
  ~Condition();
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  Graph& parent;
  uint64_t* const value;  // in device memory
  aclmdlRICondTaskType type = ACL_MODEL_RI_COND_TYPE_IF;
  std::vector<std::shared_ptr<Graph>> children;  // empty until a task uses the condition

  // Puts the default value in place, here and in the children, if requested.
  void Reset();
  // Runs the children that the value selects, on the calling thread.
  void Run();
  // Whether all children are captured.
  bool IsComplete() const;

 private:
  const uint32_t default_value_;
  const bool assigns_default_;
};

}  // namespace cann_sim
