#include "faults.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "configuration.h"
#include "error_message.h"

namespace {

using cann_sim::Fault;

constexpr uint64_t kForEver = ~0ULL;
constexpr std::array<const char*, 7> kNames = {"allocation",  "stream",      "launch",     "run",
                                               "capture_end", "task_update", "two_kernels"};

struct Rule {
  Fault fault;
  std::string name;  // of the operator, empty for all
  uint64_t first;
  uint64_t last;
  uint64_t seen = 0;
};

struct Faults {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::vector<Rule> rules;
};

bool ReadNumber(const char*& at, uint64_t& number) {
  if (*at < '1' || *at > '9') {
    return false;
  }
  char* end = nullptr;
  number = std::strtoull(at, &end, 10);
  at = end;
  return true;
}

bool ReadRange(const char* at, Rule& rule) {
  if (!ReadNumber(at, rule.first)) {
    return false;
  }
  rule.last = rule.first;
  if (*at == '+') {
    rule.last = kForEver;
    ++at;
  } else if (*at == '-' && (!ReadNumber(++at, rule.last) || rule.last < rule.first)) {
    return false;
  }
  return *at == '\0';
}

// Returns what is wrong.
std::string ReadRule(const std::string& text, Rule& rule) {
  const size_t colon = text.rfind(':');
  std::string kind = text.substr(0, colon);
  if (const size_t open = kind.find('('); open != std::string::npos && kind.back() == ')') {
    rule.name = kind.substr(open + 1, kind.size() - open - 2);
    kind.resize(open);
  }
  const auto known = std::find(kNames.begin(), kNames.end(), kind);
  if (known == kNames.end()) {
    return "expected one of allocation, stream, launch, run, capture_end, task_update, two_kernels, found '" + kind + "' in '" + text + "'";
  }
  rule.fault = static_cast<Fault>(known - kNames.begin());
  const bool of_operator =
      rule.fault == Fault::kLaunch || rule.fault == Fault::kRun || rule.fault == Fault::kTwoKernels;
  if (text.find('(') != std::string::npos && (rule.name.empty() || !of_operator)) {
    return "expected an operator in brackets behind launch, run or two_kernels only, found '" + text + "'";
  }
  if (colon == std::string::npos || !ReadRange(text.c_str() + colon + 1, rule)) {
    return "expected '<kind>:<first>', '<kind>:<first>-<last>' or '<kind>:<first>+' with counts from 1, found '" + text + "'";
  }
  return "";
}

// Returns what is wrong.
std::string ReadRules(const std::string& text, std::vector<Rule>& rules) {
  size_t start = 0;
  while (!text.empty() && start <= text.size()) {
    const size_t end = std::min(text.find(',', start), text.size());
    Rule rule{};
    if (std::string wrong = ReadRule(text.substr(start, end - start), rule); !wrong.empty()) {
      return wrong;
    }
    rules.push_back(std::move(rule));
    start = end + 1;
  }
  return "";
}

Faults& TheFaults() {
  static auto* faults = [] {
    auto* made = new Faults;
    const std::string wrong = ReadRules(cann_sim::configuration::FaultsText(), made->rules);
    if (!wrong.empty()) {
      cann_sim::configuration::Refuse("CANN_SIM_FAULTS", wrong);
    }
    made->any.store(!made->rules.empty());
    return made;
  }();
  return *faults;
}

}  // namespace

namespace cann_sim {

std::string SetFaults(const std::string& text) {
  std::vector<Rule> rules;
  if (std::string wrong = ReadRules(text, rules); !wrong.empty()) {
    return wrong;
  }
  Faults& faults = TheFaults();
  const std::lock_guard<std::mutex> lock(faults.mutex);
  faults.rules = std::move(rules);
  faults.any.store(!faults.rules.empty());
  return "";
}

bool FaultIsDue(Fault fault, const char* name) {
  Faults& faults = TheFaults();
  if (!faults.any.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(faults.mutex);
  bool due = false;
  for (Rule& rule : faults.rules) {
    if (rule.fault == fault && (rule.name.empty() || rule.name == name)) {
      ++rule.seen;
      due = due || (rule.seen >= rule.first && rule.seen <= rule.last);
    }
  }
  return due;
}

std::string DescribeFault(Fault fault, const std::string& name) {
  const std::string kind = kNames[static_cast<size_t>(fault)];
  return "an injected fault (CANN_SIM_FAULTS, " + kind + (name.empty() ? "" : " of " + name) + ")";
}

aclError InjectFault(Fault fault, aclError code, const char* function, const char* name) {
  return FaultIsDue(fault, name) ? Fail(code, std::string(function) + ": " + DescribeFault(fault, name)) : ACL_SUCCESS;
}

}  // namespace cann_sim

// Replaces the faults. Writes what is wrong with the text into `message`, cut at `size`, and returns its length.
extern "C" CANN_SIM_EXPORT size_t cann_sim_set_faults(const char* text, char* message, size_t size) {
  const std::string wrong = cann_sim::SetFaults(text);
  std::memcpy(message, wrong.data(), std::min(size, wrong.size()));
  return wrong.size();
}
