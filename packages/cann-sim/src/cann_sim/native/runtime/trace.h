// What the device and the host did, as a file in the trace event format of Chrome, which Perfetto opens. CANN_SIM_TRACE
// names the file. Each stream, each side branch of a graph and each host thread has a track of its own; an arrow goes from
// the record of an external event to the wait that it ended. Times are those of the monotonic clock, so that
// times measured by the program itself can be compared with them. With CANN_SIM_CLOCK they are virtual, and a wait says when
// it was reached, when what it waits for happened, and how long it stalled.
#pragma once

#include <cstdint>
#include <string>

#include "task.h"

namespace cann_sim {

// Whether CANN_SIM_TRACE is set; where it is not, spans do nothing.
extern const bool kTraced;

// While it lives, what the calling thread does has this name, on the track of the thread.
class Span {
 public:
  // A call of the host.
  explicit Span(const char* function) {
    if (kTraced) {
      Begin("host", function);
    }
  }
  // A task of a stream or of a graph.
  explicit Span(const Task& task) {
    if (kTraced) {
      kind_ = task.kind;
      handle_ = task.handle;
      Begin(CategoryOf(task.kind), task.name);
    }
  }
  // Anything else; `name` is only called where there is a trace.
  template <class Name>
  Span(const char* category, const Name& name) {
    if (kTraced) {
      Begin(category, name());
    }
  }
  ~Span() {
    if (kTraced) {
      End();
    }
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  static const char* CategoryOf(TaskKind kind);
  void Begin(const char* category, std::string name);
  void End();

  const char* category_ = "";
  std::string name_;
  TaskKind kind_ = TaskKind::kHostFunction;  // where it is a task
  uint64_t handle_ = 0;
  int64_t begin_ = 0;  // nanoseconds
};

// Makes the calling thread's spans those of a stream, or of a side branch of a graph.
void TraceAsStream(int32_t device, int32_t stream);
void TraceAsBranch(int32_t device, uint32_t graph, size_t branch, int32_t stream);

}  // namespace cann_sim
