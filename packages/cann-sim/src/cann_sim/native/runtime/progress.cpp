#include "progress.h"

#include "configuration.h"

namespace {

thread_local std::string running_where;

}  // namespace

namespace cann_sim {

Progress::Run::Run(std::string where) {
  running_where = std::move(where);
  ++TheProgress().running_;
}

Progress::Run::~Run() {
  TheProgress().Note();
  --TheProgress().running_;
}

Progress::Pause::Pause(std::string what) {
  Progress& progress = TheProgress();
  {
    const std::lock_guard<std::mutex> lock(progress.mutex_);
    progress.waits_[std::this_thread::get_id()] = running_where + " waits for " + std::move(what);
  }
  --progress.running_;
}

Progress::Pause::~Pause() {
  Progress& progress = TheProgress();
  progress.Note();
  ++progress.running_;
  const std::lock_guard<std::mutex> lock(progress.mutex_);
  progress.waits_.erase(std::this_thread::get_id());
}

std::string Progress::Stuck() {
  if (running_.load() > 0) {
    return "";
  }
  const Clock::duration silent = Clock::now().time_since_epoch() - Clock::duration(last_.load());
  if (std::chrono::duration<double>(silent).count() < configuration::DeadlockSeconds()) {
    return "";
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  for (const auto& [thread, wait] : waits_) {
    text += (text.empty() ? "" : "; ") + wait;
  }
  return text;
}

Progress& TheProgress() {
  static auto* progress = new Progress;
  return *progress;
}

}  // namespace cann_sim
