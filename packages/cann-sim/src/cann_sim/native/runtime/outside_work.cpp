#include "outside_work.h"

#include "monitor.h"
#include "schedule.h"
#include "trace.h"

namespace cann_sim {

struct OutsideWork::Parts {
  explicit Parts(const std::function<std::string()>& what) : span("wait", what) {}

  const Schedule::Outside outside;
  const Span span;
};

OutsideWork::OutsideWork(const std::function<std::string()>& what) : parts_(std::make_unique<Parts>(what)) {}

OutsideWork::~OutsideWork() = default;

void OutsideWork::CheckProcess() {
  if (TheMonitor().stopped()) {
    throw Stopped();
  }
}

}  // namespace cann_sim
