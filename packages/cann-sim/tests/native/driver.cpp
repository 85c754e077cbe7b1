// Runs one scenario against the runtime, without torch: `driver <scenario>`; without an argument it lists them.

#include <cstring>

#include "scenario.h"

namespace {

struct Named {
  const char* name;
  void (*run)();
};

constexpr Named kScenarios[] = {
    {"streams", scenario::Streams},
    {"copies", scenario::Copies},
    {"memory", scenario::Memory},
    {"virtual-memory", scenario::VirtualMemory},
    {"events", scenario::Events},
    {"external-values", scenario::ExternalValues},
    {"external-events", scenario::ExternalEvents},
    {"host-functions", scenario::HostFunctions},
    {"counters", scenario::Counters},
    {"captures", scenario::Captures},
    {"replays", scenario::Replays},
    {"destruction", scenario::Destruction},
    {"task-updates", scenario::TaskUpdates},
    {"fuzzed-schedules", scenario::FuzzedSchedules},
    {"faults", scenario::Faults},
    {"stop", scenario::Stop},
    {"collectives", scenario::Collectives},
    {"deadlock", scenario::Deadlock},
    {"slow-workers", scenario::SlowWorkers},
    {"exit", scenario::Exit},
    {"planted-race", scenario::PlantedRace},
    {"planted-overflow", scenario::PlantedOverflow},
    {"planted-use-after-free", scenario::PlantedUseAfterFree},
};

}  // namespace

int main(int count, char** arguments) {
  for (const Named& named : kScenarios) {
    if (count < 2) {
      std::puts(named.name);
    } else if (std::strcmp(arguments[1], named.name) == 0) {
      CHECK_OK(aclrtSetDevice(0));
      named.run();
      std::puts("done");
      return 0;
    }
  }
  return count < 2 ? 0 : 2;
}
