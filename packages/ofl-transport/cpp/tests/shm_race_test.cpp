// The moments at which two ends of shared memory can miss each other, met many thousand times: each round both threads
// start together, each after a delay of its own, and then what must hold is looked at while both stand still.

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include <sched.h>

#include "shm_pair.hpp"

using namespace ofl;
using namespace shm_pair;

namespace {

cpu_set_t usable() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  ::sched_getaffinity(0, sizeof cpus, &cpus);
  return cpus;
}

// Keeps the calling thread on the first or second of these CPUs: the scheduler likes to put threads that meet on one.
void stay_on(const cpu_set_t& cpus, int which) {
  for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus) || found++ != which) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }
}

// Runs `left` and `right` at the same time, once per call, and aims so that neither is always the first.
class Together {
 public:
  Together(std::function<void()> left, std::function<void()> right) : left_(std::move(left)), right_(std::move(right)) {
    stay_on(cpus_, 0);
  }
  ~Together() {
    stop_ = true;
    start_.fetch_add(1);
    helper_.join();
    ::sched_setaffinity(0, sizeof cpus_, &cpus_);
  }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  void run() {
    left_delay_ = static_cast<std::uint64_t>(std::max<std::int64_t>(aim_, 0)) + random_() % kStep;
    right_delay_ = static_cast<std::uint64_t>(std::max<std::int64_t>(-aim_, 0)) + random_() % kStep;
    const std::uint64_t round = start_.fetch_add(1) + 1;
    meet(ready_, round);
    delay(left_delay_);
    left_();
    meet(done_, round);
  }
  // Tells which was first, so that the next round is a little the other way.
  void left_was_late(bool late) noexcept {
    aim_ = std::clamp<std::int64_t>(aim_ + (late ? -kStep : kStep), -kFarthest, kFarthest);
  }

 private:
  static constexpr std::int64_t kStep = 64;  // of a loop that takes about a cycle each
  static constexpr std::int64_t kFarthest = 200'000;

  // Gives way late: on busy CPUs two that yield at once never run at the same time.
  static void meet(const std::atomic<std::uint64_t>& word, std::uint64_t round) {
    constexpr unsigned kLooks = 1U << 20;
    for (unsigned looks = 0; word.load(std::memory_order_acquire) < round; ++looks)
      if (looks % kLooks == kLooks - 1) std::this_thread::yield();
  }
  static void delay(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) asm volatile("" ::: "memory");
  }

  void help() {
    stay_on(cpus_, 1);
    for (std::uint64_t round = 1;; ++round) {
      meet(start_, round);
      if (stop_) return;
      ready_.store(round, std::memory_order_release);
      delay(right_delay_);
      right_();
      done_.store(round, std::memory_order_release);
    }
  }

  const std::function<void()> left_;
  const std::function<void()> right_;
  const cpu_set_t cpus_ = usable();
  std::minstd_rand random_{5};
  std::int64_t aim_ = 0;  // steps by which the left one starts later
  std::uint64_t left_delay_ = 0;
  std::uint64_t right_delay_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> start_{0};
  std::atomic<std::uint64_t> ready_{0};
  std::atomic<std::uint64_t> done_{0};
  std::thread helper_{[this] { help(); }};
};

// So many rounds, or as many as there is time for.
class Rounds {
 public:
  explicit Rounds(int most) : most_(most) {}
  bool next() { return done_ < most_ && now_ns() < ends_ && ++done_ > 0; }
  int done() const noexcept { return done_; }

 private:
  const int most_;
  const Nanoseconds ends_ = now_ns() + 6 * kSecond;
  int done_ = 0;
};

constexpr char kNeverMet[] = "the two threads never ran at the same time: too few CPUs, or too busy";

}  // namespace

TEST(whoever_sleeps_as_a_frame_is_sent_sees_it_or_is_rung_for) {
  Rounds rounds(60'000);
  Pair pair;
  std::uint64_t sequence = 0;
  Progress sent = Progress::done;
  bool slept = false;
  const auto send = [&] {
    Frame frame(++sequence, 10);
    sent = pair.client->send(frame.out);
  };
  Together both(send, [&] { slept = pair.server->arm(); });
  Kept kept;
  int lost = 0;
  int sleeps = 0;
  while (rounds.next()) {
    both.run();
    if (sent != Progress::done || (slept && !readable(pair.server->descriptor()))) ++lost;
    if (slept) ++sleeps;
    both.left_was_late(slept);
    pair.server->receive(kept, kBudget);
  }
  CHECK(lost == 0);
  CHECK(kept.frames == static_cast<std::uint64_t>(rounds.done()) && kept.spoiled == 0);
  if (sleeps == 0 || sleeps == rounds.done()) SKIP(kNeverMet);
}

TEST(whoever_blocks_as_room_is_made_sees_it_or_is_rung_for) {
  static_assert(kRing == 65536);
  constexpr std::size_t kHeader = sizeof(wire::FrameHeader);
  Rounds rounds(20'000);
  Pair pair;
  Kept kept;
  std::unique_ptr<Frame> last;
  Progress sent = Progress::done;
  Together both([&] { sent = pair.client->send(last->out); }, [&] { pair.server->receive(kept, 1); });
  int lost = 0;
  int blocked = 0;
  while (rounds.next()) {
    // Records of 8192, 32768 and 24512 bytes from the beginning of the ring: all but the line of the next mark.
    Frame first(1, 8184 + 32760 + 24504 - kHeader);
    CHECK(pair.client->send(first.out) == Progress::done);
    CHECK(pair.server->receive(kept, 1) == Progress::done);
    // The 8192 that were taken, as 64 at the end of the ring and 8128 at its beginning.
    Frame second(2, 56 + 8120 - kHeader);
    CHECK(pair.client->send(second.out) == Progress::done);
    // Half of the ring is free after the next record, and no later record makes up for a bell that is missed there.
    last = std::make_unique<Frame>(3, 1000);
    both.run();
    if (sent == Progress::blocked) ++blocked;
    if (sent == Progress::failed || (sent == Progress::blocked && !readable(pair.client->descriptor()))) ++lost;
    both.left_was_late(sent == Progress::done);
    // Empty the ring, and go on to its end in records of at most 8192 bytes.
    pair.server->receive(kept, kBudget);
    CHECK(sent == Progress::done || pair.client->send(last->out) == Progress::done);
    for (std::size_t left = kRing - 8128 - 1088; left > 0;) {
      const std::size_t record = std::min<std::size_t>(left, 8192);
      Frame filler(4, record - kMarkBytes - kHeader);
      CHECK(pair.client->send(filler.out) == Progress::done);
      pair.server->receive(kept, kBudget);
      left -= record;
    }
    pair.client->receive(kept, kBudget);  // takes the bell
  }
  CHECK(lost == 0);
  CHECK(kept.spoiled == 0);
  if (blocked == 0 || blocked == rounds.done()) SKIP(kNeverMet);
}

TEST(the_last_frame_before_an_end_is_never_overlooked) {
  Rounds rounds(2'000);
  std::unique_ptr<Pair> pair;
  Kept kept;
  const auto say_goodbye = [&] {
    Frame frame(1, 100);
    if (pair->client->send(frame.out) != Progress::done) kept.frames = 1'000'000;
    pair->client->shut_down();
  };
  const auto listen = [&] {
    while (pair->server->receive(kept, kBudget) != Progress::closed) {
    }
  };
  Together both(say_goodbye, listen);
  while (rounds.next()) {
    pair = std::make_unique<Pair>();
    both.run();
  }
  CHECK(kept.frames == static_cast<std::uint64_t>(rounds.done()) && kept.spoiled == 0);
}
