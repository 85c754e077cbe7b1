// One collective while it runs on one rank: the ranks check that they are at the same one, and exchange data by
// chunks through their windows.
#pragma once

#include <mutex>
#include <string>

#include "../runtime/outside_work.h"
#include "communicator.h"

namespace cann_sim::collectives {

class Exchange {
 public:
  // `details` are what has to be equal on all ranks.
  Exchange(Communicator& communicator, const char* operation, const std::string& details);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // The ranks' windows of this chunk, of kWindowBytes. Each rank writes to its own before a meeting, and reads those of others
  // after it.
  char* own_window() { return window(communicator_.rank); }
  char* window(uint32_t rank);

  // Writes the reduction of what all windows hold from the offset on. It goes in the order of the ranks, so that all ranks that
  // make it have the same bits. `into` must not be in a window.
  void ReduceWindows(size_t offset, char* into, size_t count, HcclDataType type, HcclReduceOp reduction);

  // Waits until every rank has come here. The first time, throws DeviceFailure where one is at something else.
  void Meet();
  // Turns to the other windows. Between two turns there has to be a meeting.
  void NextChunk() { ++communicator_.round; }

 private:
  void CheckDescriptions() const;

  Communicator& communicator_;
  const std::string what_;
  const OutsideWork outside_;
  const std::lock_guard<std::mutex> lock_;
  bool met_ = false;
};

}  // namespace cann_sim::collectives
