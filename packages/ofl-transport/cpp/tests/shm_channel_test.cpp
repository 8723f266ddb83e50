// Frames over shared memory within one process: bodies, budgets, sleeping and waking.

#include <random>
#include <thread>

#include "shm_pair.hpp"

using namespace ofl;
using namespace shm_pair;

TEST(bodies_of_every_size_around_the_edges_arrive_whole) {
  Pair pair;
  Kept kept;
  std::uint64_t sequence = 0;
  for (const std::size_t edge : {std::size_t{0}, std::size_t{32}, std::size_t{96}, std::size_t{4096}, std::size_t{8192},
                                 std::size_t{32768}, kRing / 2}) {
    for (std::size_t bytes = edge - std::min<std::size_t>(edge, 40); bytes <= edge + 40; ++bytes) {
      ++sequence;
      CHECK(send_now(*pair.client, sequence, bytes));
      CHECK(pair.server->receive(kept, kBudget) == Progress::blocked);
      CHECK(kept.frames == sequence && kept.sequence == sequence && kept.body.size() == bytes);
    }
  }
  CHECK(kept.spoiled == 0);
}

TEST(bodies_larger_than_the_ring_arrive_in_both_directions_at_once) {
  Pair pair;
  const auto end = [](ShmChannel& channel) {
    Kept kept;
    std::thread sender([&channel] {
      for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
        Frame frame(sequence, sequence * 50'000, sequence);
        // Without sleeping: one thread of an end sleeps at a time, and that is the one that receives.
        while (channel.send(frame.out) == Progress::blocked) std::this_thread::yield();
      }
    });
    const bool all = receive_until(channel, kept, 20);
    sender.join();
    return all && kept.spoiled == 0;
  };
  bool client_good = false;
  std::thread client([&] { client_good = end(*pair.client); });
  CHECK(end(*pair.server));
  client.join();
  CHECK(client_good);
}

TEST(a_frame_of_many_parts_is_one_body) {
  Pair pair;
  Kept kept;
  for (std::uint64_t count = 1; count <= kPartsMax + 1; ++count) {
    Frame frame(count, 1000 + count, count);
    CHECK(pair.client->send(frame.out) == Progress::done);
    CHECK(pair.server->receive(kept, kBudget) == Progress::blocked);
  }
  CHECK(kept.frames == kPartsMax + 1 && kept.spoiled == 0);
}

TEST(poll_ends_after_each_frame_and_receive_takes_all) {
  Pair pair;
  for (std::uint64_t sequence = 1; sequence <= 5; ++sequence) CHECK(send_now(*pair.client, sequence, 100));
  Kept kept;
  CHECK(pair.server->poll(kept, kBudget) == Progress::done);
  CHECK(kept.frames == 1);
  CHECK(pair.server->readable_now());
  CHECK(pair.server->receive(kept, kBudget) == Progress::blocked);
  CHECK(kept.frames == 5 && kept.spoiled == 0);
  CHECK(!pair.server->readable_now());
  CHECK(pair.server->poll(kept, kBudget) == Progress::blocked);
  CHECK(pair.server->bytes_received() == 5 * (100 + sizeof(wire::FrameHeader)));
}

TEST(a_budget_ends_a_receive_early) {
  Pair pair;
  for (std::uint64_t sequence = 1; sequence <= 5; ++sequence) CHECK(send_now(*pair.client, sequence, 1000));
  Kept kept;
  CHECK(pair.server->receive(kept, 1500) == Progress::done);
  CHECK(kept.frames == 2);
}

TEST(a_retracted_body_touches_its_memory_no_more_and_the_next_frame_is_whole) {
  Pair pair;
  Frame large(1, 2 * kRing);
  CHECK(pair.client->send(large.out) == Progress::blocked);
  Kept kept;
  CHECK(pair.server->poll(kept, 1) == Progress::done);
  CHECK(pair.server->mid_frame());
  const std::size_t landed = pair.server->bytes_received() - sizeof(wire::FrameHeader);
  pair.server->retract(kept.body.data());
  while (kept.frames == 0) {
    pair.server->receive(kept, kBudget);
    pair.client->send(large.out);
  }
  CHECK(kept.body[landed - 1] == byte_of(1, landed - 1));
  for (std::size_t i = landed; i < kept.body.size(); ++i) CHECK(kept.body[i] == std::byte{0xEE});
  CHECK(send_now(*pair.client, 2, 500));
  pair.server->receive(kept, kBudget);
  CHECK(kept.frames == 2 && kept.spoiled == 1 && kept.sequence == 2);
}

TEST(nobody_is_woken_who_does_not_sleep) {
  Pair pair;
  Kept kept;
  for (std::uint64_t sequence = 1; sequence <= 2000; ++sequence) {
    CHECK(send_now(*pair.client, sequence, 300));
    pair.server->poll(kept, kBudget);
  }
  CHECK(bells(*pair.server) == 0 && bells(*pair.client) == 0);
}

TEST(a_sleeper_is_woken_once) {
  Pair pair;
  CHECK(pair.server->arm());
  CHECK(!readable(pair.server->descriptor()));
  for (std::uint64_t sequence = 1; sequence <= 10; ++sequence) CHECK(send_now(*pair.client, sequence, 10));
  CHECK(readable(pair.server->descriptor()));
  CHECK(bells(*pair.server) == 1);
  CHECK(!pair.server->arm());  // there is something already
  Kept kept;
  CHECK(pair.server->receive(kept, kBudget) == Progress::blocked);
  CHECK(pair.server->arm());
  CHECK(send_now(*pair.client, 11, 10));
  CHECK(readable(pair.server->descriptor()));
}

TEST(a_blocked_send_is_woken_when_half_of_the_ring_is_free) {
  Pair pair;
  Frame large(1, 2 * kRing);
  CHECK(pair.client->send(large.out) == Progress::blocked);
  CHECK(large.out.sent() > kRing / 2 && large.out.sent() < kRing);
  CHECK(pair.client->arm());
  CHECK(!readable(pair.client->descriptor()));
  Kept kept;
  std::size_t budget_calls = 0;
  while (!readable(pair.client->descriptor())) {
    CHECK(pair.server->receive(kept, 1) != Progress::failed);
    if (++budget_calls > 100) break;
  }
  CHECK(pair.server->bytes_received() >= kRing / 2 - kLineBytes && pair.server->bytes_received() < kRing);
  CHECK(bells(*pair.client) == 1);
  const std::size_t before = large.out.sent();
  CHECK(pair.client->send(large.out) == Progress::blocked);
  CHECK(large.out.sent() > before);
  while (kept.frames == 0) {
    pair.server->receive(kept, kBudget);
    pair.client->send(large.out);
  }
  CHECK(kept.spoiled == 0);
}

TEST(a_bell_for_room_is_not_lost_to_a_look_for_data) {
  Pair pair;
  Frame large(1, 2 * kRing);
  CHECK(pair.client->send(large.out) == Progress::blocked);
  Kept kept;
  CHECK(pair.server->receive(kept, kBudget) == Progress::blocked);  // rings for room
  CHECK(pair.client->receive(kept, kBudget) == Progress::blocked);  // another thread looks for data meanwhile
  CHECK(readable(pair.client->descriptor()));
  CHECK(!pair.client->arm());  // takes the bell, and says so: there is room
  CHECK(pair.client->send(large.out) != Progress::failed);
}

// Ping-pong of two threads that sleep before every frame, at every moment that a sleep can meet a write.
TEST(no_wake_up_is_lost_between_two_that_sleep_all_the_time) {
  constexpr std::uint64_t kRounds = 30'000;
  Pair pair;
  const auto pause = [](std::minstd_rand& random) {
    for (auto i = random() % 400; i > 0; --i) relax();
  };
  bool echoed = true;
  std::thread echo([&] {
    std::minstd_rand random(1);
    Kept kept;
    for (std::uint64_t round = 1; round <= kRounds && echoed; ++round) {
      echoed = receive_until(*pair.server, kept, round);
      pause(random);
      echoed = echoed && send_now(*pair.server, round, round % 100);
    }
    echoed = echoed && kept.spoiled == 0;
    if (!echoed) pair.server->shut_down();
  });
  std::minstd_rand random(2);
  Kept kept;
  std::uint64_t round = 1;
  for (; round <= kRounds; ++round) {
    if (!send_now(*pair.client, round, round % 200)) break;
    pause(random);
    if (!receive_until(*pair.client, kept, round)) break;
  }
  CHECK(round == kRounds + 1);
  CHECK(kept.spoiled == 0);
  pair.client->shut_down();
  echo.join();
  CHECK(echoed);
}

// One way, through a ring that is always full or always empty: both kinds of sleep, many times.
TEST(no_wake_up_is_lost_between_a_fast_writer_and_a_slow_reader_and_the_other_way_round) {
  constexpr std::uint64_t kFrames = 20'000;
  Pair pair;
  bool all = false;
  Kept kept;
  std::thread reader([&] {
    std::minstd_rand random(3);
    all = true;
    for (std::uint64_t frames = 1; frames <= kFrames && all; ++frames) {
      all = receive_until(*pair.server, kept, frames);
      if (random() % 3000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // slow for a while
    }
    if (!all) pair.server->shut_down();
  });
  std::minstd_rand random(4);
  std::uint64_t sequence = 1;
  for (; sequence <= kFrames; ++sequence) {
    Frame frame(sequence, random() % 20 == 0 ? random() % (2 * kRing) : random() % 1000);
    if (!send_all(*pair.client, frame.out)) break;
    if (random() % 3000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  reader.join();
  CHECK(sequence == kFrames + 1);
  CHECK(all && kept.frames == kFrames && kept.spoiled == 0);
}
