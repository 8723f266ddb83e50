// Placements: bodies that the server writes into the client's registered memory, and what keeps them out of it.

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>

#include "check.hpp"
#include "rdma_device.hpp"
#include "rdma_limits.hpp"
#include "rdma_pair.hpp"

using namespace ofl;
using namespace rdma_pair;
using wire::FrameType;

namespace {

constexpr std::size_t kMargin = 64;  // bytes before and after a placement that must stay as they are

// A pair, and memory of the client with its margins.
struct Place {
  Pair pair;
  std::shared_ptr<Memory> memory;
  Recorder client;
  Recorder server;

  Outcome open(std::size_t bytes) {
    Outcome outcome = connect_pair(test_address(), pair);
    if (outcome) outcome = Memory::create(nullptr, bytes + 2 * kMargin, false, memory);
    if (outcome) outcome = memory->register_with(*pair.client->registrar());
    if (!outcome) return outcome;
    fill(memory->bytes(), 99);
    receive_until(*pair.server, server, [&] { return pair.server->bytes_received() > 0; });
    return outcome;
  }

  wire::PlacementRecord where(std::size_t bytes) const {
    return {reinterpret_cast<std::uintptr_t>(memory->bytes().data() + kMargin),
            memory->registration(*pair.client->registrar())->remote_key(), static_cast<std::uint32_t>(bytes)};
  }

  bool margins_hold(std::size_t bytes) const {
    std::vector<std::byte> expected = pattern(memory->bytes().size(), 99);
    const auto whole = memory->bytes();
    const std::span<const std::byte> wanted(expected);
    return same(whole.first(kMargin), wanted.first(kMargin)) &&
           same(whole.subspan(kMargin + bytes), wanted.subspan(kMargin + bytes));
  }

  // The server places the parts as the answer to call `sequence`, while the client takes what comes.
  bool place(std::uint64_t sequence, std::span<const Part> parts, Memory* lent = nullptr) {
    std::size_t bytes = 0;
    for (const Part& part : parts) bytes += part.bytes;
    const std::size_t before = client.placements.size();
    Progress sent = Progress::failed;
    std::thread writer([&] {
      Outgoing frame(wire::make_header(FrameType::reply, sequence, bytes), parts, lent);
      const wire::PlacementRecord record = where(bytes);
      sent = send_all(*pair.server, frame, server, &record);
    });
    receive_until(*pair.client, client, [&] { return client.placements.size() > before; });
    writer.join();
    return sent == Progress::done && client.placements.size() == before + 1 &&
           client.placements.back().slot == wire::slot_of(sequence).index && client.placements.back().bytes == bytes;
  }

  std::span<const std::byte> landed(std::size_t bytes) const { return memory->bytes().subspan(kMargin, bytes); }
};

#define PLACE(name, bytes)                                             \
  Place name;                                                          \
  {                                                                    \
    const Outcome opened_##name = name.open(bytes);                    \
    if (!opened_##name) std::printf("%s\n", opened_##name.text.c_str()); \
    CHECK(opened_##name);                                              \
    if (!opened_##name) return;                                        \
  }

}  // namespace

TEST(a_placement_of_every_size_lands_where_it_belongs) {
  for (const std::size_t bytes : std::initializer_list<std::size_t>{
           0, 1, 220, 221, kSegmentBytes - 1, kSegmentBytes, kSegmentBytes + 1, 5 * kSegmentBytes, 1'000'003, 13'000'000}) {
    PLACE(place, bytes);
    const std::vector<std::byte> body = pattern(bytes, bytes);
    const Part part{body.data(), body.size()};
    CHECK(place.place(bytes + 1, {&part, 1}));
    CHECK(same(place.landed(bytes), body));
    CHECK(place.margins_hold(bytes));
  }
}

TEST(lent_memory_is_written_without_a_copy_and_given_back) {
  for (const std::size_t bytes : std::initializer_list<std::size_t>{4096, kSegmentBytes + 1, 1'000'003, 13'000'000}) {
    PLACE(place, bytes);
    std::shared_ptr<Memory> source;
    CHECK(Memory::create(nullptr, bytes, false, source));
    CHECK(source->register_with(*place.pair.server->registrar()));
    fill(source->bytes(), bytes);
    const Part part{source->bytes().data(), bytes};
    CHECK(place.place(7, {&part, 1}, source.get()));
    CHECK(same(place.landed(bytes), source->bytes().first(bytes)));
    CHECK(place.margins_hold(bytes));
    const Nanoseconds deadline = now_ns() + kPatience;
    while (!source->idle() && now_ns() < deadline) place.pair.server->reap();
    CHECK(source->idle());
  }
}

// A write without an immediate is none to the CPU of the client, and what is said after the placement lies behind it.
TEST(a_long_placement_shows_life_with_every_mebibyte) {
  constexpr std::size_t kBytes = 5'000'000;  // four times a mebibyte, and a rest
  for (const bool lent : {false, true}) {
    PLACE(place, kBytes);
    std::shared_ptr<Memory> source;
    CHECK(Memory::create(nullptr, kBytes, false, source));
    CHECK(source->register_with(*place.pair.server->registrar()));
    fill(source->bytes(), 8);
    const Part part{source->bytes().data(), kBytes};
    CHECK(place.place(2, {&part, 1}, lent ? source.get() : nullptr));
    CHECK(place.client.heartbeats == 4);
    CHECK(same(place.landed(kBytes), source->bytes().first(kBytes)));
    CHECK(place.margins_hold(kBytes));
  }
}

TEST(lent_and_copied_parts_make_one_body) {
  const std::size_t bytes = 200'000;
  PLACE(place, 2 * bytes);
  std::shared_ptr<Memory> source;
  CHECK(Memory::create(nullptr, bytes, false, source));
  CHECK(source->register_with(*place.pair.server->registrar()));
  fill(source->bytes(), 5);
  const std::byte* const lent = source->bytes().data();
  const std::vector<std::byte> loose = pattern(3000, 6);
  // Long and short parts of lent memory, and parts that lie elsewhere.
  const Part parts[] = {{loose.data(), 40}, {lent, 100'000}, {loose.data() + 40, 2960}, {lent + 100'000, 10}, {lent + 100'010, 99'990}};
  CHECK(place.place(8, parts, source.get()));
  std::vector<std::byte> expected;
  for (const Part& part : parts) {
    const auto* base = static_cast<const std::byte*>(part.base);
    expected.insert(expected.end(), base, base + part.bytes);
  }
  CHECK(same(place.landed(expected.size()), expected));
  CHECK(place.margins_hold(expected.size()));
  // More pieces than one send takes: everything is copied.
  std::vector<Part> many;
  for (std::size_t i = 0; i < 40; ++i) many.push_back({lent + i * 4000, 4000});
  CHECK(place.place(9, many, source.get()));
  CHECK(same(place.landed(160'000), source->bytes().first(160'000)));
}

TEST(a_request_from_lent_memory_arrives_like_any_other) {
  PLACE(place, 64);
  std::shared_ptr<Memory> source;
  CHECK(Memory::create(nullptr, 75'000, false, source));
  CHECK(source->register_with(*place.pair.client->registrar()));
  fill(source->bytes(), 3);
  const Part part{source->bytes().data(), 75'000};
  Outgoing frame(wire::make_header(FrameType::request, 1, 75'000), {&part, 1}, source.get());
  std::thread reader([&] { receive_until(*place.pair.server, place.server, [&] { return place.server.complete == 1; }); });
  CHECK(send_all(*place.pair.client, frame, place.client) == Progress::done);
  reader.join();
  CHECK(place.server.complete == 1 && same(place.server.frames[0].body, source->bytes().first(75'000)));
  const Nanoseconds deadline = now_ns() + kPatience;
  while (!source->idle() && now_ns() < deadline) place.pair.client->reap();
  CHECK(source->idle());
}

// A call ends with its reply, which may come long before anybody takes the completion of its request.
TEST(lent_memory_that_its_owner_let_go_of_lives_until_the_completion_is_taken) {
  PLACE(place, 64);
  std::shared_ptr<Memory> source;
  CHECK(Memory::create(nullptr, 75'000, false, source));
  CHECK(source->register_with(*place.pair.client->registrar()));
  const Part part{source->bytes().data(), 75'000};
  Outgoing frame(wire::make_header(FrameType::request, 1, 75'000), {&part, 1}, source.get());
  std::thread reader([&] { receive_until(*place.pair.server, place.server, [&] { return place.server.complete == 1; }); });
  CHECK(send_all(*place.pair.client, frame, place.client) == Progress::done);
  reader.join();
  CHECK(place.server.complete == 1);
  const std::weak_ptr<Memory> seen = source;
  source.reset();
  CHECK(!seen.expired());
  const Nanoseconds deadline = now_ns() + kPatience;
  while (!seen.expired() && now_ns() < deadline) place.pair.client->reap();
  CHECK(seen.expired());
}

TEST(bounce_memory_is_copied_because_its_twin_is_what_the_device_knows) {
  PLACE(place, 100'000);
  std::shared_ptr<Memory> source;
  CHECK(Memory::create(nullptr, 100'000, true, source));
  CHECK(source->register_with(*place.pair.server->registrar()));
  fill(source->bytes(), 4);
  const Part part{source->bytes().data(), 100'000};
  CHECK(place.place(3, {&part, 1}, source.get()));
  CHECK(same(place.landed(100'000), source->bytes().first(100'000)));
  CHECK(source->idle());
}

namespace {

// A device that refuses, while this lives, to put queue pairs into error, and more.  There is one at a time.
class Refusing {
 public:
  enum What { error, error_and_reset, all };

  // `lent`: looked at when a queue pair is to be destroyed; nullptr: none.
  Refusing(Registrar& device, What what, const Memory* lent = nullptr)
      : table_(const_cast<Verbs&>(static_cast<RdmaDevice&>(device).verbs())) {
    real_ = table_;
    what_ = what;
    lent_ = lent;
    destroyed_ = still_lent_ = 0;
    table_.modify_qp = [](ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
      const bool refused =
          attributes->qp_state == IBV_QPS_ERR || (attributes->qp_state == IBV_QPS_RESET && what_ != error);
      return refused ? EIO : real_.modify_qp(pair, attributes, mask);
    };
    table_.destroy_qp = [](ibv_qp* pair) {
      if (what_ == all) return EIO;
      ++destroyed_;
      if (lent_ != nullptr && !lent_->idle()) ++still_lent_;
      return real_.destroy_qp(pair);
    };
  }
  ~Refusing() { table_ = real_; }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;

  int destroyed() const { return destroyed_; }    // how many
  int still_lent() const { return still_lent_; }  // how many of them with `lent` not given back

 private:
  Verbs& table_;
  static inline Verbs real_{};
  static inline What what_ = error;
  static inline const Memory* lent_ = nullptr;
  static inline int destroyed_ = 0;
  static inline int still_lent_ = 0;
};

// The server writes without end; once the client has shut down, its memory stays as it is while the server goes on trying.
void shut_down_under_writes(const std::function<void(Channel&)>& shut_down) {
  constexpr std::size_t kBytes = 4'000'000;
  PLACE(place, kBytes);
  std::atomic<bool> landed{false};
  std::atomic<std::uint64_t> after{0};
  std::atomic<bool> down{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1;; ++i) {
      const std::vector<std::byte> body = pattern(kBytes, i);
      const Part part{body.data(), body.size()};
      Outgoing frame(wire::make_header(FrameType::reply, i, kBytes), {&part, 1});
      const wire::PlacementRecord record = place.where(kBytes);
      Progress progress = Progress::blocked;
      while (progress == Progress::blocked) {
        progress = place.pair.server->place(record, frame);
        if (down) ++after;
        // Its control socket ends, but this server does not look: it goes on until the device fails it.
        if (progress == Progress::blocked) place.pair.server->poll(place.server, 1U << 20);
        if (down && after > 2000) return;
      }
      if (progress != Progress::done) return;
    }
  });
  receive_until(*place.pair.client, place.client, [&] { return !place.client.placements.empty(); });
  landed = !place.client.placements.empty();
  shut_down(*place.pair.client);
  const std::vector<std::byte> seen(place.landed(kBytes).begin(), place.landed(kBytes).end());
  down = true;
  writer.join();
  CHECK(landed);
  CHECK(after > 0);
  CHECK(same(place.landed(kBytes), seen));
}

}  // namespace

TEST(no_placement_lands_after_a_shutdown) {
  for (int round = 0; round < 5; ++round) shut_down_under_writes([](Channel& client) { client.shut_down(); });
}

TEST(no_placement_lands_after_a_shutdown_whatever_the_device_refuses_on_the_way) {
  for (const Refusing::What what : {Refusing::error, Refusing::error_and_reset}) {
    for (int round = 0; round < 3; ++round) {
      shut_down_under_writes([&](Channel& client) {
        const Refusing refusing(*client.registrar(), what);
        client.shut_down();
        CHECK(refusing.destroyed() == (what == Refusing::error_and_reset ? 1 : 0));
      });
    }
  }
}

TEST(lent_memory_comes_back_when_the_connection_is_shut_down) {
  PLACE(place, 1'000'000);
  std::shared_ptr<Memory> source;
  CHECK(Memory::create(nullptr, 1'000'000, false, source));
  CHECK(source->register_with(*place.pair.server->registrar()));
  const Part part{source->bytes().data(), 1'000'000};
  Outgoing frame(wire::make_header(FrameType::reply, 1, 1'000'000), {&part, 1}, source.get());
  CHECK(place.pair.server->place(place.where(1'000'000), frame) == Progress::done);
  CHECK(!source->idle());
  place.pair.server->shut_down();
  place.pair.server->reap();
  CHECK(source->idle());
}

namespace {

// The server places from memory that it lends, and nobody takes the completions.
void place_from(Place& place, std::shared_ptr<Memory>& source) {
  constexpr std::size_t kBytes = 1'000'000;
  CHECK(Memory::create(nullptr, kBytes, false, source));
  CHECK(source->register_with(*place.pair.server->registrar()));
  const Part part{source->bytes().data(), kBytes};
  Outgoing frame(wire::make_header(FrameType::reply, 1, kBytes), {&part, 1}, source.get());
  CHECK(place.pair.server->place(place.where(kBytes), frame) == Progress::done);
  CHECK(!source->idle());
}

}  // namespace

TEST(lent_memory_comes_back_once_the_queue_pair_is_reset_or_destroyed) {
  for (const Refusing::What what : {Refusing::error, Refusing::error_and_reset}) {
    PLACE(place, 1'000'000);
    std::shared_ptr<Memory> source;
    place_from(place, source);
    const Refusing refusing(*place.pair.server->registrar(), what, source.get());
    place.pair.server->shut_down();
    CHECK(source->idle());
    const int destroyed = what == Refusing::error_and_reset ? 1 : 0;
    CHECK(refusing.destroyed() == destroyed && refusing.still_lent() == destroyed);
  }
}

TEST(memory_stays_lent_to_a_device_that_does_not_let_go_of_it) {
  for (const bool lets_go_at_last : {true, false}) {
    PLACE(place, 1'000'000);
    std::shared_ptr<Memory> source;
    place_from(place, source);
    Registrar& device = *place.pair.server->registrar();
    {
      const Refusing refusing(device, Refusing::all);
      place.pair.server->shut_down();
      CHECK(!source->idle());
      if (!lets_go_at_last) place.pair.server.reset();
    }
    place.pair.server.reset();
    CHECK(source->idle() == lets_go_at_last);
  }
}
