#include "coverage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "../../runtime/json_text.h"
#include "../../runtime/launch.h"
#include "../interface/data_type.h"

namespace {

using cann_sim::Quoted;
using cann_sim::operators::Dtypes;

using Refusal = std::tuple<std::string, std::string, std::string>;  // operator, reason, torch operator
using Missing = std::pair<std::string, std::string>;                // operator, torch operator

// A program that catches a refusal and tries again with another shape must not fill the memory.
constexpr size_t kMostRefusals = 1000;

struct Coverage {
  std::mutex mutex;
  std::map<std::pair<const char*, Dtypes>, uint64_t> launches;
  std::map<Refusal, uint64_t> refusals;
  std::map<Missing, uint64_t> missing;
};

std::string DescribeDtypes(Dtypes dtypes) {
  std::string text;
  for (int dtype = 0; dtype < 64; ++dtype) {
    if ((dtypes >> dtype) & 1) {
      text += (text.empty() ? "" : " ") + std::string(cann_sim::operators::NameOf(static_cast<c10::ScalarType>(dtype)));
    }
  }
  return text;
}

// {"launches": [[operator, dtypes, count], ...], "refused": [[operator, reason, torch operator, count], ...],
//  "missing": [[operator, torch operator, count], ...]}
std::string Json(Coverage& coverage) {
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  std::map<std::pair<std::string, Dtypes>, uint64_t> launches;
  for (const auto& [key, count] : coverage.launches) {
    launches[{key.first, key.second}] += count;
  }
  std::string json = "{\"launches\":[";
  const char* separator = "";
  for (const auto& [key, count] : launches) {
    json += separator + ("[" + Quoted(key.first)) + "," + Quoted(DescribeDtypes(key.second)) + "," + std::to_string(count) + "]";
    separator = ",";
  }
  json += "],\"refused\":[";
  separator = "";
  for (const auto& [key, count] : coverage.refusals) {
    json += separator + ("[" + Quoted(std::get<0>(key))) + "," + Quoted(std::get<1>(key)) + "," + Quoted(std::get<2>(key)) +
            "," + std::to_string(count) + "]";
    separator = ",";
  }
  json += "],\"missing\":[";
  separator = "";
  for (const auto& [key, count] : coverage.missing) {
    json += separator + ("[" + Quoted(key.first)) + "," + Quoted(key.second) + "," + std::to_string(count) + "]";
    separator = ",";
  }
  return json + "]}";
}

Coverage& TheCoverage();

// One line, in one call, so that processes that end at the same time do not mix theirs.
void AddToFile() {
  const int file = open(std::getenv("CANN_SIM_COVERAGE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const std::string line = Json(TheCoverage()) + "\n";
  if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::perror("cann-sim: environment variable CANN_SIM_COVERAGE: cannot write the file");
  }
  if (file >= 0) {
    close(file);
  }
}

// Never destroyed: worker threads may still launch while the process exits.
Coverage& TheCoverage() {
  static auto* coverage = [] {
    const char* file = std::getenv("CANN_SIM_COVERAGE");
    if (file != nullptr && *file != '\0') {
      std::atexit(AddToFile);
    }
    return new Coverage;
  }();
  return *coverage;
}

thread_local Dtypes dtypes_of_call = 0;

}  // namespace

namespace cann_sim::operators {

void BeginCall() { dtypes_of_call = 0; }

void NoteDtype(c10::ScalarType dtype) { dtypes_of_call |= Dtypes{1} << static_cast<int>(dtype); }

Dtypes DtypesOfCall() { return dtypes_of_call; }

void NoteLaunch(const char* operator_name, Dtypes dtypes) {
  Coverage& coverage = TheCoverage();
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  ++coverage.launches[{operator_name, dtypes}];
}

void NoteRefusal(const char* operator_name, const std::string& reason, const std::string& asked_by) {
  Coverage& coverage = TheCoverage();
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  const Refusal refusal{operator_name, reason, asked_by};
  if (coverage.refusals.size() < kMostRefusals || coverage.refusals.count(refusal) != 0) {
    ++coverage.refusals[refusal];
  }
}

void NoteMissing(const std::string& operator_name, const std::string& asked_by) {
  Coverage& coverage = TheCoverage();
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  ++coverage.missing[{operator_name, asked_by}];
}

}  // namespace cann_sim::operators

// For the operator compiler's library, which must not depend on torch.
extern "C" CANN_SIM_EXPORT void cann_sim_note_missing(const char* operator_name, const char* asked_by) {
  cann_sim::operators::NoteMissing(operator_name, asked_by);
}

// Writes what was asked for as JSON text into `buffer`, cut at `size`, and returns the length of the whole text.
extern "C" CANN_SIM_EXPORT size_t cann_sim_coverage(char* buffer, size_t size) {
  const std::string json = Json(TheCoverage());
  std::memcpy(buffer, json.data(), std::min(size, json.size()));
  return json.size();
}
