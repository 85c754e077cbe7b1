// Functions of the host that run in the order of a stream.

#include <acl/acl_rt.h>
#include <pthread.h>

#include <deque>
#include <functional>
#include <map>

#include "device.h"
#include "error_message.h"
#include "monitor.h"
#include "submission.h"

namespace {

using cann_sim::Fail;
using cann_sim::MakeTask;
using cann_sim::TaskKind;
using cann_sim::TheMonitor;

// Callbacks that wait for aclrtProcessReport, by thread. Guarded by the monitor.
std::map<uint64_t, std::deque<std::function<void()>>>& Reports() {
  static auto* reports = new std::map<uint64_t, std::deque<std::function<void()>>>;
  return *reports;
}

void CallOnThread(uint64_t thread, aclrtCallback callback, void* data, bool block) {
  auto done = std::make_shared<bool>(false);
  cann_sim::MeetHost();
  TheMonitor().Update([&] {
    Reports()[thread].push_back([=] {
      callback(data);
      TheMonitor().Update([&] { *done = true; });
    });
  });
  if (block) {
    TheMonitor().Wait([] { return "a callback that aclrtProcessReport has not run"; }, [&] { return *done; });
    cann_sim::MeetHost();
  }
}

}  // namespace

extern "C" {

aclError aclrtLaunchHostFunc(aclrtStream handle, aclrtHostFunc function, void* argument) {
  CANN_SIM_FIND_STREAM(stream, "aclrtLaunchHostFunc", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtLaunchHostFunc", function);
  return cann_sim::Submit("aclrtLaunchHostFunc", *stream,
                          MakeTask(TaskKind::kHostFunction, [=] {
                            const cann_sim::Schedule::Outside outside;
                            cann_sim::MeetHost();
                            function(argument);
                            cann_sim::MeetHost();
                          }));
}

aclError aclrtSubscribeReport(uint64_t thread, aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtSubscribeReport", handle);
  stream->report_thread.store(thread);
  return ACL_SUCCESS;
}

aclError aclrtUnSubscribeReport(uint64_t /*thread*/, aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtUnSubscribeReport", handle);
  stream->report_thread.store(0);
  return ACL_SUCCESS;
}

aclError aclrtLaunchCallback(aclrtCallback callback, void* data, aclrtCallbackBlockType type, aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtLaunchCallback", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtLaunchCallback", callback);
  const uint64_t thread = stream->report_thread.load();
  if (thread == 0) {
    return Fail(ACL_ERROR_RT_STREAM_NO_CB_REG, "aclrtLaunchCallback: no thread is subscribed to stream " +
                                                   std::to_string(stream->id) + " (aclrtSubscribeReport)");
  }
  return cann_sim::Submit("aclrtLaunchCallback", *stream, MakeTask(TaskKind::kHostFunction, [=] {
                            CallOnThread(thread, callback, data, type == ACL_CALLBACK_BLOCK);
                          }));
}

// Runs one callback that was launched on a stream to which this thread is subscribed.
aclError aclrtProcessReport(int32_t milliseconds) {
  const auto thread = static_cast<uint64_t>(pthread_self());
  std::function<void()> report;
  const bool found = TheMonitor().WaitFor(milliseconds, [&] {
    auto& reports = Reports()[thread];
    if (reports.empty()) {
      return false;
    }
    report = std::move(reports.front());
    reports.pop_front();
    return true;
  });
  if (!found || report == nullptr) {
    return ACL_ERROR_WAIT_CALLBACK_TIMEOUT;
  }
  report();
  return ACL_SUCCESS;
}

}  // extern "C"
