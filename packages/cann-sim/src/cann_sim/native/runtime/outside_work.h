// Work of a kernel that other processes take part in.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launch.h"

namespace cann_sim {

// While it lives, the kernel that the calling thread runs may wait for other processes. To the deadlock detector it works:
// they may still come. Under a fuzzed schedule its stream has no turn.
class CANN_SIM_EXPORT OutsideWork {
 public:
  // `what` says for the trace what is waited for.
  explicit OutsideWork(const std::function<std::string()>& what);
  ~OutsideWork();
  OutsideWork(const OutsideWork&) = delete;
  OutsideWork& operator=(const OutsideWork&) = delete;

  // Called now and then while the work waits. Ends it, by an exception, where the process ends.
  static void CheckProcess();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace cann_sim
