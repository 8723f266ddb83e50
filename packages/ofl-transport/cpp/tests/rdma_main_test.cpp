// The program of the RDMA tests: exit status 77 where no device is, and a failure where a receiver was not ready, which
// credits must keep from ever happening.

#include <fstream>

#include "check.hpp"
#include "rdma_pair.hpp"

namespace {

// What the devices counted of receivers that were not ready, on either side.
std::uint64_t not_ready_count() {
  std::uint64_t count = 0;
  for (const ofl::GidEntry& entry : ofl::read_gids()) {
    if (entry.index != 0) continue;
    const std::string folder =
        std::string(ofl::kInfinibandRoot) + "/" + entry.device + "/ports/" + std::to_string(entry.port) + "/hw_counters/";
    for (const char* name : {"rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err", "rnr_nak_retry_err"}) {
      std::uint64_t value = 0;
      if (std::ifstream(folder + name) >> value) count += value;
    }
  }
  return count;
}

}  // namespace

int main(int count, char** words) {
  if (rdma_pair::test_address().empty()) {
    std::printf("skip: this host has no RoCE device with an IPv4 address\n");
    return 77;
  }
  const std::uint64_t before = not_ready_count();
  const int status = check::main_of(count, words);
  const std::uint64_t after = not_ready_count();
  if (after != before) std::printf("a receiver was not ready %llu times\n", static_cast<unsigned long long>(after - before));
  return after == before ? status : 1;
}
