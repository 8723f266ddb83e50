// Two real queue pairs in one process: frames, credits, sleeping, ends.  Needs a RoCE device; soft-RoCE will do.
//
//     OFL_TEST_RDMA_ADDRESS=10.77.0.1 ofl_rdma_tests [--list] [--junit FILE] [CASE...]

#include <atomic>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "check.hpp"
#include "rdma_limits.hpp"
#include "rdma_memlock.hpp"
#include "rdma_pair.hpp"

using namespace ofl;
using namespace rdma_pair;
using wire::FrameType;

namespace {

#define PAIR(name)                                                     \
  Pair name;                                                           \
  {                                                                    \
    const Outcome made_##name = connect_pair(test_address(), name);    \
    if (!made_##name) std::printf("%s\n", made_##name.text.c_str());   \
    CHECK(made_##name);                                                \
    if (!made_##name) return;                                          \
  }

Progress send_body(Channel& channel, std::uint64_t sequence, std::span<const std::byte> body, Inbox& inbox,
                   FrameType type = FrameType::request) {
  const Part part{body.data(), body.size()};
  Outgoing frame(wire::make_header(type, sequence, body.size()), {&part, 1});
  return send_all(channel, frame, inbox);
}

// Answers every frame with its body, on the thread that calls.
void echo(Channel& channel, std::size_t frames) {
  Recorder recorder;
  for (std::size_t i = 0; i < frames; ++i) {
    receive_until(channel, recorder, [&] { return recorder.complete > i; });
    if (recorder.complete <= i) return;
    const Recorder::Frame& frame = recorder.frames[i];
    if (send_body(channel, frame.header.sequence, frame.body, recorder, FrameType::reply) != Progress::done) return;
  }
}

}  // namespace

TEST(frames_of_every_size_come_back_as_they_went) {
  PAIR(pair);
  const std::vector<std::size_t> sizes = {0,     1,     195,   196,   197,    4096,    16359,      16360,
                                          16361, 16384, 32744, 65536, 75'000, 1 << 20, 13'000'000, 64};
  std::thread other([&] { echo(*pair.server, sizes.size()); });
  Recorder recorder;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<std::byte> body = pattern(sizes[i], i);
    CHECK(send_body(*pair.client, i + 1, body, recorder) == Progress::done);
    receive_until(*pair.client, recorder, [&] { return recorder.complete > i; });
    CHECK(recorder.complete == i + 1);
    if (recorder.complete != i + 1) break;
    CHECK(recorder.frames[i].header.sequence == i + 1 && same(recorder.frames[i].body, body));
  }
  pair.client->shut_down();
  other.join();
}

TEST(scattered_parts_arrive_in_order) {
  PAIR(pair);
  const std::vector<std::byte> whole = pattern(100'000, 7);
  std::vector<Part> parts;
  std::mt19937 random(1);
  for (std::size_t at = 0; at < whole.size() && parts.size() < kPartsMax;) {
    std::size_t bytes = parts.size() + 1 == kPartsMax ? whole.size() - at : random() % 3000;
    bytes = std::min(bytes, whole.size() - at);
    parts.push_back({bytes == 0 ? nullptr : whole.data() + at, bytes});
    at += bytes;
  }
  Recorder client;
  Recorder server;
  Outgoing frame(wire::make_header(FrameType::request, 1, whole.size()), parts);
  std::thread reader([&] { receive_until(*pair.server, server, [&] { return server.complete == 1; }); });
  CHECK(send_all(*pair.client, frame, client) == Progress::done);
  reader.join();
  CHECK(server.complete == 1 && same(server.frames[0].body, whole));
}

namespace {

// One end of a flood: a thread that sends and one that receives and tells the other of every turn, as the core has them.
struct FloodEnd {
  FloodEnd(Channel& own, std::uint64_t first, std::size_t count) : channel(own), seed(first), frames(count) {}

  Channel& channel;
  std::uint64_t seed;
  std::size_t frames;
  Recorder recorder;
  std::atomic<bool> sent{false};
  std::atomic<std::uint32_t> turns{0};
  UniqueFd gone{::eventfd(0, EFD_CLOEXEC)};  // readable once all is sent

  static std::size_t size_of(std::mt19937& random) { return random() % 4 == 0 ? random() % 60'000 : random() % 300; }

  void send() {
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    for (std::size_t i = 0; i < frames; ++i) {
      const std::vector<std::byte> body = pattern(size_of(random), seed + i);
      const Part part{body.data(), body.size()};
      Outgoing frame(wire::make_header(FrameType::request, i + 1, body.size()), {&part, 1});
      for (;;) {
        const std::uint32_t turn = turns;
        const Progress progress = channel.send(frame);
        if (progress == Progress::failed) return;
        if (progress == Progress::done) break;
        turns.wait(turn);
      }
    }
    sent = true;
    const std::uint64_t one = 1;
    CHECK(::write(gone.get(), &one, sizeof one) == sizeof one);
  }

  // Until all has come and all has gone; an end of patience ends the connection.
  void receive(std::size_t expected) {
    const Nanoseconds deadline = now_ns() + kPatience;
    for (bool waits = true; waits;) {
      const Progress progress = channel.receive(recorder, 1U << 20);
      turn();
      if (progress == Progress::closed || progress == Progress::failed) return;
      if (recorder.complete == expected && (sent || frames == 0)) return;
      if (progress == Progress::done || !channel.arm()) continue;
      pollfd entries[2] = {{channel.descriptor(), POLLIN, 0}, {sent ? -1 : gone.get(), POLLIN, 0}};
      const timespec left = remaining(deadline);
      waits = ::ppoll(entries, 2, &left, nullptr) > 0;
    }
    channel.shut_down();
    turn();
  }

  void turn() {
    ++turns;
    turns.notify_one();
  }

  bool holds(std::uint64_t peer_seed, std::size_t expected) const {
    std::mt19937 random(static_cast<std::uint32_t>(peer_seed));
    bool good = recorder.complete == expected;
    for (std::size_t i = 0; good && i < expected; ++i)
      good = same(recorder.frames[i].body, pattern(size_of(random), peer_seed + i));
    return good;
  }
};

}  // namespace

TEST(floods_in_both_directions_pass_each_other) {
  PAIR(pair);
  FloodEnd one(*pair.client, 1000, 1500);
  FloodEnd other(*pair.server, 9000, 1500);
  std::thread threads[] = {std::thread([&] { one.send(); }), std::thread([&] { other.send(); }),
                           std::thread([&] { one.receive(1500); }), std::thread([&] { other.receive(1500); })};
  for (std::thread& thread : threads) thread.join();
  CHECK(one.sent && other.sent);
  CHECK(one.holds(9000, 1500));
  CHECK(other.holds(1000, 1500));
}

TEST(a_side_that_only_listens_returns_credits) {
  PAIR(pair);
  FloodEnd one(*pair.client, 5, 1000);
  FloodEnd other(*pair.server, 6, 0);
  std::thread threads[] = {std::thread([&] { one.send(); }), std::thread([&] { other.receive(1000); }),
                           std::thread([&] { one.receive(1); })};
  threads[0].join();
  threads[1].join();
  CHECK(one.sent && other.holds(5, 1000));
  pair.client->shut_down();
  threads[2].join();
}

TEST(a_reader_that_is_away_stops_the_sender_and_nothing_is_lost) {
  PAIR(pair);
  Recorder server;
  Recorder client;
  receive_until(*pair.server, server, [&] { return pair.server->bytes_received() > 0; });
  const std::vector<std::byte> body = pattern(100, 3);
  const Part part{body.data(), body.size()};
  std::size_t sent = 0;
  for (;; ++sent) {
    Outgoing frame(wire::make_header(FrameType::request, sent + 1, body.size()), {&part, 1});
    if (pair.client->send(frame) != Progress::done) break;
    if (sent > 2 * kReceives) break;
  }
  CHECK(sent < kReceives);  // the rest waits for credits
  CHECK(sent >= kReceives - kReserve - 1);
  receive_until(*pair.server, server, [&] { return server.complete == sent; });
  CHECK(server.complete == sent);
  CHECK(send_body(*pair.client, sent + 1, body, client) == Progress::done);
  receive_until(*pair.server, server, [&] { return server.complete == sent + 1; });
  CHECK(server.complete == sent + 1);
}

namespace {

// Sends small requests until they wait for credits; how many went.
std::size_t fill_receives(Channel& channel, std::span<const std::byte> body) {
  const Part part{body.data(), body.size()};
  for (std::size_t sent = 0;; ++sent) {
    Outgoing frame(wire::make_header(FrameType::request, sent + 1, body.size()), {&part, 1});
    if (sent > 2 * kReceives || channel.send(frame) != Progress::done) return sent;
  }
}

}  // namespace

// It sends many times what it has credits for, while every receive that data may take holds a request of the peer's.
TEST(who_reads_nothing_still_sends_and_what_lay_unread_is_whole) {
  PAIR(pair);
  Recorder server;
  receive_until(*pair.server, server, [&] { return pair.server->bytes_received() > 0; });
  const std::vector<std::byte> body = pattern(100, 3);
  const std::size_t unread = fill_receives(*pair.client, body);
  constexpr std::size_t kReplies = 5 * kReceives;
  Recorder client;
  std::thread reader([&] { receive_until(*pair.client, client, [&] { return client.complete == kReplies; }); });
  const Nanoseconds deadline = now_ns() + kPatience;
  const std::uint64_t before = pair.server->bytes_received();
  for (std::size_t sent = 0; sent < kReplies && now_ns() < deadline;) {
    const std::vector<std::byte> text = pattern(200, sent);
    const Part part{text.data(), text.size()};
    Outgoing frame(wire::make_header(FrameType::reply, sent + 1, text.size()), {&part, 1});
    Progress progress = Progress::blocked;
    while ((progress = pair.server->send(frame)) == Progress::blocked && now_ns() < deadline) {
      sleep_on(*pair.server, deadline, Arm::room);
      CHECK(pair.server->take_credits() == Progress::blocked);
    }
    CHECK(progress == Progress::done);
    if (progress != Progress::done) break;
    ++sent;
  }
  CHECK(pair.server->bytes_received() == before);
  reader.join();
  CHECK(client.complete == kReplies);
  for (std::size_t i = 0; i < client.complete; ++i) CHECK(same(client.frames[i].body, pattern(200, i)));
  receive_until(*pair.server, server, [&] { return server.complete == unread; });
  CHECK(server.complete == unread);
  for (std::size_t i = 0; i < server.complete; ++i) CHECK(same(server.frames[i].body, body));
}

TEST(who_reads_nothing_sleeps_although_something_came) {
  PAIR(pair);
  Recorder server;
  receive_until(*pair.server, server, [&] { return pair.server->bytes_received() > 0; });
  CHECK(fill_receives(*pair.client, pattern(100, 3)) > 0);
  const Nanoseconds deadline = now_ns() + kPatience;
  while (!pair.server->readable_now() && now_ns() < deadline) sleep_on(*pair.server, deadline);
  CHECK(pair.server->readable_now());
  CHECK(!pair.server->arm());
  bool sleeps = false;  // the first requests may still wake it
  while (!sleeps && now_ns() < deadline) sleeps = pair.server->arm(Arm::room);
  CHECK(sleeps);
}

TEST(who_reads_nothing_sees_the_end_of_the_peer) {
  PAIR(pair);
  Recorder server;
  receive_until(*pair.server, server, [&] { return pair.server->bytes_received() > 0; });
  CHECK(fill_receives(*pair.client, pattern(100, 3)) > 0);
  pair.client.reset();
  const Nanoseconds deadline = now_ns() + kPatience;
  Progress end = Progress::blocked;
  while ((end = pair.server->take_credits()) == Progress::blocked && now_ns() < deadline)
    sleep_on(*pair.server, deadline, Arm::room);
  CHECK(end == Progress::closed);
}

TEST(the_server_is_silent_until_it_has_heard_the_client) {
  UniqueFd ends[2];
  CHECK(connect_control(test_address(), ends[0], ends[1]));
  const std::unique_ptr<Link> client = make_rdma_link();
  const std::unique_ptr<Link> server = make_rdma_link();
  CHECK(client->open(Role::client, ends[0].get(), 1U << 20));
  CHECK(server->open(Role::server, ends[1].get(), 1U << 20));
  CHECK(server->join(client->ours(), {}));
  std::unique_ptr<Channel> channel;
  CHECK(server->finish(std::move(ends[1]), channel));
  if (!channel) return;
  Outgoing frame(wire::make_header(FrameType::heartbeat, 0, 0), {});
  CHECK(channel->send(frame) == Progress::blocked);  // the client's queue pair is not ready yet
  CHECK(client->join(server->ours(), {}));
  std::unique_ptr<Channel> other;
  CHECK(client->finish(std::move(ends[0]), other));
  Recorder recorder;
  receive_until(*channel, recorder, [&] { return channel->bytes_received() > 0; });
  CHECK(channel->send(frame) == Progress::done);
}

// Both sides sleep before every message: a wake-up that got lost would be the end of patience.
TEST(every_message_wakes_a_sleeper) {
  PAIR(pair);
  constexpr std::size_t kTrips = 2000;
  std::thread other([&] { echo(*pair.server, kTrips); });
  Recorder recorder;
  const std::vector<std::byte> body = pattern(64, 1);
  std::size_t trips = 0;
  for (; trips < kTrips; ++trips) {
    if (send_body(*pair.client, trips + 1, body, recorder) != Progress::done) break;
    receive_until(*pair.client, recorder, [&] { return recorder.complete > trips; });
    if (recorder.complete != trips + 1) break;
  }
  CHECK(trips == kTrips);
  pair.client->shut_down();
  other.join();
}

TEST(a_retracted_body_is_dropped_and_the_stream_goes_on) {
  PAIR(pair);
  Recorder server;
  Recorder client;
  const std::vector<std::byte> body = pattern(3 * kSegmentBytes, 1);
  std::thread sender([&] {
    send_body(*pair.client, 1, body, client);
    send_body(*pair.client, 2, pattern(10, 2), client);
  });
  // One segment at a time, so that the body is on its way when it is retracted.
  const Nanoseconds deadline = now_ns() + kPatience;
  while (!(pair.server->mid_frame() && !server.frames.empty()) && now_ns() < deadline)
    if (pair.server->receive(server, 1) == Progress::blocked) sleep_on(*pair.server, deadline);
  CHECK(pair.server->mid_frame());
  const std::vector<std::byte> before = server.frames[0].body;
  std::byte* const memory = server.frames[0].body.data();
  pair.server->retract(memory);
  server.frames.reserve(8);
  receive_until(*pair.server, server, [&] { return server.complete == 2; });
  sender.join();
  CHECK(server.complete == 2 && same(server.frames[0].body, before));
  CHECK(same(server.frames[1].body, pattern(10, 2)));
}

TEST(what_was_said_before_the_end_arrives_before_the_end) {
  PAIR(pair);
  Recorder recorder;
  Recorder mine;
  CHECK(send_body(*pair.client, 1, pattern(75'000, 1), mine) == Progress::done);
  CHECK(send_body(*pair.client, 0, pattern(20, 2), mine, FrameType::close) == Progress::done);
  pair.client.reset();
  const Progress end = receive_until(*pair.server, recorder, [] { return false; });
  CHECK(end == Progress::closed);
  CHECK(recorder.complete == 2);
  CHECK(recorder.complete == 2 && same(recorder.frames[1].body, pattern(20, 2)));
}

TEST(a_goodbye_survives_the_shutdown_that_follows_it) {
  PAIR(pair);
  Recorder recorder;
  Recorder mine;
  CHECK(send_body(*pair.client, 0, pattern(20, 2), mine, FrameType::close) == Progress::done);
  pair.client->shut_down();
  CHECK(receive_until(*pair.server, recorder, [] { return false; }) == Progress::closed);
  CHECK(recorder.complete == 1);
}

TEST(the_end_of_sending_is_seen_after_what_was_sent) {
  PAIR(pair);
  Recorder server;
  Recorder client;
  receive_until(*pair.server, server, [&] { return pair.server->bytes_received() > 0; });
  CHECK(send_body(*pair.server, 0, pattern(30, 1), server, FrameType::close) == Progress::done);
  pair.server->end_sending();
  CHECK(receive_until(*pair.client, client, [] { return false; }) == Progress::closed);
  CHECK(client.complete == 1);
  // The other direction still works.
  CHECK(send_body(*pair.client, 1, pattern(40, 2), client) == Progress::done);
  receive_until(*pair.server, server, [&] { return server.complete == 1; });
  CHECK(server.complete == 1);
}

TEST(a_shutdown_wakes_a_sleeper_and_fails_later_calls) {
  PAIR(pair);
  std::atomic<bool> woken{false};
  std::thread sleeper([&] {
    Recorder recorder;
    CHECK(receive_until(*pair.client, recorder, [] { return false; }) == Progress::closed);
    woken = true;
  });
  pair.client->shut_down();
  sleeper.join();
  CHECK(woken);
  Outgoing frame(wire::make_header(FrameType::heartbeat, 0, 0), {});
  CHECK(pair.client->send(frame) == Progress::failed);
  CHECK(!pair.client->arm());
  CHECK(pair.client->readable_now());
  pair.client->shut_down();  // again, to no effect
}

TEST(an_abrupt_end_of_the_peer_closes_the_channel) {
  PAIR(pair);
  pair.client->shut_down();
  Recorder recorder;
  CHECK(receive_until(*pair.server, recorder, [] { return false; }) == Progress::closed);
}

TEST(a_byte_on_the_control_socket_breaks_the_protocol) {
  PAIR(pair);
  CHECK(::send(pair.client->hangup_descriptor(), "x", 1, MSG_NOSIGNAL) == 1);
  Recorder recorder;
  CHECK(receive_until(*pair.server, recorder, [] { return false; }) == Progress::failed);
  CHECK(std::strstr(pair.server->fault(), "control socket") != nullptr);
}

TEST(connections_come_and_go_without_a_trace) {
  const auto descriptors = [] {
    std::size_t count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1U : 0U;
    return count;
  };
  { PAIR(first); }  // what stays for the process's life: the device
  const std::size_t before = descriptors();
  const std::uint64_t pinned = locked_memory().pinned_bytes;
  for (int i = 0; i < 100; ++i) {
    PAIR(pair);
  }
  CHECK(descriptors() == before);
  CHECK(locked_memory().pinned_bytes == pinned);
}
