// Threads that run the side branches of replays. A branch may wait for another one, so each gets a thread of its own.
#pragma once

#include <functional>
#include <string>

namespace cann_sim {

// Runs `work` on a thread that is free, or on a new one where all are busy. Threads are kept for later replays. `where`
// says what it is part of, for messages; `ended` is called at its end, with the lock of the monitor.
void RunBesides(std::string where, std::function<void()> work, std::function<void()> ended);

}  // namespace cann_sim
