// A unit of work of a stream or of a captured graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "order.h"

namespace cann_sim {

enum class TaskKind {
  kKernel,
  kMemoryCopy,
  kMemorySet,
  kEventRecord,
  kEventWait,
  kEventReset,
  kValueWrite,
  kValueWait,
  kHostFunction,
  kCondition,
  kReplay,
  kTaskUpdate,
};

const char* NameOf(TaskKind kind);

struct Task {
  TaskKind kind;
  const char* name = "";      // of a kernel its aclnn name, else what NameOf says; in static memory
  std::function<void()> run;  // throws to report a failure
  uint64_t handle = 0;        // number of the event or address of the value that it concerns, for dumps
  size_t queue_entries = 1;   // of a captured stream
  Known known = nullptr;      // what had happened when it was given to its stream
  int64_t submitted = 0;      // when the host gave it to its stream, in virtual time
};

// Entries of the queue of a captured stream that tasks of more than one take on an Ascend 910B; see docs/fidelity.md.
constexpr size_t kEntriesOfWait = 4;  // for a value, or for an event that was recorded in the capture
constexpr size_t kEntriesOfIf = 2;    // and of a switch
constexpr size_t kEntriesOfWhile = 3;

inline Task MakeTask(TaskKind kind, std::function<void()> run, uint64_t handle = 0, size_t queue_entries = 1) {
  return {kind, NameOf(kind), std::move(run), handle, queue_entries};
}

// Throws where the task is a kernel that an injected fault concerns.
void FailOnPurpose(const Task& task);

// Whether other streams may wait for this task, so that a stream that failed must still run it.
inline bool Signals(TaskKind kind) {
  return kind == TaskKind::kEventRecord || kind == TaskKind::kValueWrite || kind == TaskKind::kEventReset;
}

}  // namespace cann_sim
