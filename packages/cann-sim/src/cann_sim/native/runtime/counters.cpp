#include "counters.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "launch.h"

namespace {

// Never destroyed: worker threads may still count while the process exits.
struct LaunchNames {
  std::mutex mutex;
  // By address: the text of a name may be in several libraries.
  std::unordered_map<const char*, uint64_t> counts;
};

LaunchNames& TheLaunchNames() {
  static auto* names = new LaunchNames;
  return *names;
}

std::map<std::string, uint64_t> LaunchesByName() {
  LaunchNames& names = TheLaunchNames();
  std::map<std::string, uint64_t> counts;
  const std::lock_guard<std::mutex> lock(names.mutex);
  for (const auto& [name, count] : names.counts) {
    counts[name] += count;
  }
  return counts;
}

void Append(std::string& json, const char* name, const std::atomic<uint64_t>& value) {
  json += std::string(json.size() > 1 ? "," : "") + "\"" + name + "\":" + std::to_string(value.load());
}

}  // namespace

namespace cann_sim {

Counters& TheCounters() {
  static auto* counters = new Counters;
  return *counters;
}

void CountLaunch(const char* name) {
  LaunchNames& names = TheLaunchNames();
  const std::lock_guard<std::mutex> lock(names.mutex);
  ++names.counts[name];
}

void CountCollective(uint64_t bytes) {
  ++TheCounters().collectives;
  TheCounters().collective_bytes += bytes;
}

}  // namespace cann_sim

// Writes the counters as JSON text into `buffer`, cut at `size`, and returns the length of the whole text.
extern "C" CANN_SIM_EXPORT size_t cann_sim_counters(char* buffer, size_t size) {
  const cann_sim::Counters& counters = cann_sim::TheCounters();
  std::string json = "{";
  Append(json, "launches", counters.launches);
  Append(json, "captured_launches", counters.captured_launches);
  Append(json, "updated_launches", counters.updated_launches);
  Append(json, "task_updates", counters.task_updates);
  Append(json, "captures", counters.captures);
  Append(json, "replays", counters.replays);
  Append(json, "replayed_kernels", counters.replayed_kernels);
  Append(json, "synchronisations", counters.synchronisations);
  Append(json, "copies", counters.copies);
  Append(json, "blocking_copies", counters.blocking_copies);
  Append(json, "copied_bytes", counters.copied_bytes);
  Append(json, "collectives", counters.collectives);
  Append(json, "collective_bytes", counters.collective_bytes);
  json += ",\"launches_by_operator\":{";
  const char* separator = "";
  for (const auto& [name, count] : LaunchesByName()) {
    json += separator + ("\"" + name + "\":" + std::to_string(count));
    separator = ",";
  }
  json += "}}";
  std::memcpy(buffer, json.data(), std::min(size, json.size()));
  return json.size();
}
