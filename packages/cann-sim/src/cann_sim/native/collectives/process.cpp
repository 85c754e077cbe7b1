#include "process.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace {

// The 22nd field of /proc/<number>/stat; nothing where the process has ended.
std::optional<uint64_t> StartOf(int32_t number) {
  std::ifstream file("/proc/" + std::to_string(number) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The second field, the name in brackets, may hold anything.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  std::string state;
  fields >> state;
  for (int number_of_field = 4; number_of_field <= 22; ++number_of_field) {
    fields >> field;
  }
  if (!fields || state == "Z" || state == "X") {
    return std::nullopt;
  }
  return std::stoull(field);
}

}  // namespace

namespace cann_sim::collectives {

Process ThisProcess() { return {getpid(), StartOf(getpid()).value_or(0)}; }

bool IsAlive(const Process& process) { return StartOf(process.number) == process.start; }

}  // namespace cann_sim::collectives
