// The file of CANN_SIM_COVERAGE. It holds at every moment what was counted: a process that is killed loses nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace cann_sim::operators {

class CoverageFile {
 public:
  // Says what is wrong on standard error, and counts nothing, where the file cannot be written.
  explicit CoverageFile(const char* path);

  // Adds a line whose count is 1, and returns the offset of the count; -1 where that failed. The line is one JSON object of
  // `before`, the count and `after`. It is added in one call, so that processes do not mix theirs.
  off_t Add(const std::string& before, const std::string& after);

  void SetCount(off_t place, uint64_t count);

 private:
  int lines_ = -1;   // adds at the end
  int counts_ = -1;  // writes at a place: what has O_APPEND cannot
};

}  // namespace cann_sim::operators
