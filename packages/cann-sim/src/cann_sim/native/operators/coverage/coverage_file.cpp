#include "coverage_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace {

// Of the largest count. JSON allows spaces before a number, so a count never moves what follows it.
constexpr int kDigits = 20;

std::string Padded(uint64_t count) {
  const std::string digits = std::to_string(count);
  return std::string(kDigits - digits.size(), ' ') + digits;
}

void Report() { std::perror("cann-sim: environment variable CANN_SIM_COVERAGE: cannot write the file"); }

}  // namespace

namespace cann_sim::operators {

CoverageFile::CoverageFile(const char* path)
    : lines_(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)), counts_(open(path, O_WRONLY | O_CLOEXEC)) {
  if (lines_ < 0 || counts_ < 0) {
    Report();
  }
}

off_t CoverageFile::Add(const std::string& before, const std::string& after) {
  if (lines_ < 0 || counts_ < 0) {
    return -1;
  }
  const std::string line = before + Padded(1) + after + "\n";
  if (write(lines_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    Report();
    return -1;
  }
  // After a write at the end the offset is after the written text, also where others write there too.
  return lseek(lines_, 0, SEEK_CUR) - static_cast<off_t>(line.size() - before.size());
}

void CoverageFile::SetCount(off_t place, uint64_t count) {
  const std::string text = Padded(count);
  if (place >= 0 && pwrite(counts_, text.data(), text.size(), place) != static_cast<ssize_t>(text.size())) {
    Report();
  }
}

}  // namespace cann_sim::operators
