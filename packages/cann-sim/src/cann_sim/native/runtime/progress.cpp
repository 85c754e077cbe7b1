#include "progress.h"

#include <algorithm>

#include "clock/virtual_time.h"
#include "configuration.h"
#include "device.h"
#include "monitor.h"
#include "schedule.h"

namespace {

thread_local std::string running_where;
thread_local const cann_sim::Progress::Branch* running_branch = nullptr;

}  // namespace

namespace cann_sim {

Progress::Run::Run(std::string where) { running_where = std::move(where); }

Progress::Run::~Run() { TheProgress().Note(); }

Progress::Within::Within(const std::string& what) : length_(running_where.size()) { running_where += what; }

Progress::Within::~Within() { running_where.resize(length_); }

Progress::Branch::Branch(const std::vector<Task>& tasks) : tasks_(tasks), outer_(running_branch) { running_branch = this; }

Progress::Branch::~Branch() { running_branch = outer_; }

Progress::Pause::Pause(const What& what, const Condition& condition) {
  if (!clock::kIsOn) {
    span_.emplace("wait", [&what] { return "waits for " + what(); });
  }
  std::string where = running_where;
  if (running_branch != nullptr) {
    const std::vector<Task>& tasks = running_branch->tasks_;
    size_t next = running_branch->begun_;
    while (next < tasks.size() && tasks[next].kind != TaskKind::kKernel) {
      ++next;
    }
    where += next < tasks.size() ? std::string(", before operator ") + tasks[next].name : ", behind its last operator";
  }
  Progress& progress = TheProgress();
  const std::lock_guard<std::mutex> lock(progress.mutex_);
  progress.waits_[std::this_thread::get_id()] = {std::move(where), &what, &condition};
}

Progress::Pause::~Pause() {
  Progress& progress = TheProgress();
  progress.Note();
  const std::lock_guard<std::mutex> lock(progress.mutex_);
  progress.waits_.erase(std::this_thread::get_id());
}

bool Progress::AllWait() {
  const size_t busy = BusyStreams() + side_branches_.load();
  bool all = false;
  bool some_could_end = false;
  TheMonitor().Look([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    all = waits_.size() >= busy;
    some_could_end =
        std::any_of(waits_.begin(), waits_.end(), [](const auto& wait) { return (*wait.second.condition)(); });
  });
  if (some_could_end) {
    TheMonitor().MemoryChanged();
  }
  return all && !some_could_end;
}

std::string Progress::Stuck() {
  if (TheSchedule().fuzzes() ? TheSchedule().CanMove() : !AllWait()) {
    return "";
  }
  const Clock::duration silent = Clock::now().time_since_epoch() - Clock::duration(last_.load());
  if (std::chrono::duration<double>(silent).count() < configuration::DeadlockSeconds()) {
    return "";
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  for (const auto& [thread, wait] : waits_) {
    text += (text.empty() ? "" : "; ") + wait.where + " waits for " + (*wait.what)();
  }
  return text;
}

Progress& TheProgress() {
  static auto* progress = new Progress;
  return *progress;
}

}  // namespace cann_sim
