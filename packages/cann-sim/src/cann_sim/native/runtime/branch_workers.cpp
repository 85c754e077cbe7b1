#include "branch_workers.h"

#include <deque>
#include <memory>

#include "monitor.h"
#include "stream.h"

namespace {

// Guarded by the monitor, which also wakes the idle threads when the process ends.
struct BranchWorkers {
  std::deque<std::function<void()>> work;
  size_t idle = 0;
};

BranchWorkers& TheBranchWorkers() {
  static auto* workers = new BranchWorkers;
  return *workers;
}

void Serve() {
  BranchWorkers& workers = TheBranchWorkers();
  try {
    for (;;) {
      std::function<void()> work;
      cann_sim::TheMonitor().WaitForWork([&] {
        if (workers.work.empty()) {
          return false;
        }
        work = std::move(workers.work.front());
        workers.work.pop_front();
        --workers.idle;
        return true;
      });
      work();
    }
  } catch (const cann_sim::Stopped&) {
    return;
  }
}

}  // namespace

namespace cann_sim {

void RunBesides(std::string where, std::function<void()> branch, std::function<void()> ended) {
  auto lane = std::make_shared<Lane>();
  TheSchedule().Announce(*lane);
  BranchWorkers& workers = TheBranchWorkers();
  std::function<void()> work = [lane, &workers, where = std::move(where), branch = std::move(branch),
                                ended = std::move(ended), counted = std::make_shared<Progress::SideBranch>()] {
    TheSchedule().Begin(*lane);
    {
      const Progress::Run run(where);
      branch();
    }
    // Free again before the next replay can begin, which else would start one more thread.
    TheMonitor().Update([&] {
      ++workers.idle;
      ended();
    });
    TheSchedule().End(*lane);
  };
  bool start = false;
  TheMonitor().Update([&] {
    workers.work.push_back(std::move(work));
    start = workers.idle < workers.work.size();
    workers.idle += start ? 1 : 0;
  });
  if (start) {
    StartWorker(Serve);
  }
}

}  // namespace cann_sim
