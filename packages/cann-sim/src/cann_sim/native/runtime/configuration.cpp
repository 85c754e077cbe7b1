#include "configuration.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

[[noreturn]] void Refuse(const char* name, const char* value, const char* expected) {
  cann_sim::configuration::Refuse(name, std::string("expected ") + expected + ", found '" + value + "'");
}

double PositiveNumber(const char* name, double fallback) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return fallback;
  }
  char* end = nullptr;
  const double number = std::strtod(value, &end);
  if (end == value || *end != '\0' || !(number > 0)) {
    Refuse(name, value, "a number above 0");
  }
  return number;
}

bool OneOf(const char* name, const char* chosen, const char* other, const char* expected) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0' || std::strcmp(value, other) == 0) {
    return false;
  }
  if (std::strcmp(value, chosen) != 0) {
    Refuse(name, value, expected);
  }
  return true;
}

std::string Text(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? fallback : value;
}

std::string MemoryCheck() {
  const std::string check = Text("CANN_SIM_MEMORY_CHECK", "off");
  if (check != "off" && check != "on" && check != "full") {
    Refuse("CANN_SIM_MEMORY_CHECK", check.c_str(), "'off', 'on' or 'full'");
  }
  return check;
}

std::string Log() {
  const char* value = std::getenv("CANN_SIM_LOG");
  const std::string log = value == nullptr ? "" : value;
  if (!log.empty() && log != "missing" && log != "all") {
    Refuse("CANN_SIM_LOG", value, "'missing' or 'all'");
  }
  return log;
}

}  // namespace

namespace cann_sim::configuration {

uint32_t DeviceCount() {
  static const auto count = static_cast<uint32_t>(PositiveNumber("CANN_SIM_DEVICES", 1));
  return count;
}

size_t DeviceMemoryBytes() {
  static const auto bytes = static_cast<size_t>(PositiveNumber("CANN_SIM_MEMORY_GB", 8) * (1ULL << 30));
  return bytes;
}

size_t StreamLimit() {
  static const auto limit = static_cast<size_t>(PositiveNumber("CANN_SIM_STREAMS", 2048));
  return limit;
}

std::string SocName() { return Text("CANN_SIM_SOC", "Ascend910B1"); }

double DeadlockSeconds() {
  static const double seconds = PositiveNumber("CANN_SIM_DEADLOCK_SECONDS", 1.5);
  return seconds;
}

bool KernelsAreNull() {
  static const bool null = OneOf("CANN_SIM_KERNELS", "null", "real", "'real' or 'null'");
  return null;
}

bool ChecksUpdates() {
  static const bool unchecked = OneOf("CANN_SIM_UPDATE_CHECK", "off", "on", "'on' or 'off'");
  return !unchecked && !KernelsAreNull();
}

bool ChecksMemory() {
  static const bool checks = MemoryCheck() != "off" && !KernelsAreNull();
  return checks;
}

bool ChecksMemoryFully() {
  static const bool checks = MemoryCheck() == "full" && !KernelsAreNull();
  return checks;
}

std::string ScheduleText() { return Text("CANN_SIM_SCHEDULE", "free"); }

std::string ClockText() { return Text("CANN_SIM_CLOCK", ""); }

std::string TraceFileName() { return Text("CANN_SIM_TRACE", ""); }

std::string FaultsText() { return Text("CANN_SIM_FAULTS", ""); }

// The user sets it before the program runs; going on with another value would be worse.
void Refuse(const char* name, const std::string& wrong) {
  std::fprintf(stderr, "cann-sim: environment variable %s: %s\n", name, wrong.c_str());
  std::exit(2);
}

bool LogsMissingFunctions() {
  static const bool logs = !Log().empty();
  return logs;
}

bool LogsEverything() {
  static const bool logs = Log() == "all";
  return logs;
}

}  // namespace cann_sim::configuration
