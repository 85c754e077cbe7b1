#include "virtual_time.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>

#include "../configuration.h"
#include "../launch.h"
#include "../order.h"
#include "soc_constants.h"

namespace cann_sim::clock {

namespace {

using Real = std::chrono::steady_clock;

// Written "given", "given:<microseconds>", "measured" or "measured:<factor>"; empty where the clock is off.
struct Setting {
  bool is_measured = false;
  double factor = 1;                                       // virtual time for a time of this machine
  double launch = kAscend910b[kHostLaunch].value;          // nanoseconds of the host

  explicit Setting(const std::string& text) {
    const size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon);
    is_measured = kind == "measured";
    if (text.empty() || (colon == std::string::npos && (is_measured || kind == "given"))) {
      return;
    }
    size_t used = 0;
    double number = -1;
    try {
      number = std::stod(text.substr(colon + 1), &used);
    } catch (const std::exception&) {
      used = 0;
    }
    const bool fits = used > 0 && colon + 1 + used == text.size() && std::isfinite(number) && number >= 0;
    if (!fits || (is_measured ? number == 0 : kind != "given")) {
      configuration::Refuse("CANN_SIM_CLOCK",
                            "expected given, given:<microseconds>, measured or measured:<factor>, found '" + text + "'");
    }
    (is_measured ? factor : launch) = is_measured ? number : number * 1000;
  }
};

const Setting& TheSetting() {
  static const Setting setting(configuration::ClockText());
  return setting;
}

// Never destroyed: threads may still look at it while the process exits.
struct Host {
  std::mutex mutex;
  Nanoseconds time = 0;                    // where it is given
  Real::time_point began = Real::now();    // where it is measured: virtual time is `time` then
};

Host& TheHost() {
  static auto* host = new Host;
  return *host;
}

// With the lock of the host held.
Nanoseconds TimeOf(const Host& host) {
  if (!TheSetting().is_measured) {
    return host.time;
  }
  const std::chrono::duration<double, std::nano> passed = Real::now() - host.began;
  return host.time + std::llround(passed.count() * TheSetting().factor);
}

// The same.
void SetTime(Host& host, Nanoseconds time) {
  host.time = time;
  host.began = Real::now();
}

Nanoseconds Rounded(size_t constant) { return std::llround(kAscend910b[constant].value); }

// Of a task apart from what it runs.
Nanoseconds OverheadOf(TaskKind kind) {
  switch (kind) {
    case TaskKind::kKernel:
    case TaskKind::kMemoryCopy:
    case TaskKind::kMemorySet: return 0;  // they say it with what they do
    case TaskKind::kReplay: return Rounded(kReplayOverhead);
    case TaskKind::kTaskUpdate: return Rounded(kUpdateCopy);
    default: return Rounded(kControlTask);
  }
}

// Others see what it did at its end; a wait ends a little after what it waited for.
bool IsWait(TaskKind kind) { return kind == TaskKind::kEventWait || kind == TaskKind::kValueWait; }

// A host that only queries waits in a loop.
constexpr int kMostQuestionsInTurn = 1000;
std::atomic<int> questions_in_turn{0};

Nanoseconds Seconds(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace

const bool kIsOn = !configuration::ClockText().empty();

Nanoseconds Now() {
  if (!kIsOn) {
    return 0;
  }
  if (const OrderedLane* lane = OrderedLane::Current(); lane != nullptr) {
    return lane->virtual_time;
  }
  Host& host = TheHost();
  const std::lock_guard<std::mutex> lock(host.mutex);
  return TimeOf(host);
}

std::chrono::steady_clock::time_point EventTime() {
  return kIsOn ? Real::time_point(std::chrono::nanoseconds(Now())) : Real::now();
}

void LiftTo(Nanoseconds time) {
  if (OrderedLane* lane = OrderedLane::Current(); lane != nullptr) {
    lane->virtual_time = std::max(lane->virtual_time, time);
    lane->latest_awaited = std::max(lane->latest_awaited, time);
    return;
  }
  Host& host = TheHost();
  const std::lock_guard<std::mutex> lock(host.mutex);
  if (TimeOf(host) < time) {
    SetTime(host, time);
  }
}

Nanoseconds LatestAwaited() {
  const OrderedLane* lane = OrderedLane::Current();
  return lane == nullptr ? 0 : lane->latest_awaited;
}

void Spend(Nanoseconds duration) {
  if (!kIsOn) {
    return;
  }
  if (OrderedLane* lane = OrderedLane::Current(); lane != nullptr) {
    lane->virtual_time += duration;
    return;
  }
  Host& host = TheHost();
  const std::lock_guard<std::mutex> lock(host.mutex);
  SetTime(host, TimeOf(host) + duration);
}

void SpendOnEmptyTasks(size_t count) { Spend(static_cast<Nanoseconds>(count) * Rounded(kControlTask)); }

void ComeTo(const Task& task) {
  WaitUntil(task.submitted);
  OrderedLane::Current()->latest_awaited = 0;
}

void SpendOn(const Task& task, bool is_behind) {
  if (IsWait(task.kind) == is_behind) {
    Spend(OverheadOf(task.kind));
  }
}

Nanoseconds TimeOfSubmitting(const Task& task) {
  questions_in_turn = 0;
  const bool launches =
      task.kind == TaskKind::kKernel || task.kind == TaskKind::kTaskUpdate || task.kind == TaskKind::kReplay;
  if (!TheSetting().is_measured && OrderedLane::Current() == nullptr && launches) {
    Spend(std::llround(TheSetting().launch));
  }
  return Now();
}

HostWait::HostWait() : begin_(Now()) {}

HostWait::~HostWait() {
  if (kIsOn && TheSetting().is_measured && OrderedLane::Current() == nullptr) {
    Host& host = TheHost();
    const std::lock_guard<std::mutex> lock(host.mutex);
    SetTime(host, begin_);
  }
}

void WakeHost(Nanoseconds awaited) {
  if (kIsOn && awaited > Now()) {
    WaitUntil(awaited + Rounded(kHostWake));
  }
}

bool IsInFuture(Nanoseconds time) {
  if (!kIsOn || time <= Now()) {
    return false;
  }
  if (++questions_in_turn < kMostQuestionsInTurn) {
    return true;
  }
  WaitUntil(time);
  return false;
}

Nanoseconds CopyTime(size_t bytes, bool is_over_link) {
  if (!kIsOn) {
    return 0;
  }
  if (is_over_link) {
    return Rounded(kKernelOverhead) + Seconds(static_cast<double>(bytes) / kAscend910b[kHostLink].value);
  }
  return KernelTime({.bytes = 2.0 * static_cast<double>(bytes)});
}

}  // namespace cann_sim::clock

namespace cann_sim {

bool KernelsAreTimed() { return clock::kIsOn; }

// Moving and computing overlap, as kernels are written in pipelines.
int64_t KernelTime(const Work& work) {
  using namespace clock;  // NOLINT: the names of the constants
  const double l2 = work.bytes <= kAscend910b[kL2Bytes].value ? kAscend910b[kL2Bandwidth].value
                                                               : kAscend910b[kHbmBandwidth].value;
  const double moving = work.bytes / l2 + work.streamed_bytes / kAscend910b[kHbmBandwidth].value;
  const double products = work.cube_operations / kAscend910b[kCubeRate].value;
  const double elements = work.vector_operations / kAscend910b[kVectorRate].value;
  return Rounded(kKernelOverhead) + Seconds(std::max({moving, products, elements}));
}

}  // namespace cann_sim

// Writes the constants as JSON text into `buffer`, cut at `size`, and returns the length of the whole text.
extern "C" CANN_SIM_EXPORT size_t cann_sim_clock_constants(char* buffer, size_t size) {
  using cann_sim::clock::Constant;
  std::string json = "[";
  for (const Constant& constant : cann_sim::clock::kAscend910b) {
    constexpr const char* kOrigins[] = {"documented", "published", "fitted", "assumed"};
    char number[32];
    std::snprintf(number, sizeof number, "%.17g", constant.value);
    json += std::string(json.size() > 1 ? "," : "") + "{\"name\":\"" + constant.name + "\",\"value\":" + number +
            ",\"unit\":\"" + constant.unit + "\",\"origin\":\"" + kOrigins[static_cast<size_t>(constant.origin)] +
            "\",\"source\":\"" + constant.source + "\"}";
  }
  json += "]";
  std::memcpy(buffer, json.data(), std::min(size, json.size()));
  return json.size();
}

// The virtual time of the host in nanoseconds, as text; empty where the clock is off.
extern "C" CANN_SIM_EXPORT size_t cann_sim_virtual_time(char* buffer, size_t size) {
  const std::string text = cann_sim::clock::kIsOn ? std::to_string(cann_sim::clock::Now()) : "";
  std::memcpy(buffer, text.data(), std::min(size, text.size()));
  return text.size();
}
