// How a connection over shared memory ends: in order, by a shut-down, and by a peer that breaks the rules.

#include <atomic>
#include <thread>

#include <sys/mman.h>

#include "shm_pair.hpp"

using namespace ofl;
using namespace shm_pair;

namespace {

// Somebody who may write what he likes into the region of a pair.
class Intruder {
 public:
  explicit Intruder(const Ends& ends) : bytes_(ends.told.region_bytes) {
    base_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, ends.memory.get(), 0);
    CHECK(base_ != MAP_FAILED);
  }
  ~Intruder() { ::munmap(base_, bytes_); }
  Intruder(const Intruder&) = delete;
  Intruder& operator=(const Intruder&) = delete;

  ShmHeader& header() noexcept { return *static_cast<ShmHeader*>(base_); }
  std::byte* to_server() noexcept { return static_cast<std::byte*>(base_) + kShmHeaderBytes; }
  std::byte* to_client() noexcept { return to_server() + kRing; }

 private:
  void* base_ = nullptr;
  std::size_t bytes_;
};

}  // namespace

TEST(what_was_sent_before_the_end_arrives_before_the_end) {
  Pair pair;
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) CHECK(send_now(*pair.client, sequence, 100));
  pair.client->shut_down();
  Kept kept;
  CHECK(readable(pair.server->descriptor()));
  CHECK(pair.server->receive(kept, kBudget) == Progress::closed);
  CHECK(kept.frames == 3 && kept.spoiled == 0);
  CHECK(pair.server->fault() == nullptr);
  Frame late(4, 10);
  CHECK(pair.server->send(late.out) == Progress::failed);
}

TEST(an_end_in_the_middle_of_a_frame_is_an_end) {
  Pair pair;
  Frame large(1, 2 * kRing);
  CHECK(pair.client->send(large.out) == Progress::blocked);
  pair.client->shut_down();
  Kept kept;
  CHECK(pair.server->receive(kept, kBudget) == Progress::closed);
  CHECK(kept.frames == 0 && pair.server->mid_frame());
}

TEST(after_end_sending_the_other_direction_goes_on) {
  Pair pair;
  CHECK(send_now(*pair.client, 1, 100));
  pair.client->end_sending();
  Frame late(2, 100);
  CHECK(pair.client->send(late.out) == Progress::failed);
  CHECK(send_now(*pair.server, 3, 100));
  Kept kept;
  CHECK(pair.client->receive(kept, kBudget) == Progress::blocked);
  CHECK(kept.sequence == 3);
  CHECK(pair.server->receive(kept, kBudget) == Progress::closed);
  CHECK(kept.sequence == 1 && kept.frames == 2 && kept.spoiled == 0);
}

TEST(shut_down_wakes_our_own_sleeper_and_fails_what_comes_later) {
  Pair pair;
  std::atomic<bool> armed{false};
  Progress seen = Progress::done;
  std::thread sleeper([&] {
    Kept kept;
    CHECK(pair.server->arm());
    armed = true;
    CHECK(is_woken(*pair.server, POLLIN));
    seen = pair.server->receive(kept, kBudget);
  });
  while (!armed) std::this_thread::yield();
  pair.server->shut_down();
  sleeper.join();
  CHECK(seen == Progress::closed);
  Frame late(1, 10);
  CHECK(pair.server->send(late.out) == Progress::failed);
  CHECK(!pair.server->arm());
  Kept kept;
  CHECK(pair.server->poll(kept, kBudget) == Progress::closed);
  CHECK(pair.client->receive(kept, kBudget) == Progress::closed);
}

TEST(garbage_in_the_ring_is_a_fault_that_stays) {
  Pair pair;
  Intruder intruder(pair.ends);
  CHECK(send_now(*pair.client, 1, 10));
  const std::uint64_t mark = 0xDEADBEEF00000001;
  std::memcpy(intruder.to_server() + 2 * kLineBytes, &mark, sizeof mark);  // 34 bytes take one line
  std::memcpy(intruder.to_server() + kLineBytes, &mark, sizeof mark);
  Kept kept;
  CHECK(pair.server->receive(kept, kBudget) == Progress::failed);
  CHECK(kept.frames == 1);
  CHECK(pair.server->fault() == kMarkPlaceFault);
  CHECK(pair.server->poll(kept, kBudget) == Progress::failed);
  Frame frame(2, 10);
  CHECK(pair.server->send(frame.out) == Progress::failed);
}

TEST(a_frame_that_breaks_a_rule_is_a_fault_by_its_name) {
  Pair pair;
  Intruder intruder(pair.ends);
  CHECK(send_now(*pair.client, 1, 10));
  intruder.to_server()[kMarkBytes] ^= std::byte{1};
  Kept kept;
  CHECK(pair.server->poll(kept, kBudget) == Progress::failed);
  CHECK(std::strstr(pair.server->fault(), "magic") != nullptr);
  CHECK(kept.frames == 0);
}

TEST(an_index_of_the_peer_that_cannot_be_is_a_fault) {
  Pair pair;
  Intruder intruder(pair.ends);
  Frame large(1, 2 * kRing);
  CHECK(pair.client->send(large.out) == Progress::blocked);
  intruder.header().server.taken = std::uint64_t{1} << 40;
  CHECK(pair.client->send(large.out) == Progress::failed);
  CHECK(pair.client->fault() == kTakenAheadFault);
  Kept kept;
  CHECK(pair.client->receive(kept, kBudget) == Progress::failed);
}

TEST(a_state_that_no_end_has_counts_as_closed) {
  Pair pair;
  Intruder intruder(pair.ends);
  intruder.header().client.state = 77;
  Frame frame(1, 10);
  CHECK(pair.server->send(frame.out) == Progress::failed);
}

TEST(a_flood_of_bells_and_wishes_changes_nothing) {
  Pair pair;
  Intruder intruder(pair.ends);
  const char flood[4096] = {};
  while (::send(pair.client->descriptor(), flood, sizeof flood, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  Kept kept;
  std::uint64_t random = 1;
  for (std::uint64_t sequence = 1; sequence <= 2000; ++sequence) {
    random = random * 6364136223846793005U + 1;
    intruder.header().client.sleeps = random;
    intruder.header().client.room_wanted = random >> 40;
    CHECK(send_now(*pair.client, sequence, 500));
    CHECK(pair.server->receive(kept, kBudget) == Progress::blocked);
    CHECK(kept.frames == sequence);
    CHECK(pair.server->arm());
    CHECK(send_now(*pair.server, sequence, 10));
    CHECK(pair.client->receive(kept, kBudget) == Progress::blocked);
    kept.frames = sequence;
  }
  CHECK(kept.spoiled == 0);
}
