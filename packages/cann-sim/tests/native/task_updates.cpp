// The protocol of replay and update, with a host that runs ahead, free and under fuzzed schedules.

#include "scenario.h"

extern "C" size_t cann_sim_set_schedule(const char* text, char* message, size_t size);

namespace scenario {

namespace {

constexpr int kLayers = 3;

// A graph whose layers each wait for their word and then add a number that an update chooses.
struct UpdatedGraph {
  explicit UpdatedGraph(aclrtStream stream) : words(DeviceMemory<uint64_t>(kLayers)) {
    // Another thread may make a blocking call meanwhile, which a capture in mode global would refuse.
    CHECK_OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
    for (int layer = 0; layer < kLayers; ++layer) {
      CHECK_OK(aclrtValueWait(words + layer, 1, ACL_STREAM_WAIT_VALUE_EQ, stream));
      CHECK_OK(aclrtValueWrite(words + layer, 0, 0, stream));
      CHECK_OK(aclmdlRICaptureTaskGrpBegin(stream));
      Launch(stream, "add", [] { CHECK(false); });
      CHECK_OK(aclmdlRICaptureTaskGrpEnd(stream, &groups[layer]));
    }
    CHECK_OK(aclmdlRICaptureEnd(stream, &graph));
  }

  ~UpdatedGraph() {
    CHECK_OK(aclmdlRIDestroy(graph));
    CHECK_OK(aclrtFree(words));
  }

  void Update(aclrtStream updates, int number) {
    for (int layer = 0; layer < kLayers; ++layer) {
      CHECK_OK(aclmdlRICaptureTaskUpdateBegin(updates, groups[layer]));
      Launch(updates, "add", [this, number] { sum += number; });
      CHECK_OK(aclmdlRICaptureTaskUpdateEnd(updates));
      CHECK_OK(aclrtValueWrite(words + layer, 1, 0, updates));
    }
  }

  uint64_t* words;
  aclmdlRI graph = nullptr;
  aclrtTaskGrp groups[kLayers] = {};
  int sum = 0;
};

void RunProtocol(int steps) {
  const std::vector<aclrtStream> streams = NewStreams(2);
  const aclrtEvent replayed = NewEvent();
  UpdatedGraph updated(streams[0]);
  int expected = 0;
  for (int step = 1; step <= steps; ++step) {
    CHECK_OK(aclrtStreamWaitEvent(streams[1], replayed));
    CHECK_OK(aclmdlRIExecuteAsync(updated.graph, streams[0]));
    CHECK_OK(aclrtRecordEvent(replayed, streams[0]));
    updated.Update(streams[1], step);
    expected += kLayers * step;
  }
  CHECK_OK(aclrtSynchronizeStream(streams[0]));
  CHECK(updated.sum == expected);
  CHECK_OK(aclrtDestroyEvent(replayed));
  Destroy(streams);
}

}  // namespace

void TaskUpdates() {
  Together(2, [](int) { RunProtocol(50); });
}

void FuzzedSchedules() {
  char message[256];
  for (int seed = 0; seed < 30; ++seed) {
    CHECK_OK(aclrtSynchronizeDevice());
    CHECK(cann_sim_set_schedule(("fuzz:" + std::to_string(seed)).c_str(), message, sizeof(message)) == 0);
    RunProtocol(4);
  }
  CHECK_OK(aclrtSynchronizeDevice());
  CHECK(cann_sim_set_schedule("free", message, sizeof(message)) == 0);
}

}  // namespace scenario
