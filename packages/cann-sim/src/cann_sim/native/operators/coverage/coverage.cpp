#include "coverage.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "../../runtime/json_text.h"
#include "../../runtime/launch.h"
#include "../interface/data_type.h"
#include "coverage_file.h"

namespace {

using cann_sim::Quoted;
using cann_sim::operators::CoverageFile;
using cann_sim::operators::Dtypes;

using Refusal = std::tuple<std::string, std::string, std::string>;  // operator, reason, torch operator
using Missing = std::pair<std::string, std::string>;                // operator, torch operator

// A program that catches a refusal and tries again with another shape must not fill the memory.
constexpr size_t kMostRefusals = 1000;

struct Count {
  uint64_t value = 0;
  off_t place = -1;  // in the file
};

struct Coverage {
  std::mutex mutex;
  std::map<std::pair<const char*, Dtypes>, Count> launches;
  std::map<Refusal, Count> refusals;
  std::map<Missing, Count> missing;
  CoverageFile* file = nullptr;
  pid_t process = getpid();
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
    launches[{key.first, key.second}] += count.value;
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
            "," + std::to_string(count.value) + "]";
    separator = ",";
  }
  json += "],\"missing\":[";
  separator = "";
  for (const auto& [key, count] : coverage.missing) {
    json += separator + ("[" + Quoted(key.first)) + "," + Quoted(key.second) + "," + std::to_string(count.value) + "]";
    separator = ",";
  }
  return json + "]}";
}

// Never destroyed: worker threads may still launch while the process exits.
Coverage& TheCoverage() {
  static auto* coverage = [] {
    auto* made = new Coverage;
    const char* path = std::getenv("CANN_SIM_COVERAGE");
    if (path != nullptr && *path != '\0') {
      made->file = new CoverageFile(path);
    }
    return made;
  }();
  return *coverage;
}

// Counts one more, in the file as well. `before` and `after` are the text around the count in its line there.
void Increment(Coverage& coverage, Count& count, const std::string& before, const std::string& after) {
  ++count.value;
  if (coverage.file == nullptr) {
    return;
  }
  if (count.value == 1) {
    count.place = coverage.file->Add(before, after);
  } else {
    coverage.file->SetCount(count.place, count.value);
  }
}

// A forked process counts its own, in lines of its own.
void ForgetParent(Coverage& coverage) {
  if (coverage.file != nullptr && coverage.process != getpid()) {
    coverage.process = getpid();
    coverage.launches.clear();
    coverage.refusals.clear();
    coverage.missing.clear();
  }
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
  ForgetParent(coverage);
  Count& count = coverage.launches[{operator_name, dtypes}];
  if (coverage.file == nullptr) {
    ++count.value;
    return;
  }
  Increment(coverage, count, "{\"launches\":[[" + Quoted(operator_name) + "," + Quoted(DescribeDtypes(dtypes)) + ",",
            "]],\"refused\":[],\"missing\":[]}");
}

void NoteRefusal(const char* operator_name, const std::string& reason, const std::string& asked_by) {
  Coverage& coverage = TheCoverage();
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  ForgetParent(coverage);
  const Refusal refusal{operator_name, reason, asked_by};
  if (coverage.refusals.size() < kMostRefusals || coverage.refusals.count(refusal) != 0) {
    Increment(coverage, coverage.refusals[refusal],
              "{\"launches\":[],\"refused\":[[" + Quoted(operator_name) + "," + Quoted(reason) + "," + Quoted(asked_by) + ",",
              "]],\"missing\":[]}");
  }
}

void NoteMissing(const std::string& operator_name, const std::string& asked_by) {
  Coverage& coverage = TheCoverage();
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  ForgetParent(coverage);
  Increment(coverage, coverage.missing[{operator_name, asked_by}],
            "{\"launches\":[],\"refused\":[],\"missing\":[[" + Quoted(operator_name) + "," + Quoted(asked_by) + ",", "]]}");
}

}  // namespace cann_sim::operators

// For the operator compiler's library, which must not depend on torch.
extern "C" CANN_SIM_EXPORT void cann_sim_note_missing(const char* operator_name, const char* asked_by) {
  cann_sim::operators::NoteMissing(operator_name, asked_by);
}

// Writes the coverage as JSON text into `buffer`, cut at `size`, and returns the length of the whole text.
extern "C" CANN_SIM_EXPORT size_t cann_sim_coverage(char* buffer, size_t size) {
  const std::string json = Json(TheCoverage());
  std::memcpy(buffer, json.data(), std::min(size, json.size()));
  return json.size();
}
